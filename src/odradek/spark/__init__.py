"""Topics as Spark DataFrames, through PySpark and Arrow, with no jar.

``spark.read.format("odradek")`` and its three siblings are found without registration, because the
top-level module ``pyspark_odradek`` carries the data source.

``local_session``   a Spark session that works, on a machine with or without Java
``java``            where Java is
``source``          the data source that Spark finds, and its schema
``options``         what can be asked of it, in the names of Spark's Kafka source
``message_first``   what is wrong with options, before the traceback that Spark shows
``offsets``         offsets as Spark keeps them; ranges of them, cut into tasks. Pure
``cluster_access``  the cluster, seen by code that blocks
``planning``        options and a cluster into ranges; what happens to data that is gone
``reading``         a range of one partition into Arrow record batches
``rows``            the rows of a task, from brokers or files, formatted
``stream_reader``   micro-batches
``log_dirs``        batches read from segment files instead of brokers; ``log_files`` reads one log
``formats``         keys and values as typed columns

``sink``            the writers that Spark finds; what is promised and what is not
``sink_options``    what can be asked of them, in the names of Spark's Kafka sink
``writing``         what a task does
``task_markers``    how a task that is run again knows that it was done; ``marker_store`` keeps them
``task_producer``   columns into record batches, in one transaction
``sink_rows``, ``sink_routing``  rows, and which partition each goes to. Pure
``dead_letters``    rows that cannot be written, as records. Pure
``sink_access``     the cluster, seen by tasks that write
"""

from odradek.spark.local_session import session

__all__ = ["session"]
