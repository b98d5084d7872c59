"""The producer: records in, batches out, to whichever broker leads their partition.

``producer``             what applications use
``settings``             Kafka's settings, and the options that follow from them
``interceptors``         what applications may hang into it
``intake``               into a batch that is open, or a new one
``routing``              from a topic and a key to a queue
``partitioners``         which partition
``buffer_pool``          how much memory
``accumulator``          batches per partition, and when they are ready        (pure)
``batch``                one batch and its futures                             (pure)
``row_batch``            batches of a table's rows, and what became of the table (pure)
``arrow_rows``           a table as rows: which of them goes where             (pure)
``arrow_sending``        from a table to batches
``sequences``            producer id, epoch, sequences                         (pure)
``transaction``          the state of a transaction                            (pure)
``delivery``             what an answer means for a batch                      (pure)
``sender``               sends, and looks after what has to be awaited
``produce_requests``     batches as Produce requests
``coordination``         requests to coordinators
``transaction_control``  init, commit and abort
"""

from odradek.client.producer.batch import RecordMetadata
from odradek.client.producer.interceptors import Interceptor, ProducerRecord, Serializer
from odradek.client.producer.partitioners import Partitioner, RoundRobin, partition_for_key
from odradek.client.producer.producer import Producer
from odradek.client.producer.row_batch import OffsetRange, RowsMetadata, RowsNotDeliveredError
from odradek.client.producer.transaction import (
    ProducerFencedError,
    TransactionAbortedError,
    TransactionFailedError,
)

__all__ = [
    "Interceptor",
    "OffsetRange",
    "Partitioner",
    "Producer",
    "ProducerFencedError",
    "ProducerRecord",
    "RecordMetadata",
    "RoundRobin",
    "RowsMetadata",
    "RowsNotDeliveredError",
    "Serializer",
    "TransactionAbortedError",
    "TransactionFailedError",
    "partition_for_key",
]
