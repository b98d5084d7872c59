"""librdkafka, to see what the client under test did."""

import time
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.interop.clients import DEADLINE_SECONDS
from tests.interop.clients.confluent import Confluent
from tests.interop.kafka_peer.golden_readback import NO_LEADER_YET

NOT_YET = (*NO_LEADER_YET, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART)


class Witness(Confluent):
    """Its topics are ready to be written to.

    Kafka answers CreateTopics a moment before the broker leads the partitions. A producer without
    idempotence that begins in this moment tries again, and its records come out of order or twice.
    """

    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        super().create_topic(topic, partitions, configs)
        consumer = self._consumer()
        try:
            for partition in range(partitions):
                _await_leader(consumer, TopicPartition(topic, partition))
        finally:
            consumer.close()


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.02)


def _await_leader(consumer: Consumer, partition: TopicPartition) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            consumer.get_watermark_offsets(partition, DEADLINE_SECONDS)
        except KafkaException as refused:
            if refused.args[0].code() not in NOT_YET or time.monotonic() > deadline:
                raise
        else:
            return
