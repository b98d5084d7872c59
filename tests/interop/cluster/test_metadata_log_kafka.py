"""The metadata log of real Kafka controllers, read as an Odradek broker reads it.

Three controllers with their voters in the log. All that Kafka 4.3 can write is written. It loads,
and a snapshot of it, fetched in its place, gives the same image.
"""

from collections.abc import Iterator

import pytest

from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.metadata import ClusterImage
from odradek.protocol.generated import fetch, metadata_records
from odradek.protocol.message import Message
from odradek.quorum.raft_channel_port import Sender
from odradek.quorum.raft_requests import request_to_wire
from odradek.raft.messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    OffsetAndEpoch,
    ReplicaKey,
    Request,
)
from tests.interop.cluster.conftest import SETTINGS
from tests.interop.cluster.filled_log import TOPIC, fill
from tests.interop.cluster.observer import Controller, Observer
from tests.interop.cluster.registrations import new_uuid
from tests.interop.cluster.working_broker import create_topic, unfenced
from tests.interop.kafka_peer import KafkaQuorum
from tests.interop.kafka_peer.node import CLUSTER_ID

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.usefixtures("kafka_libs")]

FREQUENT = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
# What Kafka 4.3 writes no more, or only when it is upgraded or killed in the middle.
NOT_WRITTEN = {
    metadata_records.FenceBrokerRecord,
    metadata_records.UnfenceBrokerRecord,
    metadata_records.ZkMigrationStateRecord,
    metadata_records.AbortTransactionRecord,
    metadata_records.ClearElrRecord,
    metadata_records.UnregisterControllerRecord,
}


def observe(quorum: KafkaQuorum, node_id: int) -> Observer:
    replica = ReplicaKey(node_id, Uuid(node_id.to_bytes(16, "big")))
    return Observer([each.port for each in quorum.voters], CLUSTER_ID, replica)


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaQuorum]:
    scram = ["--add-scram", "SCRAM-SHA-256=[name=formatted,password=secret]"]
    folder = tmp_path_factory.mktemp("quorum")
    settings = {**SETTINGS, **FREQUENT}
    with KafkaQuorum(folder, 3, overrides=settings, format_arguments=scram) as started:
        yield started


@pytest.fixture(scope="module")
def filled(quorum: KafkaQuorum) -> Iterator[Observer]:
    """An observer that has read all of the log, from its first record on."""
    with observe(quorum, 9001) as observer:
        observer.fetch()
        fill(observer)
        observer.catch_up()
        yield observer


def test_every_record_that_kafka_writes_loads(filled: Observer) -> None:
    written = {type(message) for _, message in filled.records}
    known = {
        kind
        for kind in vars(metadata_records).values()
        if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message
    }
    assert known - written == NOT_WRITTEN
    check_filled(filled.image)


def check_filled(image: ClusterImage) -> None:
    assert [each.resource_name for each in image.acls.values()] == ["kept"]
    assert sorted((each.name, each.mechanism) for each in image.scram_credentials.values()) == [
        ("bob", 2),
        ("formatted", 1),
    ]
    assert [each.owner for each in image.delegation_tokens.values()] == ["User:bob"]
    assert sorted(each.key for each in image.client_quotas.values()) == [
        "connection_creation_rate",
        "consumer_byte_rate",
        "producer_byte_rate",
    ]
    names = {resource.name for resource in image.configs if resource.type != TOPIC}
    assert {"", "a group", "a subscription"} <= names
    partitions = [each for topic in image.topics.values() for each in topic.partitions.values()]
    assert [len(each.adding) for each in partitions if each.adding] == [1]
    assert len(image.controllers) == 3
    assert image.next_producer_id == 1000
    assert image.features["eligible.leader.replicas.version"] == 1


def test_a_snapshot_of_it_gives_the_same_image(quorum: KafkaQuorum, filled: Observer) -> None:
    with observe(quorum, 9002) as late:
        late.catch_up()
        assert len(late.snapshots) == 1, "the log is not given from 0 on once there is a snapshot"
        assert late.snapshots[0].offset > 0
        filled.catch_up()
        assert late.catch_up() == filled.catch_up()
        assert late.quorum == filled.quorum
        assert late.quorum.voters is not None
        assert [each.voter_id for each in late.quorum.voters.voters] == [3001, 3002, 3003]


# What Kafka answers to fetches that are not right.


def asked(
    controller: Controller, request: Request, cluster_id: str = CLUSTER_ID
) -> tuple[str, int | None, int]:
    _, answer = controller.ask_raft(request, Sender(cluster_id, (), 1 << 20))
    assert isinstance(answer, FetchResponse | FetchSnapshotResponse)
    return answer.error.name, answer.leader_id, answer.leader_epoch


@pytest.fixture(params=["kafka", "odradek"])
def followed(request: pytest.FixtureRequest) -> Observer:
    """An observer of Kafka's three controllers, and one of ours, that have read all."""
    found: Observer = request.getfixturevalue(
        "filled" if request.param == "kafka" else "our_observer"
    )
    return found


def test_fetches_that_are_refused(followed: Observer) -> None:
    followed.catch_up()
    leader, epoch, controller = followed.leader_id, followed.leader_epoch, followed.leader
    me, end = followed.replica, followed.end

    def fetched(from_epoch: int, last_epoch: int = end.epoch) -> FetchRequest:
        return FetchRequest(1, me, from_epoch, end.offset, last_epoch, None, 0)

    assert asked(controller, fetched(epoch)) == ("NONE", leader, epoch)
    assert asked(controller, fetched(epoch), "another") == ("INCONSISTENT_CLUSTER_ID", None, -1)
    behind = fetched(epoch - 1, epoch - 1)
    assert asked(controller, behind) == ("FENCED_LEADER_EPOCH", leader, epoch)
    # A record of an epoch that its reader does not know of.
    assert asked(controller, fetched(epoch, epoch + 1)) == ("INVALID_REQUEST", leader, epoch)
    assert asked(controller, fetched(epoch + 1)) == ("UNKNOWN_LEADER_EPOCH", leader, epoch)
    answers = []
    for port in followed.ports:
        with Controller(port) as member:
            answers.append(asked(member, fetched(epoch)))
    others = [("NOT_LEADER_OR_FOLLOWER", leader, epoch)] * 2
    assert sorted(answers) == [("NONE", leader, epoch), *others]
    two = request_to_wire(fetched(epoch), followed.sender)
    assert isinstance(two, fetch.FetchRequest)
    two.topics[0].partitions *= 2
    assert controller.ask(two, fetch.FetchResponse).error_code == ErrorCode.INVALID_REQUEST
    two.topics = []
    assert controller.ask(two, fetch.FetchResponse).error_code == ErrorCode.INVALID_REQUEST


def test_a_log_that_is_not_the_leaders_diverges(followed: Observer) -> None:
    followed.catch_up()
    ahead = OffsetAndEpoch(followed.end.offset + 100, followed.end.epoch)
    answer = followed.ask_fetch(followed.leader, ahead)
    assert answer.error is ErrorCode.NONE
    assert answer.diverging_epoch is not None
    assert answer.diverging_epoch.epoch == followed.end.epoch
    assert answer.diverging_epoch.offset >= followed.end.offset


def test_snapshots_that_are_not_there(quorum: KafkaQuorum, filled: Observer) -> None:
    filled.catch_up()
    with observe(quorum, 9003) as late:
        late.catch_up()
        real = late.snapshots[0]
        piece = late.ask_snapshot(real, 0)
        leader = (late.leader_id, late.leader_epoch)

        def wanted(
            snapshot: OffsetAndEpoch, position: int = 0, epoch: int = leader[1]
        ) -> FetchSnapshotRequest:
            return FetchSnapshotRequest(1, late.replica, epoch, snapshot, position, 1 << 20)

        assert asked(late.leader, wanted(real)) == ("NONE", *leader)
        # Kafka means SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE and FENCED_LEADER_EPOCH, but cannot
        # encode a response without records. Ours says it; a follower of either begins again.
        failed = ("UNKNOWN_SERVER_ERROR", None, -1)
        assert asked(late.leader, wanted(OffsetAndEpoch(real.offset - 1, real.epoch))) == failed
        assert asked(late.leader, wanted(OffsetAndEpoch(0, 0))) == failed
        for position in (-1, piece.size, piece.size + 1):
            assert asked(late.leader, wanted(real, position)) == failed
        assert asked(late.leader, wanted(real, epoch=leader[1] - 1)) == failed
        refused = asked(late.leader, wanted(real), "another")
        assert refused == ("INCONSISTENT_CLUSTER_ID", None, -1)


def test_ours_says_what_is_wrong_with_a_snapshot(our_observer: Observer) -> None:
    our_observer.catch_up()
    leader = (our_observer.leader_id, our_observer.leader_epoch)

    def wanted(offset: int, epoch: int) -> FetchSnapshotRequest:
        snapshot = OffsetAndEpoch(offset, 0)
        return FetchSnapshotRequest(1, our_observer.replica, epoch, snapshot, 0, 1 << 20)

    # The one of the format is never given away: its content is in the log.
    for offset in (0, 3):
        answer = asked(our_observer.leader, wanted(offset, leader[1]))
        assert answer == ("SNAPSHOT_NOT_FOUND", *leader)
    answer = asked(our_observer.leader, wanted(3, leader[1] - 1))
    assert answer == ("FENCED_LEADER_EPOCH", *leader)


def test_an_observer_follows_from_leader_to_leader(quorum: KafkaQuorum, filled: Observer) -> None:
    filled.catch_up()
    first = filled.leader_id
    next(each for each in quorum.controllers if each.voter.node_id == first).stop()
    filled.wait_for_controller(other_than=first)
    broker = unfenced(filled, new_uuid())
    created = create_topic(filled, broker)
    assert created.partitions[0].leader == broker.request.broker_id
