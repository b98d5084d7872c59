"""CreateTopics and CreatePartitions.

What is refused is refused in Kafka's words: people search for them, and scripts look for them.

Not implemented: create-topic policies, mutation quotas, and what ACLs hide; the one who handles
the request filters by ACLs before and after.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from random import Random

from odradek.controller.assignments import (
    PartitionSteps,
    assigned_partitions,
    place_partitions,
)
from odradek.controller.config_changes import plan_configs
from odradek.controller.result import Result, Steps
from odradek.controller.view import ClusterView
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.core.topic_names import (
    CLUSTER_METADATA_TOPIC,
    check_topic_name,
    collision_key,
    has_collision_chars,
)
from odradek.metadata import ConfigResource, PartitionImage, VersionedRecord
from odradek.protocol.generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from odradek.protocol.generated.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.generated.metadata_records import TopicRecord


def create_topics(
    view: ClusterView, request: CreateTopicsRequest, random: Random
) -> Steps[CreateTopicsResponse]:
    """Plan new topics; each one has its own answer.

    A request that comes to more records than one operation may have is refused as a whole.
    """
    creation = _TopicCreation(view, random)
    names = Counter(topic.name for topic in request.topics)
    too_much = _too_much(view, request)
    results: dict[str, CreatableTopicResult] = {}
    for topic in request.topics:
        yield
        try:
            if too_much is not None:
                raise too_much
            if names[topic.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            results[topic.name] = yield from creation.create(topic)
        except ApiError as error:  # one bad topic must not fail its neighbours
            results[topic.name] = _refused(topic.name, error)
        if len(creation.records) > view.settings.records_per_request_max:
            refusal = too_many_records()
            results = {each.name: _refused(each.name, refusal) for each in request.topics}
            creation.records.clear()
            break
    response = CreateTopicsResponse(topics=list(results.values()))
    return Result(() if request.validate_only else tuple(creation.records), response)


def _refused(name: str, error: ApiError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=error.code, error_message=error.message, configs=[]
    )


def _too_much(view: ClusterView, request: CreateTopicsRequest) -> ApiError | None:
    """Look at the totals before anything is allocated for them."""
    settings = view.settings
    partitions = 0
    for topic in request.topics:
        wanted = len(topic.assignments) or topic.num_partitions
        partitions += settings.default_partitions if wanted == -1 else max(wanted, 0)
    if partitions > settings.partitions_per_request_max:
        problem = "Excessively large number of partitions per request."
        return ApiError(ErrorCode.POLICY_VIOLATION, problem)
    if len(view.image.topics) + len(request.topics) > settings.topics_max:
        problem = f"the cluster may have {settings.topics_max} topics"
        return ApiError(ErrorCode.POLICY_VIOLATION, problem)
    return partitions_max_exceeded(view, partition_count(view), partitions)


def partition_count(view: ClusterView) -> int:
    return sum(len(topic.partitions) for topic in view.image.topics.values())


def partitions_max_exceeded(view: ClusterView, count: int, additional: int) -> ApiError | None:
    if count + additional <= view.settings.partitions_max:
        return None
    problem = f"the cluster may have {view.settings.partitions_max} partitions, it has {count}"
    return ApiError(ErrorCode.POLICY_VIOLATION, problem)


class _TopicCreation:
    """The topics of one request; ``records`` are those of the good ones."""

    def __init__(self, view: ClusterView, random: Random) -> None:
        self.view = view
        self.random = random
        self.records: list[VersionedRecord] = []
        self.collisions = {
            collision_key(name): name for name in view.image.topics if has_collision_chars(name)
        }

    def create(self, topic: CreatableTopic) -> Generator[None, None, CreatableTopicResult]:
        self._check_name(topic.name)
        configs, config_records = self._configs(topic)
        partitions = yield from self._partitions(topic)
        topic_id = self._new_id()
        self.records.append(self.view.versioned(TopicRecord(name=topic.name, topic_id=topic_id)))
        self.records += config_records
        for record in partition_records(self.view, topic_id, 0, partitions):
            yield
            self.records.append(record)
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic_id,
            error_message=None,
            num_partitions=len(partitions),
            replication_factor=len(partitions[0].replicas),
            # Never null: Java's AdminClient 4.3 falls over it.
            configs=self.view.rules.effective_topic_configs(self.view.image, configs),
        )

    def _check_name(self, name: str) -> None:
        if name in self.view.image.topics:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if name == CLUSTER_METADATA_TOPIC:
            problem = f"Creation of internal topic {name} is prohibited."
            raise ApiError(ErrorCode.INVALID_REQUEST, problem)
        check_topic_name(name)
        other = self.collisions.get(collision_key(name)) if has_collision_chars(name) else None
        if other is not None:
            problem = f"Topic '{name}' collides with existing topic: {other}"
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)

    def _configs(self, topic: CreatableTopic) -> tuple[dict[str, str], list[VersionedRecord]]:
        without = [config.name for config in topic.configs if config.value is None]
        if without:
            problem = f"Null value not supported for topic configs: {','.join(without)}"
            raise ApiError(ErrorCode.INVALID_CONFIG, problem)
        configs = {
            config.name: config.value for config in topic.configs if config.value is not None
        }
        resource = ConfigResource.topic(topic.name)
        return configs, plan_configs(self.view, resource, configs, is_new=True)

    def _partitions(self, topic: CreatableTopic) -> PartitionSteps:
        settings = self.view.settings
        if topic.assignments:
            return (yield from self._assigned(topic))
        if topic.replication_factor < -1 or topic.replication_factor == 0:
            problem = "Replication factor must be larger than 0, or -1 to use the default value."
            raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, problem)
        if topic.num_partitions < -1 or topic.num_partitions == 0:
            problem = "Number of partitions was set to an invalid non-positive value."
            raise ApiError(ErrorCode.INVALID_PARTITIONS, problem)
        count, factor = topic.num_partitions, topic.replication_factor
        factor = settings.default_replication_factor if factor == -1 else factor
        try:
            return (
                yield from place_partitions(
                    self.view,
                    partitions=settings.default_partitions if count == -1 else count,
                    replication_factor=factor,
                    random=self.random,
                )
            )
        except ApiError as error:
            problem = f"Unable to replicate the partition {factor} time(s): {error.message}"
            raise ApiError(error.code, problem) from error

    def _assigned(self, topic: CreatableTopic) -> PartitionSteps:
        for name, value in (
            ("replication factor", topic.replication_factor),
            ("numPartitions", topic.num_partitions),
        ):
            if value != -1:
                problem = "A manual partition assignment was specified, but"
                problem += f" {name} was not set to -1."
                raise ApiError(ErrorCode.INVALID_REQUEST, problem)
        brokers: dict[int, list[int]] = {}
        for each in topic.assignments:
            if each.partition_index in brokers:
                problem = "Found multiple manual partition assignments for partition"
                problem += f" {each.partition_index}"
                raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
            brokers[each.partition_index] = each.broker_ids
        partitions = yield from assigned_partitions(self.view, sorted(brokers.items()))
        if sorted(brokers) != list(range(len(brokers))):
            problem = "partitions should be a consecutive 0-based integer sequence"
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        return partitions

    def _new_id(self) -> Uuid:
        while True:
            topic_id = Uuid.random(self.random)
            if topic_id not in self.view.image.topics_by_id:
                return topic_id


def create_partitions(
    view: ClusterView, request: CreatePartitionsRequest, random: Random
) -> Steps[CreatePartitionsResponse]:
    """Plan more partitions for topics; each topic has its own answer."""
    names = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    records: list[VersionedRecord] = []
    existing = partition_count(view)
    for topic in request.topics:
        yield
        result = CreatePartitionsTopicResult(name=topic.name)
        results[topic.name] = result
        try:
            if names[topic.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            records += yield from _more_partitions(view, topic, random, existing, len(records))
        except ApiError as error:  # one bad topic must not fail its neighbours
            result.error_code = error.code
            result.error_message = error.message or None
    response = CreatePartitionsResponse(results=list(results.values()))
    return Result(() if request.validate_only else tuple(records), response)


def _more_partitions(
    view: ClusterView,
    request: CreatePartitionsTopic,
    random: Random,
    existing: int,
    planned: int,
) -> Generator[None, None, list[VersionedRecord]]:
    """Plan more partitions of one topic, next to so many of the cluster and of this request."""
    topic = view.image.topics.get(request.name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    count = len(topic.partitions)
    additional = request.count - count
    if additional == 0:
        problem = f"Topic already has {count} partition(s)."
        raise ApiError(ErrorCode.INVALID_PARTITIONS, problem)
    if additional < 0:
        problem = f"The topic {request.name} currently has {count} partition(s);"
        problem += f" {request.count} would not be an increase."
        raise ApiError(ErrorCode.INVALID_PARTITIONS, problem)
    check_record_count(view, planned + additional)
    too_much = partitions_max_exceeded(view, existing, planned + additional)
    if too_much is not None:
        raise too_much
    replication_factor = len(topic.partitions[0].replicas)
    if request.assignments is None:
        partitions = yield from place_partitions(
            view,
            partitions=additional,
            replication_factor=replication_factor,
            random=random,
            existing=[partition.replicas for partition in topic.partitions.values()],
        )
    elif len(request.assignments) != additional:
        problem = f"Attempted to add {additional} additional partition(s), but only"
        problem += f" {len(request.assignments)} assignment(s) were specified."
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    else:
        brokers = [assignment.broker_ids for assignment in request.assignments]
        numbered = enumerate(brokers, count)
        partitions = yield from assigned_partitions(view, numbered, replication_factor)
    records = []
    for record in partition_records(view, topic.topic_id, count, partitions):
        yield
        records.append(record)
    return records


def partition_records(
    view: ClusterView, topic_id: Uuid, first: int, partitions: Iterable[PartitionImage]
) -> Iterator[VersionedRecord]:
    for number, partition in enumerate(partitions, first):
        yield view.versioned(partition.to_record(topic_id, number, view.metadata_version))


def check_record_count(view: ClusterView, count: int) -> None:
    if count > view.settings.records_per_request_max:
        problem = f"more than {view.settings.records_per_request_max} records: split the request"
        raise ApiError(ErrorCode.POLICY_VIOLATION, problem)


def too_many_records() -> ApiError:
    problem = "Unable to perform excessively large batch operation."
    return ApiError(ErrorCode.POLICY_VIOLATION, problem)
