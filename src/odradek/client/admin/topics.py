"""Topics: create, delete, describe, list, more partitions.

A topic is given by name or, where the broker can (KIP-516), by id.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from odradek.client.admin.configs import ConfigEntry
from odradek.client.admin.driver import Driver, refusal
from odradek.client.admin.results import Results
from odradek.client.errors import KafkaError
from odradek.core.config import ConfigSource
from odradek.core.errors import ErrorCode
from odradek.core.ids import ZERO_UUID, Uuid
from odradek.protocol.generated.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from odradek.protocol.generated.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.generated.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.protocol.generated.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from odradek.protocol.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

CLUSTER_DEFAULT: Final = -1
_BY_ID_FROM: Final = 6
PARTITIONS_PER_PAGE: Final = 2000
# The controller's word on topics is the last one; leaders hear of them later, it does not.
_FINAL: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

Topic: TypeAlias = str | Uuid


class NewTopic(NamedTuple):
    """A topic to create. With ``assignments``, partition → brokers, the counts follow from them."""

    name: str
    partitions: int = CLUSTER_DEFAULT
    replication_factor: int = CLUSTER_DEFAULT
    assignments: Mapping[int, Sequence[int]] = {}
    configs: Mapping[str, str | None] = {}


class NewPartitions(NamedTuple):
    """How many partitions a topic shall have; ``assignments`` has the brokers of each new one."""

    total: int
    assignments: Sequence[Sequence[int]] | None = None


class CreatedTopic(NamedTuple):
    """What was made, as far as the broker tells; ``topic_id`` means nothing if only validated."""

    name: str
    topic_id: Uuid
    partitions: int
    replication_factor: int
    configs: Mapping[str, ConfigEntry]


class TopicListing(NamedTuple):
    name: str
    topic_id: Uuid
    is_internal: bool


class PartitionDescription(NamedTuple):
    """``leader`` is -1 while there is none; what the broker does not tell is None."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None


class TopicDescription(NamedTuple):
    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class TopicOperations:
    _driver: Driver

    async def create_topics(
        self,
        topics: Iterable[NewTopic | str],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> Results[str, CreatedTopic]:
        """Create topics; a bare name gets what the cluster gives by default."""
        wanted = {each.name: each for each in map(_new_topic, topics)}
        driver = self._driver

        async def ask(
            node_id: int, names: Sequence[str]
        ) -> Mapping[str, CreatedTopic | KafkaError]:
            request = CreateTopicsRequest(
                topics=[_creatable(wanted[name]) for name in names],
                timeout_ms=driver.request_timeout_ms,
                validate_only=validate_only,
            )
            response = await driver.cluster.ask(node_id, request, CreateTopicsResponse)
            return {each.name: _created(each) for each in response.topics}

        return await driver.bulk(
            wanted, driver.to_controller, ask, timeout_ms=timeout_ms, final=_FINAL
        )

    async def delete_topics(
        self, topics: Iterable[Topic], *, timeout_ms: float | None = None
    ) -> Results[Topic, None]:
        """Delete topics, given by name or id."""
        driver = self._driver

        async def ask(node_id: int, keys: Sequence[Topic]) -> Mapping[Topic, KafkaError | None]:
            def request(version: int) -> DeleteTopicsRequest:
                if version < _BY_ID_FROM and not any(isinstance(key, Uuid) for key in keys):
                    names = [str(key) for key in keys]
                    return DeleteTopicsRequest(
                        topic_names=names, timeout_ms=driver.request_timeout_ms
                    )
                states = [_delete_state(key) for key in keys]
                return DeleteTopicsRequest(topics=states, timeout_ms=driver.request_timeout_ms)

            response = await driver.cluster.ask(node_id, request, DeleteTopicsResponse)
            answers: dict[Topic, KafkaError | None] = {}
            for each in response.responses:
                key = _key_of(keys, each.name, each.topic_id)
                answers[key] = refusal(each.error_code, each.error_message, about=key)
            return answers

        return await driver.bulk(
            topics, driver.to_controller, ask, timeout_ms=timeout_ms, final=_FINAL
        )

    async def create_partitions(
        self,
        counts: Mapping[str, NewPartitions | int],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> Results[str, None]:
        """Give topics more partitions: ``{"orders": 12}`` makes it twelve in all."""
        driver = self._driver

        async def ask(node_id: int, names: Sequence[str]) -> Mapping[str, KafkaError | None]:
            request = CreatePartitionsRequest(
                topics=[_more_partitions(name, counts[name]) for name in names],
                timeout_ms=driver.request_timeout_ms,
                validate_only=validate_only,
            )
            response = await driver.cluster.ask(node_id, request, CreatePartitionsResponse)
            return {
                each.name: refusal(each.error_code, each.error_message, about=each.name)
                for each in response.results
            }

        return await driver.bulk(
            counts, driver.to_controller, ask, timeout_ms=timeout_ms, final=_FINAL
        )

    async def list_topics(
        self, *, include_internal: bool = False, timeout_ms: float | None = None
    ) -> list[TopicListing]:
        """Return all topics by name, Kafka's own ones only on request."""
        driver = self._driver

        async def ask(node_id: int) -> list[TopicListing]:
            request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
            response = await driver.cluster.ask(node_id, request, MetadataResponse)
            return [
                TopicListing(each.name or "", each.topic_id, each.is_internal)
                for each in sorted(response.topics, key=lambda each: each.name or "")
                if include_internal or not each.is_internal
            ]

        return await driver.single(ask, timeout_ms=timeout_ms)

    async def describe_topics(
        self,
        topics: Iterable[Topic],
        *,
        partitions_per_page: int = PARTITIONS_PER_PAGE,
        timeout_ms: float | None = None,
    ) -> Results[Topic, TopicDescription]:
        """Describe topics, given by name or id: partitions, leaders, replicas."""
        driver = self._driver

        async def ask(
            node_id: int, keys: Sequence[Topic]
        ) -> Mapping[Topic, TopicDescription | KafkaError]:
            names = [key for key in keys if not isinstance(key, Uuid)]
            versions = (await driver.cluster.connection(node_id)).versions
            if not versions.knows(DescribeTopicPartitionsRequest.ID):
                return await _describe_by_metadata(driver, node_id, keys)
            answers: dict[Topic, TopicDescription | KafkaError] = {}
            ids = [key for key in keys if isinstance(key, Uuid)]
            if ids:
                answers.update(await _describe_by_metadata(driver, node_id, ids))
            if names:
                answers.update(
                    await _describe_in_pages(driver, node_id, names, partitions_per_page)
                )
            return answers

        return await driver.bulk(topics, driver.to_any, ask, timeout_ms=timeout_ms, final=_FINAL)


def _new_topic(topic: NewTopic | str) -> NewTopic:
    return NewTopic(topic) if isinstance(topic, str) else topic


def _creatable(topic: NewTopic) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
        for partition, brokers in topic.assignments.items()
    ]
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=assignments,
        configs=[CreatableTopicConfig(name=n, value=v) for n, v in topic.configs.items()],
    )


def _created(each: CreatableTopicResult) -> CreatedTopic | KafkaError:
    error = refusal(each.error_code, each.error_message, about=each.name)
    if error is not None:
        return error
    configs = {
        config.name: ConfigEntry(
            config.name,
            config.value,
            ConfigSource(max(config.config_source, 0)),
            is_sensitive=config.is_sensitive,
            is_read_only=config.read_only,
        )
        for config in each.configs or ()
    }
    return CreatedTopic(
        each.name, each.topic_id, each.num_partitions, each.replication_factor, configs
    )


def _delete_state(topic: Topic) -> DeleteTopicState:
    if isinstance(topic, Uuid):
        return DeleteTopicState(topic_id=topic)
    return DeleteTopicState(name=topic)


def _key_of(keys: Sequence[Topic], name: str | None, topic_id: Uuid) -> Topic:
    """Return what the caller called a topic: answers have both, where they can."""
    return topic_id if topic_id in keys or name is None else name


def _more_partitions(name: str, wanted: NewPartitions | int) -> CreatePartitionsTopic:
    more = NewPartitions(wanted) if isinstance(wanted, int) else wanted
    assignments = None
    if more.assignments is not None:
        assignments = [
            CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in more.assignments
        ]
    return CreatePartitionsTopic(name=name, count=more.total, assignments=assignments)


async def _describe_by_metadata(
    driver: Driver, node_id: int, keys: Sequence[Topic]
) -> Mapping[Topic, TopicDescription | KafkaError]:
    asked = [
        MetadataRequestTopic(topic_id=key, name=None)
        if isinstance(key, Uuid)
        else MetadataRequestTopic(name=key)
        for key in keys
    ]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    response = await driver.cluster.ask(node_id, request, MetadataResponse)
    return {_key_of(keys, each.name, each.topic_id): _description(each) for each in response.topics}


async def _describe_in_pages(
    driver: Driver, node_id: int, names: Sequence[str], partitions_per_page: int
) -> Mapping[str, TopicDescription | KafkaError]:
    """Ask page by page; a topic may begin on one page and end on another."""
    found: dict[str, TopicDescription | KafkaError] = {}
    # Brokers answer in the order of names, and a cursor says where to go on in that order.
    rest, cursor = sorted(names), None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in rest],
            response_partition_limit=partitions_per_page,
            cursor=cursor,
        )
        response = await driver.cluster.ask(node_id, request, DescribeTopicPartitionsResponse)
        for each in response.topics:
            page, before = _description(each), found.get(each.name or "")
            if isinstance(page, TopicDescription) and isinstance(before, TopicDescription):
                page = page._replace(partitions=before.partitions + page.partitions)
            found[each.name or ""] = page
        following = response.next_cursor
        if following is None:
            return found
        cursor = Cursor(topic_name=following.topic_name, partition_index=following.partition_index)
        rest = [name for name in rest if name >= cursor.topic_name]


def _description(
    topic: MetadataResponseTopic | DescribeTopicPartitionsResponseTopic,
) -> TopicDescription | KafkaError:
    error = refusal(topic.error_code, about=topic.name or topic.topic_id)
    if error is not None:
        return error
    partitions = sorted(map(_partition, topic.partitions))
    return TopicDescription(
        topic.name or "", topic.topic_id or ZERO_UUID, topic.is_internal, tuple(partitions)
    )


def _partition(
    each: MetadataResponsePartition | DescribeTopicPartitionsResponsePartition,
) -> PartitionDescription:
    description = PartitionDescription(
        each.partition_index,
        each.leader_id,
        each.leader_epoch,
        tuple(each.replica_nodes),
        tuple(each.isr_nodes),
        tuple(each.offline_replicas),
    )
    if isinstance(each, MetadataResponsePartition):
        return description
    return description._replace(
        eligible_leader_replicas=tuple(each.eligible_leader_replicas or ()),
        last_known_elr=tuple(each.last_known_elr or ()),
    )
