"""Where Spark looks for ``format("odradek")``: any top-level module ``pyspark_*`` is asked."""

from odradek.spark.source import OdradekDataSource as DefaultSource

__all__ = ["DefaultSource"]
