"""A broker with one replica: what carries out what the pure halves decide, as the broker does.

Messages are calls that the world delivers later, or never. What is asked of a leader and of the
controller carries a number; an answer to a question that was given up is dropped. What a follower
does with an answer that comes after it has been given another leader is its own affair.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.core.errors import ErrorCode
from odradek.replication.following import (
    Action,
    Append,
    Diverged,
    FindOffsets,
    Following,
    Progress,
    Truncate,
    TruncateFully,
    Wanted,
)
from odradek.replication.leadership import (
    Broker,
    Enough,
    LeaderSettings,
    Leadership,
    Proposal,
    Registration,
)
from tests.simulation.replication.model_controller import registration_of
from tests.simulation.replication.model_log import ModelLog, Record

if TYPE_CHECKING:
    from tests.simulation.replication.world import World

FETCH_WAIT_MS: Final = 200
FETCH_TIMEOUT_MS: Final = 1_000
RECORDS_MAX: Final = 4
RETRY_MS: Final = 60
NO_PROGRESS: Final = Progress(0, 0)


@dataclass(slots=True)
class Fetch:
    """A follower's question, as its leader has it."""

    follower: int
    broker_epoch: int
    wanted: Wanted
    reply: Callable[["Answer"], None]


@dataclass(slots=True)
class Answer:
    error: ErrorCode = ErrorCode.NONE
    diverged: Diverged | None = None
    offset: int = -1
    records: tuple[Record, ...] = ()
    progress: Progress = NO_PROGRESS


@dataclass(slots=True)
class Waiter:
    """A producer that waits for acks=all."""

    end_offset: int
    acknowledge: Callable[[], None]


class Replica:
    def __init__(self, world: "World", node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.log = ModelLog()  # on disk
        self.clean_epoch: int | None = None  # on disk
        self.run = 0
        self.is_up = False
        self.paused_until_ms = 0
        self.is_lossy = False
        """It has lost records since it was last in sync, and the controller does not know yet."""
        self._forget()

    def _forget(self) -> None:
        self.leadership: Leadership | None = None
        self.following: Following | None = None
        self.leader_epoch = -1
        self.applied = -1
        self.brokers: dict[int, Broker] = {}
        self.broker_epoch = -1
        self.is_stopping = False
        self.parked: list[Fetch] = []
        self.waiters: list[Waiter] = []
        self._asked: dict[int, int] = {}
        self._number = 0
        self._to_propose: Proposal | None = None
        self._proposed: Proposal | None = None

    # Up and down.

    def start(self) -> None:
        if self.is_up:
            return
        self.is_up = True
        self._forget()
        self.world.note("%d starts with %d..%d", self.node_id, *self._bounds())
        self._register()
        self._every(150, self._heartbeat)
        self._every(self.world.rules.lag_ms // 2, self._shrink)
        self._every(70, self._fetch)
        self._every(400, self._flush_sometimes)

    def crash(self, *, loses: bool) -> None:
        self.is_up = False
        self.run += 1
        lost = self.log.restart(self.world.random, loses=loses)
        self.world.note("%d crashes and loses %d", self.node_id, lost)
        self.is_lossy = self.is_lossy or lost > 0
        self._forget()

    def _bounds(self) -> tuple[int, int]:
        return self.log.log_start_offset, self.log.log_end_offset

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call unless this run of the broker has ended by then; a pause puts it off."""
        run, world = self.run, self.world

        def event() -> None:
            if self.run != run or not self.is_up:
                return
            if self.paused_until_ms > world.now_ms:
                world.at(self.paused_until_ms - world.now_ms, event)
                return
            call()

        world.at(delay_ms, event)

    def _every(self, interval_ms: int, call: Callable[[], None]) -> None:
        def tick() -> None:
            self.later(self.world.random.randint(interval_ms // 2, interval_ms), tick)
            call()

        self.later(self.world.random.randint(0, interval_ms), tick)

    # The controller.

    def _register(self) -> None:
        if self.broker_epoch >= 0:
            return
        self.later(100, self._register)
        is_clean, run = self.clean_epoch is not None, self.run

        def registered(epoch: int | None) -> None:
            if epoch is not None and self.broker_epoch < 0:
                self.broker_epoch = epoch
                self.clean_epoch = None
                self.learn()

        def ask() -> None:
            if self.run == run:
                epoch = self.world.register(self, is_clean=is_clean)
                self.world.send(-1, self.node_id, partial(registered, epoch))

        self.world.send(self.node_id, -1, ask)

    def _heartbeat(self) -> None:
        if self.broker_epoch < 0:
            return
        world, epoch, applied = self.world, self.broker_epoch, self.applied
        if self.is_stopping:
            world.send(self.node_id, -1, lambda: self._ask_to_stop(epoch))
        else:
            world.send(self.node_id, -1, lambda: world.heartbeat(self.node_id, epoch, applied))

    def stop(self) -> None:
        """Begin a controlled shutdown."""
        self.is_stopping = self.is_up

    def _ask_to_stop(self, epoch: int) -> None:
        if self.world.controller.stop(self.node_id, epoch):
            version, run = self.world.controller.version, self.run
            self.world.send(-1, self.node_id, lambda: self._stopped(version, run, epoch))

    def _stopped(self, version: int, run: int, epoch: int) -> None:
        if self.applied < version or self.run != run:
            return
        self.log.flush()
        self.log.checkpointed_high_watermark = self.log.high_watermark
        self.clean_epoch = epoch
        self.is_up = False
        self.run += 1
        self._forget()
        self.world.note("%d has stopped", self.node_id)
        self.world.on_stopped(self, epoch)

    def learn(self) -> None:
        """Hear of what the controller has decided; of the next change, or of all so far.

        A broker takes nothing on before it has registered: what was decided for its earlier run is
        void by then.
        """
        world = self.world
        version = world.controller.version
        if 0 <= self.broker_epoch <= version > self.applied:
            skips = self.applied < 0 or world.random.random() < world.faults.batched_metadata
            version = version if skips else self.applied + 1
            world.send(-1, self.node_id, partial(self._apply, version), is_metadata=True)

    def _apply(self, version: int) -> None:
        if version <= self.applied:
            return
        state = self.world.controller.states[version]
        before = None if self.applied < 0 else self.world.controller.states[self.applied].partition
        self.applied = version
        self.brokers = {
            each: Broker(broker.epoch, broker.is_active, broker.is_fenced)
            for each, broker in state.brokers.items()
        }
        if state.partition is not before:
            if state.partition.leader == self.node_id:
                self._lead(registration_of(state.partition))
            else:
                self._follow(state.partition.leader, state.partition.leader_epoch)
        self.learn()

    # Roles.

    def _lead(self, registration: Registration) -> None:
        self.following = None
        if self.leadership is None:
            rules = self.world.rules
            settings = LeaderSettings(min_insync_replicas=rules.min_isr, lag_ms_max=rules.lag_ms)
            self.leadership = Leadership(self.node_id, self.log, settings, self.brokers_get)
        leadership = self.leadership
        if leadership.take(registration, self.world.now_ms):
            self.leader_epoch = registration.leader_epoch
            self.log.begin_epoch(registration.leader_epoch)
            self.world.note("%d leads %s from %d", self.node_id, registration, self._bounds()[1])
            self.world.oracle.on_lead(self)
        self.commit()

    def brokers_get(self, node_id: int) -> Broker | None:
        return self.brokers.get(node_id)

    def _follow(self, leader_id: int, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self.leadership = None
        self._to_propose = None
        self.waiters.clear()
        for fetch in self.parked:
            fetch.reply(Answer(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self.parked.clear()
        if self.following is None:
            self.following = Following(self.log, leader_id, leader_epoch)
        elif not self.following.follow(leader_id, leader_epoch):
            return
        self.world.note("%d follows %d in %d", self.node_id, leader_id, leader_epoch)
        self._fetch()

    def commit(self) -> None:
        leadership, log = self.leadership, self.log
        if leadership is None:
            return
        offset = leadership.high_watermark(self.world.now_ms)
        if offset > log.high_watermark:
            before, log.high_watermark = log.high_watermark, offset
            self.world.oracle.on_committed(self, before)
        self._acknowledge()

    def _acknowledge(self) -> None:
        leadership = self.leadership
        while self.waiters and leadership is not None:
            waiter = self.waiters[0]
            outcome = leadership.enough(waiter.end_offset)
            if outcome is Enough.NOT_YET:
                return
            if self.world.faults.flushes_all and self.log.flushed_offset < waiter.end_offset:
                return
            del self.waiters[0]
            if outcome is Enough.YES:
                waiter.acknowledge()

    # The leader.

    def produce(self, value: int, *, acks_all: bool) -> None:
        leadership, log = self.leadership, self.log
        if leadership is None or (acks_all and leadership.is_under_min_isr):
            return
        offset = log.log_end_offset
        record = Record(self.leader_epoch, value)
        log.append(offset, [record], leader_epoch=self.leader_epoch)
        self.world.oracle.on_appended(self, offset, [record])
        if acks_all:
            acknowledged = partial(self.world.oracle.on_acknowledged, self, offset, record)
            self.waiters.append(Waiter(offset + 1, acknowledged))
        if self.world.faults.flushes_all:
            self._flush_soon()
        self.commit()
        for fetch in self._take_parked():
            self._complete(fetch)

    def _take_parked(self) -> list[Fetch]:
        parked, self.parked = self.parked, []
        return parked

    def on_fetch(self, fetch: Fetch) -> None:
        answer = self._read(fetch, takes_note=True)
        if answer.records or answer.error or answer.diverged:
            fetch.reply(answer)
            return
        self.parked.append(fetch)
        self.later(FETCH_WAIT_MS, partial(self._wake, fetch))

    def _wake(self, fetch: Fetch) -> None:
        if any(each is fetch for each in self.parked):
            self.parked = [each for each in self.parked if each is not fetch]
            self._complete(fetch)

    def _complete(self, fetch: Fetch) -> None:
        fetch.reply(self._read(fetch, takes_note=False))

    def _read(self, fetch: Fetch, *, takes_note: bool) -> Answer:
        leadership, log, wanted = self.leadership, self.log, fetch.wanted
        code = self._refusal(fetch)
        if code:
            return Answer(code)
        assert leadership is not None
        offset = wanted.offset
        diverged = find_divergence(log, wanted)
        if isinstance(diverged, ErrorCode):
            return Answer(diverged)
        if diverged is not None:
            return Answer(diverged=diverged)
        if not log.log_start_offset <= offset <= log.log_end_offset:
            return Answer(ErrorCode.OFFSET_OUT_OF_RANGE)
        records = tuple(log.read(offset, RECORDS_MAX))
        if takes_note:
            self.take_note(leadership, fetch)
        progress = Progress(log.high_watermark, log.log_start_offset)
        return Answer(offset=offset, records=records, progress=progress)

    def _refusal(self, fetch: Fetch) -> ErrorCode:
        epoch, leadership = fetch.wanted.leader_epoch, self.leadership
        if epoch != self.leader_epoch:
            is_old = epoch < self.leader_epoch
            return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
        if leadership is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if leadership.is_overtaken(fetch.follower, fetch.broker_epoch):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def take_note(self, leadership: Leadership, fetch: Fetch) -> None:
        wanted = fetch.wanted
        proposal = leadership.on_fetch(
            fetch.follower,
            wanted.offset,
            wanted.log_start_offset,
            fetch.broker_epoch,
            self.world.now_ms,
        )
        self.commit()
        self._propose(proposal)

    def _shrink(self) -> None:
        if self.leadership is not None:
            self._propose(self.leadership.shrink(self.world.now_ms))

    def delete_records(self, offset: int) -> None:
        if self.leadership is not None:
            self.log.advance_log_start(min(offset, self.log.high_watermark))

    # Proposals: one under way, the newest waits.

    def _propose(self, proposal: Proposal | None) -> None:
        if proposal is not None:
            self._to_propose = proposal
            self._send_proposal()

    def _send_proposal(self) -> None:
        proposal, leadership = self._to_propose, self.leadership
        if self._proposed is not None or proposal is None:
            return
        self._to_propose = None
        if leadership is None or not leadership.is_current(proposal):
            return
        self._proposed = proposal
        world, node_id, epoch = self.world, self.node_id, self.broker_epoch

        def ask() -> None:
            answer = world.controller.alter_partition(node_id, epoch, proposal)
            world.note("%d proposes %s: %s", node_id, proposal, answer)
            world.send(-1, node_id, partial(self._on_proposal_answered, proposal, answer))

        world.send(node_id, -1, ask)
        self.later(600, partial(self._give_up_proposal, proposal))

    def _give_up_proposal(self, proposal: Proposal) -> None:
        if self._proposed is proposal:
            self._proposed = None
            self._propose(self._to_propose or Proposal(*proposal))

    def _on_proposal_answered(self, proposal: Proposal, answer: Registration | ErrorCode) -> None:
        if self._proposed is not proposal:
            return
        self._proposed = None
        leadership = self.leadership
        if leadership is not None:
            if isinstance(answer, Registration):
                leadership.on_confirmed(proposal, answer)
                self.commit()
            elif leadership.on_refused(proposal, answer) and self._to_propose is None:
                self._to_propose = Proposal(*proposal)
        self.later(RETRY_MS, self._send_proposal)

    # The follower.

    def _fetch(self) -> None:
        following = self.following
        if following is None or self.broker_epoch < 0 or following.leader_id in self._asked:
            return
        if self.is_flush_due:
            return  # the next fetch would acknowledge what is not on disk
        plan = following.plan(self.world.now_ms)
        if isinstance(plan, Truncate):
            self._carry_out(following, following.wanted, plan, Answer())
            plan = following.plan(self.world.now_ms)
        if isinstance(plan, Wanted):
            self._ask(following, plan)

    def _ask(self, following: Following, wanted: Wanted) -> None:
        world, leader_id = self.world, following.leader_id
        self._number += 1
        number = self._asked[leader_id] = self._number
        leader = world.replicas[leader_id]
        answered = partial(self._on_answer, leader_id, number, following, wanted)

        def reply(answer: Answer) -> None:
            world.send(leader_id, self.node_id, partial(answered, answer))

        fetch = Fetch(self.node_id, self.broker_epoch, wanted, reply)
        world.send(self.node_id, leader_id, partial(leader.on_fetch, fetch), may_straggle=True)
        self.later(FETCH_TIMEOUT_MS, partial(self._give_up, leader_id, number))

    def _give_up(self, leader_id: int, number: int) -> None:
        if self._asked.get(leader_id) == number:
            del self._asked[leader_id]
            self._fetch()

    def _on_answer(
        self, leader_id: int, number: int, following: Following, wanted: Wanted, answer: Answer
    ) -> None:
        if self._asked.get(leader_id) != number:
            return
        del self._asked[leader_id]
        if following is self.following:
            if answer.error:
                action = following.on_error(wanted, answer.error, self.world.now_ms)
            elif answer.diverged is not None:
                action = following.on_diverged(wanted, answer.diverged)
            else:
                action = following.on_records(wanted)
            self._carry_out(following, wanted, action, answer)
        self._fetch()

    def _carry_out(
        self, following: Following, wanted: Wanted, action: Action, answer: Answer
    ) -> None:
        log, oracle = self.log, self.world.oracle
        match action:
            case Append(leader_epoch=leader_epoch):
                self._append(following, answer, leader_epoch)
            case Truncate(offset):
                oracle.on_truncated(self, offset)
                log.truncate_to(offset)
            case TruncateFully(offset):
                self.world.note("%d begins again at %d", self.node_id, offset)
                log.truncate_fully(offset)
            case FindOffsets():
                self._find_offsets(following, wanted)
        following.check_invariants()

    def _append(self, following: Following, answer: Answer, leader_epoch: int) -> None:
        log, oracle = self.log, self.world.oracle
        taken = log.append(answer.offset, list(answer.records), leader_epoch=leader_epoch)
        oracle.on_appended(self, answer.offset, taken, answer.progress.log_start_offset)
        before, log.high_watermark = (
            log.high_watermark,
            following.high_watermark_after(answer.progress),
        )
        log.advance_log_start(answer.progress.log_start_offset)
        oracle.on_shown(self, before)
        if taken and self.world.faults.flushes_all:
            self._flush_soon()

    def _find_offsets(self, following: Following, wanted: Wanted) -> None:
        """Ask where the leader's log begins, then where it ends."""
        world, leader_id, now_ms = self.world, following.leader_id, self.world.now_ms
        leader = world.replicas[leader_id]
        following.delay(now_ms)

        def ends(start: int, end: int) -> None:
            if following is self.following:
                action = following.on_offsets(wanted, start, end)
                self._carry_out(following, wanted, action, Answer())
                following.resume()
                self._fetch()

        def ask_end(start: int) -> None:
            if leader.leadership is not None and leader.leader_epoch == wanted.leader_epoch:
                end = leader.log.log_end_offset
                world.send(leader_id, self.node_id, partial(ends, start, end))

        def ask() -> None:
            if leader.leadership is not None and leader.leader_epoch == wanted.leader_epoch:
                ask_end_later = partial(ask_end, leader.log.log_start_offset)
                world.send(self.node_id, leader_id, ask_end_later)

        world.send(self.node_id, leader_id, ask)

    # The disk.

    @property
    def is_flush_due(self) -> bool:
        """As with ``flush.messages=1``."""
        log = self.log
        return self.world.faults.flushes_all and log.flushed_offset < log.log_end_offset

    def _flush_soon(self) -> None:
        end = self.log.log_end_offset

        def flushed() -> None:
            log = self.log
            log.flushed_offset = max(log.flushed_offset, min(end, log.log_end_offset))
            self._fetch()
            self._acknowledge()

        self.later(self.world.random.randint(1, 30), flushed)

    def _flush_sometimes(self) -> None:
        if self.world.random.random() < 0.2:
            self.log.flush()
        if self.world.random.random() < 0.5:
            self.log.checkpointed_high_watermark = self.log.high_watermark


def find_divergence(log: ModelLog, wanted: Wanted) -> Diverged | ErrorCode | None:
    """Find where the log of a follower parts from its leader's, as a leader does."""
    if wanted.last_fetched_epoch < 0:
        return None
    epoch, end = log.leader_epochs.end_offset_for(wanted.last_fetched_epoch, log.log_end_offset)
    if end < 0 or wanted.offset < log.log_start_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if epoch < wanted.last_fetched_epoch or end < wanted.offset:
        return Diverged(epoch, end)
    return None
