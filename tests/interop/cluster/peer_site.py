"""One real node and brokers that tests play: they register, send heartbeats, and are followers.

The node, Odradek's or Kafka's, is broker and controller at once. What brokers ask of each other can
then be asked in any order and with any mistake, and each answer is due to that question alone.
"""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from odradek.core.ids import TopicPartition, Uuid
from odradek.protocol.generated import assign_replicas_to_dirs
from odradek.protocol.generated.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from odradek.protocol.generated.broker_registration import BrokerRegistrationResponse, Listener
from odradek.protocol.generated.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.generated.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from odradek.protocol.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.protocol.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.generated.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from odradek.protocol.message import Message
from odradek.records import BatchBuilder
from tests.broker_connection import BrokerConnection
from tests.cluster.flavours import Flavour
from tests.cluster.processes import Cluster, wait_until
from tests.interop.cluster.observer import Controller
from tests.interop.cluster.registrations import new_uuid, registration
from tests.interop.ports import HOST

REAL: Final = 1
CONSUMER: Final = -1
"""As a replica id."""
LATEST: Final = -1
"""As a timestamp."""
CONFIGS: Final = {
    # Nobody is fenced, or thrown out of an ISR, but by a test.
    "broker.session.timeout.ms": "3600000",
    "replica.lag.time.max.ms": "3600000",
    "auto.leader.rebalance.enable": "false",
    "log.retention.ms": "-1",
}
NO_PORT: Final = 9  # "discard": where nothing of this machine listens
FIRST_TIMESTAMP: Final = 1_700_000_000_000

R = TypeVar("R", bound=Message)
State = tuple[int, int, tuple[int, ...]]
"""Leader, leader epoch and ISR of a partition."""


class PlayedBroker:
    """A broker that is a registration, heartbeats, and what a test asks in its name."""

    def __init__(
        self,
        controller: Controller,
        cluster_id: str,
        broker_id: int,
        listener: str = "PLAINTEXT",
        directories: int = 1,
    ) -> None:
        self.id = broker_id
        self.directories = [new_uuid() for _ in range(directories)]
        self._controller = controller
        self._registration = registration(
            broker_id=broker_id,
            cluster_id=cluster_id,
            listeners=[Listener(name=listener, host=HOST, port=NO_PORT)],
            log_dirs=self.directories,
        )
        self.epoch = -1
        self.register()

    def register(self) -> None:
        """Register, as a new run of the broker if it was there before."""
        if self.epoch >= 0:  # the session of a broker that is unregistered is over
            gone = UnregisterBrokerRequest(broker_id=self.id)
            assert not self._controller.ask(gone, UnregisterBrokerResponse).error_code
            self._registration.incarnation_id = new_uuid()
        answer = self._controller.ask(self._registration, BrokerRegistrationResponse)
        assert not answer.error_code, answer
        self.epoch = answer.broker_epoch
        self.beat(fence=False)

    def beat(self, *, fence: bool, offline: Sequence[Uuid] = ()) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=self.id,
            broker_epoch=self.epoch,
            # Ahead of all: it has applied what there will be.
            current_metadata_offset=1 << 40,
            want_fence=fence,
            offline_log_dirs=list(offline),
        )
        answer = self._controller.ask(request, BrokerHeartbeatResponse)
        assert not answer.error_code, answer
        assert answer.is_fenced == fence

    def places(self, topic_id: Uuid, directory: Uuid) -> None:
        """Say that the first partition of a topic lies in one of its directories."""
        partition = assign_replicas_to_dirs.RequestPartitionData(partition_index=0)
        topic = assign_replicas_to_dirs.RequestTopicData(topic_id=topic_id, partitions=[partition])
        placed = assign_replicas_to_dirs.RequestDirectoryData(id=directory, topics=[topic])
        request = assign_replicas_to_dirs.AssignReplicasToDirsRequest(
            broker_id=self.id, broker_epoch=self.epoch, directories=[placed]
        )
        response = assign_replicas_to_dirs.AssignReplicasToDirsResponse
        answer = self._controller.ask(request, response)
        codes = [
            each.error_code
            for found in answer.directories
            for named in found.topics
            for each in named.partitions
        ]
        assert (answer.error_code, codes) == (0, [0])


class PeerSite:
    def __init__(self, folder: Path, flavour: Flavour) -> None:
        self.cluster = Cluster(folder, {REAL: "broker,controller"}, flavour, configs=CONFIGS)
        self.topic_ids: dict[str, Uuid] = {}

    def __enter__(self) -> Self:
        self.cluster.__enter__()
        try:
            self.cluster.start()
            self.controller = Controller(self.cluster.nodes[REAL].controller_port)
        except BaseException as error:
            self.cluster.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.controller.close()
        self.cluster.__exit__(kind, error, trace)

    def play(
        self, broker_id: int, listener: str = "PLAINTEXT", directories: int = 1
    ) -> PlayedBroker:
        place = (listener, directories)
        return PlayedBroker(self.controller, self.cluster.cluster_id, broker_id, *place)

    @property
    def port(self) -> int:
        return self.cluster.nodes[REAL].port

    def ask(self, request: Message, response: type[R], version: int | None = None) -> R:
        with BrokerConnection(self.port) as connection:
            return connection.ask(request, response, version)

    def create(self, name: str, *placed: Sequence[int], is_reachable: bool = True) -> None:
        """Create a topic, and wait until the broker knows it; who leads, only if that is seen."""
        assignments = [
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(replicas))
            for number, replicas in enumerate(placed)
        ]
        topic = CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=assignments
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
        (made,) = self.ask(request, CreateTopicsResponse).topics
        assert not made.error_code, made
        self.topic_ids[name] = made.topic_id
        for number, replicas in enumerate(placed):
            at = TopicPartition(name, number)
            leader = replicas[0] if is_reachable else -1
            self.wait_for(at, leader=leader, isr=replicas)

    def state(self, at: TopicPartition) -> State | None:
        """Return what the real broker knows."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=at.topic)], allow_auto_topic_creation=False
        )
        (topic,) = self.ask(request, MetadataResponse, 12).topics
        for each in topic.partitions:
            if each.partition_index == at.partition:
                return each.leader_id, each.leader_epoch, tuple(sorted(each.isr_nodes))
        return None

    def wait_for(self, at: TopicPartition, *, leader: int, isr: Sequence[int]) -> None:
        def is_so() -> bool:
            found = self.state(at)
            return found is not None and (found[0], found[2]) == (leader, tuple(sorted(isr)))

        wait_until(is_so, f"{at} is led by {leader} with {list(isr)}")

    def wait_until_led(self, at: TopicPartition) -> None:
        """Wait until the broker does lead: Kafka's says in Metadata that it will before it does."""
        wanted = ListOffsetsPartition(partition_index=at.partition, timestamp=LATEST)
        topic = ListOffsetsTopic(name=at.topic, partitions=[wanted])

        def is_led() -> bool:
            request = ListOffsetsRequest(replica_id=CONSUMER, topics=[topic])
            answer = self.ask(request, ListOffsetsResponse)
            return answer.topics[0].partitions[0].error_code == 0

        wait_until(is_led, f"{at} is led")

    def elect(self, at: TopicPartition) -> None:
        """Have the preferred leader elected."""
        wanted = TopicPartitions(topic=at.topic, partitions=[at.partition])
        request = ElectLeadersRequest(topic_partitions=[wanted], timeout_ms=60_000)
        answer = self.ask(request, ElectLeadersResponse)
        assert not answer.error_code, answer
        codes = [
            each.error_code
            for topic in answer.replica_election_results
            for each in topic.partition_result
        ]
        assert codes == [0]

    def produce(self, at: TopicPartition, *values: bytes) -> None:
        """Append a batch of these records with acks=1, as soon as the broker leads."""
        builder = BatchBuilder()
        for number, value in enumerate(values):
            builder.append(FIRST_TIMESTAMP + number, None, value)
        data = PartitionProduceData(index=at.partition, records=builder.build())
        request = ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=at.topic, partition_data=[data])],
        )
        codes: list[int] = []

        def is_appended() -> bool:
            answer = self.ask(request, ProduceResponse, 12).responses[0].partition_responses[0]
            codes.append(answer.error_code)
            return answer.error_code == 0

        wait_until(is_appended, f"{at} takes records")
