"""A quorum on a stage: a script says what happens next, and all that is said and done is written.

A script is a list of commands, one per line; ``#`` begins a comment. Nothing happens by itself:
messages wait until they are delivered, appends until they are flushed, deadlines until time passes.

::

    voters 1 2 3          start these nodes, with a vote
    observers 4           start these, without
    first 1               start this node; it is the only voter that the log names
    joiners 2 3           start these controllers, without a vote
    add 1 2               ask node 1 for a vote for node 2
    remove 1 2            ask node 1 to take the vote of node 2
    elect 1               let this node be elected; ``election.txt`` shows what is left out here
    wait 1000 [NODES]     let time pass, for all or for these nodes
    deliver [1>2]         deliver all messages under way, or those of one link
    drop [1>2]            lose them
    append 1 VALUE        let a leader append a record
    flush [1]             let what is appended reach the disk, of all or of one
    settle                deliver and flush until nothing is under way
    cut 1                 lose whatever this node sends or should get, until ``heal``
    crash 1               lose what is not on disk; ``start 1`` brings it back
    snapshot 1            replace what is committed by a snapshot
    resign 1              let a leader give up
    logs                  show every log, its high watermark after ``|``
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import cast

from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.raft import (
    AppendLeaderChange,
    HardState,
    OffsetAndEpoch,
    RaftConfig,
    RaftDriver,
    RaftNode,
    ReplicaKey,
    VoterSet,
)
from odradek.raft.driver import AppendedVoters
from odradek.raft.messages import (
    AddVoterRequest,
    Message,
    ProbeVoterRequest,
    ProbeVoterResponse,
    RemoveVoterRequest,
    Request,
    Response,
    VoterDetails,
)
from odradek.raft.ready import AppendVoters, FetchRead, RoleEvent, SnapshotRead
from tests.golden.raft.wording import said, shown_entry, shown_event, shown_state
from tests.simulation.raft.sim_log import Entry, SimLog, history_of, voters_in

CONFIG = RaftConfig()
OPERATOR = -1
FIRST = -2  # the bootstrap server: the first node


@dataclass
class Letter:
    source: int
    target: int
    message: Message
    reply_to: int = 0  # the token that stands for the request at its receiver
    name: int = 0  # by which a request means its target: a node, or the bootstrap server


@dataclass
class Actor:
    key: ReplicaKey
    votes: bool
    is_by_log: bool = False  # a controller of a quorum whose voters are in the log
    log: SimLog = field(default_factory=SimLog)
    hard_state: HardState = field(default_factory=HardState)
    driver: RaftDriver | None = None
    flushes: list[tuple[int, int, Callable[[int], None]]] = field(default_factory=list)
    installs: list[Callable[[], None]] = field(default_factory=list)
    asked_by: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    role: str = ""


class Stage:
    def __init__(self) -> None:
        self.now_ms = 0
        self.actors: dict[int, Actor] = {}
        self.mail: list[Letter] = []
        self.lines: list[str] = []
        self._tokens = 0
        self._cut: set[int] = set()

    def perform(self, command: str) -> list[str]:
        """Carry out one line of a script; return what was said and done."""
        self.lines = []
        verb, *arguments = command.split()
        getattr(self, f"do_{verb}")(*arguments)
        for actor in self.actors.values():
            if actor.driver is not None:
                actor.driver.node.check_invariants()
        return self.lines

    def write(self, text: str) -> None:
        self.lines.append(text)

    # Commands.

    def do_voters(self, *ids: str) -> None:
        for each in ids:
            self.actors[int(each)] = Actor(ReplicaKey(int(each), _directory(int(each))), votes=True)
        for each in ids:
            self.do_start(each)

    def do_observers(self, *ids: str) -> None:
        for each in ids:
            self.actors[int(each)] = Actor(
                ReplicaKey(int(each), _directory(int(each))), votes=False
            )
            self.do_start(each)

    def do_first(self, node_id: str) -> None:
        key = ReplicaKey(int(node_id), _directory(int(node_id)))
        self.actors[key.id] = Actor(key, votes=True, is_by_log=True)
        self.do_start(node_id)

    def do_joiners(self, *ids: str) -> None:
        for each in ids:
            key = ReplicaKey(int(each), _directory(int(each)))
            self.actors[key.id] = Actor(key, votes=False, is_by_log=True)
            self.do_start(each)

    def do_add(self, asked: str, node_id: str) -> None:
        self._operate(asked, AddVoterRequest(OPERATOR, self.actors[int(node_id)].key, ()))

    def do_remove(self, asked: str, node_id: str) -> None:
        self._operate(asked, RemoveVoterRequest(OPERATOR, self.actors[int(node_id)].key))

    def _operate(self, asked: str, request: Request) -> None:
        self.mail.append(Letter(OPERATOR, int(asked), request))
        self.do_deliver(f"{OPERATOR}>{asked}")

    def do_start(self, node_id: str) -> None:
        actor = self.actors[int(node_id)]
        if actor.hard_state.epoch:
            self.write(f"{node_id} reads {shown_state(actor.hard_state)}")
        voters = VoterSet(tuple(each.key for each in self.actors.values() if each.votes))
        if actor.is_by_log and not actor.votes:
            voters = VoterSet(())
        node = RaftNode(
            actor.key,
            history_of(actor.log, voters, is_by_log=actor.is_by_log),
            actor.log,
            actor.hard_state,
            config=CONFIG,
            random=Random(int(node_id)),
            now_ms=self.now_ms,
            can_become_voter=actor.votes or actor.is_by_log,
            bootstrap_ids=(FIRST,) if actor.is_by_log else (),
            details=VoterDetails((), 0, 1) if actor.is_by_log else None,
        )
        actor.driver = RaftDriver(node, StagePorts(self, actor))
        self._let(actor, RaftDriver.start)

    def do_crash(self, node_id: str) -> None:
        actor = self.actors[int(node_id)]
        actor.driver, actor.role = None, ""
        actor.log.entries = list(actor.log.durable)
        actor.flushes, actor.installs, actor.asked_by = [], [], {}
        self.mail = [each for each in self.mail if actor.key.id not in (each.source, each.target)]
        self.write(f"{node_id} is gone; {len(actor.log.entries)} records are on its disk")

    def do_wait(self, ms: str, *ids: str) -> None:
        self.now_ms += int(ms)
        for actor in self._chosen(*ids):
            self._let(actor, RaftDriver.tick)

    def do_deliver(self, link: str = "") -> None:
        letters, self.mail = self._split(link)
        for letter in letters:
            self._deliver(letter)

    def do_drop(self, link: str = "") -> None:
        letters, self.mail = self._split(link)
        for letter in letters:
            self.write(f"lost: {letter.source} → {letter.target} {said(letter.message)}")

    def do_elect(self, node_id: str) -> None:
        self.mail.clear()
        self.do_wait(str(2 * CONFIG.election_timeout_ms), node_id)
        self.do_settle()
        self.lines = [f"{actor.key.id} is {actor.role}" for actor in self.actors.values()]

    def do_cut(self, node_id: str) -> None:
        self._cut.add(int(node_id))

    def do_heal(self) -> None:
        self._cut.clear()

    def do_append(self, node_id: str, value: str) -> None:
        actor = self.actors[int(node_id)]
        assert actor.driver is not None
        actor.log.append([Entry(actor.driver.node.epoch, value)])
        self._let(actor, RaftDriver.on_appended)

    def do_flush(self, *ids: str) -> None:
        for actor in self._chosen(*ids):
            flushes, actor.flushes = actor.flushes, []
            for generation, offset, then in flushes:
                if generation == actor.log.generation:
                    actor.log.flush(offset)
                    self.write(f"{actor.key.id} has everything before {offset} on disk")
                self._let(actor, _ignoring_driver(partial(then, offset)))
            installs, actor.installs = actor.installs, []
            for install in installs:
                self._let(actor, _ignoring_driver(install))

    def do_settle(self) -> None:
        for _ in range(100):
            if not self.mail and not any(a.flushes or a.installs for a in self.actors.values()):
                return
            self.do_flush()
            self.do_deliver()
            # Fetches that wait for news are quiet; time ends them, not delivery.
        raise AssertionError("does not settle")

    def do_snapshot(self, node_id: str) -> None:
        actor = self.actors[int(node_id)]
        assert actor.driver is not None
        actor.log.snapshot(actor.driver.node.high_watermark or 0)
        snapshot = actor.log.latest_snapshot
        assert snapshot is not None
        self.write(f"{node_id} has a snapshot of everything before {snapshot.offset}")

    def do_resign(self, node_id: str) -> None:
        self._let(self.actors[int(node_id)], RaftDriver.resign)

    def do_logs(self) -> None:
        for actor in self.actors.values():
            high_watermark = actor.driver.node.high_watermark if actor.driver else None
            words = [
                ("" if at != high_watermark else "| ") + f"{entry.epoch}:{shown_entry(entry)}"
                for at, entry in enumerate(actor.log.entries)
                if at >= actor.log.log_start_offset
            ]
            if high_watermark == len(actor.log.entries):
                words.append("|")
            start = f"({actor.log.log_start_offset} in a snapshot) "
            shown = start if actor.log.log_start_offset else ""
            self.write(f"{actor.key.id}: {shown}{' '.join(words)}".replace(",", "").rstrip())

    # How it is done.

    def _let(self, actor: Actor, action: Callable[[RaftDriver], None]) -> None:
        if actor.driver is None:
            return
        action(actor.driver)
        node = actor.driver.node
        role = f"{type(node.role).__name__} in epoch {node.epoch}"
        if role != actor.role:
            self.write(f"{actor.key.id} is {role}")
            actor.role = role

    def _chosen(self, *ids: str) -> list[Actor]:
        return [self.actors[int(each)] for each in ids] or list(self.actors.values())

    def _split(self, link: str) -> tuple[list[Letter], list[Letter]]:
        def is_meant(letter: Letter) -> bool:
            return link in ("", f"{letter.source}>{letter.target}")

        return (
            [each for each in self.mail if is_meant(each)],
            [each for each in self.mail if not is_meant(each)],
        )

    def _deliver(self, letter: Letter) -> None:
        if letter.target == OPERATOR:
            self.write(f"{letter.source} → operator {said(letter.message)}")
            return
        actor = self.actors[letter.target]
        if actor.driver is None or self._cut & {letter.source, letter.target}:
            self.write(f"lost: {letter.source} → {letter.target} {said(letter.message)}")
            return
        self.write(f"{letter.source} → {letter.target} {said(letter.message)}")
        message = letter.message
        if isinstance(message, ProbeVoterRequest):
            answer = ProbeVoterResponse(
                message.correlation_id, letter.target, ErrorCode.NONE, (0, 1)
            )
            self.mail.append(Letter(letter.target, letter.source, answer, message.correlation_id))
            return
        if not letter.reply_to:
            self._tokens += 1
            actor.asked_by[self._tokens] = (letter.source, message.correlation_id, letter.name)
            message = replace(message, correlation_id=self._tokens)
        self._let(actor, lambda driver: driver.step(message))


class StagePorts:
    """Implements ``odradek.raft.driver.DriverPorts``."""

    def __init__(self, stage: Stage, actor: Actor) -> None:
        self.stage = stage
        self.actor = actor
        self.id = actor.key.id

    def persist(self, state: HardState) -> None:
        self.actor.hard_state = state
        self.stage.write(f"{self.id} writes {shown_state(state)}")

    def truncate(self, offset: int) -> None:
        self.actor.log.truncate(offset)
        self.stage.write(f"{self.id} cuts its log at {offset}")

    def append_fetched(self, records: object) -> Iterable[AppendedVoters]:
        return self._append(cast("list[Entry]", records))

    def append_leader_change(self, change: AppendLeaderChange) -> Iterable[AppendedVoters]:
        entries = [Entry(change.epoch, f"leader-{self.id}")]
        if self.actor.is_by_log and voters_in(self.actor.log.entries) is None:
            assert self.actor.driver is not None
            entries.append(Entry.of_voters(change.epoch, self.actor.driver.node.voters))
        return self._append(entries)

    def append_voters(self, change: AppendVoters) -> Iterable[AppendedVoters]:
        ids = ", ".join(map(str, change.voters.ids))
        self.stage.write(f"{self.id} appends that the voters are {ids}")
        return self._append([Entry.of_voters(change.epoch, change.voters)])

    def _append(self, entries: list[Entry]) -> list[AppendedVoters]:
        offset = self.actor.log.log_end_offset
        self.actor.log.append(entries)
        named = [(at, each.voters) for at, each in enumerate(entries, offset)]
        return [(at, voters) for at, voters in named if voters is not None]

    def flush(self, then: Callable[[int], None]) -> None:
        log = self.actor.log
        self.actor.flushes.append((log.generation, log.log_end_offset, then))

    def store_piece(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> bool:
        part = self.actor.log.parts.setdefault(snapshot_id, bytearray())
        assert len(part) == position
        part += data
        return True

    def install_snapshot(
        self,
        snapshot_id: OffsetAndEpoch,
        then: Callable[[VoterSet | None], None],
        refused: Callable[[], None],
    ) -> None:
        def install() -> None:
            self.actor.log.install(snapshot_id)
            self.stage.write(f"{self.id} begins its log anew at {snapshot_id.offset}")
            found = voters_in(self.actor.log.entries)
            then(None if found is None else found[1])

        self.actor.installs.append(install)

    def send(self, target: int, request: Request) -> None:
        name, target = target, min(self.stage.actors) if target == FIRST else target
        self.stage.mail.append(Letter(self.id, target, request, name=name))

    def reply(self, response: Response) -> None:
        target, correlation_id, name = self.actor.asked_by.pop(response.correlation_id)
        answer = replace(response, correlation_id=correlation_id, sender=name)
        self.stage.mail.append(Letter(self.id, target, answer, reply_to=correlation_id))

    def reply_with_records(self, read: FetchRead) -> None:
        records = self.actor.log.read(read.fetch_offset, 10)
        self.reply(replace(read.response, records=records))

    def reply_with_piece(self, read: SnapshotRead) -> None:
        content = self.actor.log.snapshots[read.snapshot_id].content
        self.reply(replace(read.response, data=content[read.position :]))

    def monotonic_ms(self) -> int:
        return self.stage.now_ms

    def wake_at(self, deadline_ms: int) -> None:
        pass  # the script says when time passes

    def on_event(self, event: RoleEvent) -> None:
        self.stage.write(f"{self.id} hears: {shown_event(event)}")

    def on_high_watermark(self, offset: int) -> None:
        self.stage.write(f"{self.id} knows that everything before {offset} is committed")


def _ignoring_driver(action: Callable[[], None]) -> Callable[[RaftDriver], None]:
    return lambda _driver: action()


def _directory(node_id: int) -> Uuid:
    return Uuid(bytes([node_id] * 16))
