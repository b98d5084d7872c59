"""What brokers ask of each other, with every mistake: the questions, and when they are asked.

``story`` leads partitions through a few states, and in each asks the real node all that a follower,
a stranger, or an earlier run of a follower may ask. It returns the answers by the name of the case.
Nothing that is refused may move anything: the partitions' state is checked after each round.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from odradek.core.ids import TopicPartition, Uuid
from odradek.protocol.apis import api_for_key
from odradek.protocol.generated import (
    alter_partition,
    describe_topic_partitions,
    fetch,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    write_txn_markers,
)
from odradek.protocol.message import Message
from tests.broker_connection import BrokerConnection
from tests.interop.cluster.peer_rows import rows
from tests.interop.cluster.peer_site import REAL, PeerSite, PlayedBroker

FOLLOWER, OTHER, DARK, FAILING, STRANGER = 2, 3, 4, 5, 99
TOPIC: Final = "t"
UNKNOWN_ID: Final = Uuid.from_text("AAAAAAAAQACAAAAAAAAAAQ")
LED, ELSEWHERE, FOLLOWED, MISSING = (TopicPartition(TOPIC, number) for number in (0, 1, 2, 9))
"""Partitions: led by the node with one follower; of which it has no replica; led by another."""
PLACED: Final = ((FOLLOWER, REAL), (FOLLOWER, OTHER), (OTHER, REAL))
LATE: Final = TopicPartition("late", 0)
"""Has a follower in the ISR that never fetches, so that nothing is committed."""
WORDS: Final = {LED: "", ELSEWHERE: " elsewhere", FOLLOWED: " followed", LATE: " late"}
BYTES: Final = 1 << 20
CONSUMER, DEBUGGER, FUTURE = -1, -2, -3
NO_EPOCH: Final = -1

MARKED: Final = "marked"


def _marker(
    version: int = 1, *, by: int = 7, of: int = 3, commit: bool = False, tv: int = 0
) -> tuple[int, dict[str, Any]]:
    """Return the version to ask in, and a marker of one producer."""
    fields: dict[str, Any] = {"producer_id": 4711, "producer_epoch": of}
    fields |= {"transaction_result": commit, "coordinator_epoch": by}
    return version, fields | ({"transaction_version": tv} if version == 2 else {})


FORGED: Final = (
    _marker(),  # of a producer that nobody knows: it is written
    _marker(by=6),
    _marker(by=6, commit=True),
    _marker(of=2),
    _marker(by=6, of=2),
    _marker(),
    _marker(2, tv=2),
    _marker(2, of=2, tv=2),
    _marker(2, by=6, of=4, tv=2),
    _marker(2, of=4, tv=2),
    _marker(2, of=4, tv=2),
    _marker(2, of=4, tv=1),
    _marker(2, of=3, tv=1),
    _marker(2, by=8, of=5, tv=2, commit=True),
    _marker(by=7, of=6),
    _marker(of=-1),
    _marker(by=-1, of=9),
)

Case = tuple[str, Message, int | None]


def fetch_request(
    topic_id: Uuid | str,
    *partitions: fetch.FetchPartition,
    replica: tuple[int, int] = (CONSUMER, -1),
    version: int = 17,
    session: tuple[int, int] = (0, -1),
) -> fetch.FetchRequest:
    topic = fetch.FetchTopic(partitions=list(partitions))
    if isinstance(topic_id, str):
        topic.topic = topic_id
    else:
        topic.topic_id = topic_id
    request = fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=BYTES,
        session_id=session[0],
        session_epoch=session[1],
        topics=[topic],
    )
    if version >= 15:
        request.replica_state = fetch.ReplicaState(replica_id=replica[0], replica_epoch=replica[1])
    else:
        request.replica_id = replica[0]
    return request


def wanted(
    offset: int, *, epoch: int, last: int = NO_EPOCH, number: int = 0, start: int = 0
) -> fetch.FetchPartition:
    return fetch.FetchPartition(
        partition=number,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last,
        log_start_offset=start,
        partition_max_bytes=BYTES,
    )


class Round:
    """The questions of one state of the partitions."""

    def __init__(self, site: PeerSite, *, follower: PlayedBroker, other: PlayedBroker) -> None:
        self._id = site.topic_ids[TOPIC]
        self._follower = (follower.id, follower.epoch)
        self._other = (other.id, other.epoch)
        self._epochs = {}
        for at in WORDS:
            state = site.state(at)
            assert state is not None
            self._epochs[at] = state[1]

    def cases(self) -> Iterator[Case]:
        yield from self._strangers()
        yield from self._followers()
        yield from self._other_partitions()
        yield from self._list_offsets()
        yield from self._epoch_ends()

    def _around(self, at: TopicPartition) -> Iterator[tuple[str, int]]:
        """Yield the leader epochs that a peer may claim, with words for them."""
        now = self._epochs[at]
        yield from (("", now), (" without epoch", NO_EPOCH), (" from the future", now + 1))
        if now:
            yield " from the past", now - 1

    def _strangers(self) -> Iterator[Case]:
        broker_id, epoch = self._follower
        askers = {
            "a stranger": (STRANGER, 5),
            "a stranger without broker epoch": (STRANGER, -1),
            "a broker without replica": self._other,
            "the leader itself": (REAL, -1),
            "the follower's earlier run": (broker_id, epoch - 1),
            "the follower of epoch 0": (broker_id, 0),
        }
        for words, asker in askers.items():
            for claims, leader_epoch in self._around(LED):
                for version in (12, 17, 18) if not claims else (17,):
                    if version < 15 and asker[0] == broker_id:
                        continue  # has no place for the epoch of a broker
                    at = wanted(0, epoch=leader_epoch)
                    topic = TOPIC if version < 13 else self._id
                    request = fetch_request(topic, at, replica=asker, version=version)
                    yield f"fetch v{version} of {words}{claims}", request, version
        for words, replica in {"a debugger": DEBUGGER, "a future log": FUTURE, "-4": -4}.items():
            for version in (12, 17):
                topic = TOPIC if version < 13 else self._id
                at = wanted(0, epoch=NO_EPOCH)
                request = fetch_request(topic, at, replica=(replica, -1), version=version)
                yield f"fetch v{version} of {words}", request, version

    def _followers(self) -> Iterator[Case]:
        """Yield wrong questions of the follower."""
        now = self._epochs[LED]
        for claims, leader_epoch in self._around(LED):
            if leader_epoch in (now, NO_EPOCH):
                continue
            for version in (12, 15, 17, 18):
                topic = TOPIC if version < 13 else self._id
                at = wanted(0, epoch=leader_epoch)
                request = fetch_request(topic, at, replica=self._follower, version=version)
                yield f"fetch v{version} of the follower{claims}", request, version
        for offset in (-1, 1000):
            request = fetch_request(self._id, wanted(offset, epoch=now), replica=self._follower)
            yield f"fetch of the follower at {offset}", request, 17
        # Past the end, or after an epoch that the leader has not, or not that far.
        for last in range(-1, 6):
            for offset in (3, 4, 6, 8, 1000):
                if last in (-1, now) and offset < 1000:
                    continue  # in order, in some state or other
                at = wanted(offset, epoch=now, last=last)
                if last < 0 and offset < 1000:
                    continue
                request = fetch_request(self._id, at, replica=self._follower)
                yield f"fetch of the follower at {offset} after epoch {last}", request, 17

    def _other_partitions(self) -> Iterator[Case]:
        for at, words in ((ELSEWHERE, "elsewhere"), (FOLLOWED, "followed"), (MISSING, "missing")):
            for claims, leader_epoch in self._around(at if at in WORDS else LED):
                for asker, replica in (("the follower", self._follower), ("a consumer", (-1, -1))):
                    question = wanted(0, epoch=leader_epoch, number=at.partition)
                    request = fetch_request(self._id, question, replica=replica)
                    yield f"fetch of a partition {words} by {asker}{claims}", request, 17
        for words, topic_id in (("an unknown", UNKNOWN_ID), ("no", Uuid(bytes(16)))):
            first = wanted(0, epoch=0)
            request = fetch_request(topic_id, first, replica=self._follower)
            yield f"fetch of {words} topic id", request, 17
        first = wanted(0, epoch=0)
        request = fetch_request("ghost", first, replica=self._follower, version=12)
        yield "fetch of an unknown name", request, 12
        request = fetch_request(self._id, first, replica=self._follower, session=(77, 5))
        yield "fetch in a session that is not there", request, 17
        request = fetch_request(self._id, first, replica=self._follower, session=(0, 5))
        yield "fetch in the middle of no session", request, 17

    def _list_offsets(self) -> Iterator[Case]:
        for at, words in WORDS.items():
            for asker in (FOLLOWER, OTHER, STRANGER, REAL, CONSUMER, DEBUGGER):
                for timestamp in (-1, -2, -3, -4, 1_700_000_000_001):
                    yield self._offset_at(at, words, asker, timestamp, "", self._epochs[at])
            for claims, leader_epoch in self._around(at):
                if claims:
                    yield self._offset_at(at, words, FOLLOWER, -1, claims, leader_epoch)
        yield self._offset_at(MISSING, " missing", FOLLOWER, -1, "", 0)
        for version in (4, 5):
            words, request, _ = self._offset_at(LATE, " late", CONSUMER, -1, "", self._epochs[LATE])
            yield f"{words} v{version}", request, version

    @staticmethod
    def _offset_at(
        at: TopicPartition, words: str, asker: int, timestamp: int, claims: str, leader_epoch: int
    ) -> Case:
        partition = list_offsets.ListOffsetsPartition(
            partition_index=at.partition, current_leader_epoch=leader_epoch, timestamp=timestamp
        )
        topic = list_offsets.ListOffsetsTopic(name=at.topic, partitions=[partition])
        request = list_offsets.ListOffsetsRequest(replica_id=asker, topics=[topic])
        return f"offset{words} at {timestamp} for {asker}{claims}", request, None

    def _epoch_ends(self) -> Iterator[Case]:
        for at, words in WORDS.items():
            now = self._epochs[at]
            for asker in (FOLLOWER, OTHER, STRANGER, REAL, CONSUMER, DEBUGGER):
                yield self._end_of(at, words, asker, now, "", now)
            for epoch in {*range(-1, now + 2)} - {now}:
                yield self._end_of(at, words, FOLLOWER, epoch, "", now)
            for claims, leader_epoch in self._around(at):
                if claims:
                    yield self._end_of(at, words, FOLLOWER, now, claims, leader_epoch)
        yield self._end_of(MISSING, " missing", FOLLOWER, 0, "", 0)

    @staticmethod
    def _end_of(
        at: TopicPartition, words: str, asker: int, epoch: int, claims: str, leader_epoch: int
    ) -> Case:
        partition = offset_for_leader_epoch.OffsetForLeaderPartition(
            partition=at.partition, current_leader_epoch=leader_epoch, leader_epoch=epoch
        )
        topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic=at.topic, partitions=[partition])
        request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            replica_id=asker, topics=[topic]
        )
        return f"end{words} of epoch {epoch} for {asker}{claims}", request, None


class Story:
    def __init__(self, site: PeerSite) -> None:
        self.answers: dict[str, Any] = {}
        self._site = site
        self._topics: dict[Uuid, str] = {}

    def tell(self) -> dict[str, Any]:
        site = self._site
        self.follower, self.other = site.play(FOLLOWER), site.play(OTHER)
        site.create(TOPIC, *PLACED)
        site.create(LATE.topic, (FOLLOWER, REAL, OTHER))
        self._topics = {topic_id: name for name, topic_id in site.topic_ids.items()}
        # The node leads alone: its follower was fenced, and is back, but not in sync.
        self.follower.beat(fence=True)
        site.wait_for(LED, leader=REAL, isr=[REAL])
        site.wait_for(LATE, leader=REAL, isr=[REAL, OTHER])
        self.follower.beat(fence=False)
        site.produce(LED, b"a", b"b", b"c")
        site.produce(LED, b"d")
        site.produce(LATE, b"not", b"committed")
        self._round("alone")
        self._markers("alone")
        self._forged_markers()
        self._proposals("alone")
        self._later_run()
        # It is started again, so that it has had an earlier epoch; then it comes to be in sync.
        self.follower.register()
        self._join("joins")
        self._round("in sync")
        # It leads, and the node follows.
        self._join_late()
        for at, others in ((LED, [REAL]), (LATE, [REAL, OTHER])):
            site.elect(at)
            site.wait_for(at, leader=FOLLOWER, isr=[FOLLOWER, *others])
        self._round("follows")
        self._markers("follows")
        self._proposals("follows")
        # The node leads again, after an epoch without records.
        self.follower.beat(fence=True)
        site.wait_for(LED, leader=REAL, isr=[REAL])
        site.wait_for(LATE, leader=REAL, isr=[REAL, OTHER])
        site.produce(LED, b"e", b"f", b"g", b"h")
        self.follower.beat(fence=False)
        self._round("leads again")
        self._join("joins again")
        self._round("in sync again")
        # Records that the follower does not have yet are not committed.
        site.produce(LED, b"i", b"j")
        self._round("ahead")
        self._unreachable()
        return self.answers

    def _round(self, state: str) -> None:
        site = self._site
        before = [site.state(at) for at in WORDS]
        questions = Round(site, follower=self.follower, other=self.other)
        with BrokerConnection(site.port) as connection:
            for name, request, version in questions.cases():
                self._ask(connection, f"{state}: {name}", request, version)
        after = [site.state(at) for at in WORDS]
        assert after == before
        self.answers[f"{state}: partitions"] = [list(map(_listed, each or ())) for each in after]

    def _later_run(self) -> None:
        """Fetch up to the end as a run of the follower that is not registered yet: it is served,
        but the broker that the metadata knows is not in sync by that (KIP-903). Then fetch as the
        run that is registered.
        """
        site = self._site
        found = site.state(LED)
        assert found is not None
        with BrokerConnection(site.port) as connection:
            for words, later in (("first", 1), ("again", 1), ("and the registered one", 0)):
                at = wanted(4 * later, epoch=found[1], last=found[1])
                replica = (FOLLOWER, self.follower.epoch + later)
                request = fetch_request(site.topic_ids[TOPIC], at, replica=replica)
                self._ask(connection, f"a later run, {words}", request, 17)
        assert site.state(LED) == found

    def _ask(
        self, connection: BrokerConnection, name: str, request: Message, version: int | None
    ) -> Message:
        assert name not in self.answers, name
        answer = connection.ask(request, api_for_key(request.ID).response(), version)
        self.answers[name] = rows(answer, self._topics)
        return answer

    def _unreachable(self) -> None:
        """Ask where partitions are whose brokers, or their disks, clients cannot reach."""
        site = self._site
        dark, failing = site.play(DARK, "DARK"), site.play(FAILING, directories=2)
        placed = {
            "dark": (DARK,),
            "dark-leader": (DARK, REAL),
            "dark-follower": (REAL, DARK),
            "disk": (FAILING, REAL),
            "alone": (FAILING,),
        }
        for name, replicas in placed.items():
            site.create(name, replicas, is_reachable=replicas[0] != DARK)
            self._topics[site.topic_ids[name]] = name
        for name in ("disk", "alone"):
            failing.places(site.topic_ids[name], failing.directories[0])
        self._ask_where("reached", placed)
        failing.beat(fence=False, offline=failing.directories[:1])
        site.wait_for(TopicPartition("disk", 0), leader=REAL, isr=[REAL])
        self._ask_where("with a failed disk", placed)
        failing.beat(fence=True, offline=failing.directories[:1])
        dark.beat(fence=True)
        site.wait_for(TopicPartition("dark-follower", 0), leader=REAL, isr=[REAL])
        self._ask_where("fenced", placed)

    def _ask_where(self, state: str, names: Iterable[str]) -> None:
        names = sorted(names)
        with BrokerConnection(self._site.port) as connection:
            for version in range(1, 14):
                topics = [metadata.MetadataRequestTopic(name=name) for name in names]
                request: Message = metadata.MetadataRequest(
                    topics=topics, allow_auto_topic_creation=version < 4
                )
                self._ask(connection, f"{state}: metadata v{version}", request, version)
            request = describe_topic_partitions.DescribeTopicPartitionsRequest(
                topics=[describe_topic_partitions.TopicRequest(name=name) for name in names]
            )
            self._ask(connection, f"{state}: topic partitions", request, None)

    def _join(self, state: str) -> None:
        """Fetch as the follower, from the start to the end, until it is in sync."""
        site, follower = self._site, self.follower
        topic_id = site.topic_ids[TOPIC]
        found = site.state(LED)
        assert found is not None
        epoch, replica = found[1], (follower.id, follower.epoch)
        with BrokerConnection(site.port) as connection:
            offset, last = 0, NO_EPOCH
            session = (0, 0)
            for number in range(4):
                at = wanted(offset, epoch=epoch, last=last)
                request = fetch_request(topic_id, at, replica=replica, session=session)
                name = f"{state}: fetch {number}"
                answer = self._ask(connection, name, request, 17)
                assert isinstance(answer, fetch.FetchResponse)
                session = (answer.session_id, session[1] + 1)
                for each in answer.responses:
                    batches = self.answers[name]["responses"][0]["partitions"][0].get("records")
                    if batches:
                        offset, last = batches[-1][1] + 1, batches[-1][2]
                    assert not each.partitions[0].error_code
                if number == 1:
                    site.wait_for(LED, leader=REAL, isr=[REAL, FOLLOWER])

    def _join_late(self) -> None:
        """Fetch nothing but the start of the partition where nothing is committed: it is enough."""
        site, follower = self._site, self.follower
        found = site.state(LATE)
        assert found is not None
        at = wanted(0, epoch=found[1])
        replica = (follower.id, follower.epoch)
        request = fetch_request(site.topic_ids[LATE.topic], at, replica=replica)
        with BrokerConnection(site.port) as connection:
            self._ask(connection, "joins late", request, 17)
        site.wait_for(LATE, leader=REAL, isr=[REAL, FOLLOWER, OTHER])

    def _forged_markers(self) -> None:
        """Markers to a partition that is led: who writes one must be as new as the last one was."""
        site = self._site
        site.create(MARKED, (REAL,))
        self._topics[site.topic_ids[MARKED]] = MARKED
        site.wait_until_led(TopicPartition(MARKED, 0))
        with BrokerConnection(site.port) as connection:
            for number, (version, fields) in enumerate(FORGED):
                topic = write_txn_markers.WritableTxnMarkerTopic(name=MARKED, partition_indexes=[0])
                marker = write_txn_markers.WritableTxnMarker(topics=[topic], **fields)
                request = write_txn_markers.WriteTxnMarkersRequest(markers=[marker])
                name = f"marker {number}"
                words = f"of producer epoch {marker.producer_epoch} by {marker.coordinator_epoch}"
                self._ask(connection, f"{name} {words}", request, version)
                # Whether something was written.
                partition = list_offsets.ListOffsetsPartition(timestamp=-1)
                asked = list_offsets.ListOffsetsRequest(
                    replica_id=CONSUMER,
                    topics=[list_offsets.ListOffsetsTopic(name=MARKED, partitions=[partition])],
                )
                self._ask(connection, f"{name}: the end after it", asked, None)

    def _markers(self, state: str) -> None:
        """Markers of transactions that nobody has begun, and of coordinators that are none."""
        cases: dict[str, dict[str, Any]] = {
            "of an unknown producer": {},
            "that commits for an unknown producer": {"transaction_result": True},
            "without producer": {"producer_id": -1},
            "without epoch": {"producer_epoch": -1},
            "of no coordinator": {"coordinator_epoch": -1},
            "of version 2": {"transaction_version": 2},
        }
        with BrokerConnection(self._site.port) as connection:
            for name, changes in cases.items():
                for at in (LED, ELSEWHERE, FOLLOWED, MISSING):
                    fields: dict[str, Any] = {
                        "producer_id": 4711,
                        "producer_epoch": 3,
                        "transaction_result": False,
                        "coordinator_epoch": 7,
                        "topics": [
                            write_txn_markers.WritableTxnMarkerTopic(
                                name=at.topic, partition_indexes=[at.partition]
                            )
                        ],
                        **changes,
                    }
                    if at == LED and state == "alone":
                        continue  # led here: they are written to another topic
                    marker = write_txn_markers.WritableTxnMarker(**fields)
                    request = write_txn_markers.WriteTxnMarkersRequest(markers=[marker])
                    self._ask(connection, f"{state}: marker {name} to {at}", request, 2)

    def _proposals(self, state: str) -> None:
        """ISRs proposed by who does not lead, or not any more."""
        site = self._site
        found = site.state(LED)
        assert found is not None
        now, topic_id = found[1], site.topic_ids[TOPIC]
        askers = {
            "the follower": (FOLLOWER, self.follower.epoch),
            "the follower's earlier run": (FOLLOWER, self.follower.epoch - 1),
            "a broker without replica": (OTHER, self.other.epoch),
            "a stranger": (STRANGER, 5),
            "a stranger without epoch": (STRANGER, -1),
        }
        for words, (broker_id, broker_epoch) in askers.items():
            if state == "follows" and words == "the follower":
                continue  # it leads
            for isr in ([broker_id], [REAL, FOLLOWER], [FOLLOWER]):
                for epoch in (now, now - 1, now + 1):
                    partition = alter_partition.RequestPartitionData(
                        partition_index=LED.partition,
                        leader_epoch=epoch,
                        new_isr_with_epochs=[
                            alter_partition.BrokerState(broker_id=each) for each in isr
                        ],
                        partition_epoch=0,
                    )
                    topic = alter_partition.RequestTopicData(
                        topic_id=topic_id, partitions=[partition]
                    )
                    request = alter_partition.AlterPartitionRequest(
                        broker_id=broker_id, broker_epoch=broker_epoch, topics=[topic]
                    )
                    name = f"{state}: isr {isr} of {words} in epoch {epoch}"
                    if name not in self.answers:
                        self._ask(site.controller, name, request, 3)
        self.answers[f"{state}: isr at the broker hangs up"] = _is_hung_up_on(site, request, 3)


def _listed(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _is_hung_up_on(site: PeerSite, request: Message, version: int) -> bool:
    """Tell whether the broker's own listener refuses a request that is for controllers."""
    with BrokerConnection(site.port) as connection:
        connection.send(request, version)
        try:
            connection.receive(api_for_key(request.ID).response(), version)
        except ConnectionError:
            return True
    return False
