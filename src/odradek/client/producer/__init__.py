"""The producer: records in, batches out, to whichever broker leads their partition.

``producer``             what applications use
``settings``             Kafka's settings, and the options that follow from them
``interceptors``         what applications may hang into it
``routing``              from a topic and a key to a queue
``partitioners``         which partition
``buffer_pool``          how much memory
``accumulator``          batches per partition, and when they are ready        (pure)
``batch``                one batch and its futures                             (pure)
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
from odradek.client.producer.transaction import (
    ProducerFencedError,
    TransactionAbortedError,
    TransactionFailedError,
)

__all__ = [
    "Interceptor",
    "Partitioner",
    "Producer",
    "ProducerFencedError",
    "ProducerRecord",
    "RecordMetadata",
    "RoundRobin",
    "Serializer",
    "TransactionAbortedError",
    "TransactionFailedError",
    "partition_for_key",
]
