"""The controller decides only while it leads, and answers only what is committed."""

from collections.abc import Callable, Generator
from random import Random

import pytest

from odradek.control.controller_host import (
    RECORDS_AT_ONCE_MAX,
    WAITING_MAX,
    Active,
    ControllerHost,
    Planned,
    Standby,
)
from odradek.controller import Controller
from odradek.controller.result import Result
from odradek.controller.settings import ControllerSettings
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.metadata import VersionedRecord
from odradek.metadata.snapshots import QuorumRecords
from odradek.protocol.generated.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from odradek.protocol.generated.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.generated.metadata_records import NoOpRecord, UnfenceBrokerRecord
from odradek.testing.clock import TestClock
from tests.unit.control.quorum_stand_in import StandInQuorum, Turns

SETTINGS = ControllerSettings(node_id=1, cluster_id="cluster-a")


class Site:
    def __init__(self) -> None:
        self.quorum = StandInQuorum()
        self.turns = Turns()
        self.faults: list[str] = []
        self.host = ControllerHost(
            self.quorum,
            lambda image: Controller(SETTINGS, image=image),
            TestClock(),
            self.turns.slices,
            on_fault=lambda what, error: self.faults.append(f"{what}: {error!r}"),
        )
        self.answers: list[object] = []

    def lead(self) -> None:
        self.quorum.lead(self.host)

    def commit(self) -> None:
        self.quorum.commit(self.host)

    def create(
        self, name: str, validate_only: bool = False, partitions: int = 1, steps: bool = False
    ) -> None:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], validate_only=validate_only)

        def created(response: CreateTopicsResponse) -> None:
            self.answers += [(each.name, ErrorCode(each.error_code)) for each in response.topics]

        def plan(controller: Controller) -> Planned[CreateTopicsResponse]:
            if steps:
                return controller.create_topics_in_steps(request, Random(1))
            return controller.create_topics(request, Random(1))

        self.host.submit(
            plan,
            created,
            lambda error: self.answers.append((name, error.code)),
        )

    def add_broker(self) -> None:
        request = BrokerRegistrationRequest(
            broker_id=1,
            cluster_id="cluster-a",
            incarnation_id=Uuid.random(Random(1)),
            listeners=[Listener(name="A", host="h", port=1)],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SETTINGS.supported_features.items()
            ],
            log_dirs=[Uuid.random(Random(2))],
        )
        epoch = self.quorum.log_end_offset
        self.host.submit(lambda each: each.register_broker(request, 0, epoch), lambda _: None)
        self.host.submit(lambda each: each.unfence_broker(1), lambda _: None)
        self.commit()


@pytest.fixture
def site() -> Site:
    made = Site()
    made.lead()
    made.commit()
    made.add_broker()
    return made


def no_op(count: int = 1) -> tuple[VersionedRecord, ...]:
    return (VersionedRecord(NoOpRecord(), 0),) * count


def test_nothing_is_decided_before_the_past_is_replayed() -> None:
    site = Site()
    site.host.on_leading(5, 10)
    assert not site.host.is_active
    site.create("early")
    site.host.on_loaded(10)
    assert not site.host.is_active, "its own first record is not committed yet"
    assert site.answers == [("early", ErrorCode.NOT_CONTROLLER)]
    site.host.on_loaded(11)
    assert site.quorum.batches[-1], "activation comes first, with the records of an empty cluster"


def test_a_claim_prepares_in_slices_and_may_be_lost_meanwhile(site: Site) -> None:
    for number in range(20):
        site.create(f"t{number}")
    site.commit()
    site.host.on_leadership_lost()
    site.turns.is_slow = True
    site.lead()
    assert not site.host.is_active
    site.host.on_leadership_lost()
    site.turns.take_all()
    assert site.host.state == Standby()
    site.lead()
    site.turns.take_all()
    assert site.host.is_active


def test_a_reply_waits_until_its_records_are_committed(site: Site) -> None:
    site.create("orders")
    assert site.answers == []
    site.commit()
    assert site.answers == [("orders", ErrorCode.NONE)]


def test_a_reply_waits_until_its_records_have_taken_effect(site: Site) -> None:
    published: list[Callable[[], None]] = []
    site.host._when_published = published.append
    site.create("orders")
    site.commit()
    assert site.answers == []
    published.pop()()
    assert site.answers == [("orders", ErrorCode.NONE)]


def test_what_rests_on_uncommitted_records_waits_for_them(site: Site) -> None:
    site.create("orders")
    site.create("orders")  # refused, because of what may still be lost
    site.create("payments", validate_only=True)  # changes nothing
    assert site.answers == []
    site.commit()
    assert site.answers == [
        ("orders", ErrorCode.NONE),
        ("orders", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("payments", ErrorCode.NONE),
    ]


def test_callers_that_wait_when_leadership_is_lost_are_refused(site: Site) -> None:
    site.create("orders")
    site.host.on_leadership_lost()
    assert site.answers == [("orders", ErrorCode.NOT_CONTROLLER)]
    assert site.host.state == Standby()
    site.create("payments")
    assert site.answers[-1] == ("payments", ErrorCode.NOT_CONTROLLER)


def test_uncommitted_records_are_forgotten_with_the_leadership(site: Site) -> None:
    site.create("orders")
    site.host.on_leadership_lost()
    site.quorum.lose_last_batch()
    site.quorum.epoch = 7
    site.lead()
    site.create("orders")
    site.commit()
    assert site.answers[-1] == ("orders", ErrorCode.NONE)


def test_an_append_in_an_epoch_that_is_over_ends_the_leadership(site: Site) -> None:
    site.quorum.epoch = 6
    site.create("orders")
    assert site.answers == [("orders", ErrorCode.NOT_CONTROLLER)]
    assert site.host.state == Standby()


def test_a_large_plan_gives_others_a_turn_and_they_wait_for_it(site: Site) -> None:
    site.turns.is_slow = True
    site.create("large", partitions=RECORDS_AT_ONCE_MAX + 1, steps=True)
    site.create("small")
    end = site.quorum.log_end_offset
    site.turns.take(5)
    assert site.quorum.log_end_offset == end, "nothing is appended before the plan is made"
    site.turns.take_all()
    assert site.quorum.log_end_offset == end + RECORDS_AT_ONCE_MAX + 2 + 2
    site.commit()
    assert site.answers == [("large", ErrorCode.NONE), ("small", ErrorCode.NONE)]
    state = site.host.state
    assert isinstance(state, Active)
    state.controller.check_invariants()


def test_a_large_change_may_be_committed_before_it_is_replayed(site: Site) -> None:
    site.turns.is_slow = True
    end = site.quorum.log_end_offset
    site.create("large", partitions=RECORDS_AT_ONCE_MAX + 1)
    while site.quorum.log_end_offset == end:
        site.turns.take()
    site.create("large")
    site.commit()
    assert site.answers == [("large", ErrorCode.NONE)]
    site.turns.take_all()
    site.commit()
    assert site.answers[1:] == [("large", ErrorCode.TOPIC_ALREADY_EXISTS)]


@pytest.mark.parametrize("turns", [0, 3, 150, 260])
def test_a_large_plan_is_dropped_with_the_leadership(site: Site, turns: int) -> None:
    """Before the append, and after it while records are being replayed."""
    site.turns.is_slow = True
    site.create("large", partitions=RECORDS_AT_ONCE_MAX + 1, steps=True)
    site.create("small")
    site.turns.take(turns)
    assert not site.turns.is_idle
    end = site.quorum.log_end_offset
    site.host.on_leadership_lost()
    assert site.answers == [
        ("large", ErrorCode.NOT_CONTROLLER),
        ("small", ErrorCode.NOT_CONTROLLER),
    ]
    site.turns.take_all()
    assert (site.quorum.log_end_offset, len(site.answers)) == (end, 2)


@pytest.mark.parametrize("partitions", [1, RECORDS_AT_ONCE_MAX + 1])
def test_without_space_a_change_is_refused_and_nothing_has_happened(
    site: Site, partitions: int
) -> None:
    site.quorum.has_space = False
    site.create("orders", partitions=partitions)
    site.quorum.has_space = True
    assert site.answers == [("orders", ErrorCode.KAFKA_STORAGE_ERROR)]
    site.create("orders")
    site.commit()
    assert site.answers[1:] == [("orders", ErrorCode.NONE)]


def test_a_log_that_cannot_be_written_is_a_fault_of_the_node(site: Site) -> None:
    site.quorum.is_broken = True
    site.create("orders")
    assert site.answers == [("orders", ErrorCode.NOT_CONTROLLER)]
    assert site.quorum.resigned
    assert len(site.faults) == 1


def test_requests_that_replies_lead_to_see_what_came_before(site: Site) -> None:
    """A quorum of one commits inside the append: a reply may come before the records are in."""
    append = site.quorum.append

    def append_and_commit(batch: object, epoch: int) -> int:
        end = append(batch, epoch)  # type: ignore[arg-type]
        site.commit()
        return end

    site.create("first")
    site.quorum.append = append_and_commit  # type: ignore[method-assign]
    site.host.submit(lambda _: Result((), None), lambda _: site.create("second"))
    site.create("second")
    assert site.answers == [
        ("first", ErrorCode.NONE),
        ("second", ErrorCode.NONE),
        ("second", ErrorCode.TOPIC_ALREADY_EXISTS),
    ]


def test_a_plan_that_is_too_large_is_refused_whole(site: Site) -> None:
    end = site.quorum.log_end_offset
    many = Result(no_op(SETTINGS.records_per_request_max + 1), None)
    refused: list[ApiError] = []
    site.host.submit(lambda _: many, lambda _: None, refused.append)
    site.commit()
    assert [each.code for each in refused] == [ErrorCode.POLICY_VIOLATION]
    assert site.quorum.log_end_offset == end


def test_a_plan_that_may_be_split_takes_several_batches(site: Site) -> None:
    before = len(site.quorum.batches)
    many = Result(no_op(SETTINGS.records_per_request_max + 1), "done", may_split=True)
    site.host.submit(lambda _: many, site.answers.append)
    assert [len(each) for each in site.quorum.batches[before:]] == [10_000, 1]
    site.quorum.commit(site.host, but=1)
    assert site.answers == []
    site.commit()
    assert site.answers == ["done"]


def test_records_of_the_quorum_come_before_those_of_the_metadata(site: Site) -> None:
    before = len(site.quorum.batches)
    result = Result(no_op(), "done", quorum=QuorumRecords(1))
    site.host.submit(lambda _: result, site.answers.append)
    assert [len(each) for each in site.quorum.batches[before:]] == [0, 1]
    assert site.quorum.quorum_records == [QuorumRecords(1)]
    assert site.answers == []
    site.commit()
    assert site.answers == ["done"]


def test_a_plan_is_made_again_when_the_log_has_moved_on(site: Site) -> None:
    """Its records may name the offset at which they lie."""
    site.turns.is_slow = True
    offsets: list[int] = []

    def plan(_controller: Controller) -> Generator[None, None, Result[str]]:
        offsets.append(site.host.next_offset)
        yield
        return Result(no_op(), "done")

    site.host.submit(plan, site.answers.append)
    site.quorum.append_quorum(QuorumRecords(1), site.quorum.epoch)
    site.turns.take_all()
    site.commit()
    assert site.answers == ["done"]
    assert offsets == [offsets[0], offsets[0] + 1]


def test_records_that_do_not_fit_end_the_leadership(site: Site) -> None:
    def nonsense(controller: Controller) -> Result[None]:
        unknown = VersionedRecord(UnfenceBrokerRecord(id=77, epoch=1), 0)
        assert 77 not in controller.image.brokers
        return Result((unknown,), None)

    refused: list[ApiError] = []
    site.host.submit(nonsense, lambda _: None, refused.append)
    assert site.quorum.resigned
    assert [each.code for each in refused] == [ErrorCode.NOT_CONTROLLER]
    assert "CorruptionError" in site.faults[0]


def test_a_plan_that_fails_refuses_its_caller_alone(site: Site) -> None:
    def broken(_controller: Controller) -> Result[None]:
        raise ZeroDivisionError

    refused: list[ApiError] = []
    site.host.submit(broken, lambda _: None, refused.append)
    assert [each.code for each in refused] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert "ZeroDivisionError" in site.faults[0]
    site.create("orders")
    site.commit()
    assert site.answers == [("orders", ErrorCode.NONE)]


def test_waiting_requests_are_bounded(site: Site) -> None:
    site.create("orders")
    answers: list[object] = []
    waiting: Callable[[object], None] = answers.append
    for _ in range(WAITING_MAX):
        site.host.submit(lambda _: Result((), None), waiting, waiting)
    (refused,) = answers
    assert isinstance(refused, ApiError)
    site.commit()
    assert len(answers) == WAITING_MAX
