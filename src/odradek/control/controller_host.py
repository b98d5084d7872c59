"""Runs the controller while this node leads the metadata quorum.

::

    Standby   ──raft leads──▶   Claiming   ──all before our epoch is replayed──▶   Active
       ▲                            │                                                │
       └──── leadership lost: every waiting caller is refused, the controller is dropped ────┘

- **Claiming.** A new leader may lack in its image what its predecessors committed. It decides
  nothing before all records below its own epoch are committed and replayed. Then ``activate`` is
  planned before anything else.
- **One change at a time.** A plan is made for one image: nothing else is planned before its records
  are appended and replayed. Small changes are done at once. Large ones, thousands of topics in a
  request, are planned, encoded and replayed in slices; changes that come meanwhile wait.
- **Plans build on plans.** Records are replayed when they are appended, so that the next plan sees
  them. A reply waits until they are committed and have taken effect here. A plan without records
  waits as well for what was appended before it: its reply may rest on that.
- **No space.** Records are replayed when they are in the log, not before. A change for which there
  is no space is refused, and nothing has happened.
- **Renouncing.** Uncommitted records may be lost or not. Nothing is undone: the controller is
  dropped, in the middle of a change if need be, and the next claim makes one from the committed
  image.

Everything here happens on one thread; there is no I/O. The quorum is a port.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from odradek.controller.controller import Controller
from odradek.controller.result import Result
from odradek.core.clock import Clock
from odradek.core.errors import ApiError, ErrorCode, OdradekError
from odradek.core.slices import Slices, Steps
from odradek.metadata.image import ClusterImage
from odradek.metadata.record_versions import VersionedRecord
from odradek.metadata.snapshots import QuorumRecords
from odradek.quorum.metadata_batch import MetadataBatch
from odradek.quorum.quorum_listener import NotLeaderError

R = TypeVar("R")
T = TypeVar("T")
Planned: TypeAlias = Result[R] | Steps[Result[R]]
Plan: TypeAlias = Callable[[Controller], Planned[R]]
Refuse: TypeAlias = Callable[[ApiError], None]
OnFault: TypeAlias = Callable[[str, Exception], None]

WAITING_MAX: Final = 10_000
"""Requests that wait for their turn or for a commit; more are refused until there are fewer."""
RECORDS_AT_ONCE_MAX: Final = 100
"""Records of a plan that are replayed and appended without giving others a turn."""


class QuorumPort(Protocol):
    """What the host needs of the metadata quorum."""

    @property
    def committed_image(self) -> ClusterImage: ...

    @property
    def log_end_offset(self) -> int: ...

    def new_batch(self, records: Iterable[VersionedRecord] = ()) -> MetadataBatch: ...

    def append(self, batch: MetadataBatch, epoch: int) -> int:
        """Append a batch; return where the log ends then.

        Raises:
            NotLeaderError: This node does not lead ``epoch`` any more.
            ApiError: KAFKA_STORAGE_ERROR: there is no space; nothing was appended.
            OSError: What is in the log now is not known.
        """

    def append_quorum(self, records: QuorumRecords, epoch: int) -> None:
        """Append what the log says of the quorum itself; raises as ``append``."""

    def resign(self) -> None:
        """Give leadership up: another node may do better."""


class _Waiting(NamedTuple):
    end_offset: int
    reply: Callable[[], None]
    refuse: Refuse


@dataclass(slots=True, eq=False)
class _Change:
    plan: Plan[Any]
    then: Callable[[Any], None]
    refuse: Refuse
    is_answered: bool = False
    """Its reply is among those that wait for a commit: only its records are not replayed yet."""


@dataclass(slots=True)
class Standby:
    """Another node leads, or none."""


@dataclass(slots=True)
class Claiming:
    """Leads, and waits until all that its predecessors committed is replayed."""

    epoch: int
    epoch_start_offset: int
    is_preparing: bool = False


@dataclass(slots=True)
class Active:
    epoch: int
    controller: Controller


class _MovedOnError(OdradekError):
    """The log has grown since the plan was made, whose records name offsets: plan again."""


class _ReplayError(OdradekError):
    """Records that were appended do not fit."""


class ControllerHost:
    def __init__(
        self,
        quorum: QuorumPort,
        make_controller: Callable[[ClusterImage], Controller],
        clock: Clock,
        slices: Slices,
        *,
        formatted: Callable[[], tuple[VersionedRecord, ...] | None] = lambda: None,
        on_active: Callable[[], None] = lambda: None,
        on_inactive: Callable[[], None] = lambda: None,
        when_published: Callable[[Callable[[], None]], None] = lambda then: then(),
        on_fault: OnFault | None = None,
    ) -> None:
        """``formatted`` are the records with which an empty cluster begins (``storage format``).

        ``on_active`` is called when a claim is through, ``on_inactive`` when that is over.
        ``when_published`` calls back when all that is committed has taken effect in this process:
        a client that created a topic here finds it. ``on_fault`` gets what no request is to blame
        for; without it such errors are raised where they occur.
        """
        self._quorum = quorum
        self._make_controller = make_controller
        self._clock = clock
        self._slices = slices
        self._formatted = formatted
        self._on_active = on_active
        self._on_inactive = on_inactive
        self._when_published = when_published
        self._on_fault = on_fault or _raise
        self.state: Standby | Claiming | Active = Standby()
        self._queued: deque[_Change] = deque()
        self._current: _Change | None = None
        self._is_carrying_on = False
        self._waiting: deque[_Waiting] = deque()
        self._loaded_offset = 0

    @property
    def is_active(self) -> bool:
        return isinstance(self.state, Active)

    @property
    def next_offset(self) -> int:
        """Where the records of the next plan will lie: for plans, which ask when they are made."""
        return self._quorum.log_end_offset

    @property
    def active_image(self) -> ClusterImage | None:
        """The image with all that is decided, committed or not; None while not active."""
        state = self.state
        return state.controller.image if isinstance(state, Active) else None

    # From the quorum.

    def on_leading(self, epoch: int, epoch_start_offset: int) -> None:
        """This node leads ``epoch``, whose first record is at ``epoch_start_offset``."""
        assert isinstance(self.state, Standby)
        self.state = Claiming(epoch, epoch_start_offset)
        self._claim_if_ready()

    def on_leadership_lost(self) -> None:
        was_active = self.is_active
        self.state = Standby()
        refused = [each.refuse for each in self._waiting]
        if self._current is not None and not self._current.is_answered:
            refused.append(self._current.refuse)
        refused += [each.refuse for each in self._queued]
        self._current = None
        self._waiting.clear()
        self._queued.clear()
        if was_active:
            self._on_inactive()
        for refuse in refused:
            refuse(not_controller())

    def on_loaded(self, end_offset: int) -> None:
        """All up to ``end_offset`` is committed and in the quorum's image."""
        self._loaded_offset = end_offset
        self._claim_if_ready()
        while self._waiting and self._waiting[0].end_offset <= end_offset:
            self._when_published(self._waiting.popleft().reply)

    # Requests, and what the controller does by itself.

    def submit(
        self, plan: Plan[R], then: Callable[[R], None], refuse: Refuse = lambda _error: None
    ) -> None:
        """Carry out a plan; ``then`` gets its reply when all that it rests on is committed.

        ``refuse`` is called instead if this node is not the active controller, or is no longer when
        the records should have been committed: whether they are is not known then.
        """
        if not self.is_active:
            refuse(not_controller())
        elif len(self._waiting) + len(self._queued) >= WAITING_MAX:
            refuse(ApiError(ErrorCode.REQUEST_TIMED_OUT, "the controller is overloaded"))
        else:
            self._queued.append(_Change(plan, then, refuse))
            self._carry_on()

    def touch_session(self, broker_id: int, broker_epoch: int) -> None:
        """Count a heartbeat as it arrives, before the work that is queued (KAFKA-15019)."""
        state = self.state
        if isinstance(state, Active):
            now_ms = self._clock.monotonic_ms()
            state.controller.touch_session(broker_id, broker_epoch, now_ms)

    def _carry_on(self) -> None:
        if self._is_carrying_on:
            return  # further up: a reply led to another request
        self._is_carrying_on = True
        try:
            while self._queued and self._current is None:
                state = self.state
                assert isinstance(state, Active), "others are refused"
                self._current = self._queued.popleft()
                self._begin(state, self._current)
        finally:
            self._is_carrying_on = False

    def _begin(self, state: Active, change: _Change) -> None:
        base_offset = self.next_offset
        try:
            planned = change.plan(state.controller)
            if isinstance(planned, Result) and len(planned.records) <= RECORDS_AT_ONCE_MAX:
                self._apply_at_once(state, change, planned)
                self._on_done(change)
                return
            steps = self._apply_in_steps(state, change, planned, base_offset)
            self._slices.run(
                self._while_in(state, steps),
                lambda _none: self._on_done(change),
                partial(self._on_failed, change),
            )
        except Exception as error:
            self._on_failed(change, error)

    def _apply_at_once(self, state: Active, change: _Change, result: Result[Any]) -> None:
        if result.quorum is not None:
            self._quorum.append_quorum(result.quorum, state.epoch)
        if result.records:
            self._quorum.append(self._quorum.new_batch(result.records), state.epoch)
        if self._current is not change:
            return  # the append ended the leadership
        for record in result.records:
            _replay(state.controller, record)
        self._answer(change, partial(change.then, result.reply))

    def _apply_in_steps(
        self, state: Active, change: _Change, planned: Planned[Any], base_offset: int
    ) -> Steps[None]:
        result = planned if isinstance(planned, Result) else (yield from planned)
        batches = self._split(state, result)
        if result.quorum is not None:
            self._quorum.append_quorum(result.quorum, state.epoch)
        for number, records in enumerate(batches):
            batch = self._quorum.new_batch()
            for record in records:
                yield
                batch.add(record)
            if number == 0 and result.quorum is None and self.next_offset != base_offset:
                raise _MovedOnError
            self._quorum.append(batch, state.epoch)
            if number == len(batches) - 1 and self._current is change:
                # It may be committed while its records are still being replayed: others wait.
                self._answer(change, partial(change.then, result.reply))
            for record in records:
                yield
                _replay(state.controller, record)
        yield from state.controller.settle_in_steps()
        if not batches:
            self._answer(change, partial(change.then, result.reply))

    def _split(self, state: Active, result: Result[Any]) -> list[tuple[VersionedRecord, ...]]:
        limit, records = state.controller.settings.records_per_request_max, result.records
        if len(records) > limit and not result.may_split:
            problem = f"{len(records)} records at once, {limit} are possible"
            raise ApiError(ErrorCode.POLICY_VIOLATION, problem)
        return [records[at : at + limit] for at in range(0, len(records), limit)]

    def _while_in(self, state: object, steps: Steps[T]) -> Steps[T | None]:
        """Take steps as long as a state lasts."""
        while self.state is state:
            try:
                next(steps)
            except StopIteration as ended:
                outcome: T = ended.value
                return outcome
            yield
        steps.close()
        return None

    def _on_done(self, change: _Change) -> None:
        if self._current is change:
            self._current = None
            self._carry_on()

    def _on_failed(self, change: _Change, error: Exception) -> None:
        if self._current is not change:
            return  # it was refused with the leadership
        self._current = None
        match error:
            case _MovedOnError():
                self._queued.appendleft(change)
            case ApiError():
                # A refusal may rest on records that are not committed, too.
                self._answer(change, partial(change.refuse, error))
            case NotLeaderError():
                self.on_leadership_lost()
                change.refuse(not_controller())
            case _ReplayError() | OSError():
                # The log has records that this controller does not, or perhaps has. Another leader
                # decides from what is committed.
                self._refuse(change, not_controller())
                self._quorum.resign()
                self._on_fault("the metadata log and the controller differ", _cause(error))
            case _:
                problem = "the controller failed to plan the request; its log says why"
                self._refuse(change, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, problem))
                self._on_fault("a plan failed", error)
        self._carry_on()

    def _refuse(self, change: _Change, error: ApiError) -> None:
        if not change.is_answered:
            change.refuse(error)

    def _answer(self, change: _Change, reply: Callable[[], None]) -> None:
        """Call ``reply`` when all that is appended so far is committed."""
        change.is_answered = True
        end_offset = self._quorum.log_end_offset
        if end_offset <= self._loaded_offset:
            self._when_published(reply)
        else:
            self._waiting.append(_Waiting(end_offset, reply, change.refuse))

    # Claiming.

    def _claim_if_ready(self) -> None:
        state = self.state
        if not isinstance(state, Claiming) or state.is_preparing:
            return
        if self._loaded_offset <= state.epoch_start_offset:
            return
        state.is_preparing = True
        controller = self._make_controller(self._quorum.committed_image)
        steps = self._while_in(state, controller.prepare_in_steps())
        self._slices.run(steps, lambda _none: self._activate(state, controller))

    def _activate(self, claim: Claiming, controller: Controller) -> None:
        if self.state is not claim:
            return
        self.state = Active(claim.epoch, controller)
        now_ms = self._clock.monotonic_ms()
        self.submit(
            lambda each: each.activate(now_ms, self._formatted()),
            lambda _none: None,
            self._on_not_activated,
        )
        if self.is_active:
            self._on_active()

    def _on_not_activated(self, error: ApiError) -> None:
        if error.code != ErrorCode.NOT_CONTROLLER:
            self._quorum.resign()
            self._on_fault("the controller cannot begin", error)


def _replay(controller: Controller, record: VersionedRecord) -> None:
    """Let the next plan build on a record, which is appended and not committed.

    Raises:
        _ReplayError: It does not fit: the controller planned nonsense, which the log keeps.
    """
    try:
        controller.replay(record.message)
    except Exception as error:
        raise _ReplayError from error


def _cause(error: Exception) -> Exception:
    return error.__cause__ if isinstance(error.__cause__, Exception) else error


def _raise(_what: str, error: Exception) -> None:
    raise error


def not_controller() -> ApiError:
    return ApiError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller")
