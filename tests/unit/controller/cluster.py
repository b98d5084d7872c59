"""A controller with brokers, for tests: applies what it plans."""

from random import Random
from typing import TypeVar

from odradek.controller import ConfigRules, Controller, ControllerSettings, Result
from odradek.core.ids import Uuid
from odradek.metadata import SUPPORTED_FEATURES, PartitionImage, VersionedRecord
from odradek.protocol.generated.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from odradek.protocol.generated.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from odradek.protocol.generated.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from odradek.protocol.versioned import decode_metadata

R = TypeVar("R")
CLUSTER_ID = "fMCL8kv1SWm87L_Md-I2hg"


def settings(**changes: object) -> ControllerSettings:
    return ControllerSettings(**{"node_id": 1, "cluster_id": CLUSTER_ID, **changes})  # type: ignore[arg-type]


def directory(broker_id: int) -> Uuid:
    return Uuid(b"directory" + broker_id.to_bytes(7, "big"))


def registration(broker_id: int, incarnation: int = 0) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=Uuid(b"incarn" + incarnation.to_bytes(10, "big")),
        listeners=[Listener(name="PLAINTEXT", host="h", port=9092 + broker_id)],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        rack=None,
        log_dirs=[directory(broker_id)],
    )


class Cluster:
    """The driver of a controller without a log: what is planned is committed at once."""

    def __init__(
        self,
        brokers: int = 0,
        *,
        racks: int = 0,
        rules: ConfigRules | None = None,
        config: ControllerSettings | None = None,
    ) -> None:
        self.random = Random(0)
        self.now_ms = 0
        self.log: list[VersionedRecord] = []
        self.controller = Controller(config or settings(), rules)
        self.apply(self.controller.activate(self.now_ms))
        for broker_id in range(1, brokers + 1):
            self.start_broker(broker_id, rack=f"r{broker_id % racks}" if racks else None)

    def apply(self, result: Result[R]) -> R:
        for record in result.records:
            # Through bytes: what cannot be written must not be planned.
            self.controller.replay(decode_metadata(record.to_bytes()))
        self.log += result.records
        self.controller.check_invariants()
        return result.reply

    def register(
        self,
        broker_id: int,
        incarnation: int = 0,
        *,
        previous_epoch: int = -1,
        rack: str | None = None,
    ) -> int:
        request = registration(broker_id, incarnation)
        request.previous_broker_epoch = previous_epoch
        request.rack = rack
        result = self.controller.register_broker(request, self.now_ms, len(self.log))
        return self.apply(result).broker_epoch

    def start_broker(
        self, broker_id: int, incarnation: int = 0, *, rack: str | None = None
    ) -> None:
        known = self.controller.image.brokers.get(broker_id)
        previous = -1 if known is None else known.epoch
        self.register(broker_id, incarnation, previous_epoch=previous, rack=rack)
        self.heartbeat(broker_id)

    def heartbeat(
        self, broker_id: int, *, want_fence: bool = False, want_shut_down: bool = False
    ) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.epoch(broker_id),
            current_metadata_offset=len(self.log),
            want_fence=want_fence,
            want_shut_down=want_shut_down,
        )
        return self.apply(self.controller.broker_heartbeat(request, self.now_ms, len(self.log)))

    def epoch(self, broker_id: int) -> int:
        return self.controller.image.brokers[broker_id].epoch

    def create(
        self, *topics: CreatableTopic, validate_only: bool = False
    ) -> dict[str, CreatableTopicResult]:
        request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
        reply = self.apply(self.controller.create_topics(request, self.random))
        return {result.name: result for result in reply.topics}

    def partition(self, topic: str, number: int = 0) -> PartitionImage:
        return self.controller.image.topics[topic].partitions[number]


def new_topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    *,
    assignment: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    if assignment is not None:
        partitions = replicas = -1
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
            for number, brokers in (assignment or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ],
    )
