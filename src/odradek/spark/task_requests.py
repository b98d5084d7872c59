"""Produce requests of a task: one batch each, to whoever leads its partition, until it is said."""

from collections.abc import Callable
from typing import Final

from odradek.client.cluster import Cluster
from odradek.client.errors import BrokerError, ConnectionLostError, KafkaError
from odradek.client.producer.delivery import STALE_METADATA
from odradek.client.producer.produce_requests import VERSION_TOPIC_IDS
from odradek.client.producer.settings import ProducerOptions
from odradek.client.producer.transaction import Transaction
from odradek.core.errors import ErrorCode
from odradek.core.ids import ZERO_UUID, TopicPartition
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

_BY_NAME_MAX: Final = VERSION_TOPIC_IDS - 1
_V1_TRANSACTIONS_MAX: Final = _BY_NAME_MAX - 1
_CODES: Final = {int(code): code for code in ErrorCode}


class TaskRequests:
    def __init__(
        self, cluster: Cluster, options: ProducerOptions, transaction: Transaction | None
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._transaction = transaction

    async def append(self, partition: TopicPartition, batch: bytearray) -> PartitionProduceResponse:
        """Return what the leader says in the end, after what may pass has passed.

        Raises:
            KafkaError: Nobody said anything for ``delivery.timeout.ms``.
        """

        async def attempt() -> PartitionProduceResponse:
            known = await self._cluster.leader(partition)
            try:
                response = await self._cluster.ask(
                    known.leader,
                    self._request(partition, batch),
                    ProduceResponse,
                    version_max=self._version_max(partition),
                )
            except KafkaError:
                await self._cluster.refresh([partition.topic])
                raise
            answer = _only_answer(response)
            code = _CODES.get(answer.error_code, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in STALE_METADATA:
                await self._cluster.refresh([partition.topic])
            if code.retriable:
                raise BrokerError(code, answer.error_message, about=str(partition))
            return answer

        about = f"{partition}: not delivered"
        return await self._cluster.retry(attempt, self._options.delivery_timeout_ms, about=about)

    def _request(
        self, partition: TopicPartition, batch: bytearray
    ) -> Callable[[int], ProduceRequest]:
        def build(version: int) -> ProduceRequest:
            topic = TopicProduceData(
                partition_data=[PartitionProduceData(index=partition.partition, records=batch)]
            )
            if version >= VERSION_TOPIC_IDS:
                topic.topic_id = self._cluster.metadata.topic_id(partition.topic)
            else:
                topic.name = partition.topic
            return ProduceRequest(
                transactional_id=self._options.transactional_id,
                acks=self._options.acks,
                timeout_ms=self._options.request_timeout_ms,
                topic_data=[topic],
            )

        return build

    def _version_max(self, partition: TopicPartition) -> int | None:
        if self._transaction is not None and not self._transaction.is_v2:
            return _V1_TRANSACTIONS_MAX
        is_named = self._cluster.metadata.topic_id(partition.topic) == ZERO_UUID
        return _BY_NAME_MAX if is_named else None


def _only_answer(response: ProduceResponse) -> PartitionProduceResponse:
    answers = [each for topic in response.responses for each in topic.partition_responses]
    if len(answers) != 1:
        raise ConnectionLostError(f"a Produce of one partition has {len(answers)} answers")
    return answers[0]
