"""Which broker answers for a partition, a group or a transactional id. Nothing is remembered.

Looking anew for each round costs one request for all items, and is right after every move.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from odradek.client.admin.driver import Driver, Places
from odradek.client.cluster import GROUP, Cluster
from odradek.client.errors import BrokerError, KafkaError
from odradek.client.metadata import NO_LEADER, BrokerAddress
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

UNKNOWN_BELIEVED_AFTER_SECONDS: Final = 1.0
"""Brokers hear of a new topic one after the other; one that is unknown for so long is not there."""

_BATCHED_FIND: Final = 4


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partitions of each topic, as requests have them."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


class ToLeaders:
    """Route for partitions; one object serves one call."""

    def __init__(self, driver: Driver) -> None:
        self._cluster = driver.cluster
        self._asked_first: float | None = None

    async def __call__(self, keys: Sequence[TopicPartition]) -> Places[TopicPartition]:
        now = asyncio.get_running_loop().time()
        if self._asked_first is None:
            self._asked_first = now
        is_final = now - self._asked_first >= UNKNOWN_BELIEVED_AFTER_SECONDS
        names = [MetadataRequestTopic(name=topic) for topic in by_topic(keys)]
        request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        response = await self._cluster.ask_any(request, MetadataResponse)
        self._cluster.metadata.update(response, is_complete=False)
        return {key: self._place(key, is_final) for key in keys}

    def _place(self, partition: TopicPartition, is_final: bool) -> int | KafkaError:
        metadata = self._cluster.metadata
        known = metadata.find(partition)
        if known is None:
            code = metadata.topic_errors.get(partition.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if is_final and code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return UnknownPartitionError(code, about=str(partition))
            return BrokerError(code, about=str(partition))
        if known.leader == NO_LEADER:
            return BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, about=str(partition))
        return known.leader


class UnknownPartitionError(BrokerError):
    """UNKNOWN_TOPIC_OR_PARTITION that was asked about more than once."""

    @property
    def retriable(self) -> bool:  # type: ignore[override]  # a class attribute in the base
        return False


class ToCoordinators:
    """Route for groups and transactional ids."""

    def __init__(self, driver: Driver, key_type: int = GROUP) -> None:
        self._cluster = driver.cluster
        self._key_type = key_type

    async def __call__(self, keys: Sequence[str]) -> Places[str]:
        node_id = self._cluster.any_node()
        versions = (await self._cluster.connection(node_id)).versions
        if versions.knows(FindCoordinatorRequest.ID, _BATCHED_FIND):
            return await self._find(node_id, keys)
        found: dict[str, int | KafkaError] = {}
        for key in keys:
            found.update(await self._find(node_id, [key]))
        return found

    async def _find(self, node_id: int, keys: Sequence[str]) -> Places[str]:
        def request(version: int) -> FindCoordinatorRequest:
            if version < _BATCHED_FIND:
                # Version 0 knows groups only, and has no field to say so.
                return FindCoordinatorRequest(key=keys[0], key_type=self._key_type)
            return FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=list(keys))

        response = await self._cluster.ask(node_id, request, FindCoordinatorResponse)
        if response.coordinators:
            return {each.key: _coordinator(self._cluster, each) for each in response.coordinators}
        found = Coordinator(
            key=keys[0],
            node_id=response.node_id,
            host=response.host,
            port=response.port,
            error_code=response.error_code,
            error_message=response.error_message,
        )
        return {keys[0]: _coordinator(self._cluster, found)}


def _coordinator(cluster: Cluster, found: Coordinator) -> int | KafkaError:
    if found.error_code:
        about = f"coordinator of {found.key}"
        return BrokerError(found.error_code, found.error_message, about=about)
    if found.node_id not in cluster.metadata.brokers:
        address = BrokerAddress(found.node_id, found.host, found.port)
        cluster.metadata.brokers[found.node_id] = address
    return found.node_id
