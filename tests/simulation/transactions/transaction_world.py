"""Producers, partitions and a transaction coordinator, with a network between them that is none.

One seed, one history. Producers come again under the same transactional id while older ones still
live; requests and answers are lost, come twice or very late; the coordinator moves, and with it
goes what was not committed; markers fail and are sent again.

At any time: an identity (producer id and epoch) belongs to one producer; epochs never go back; who
was replaced gets nothing done. In the end nothing is open; what a producer wrote in a transaction
was decided as a whole, by one decision that decided nothing else; and whoever was told that it
committed or aborted was told the truth.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random

from odradek.coordinator.record import CoordinatorRecord
from odradek.coordinator.result import Caller, Result
from odradek.coordinator.transaction.settings import TransactionSettings
from odradek.coordinator.transaction.shard import TransactionShard
from odradek.core.clock import Instant
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.protocol.generated.transaction_records import TransactionLogKey, TransactionLogValue
from odradek.protocol.message import Message
from tests.simulation.transactions.partition_model import PartitionModel, Token
from tests.simulation.transactions.transaction_host import Host
from tests.simulation.transactions.transaction_producer import (
    BUMP_VERSION,
    PARTITIONS,
    Answer,
    Ask,
    FatalError,
    Producer,
)

WALL_MS = 1_700_000_000_000
REQUEST_TIMEOUT_MS = 1_000
TRANSACTION_TIMEOUT_MS = 4_000
SETTLE_MS = 120_000
EVENTS_PER_SECOND_MAX = 2_000
RETRIABLE = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
_AGAIN = Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)


@dataclass
class Faults:
    loss: float = 0.03
    late: float = 0.05
    twice: float = 0.05
    append_failure: float = 0.02
    marker_loss: float = 0.25
    crash: float = 0.01
    failover_ms: int = 6_000


def in_order() -> Faults:
    """Nothing comes late, as older versions of the protocol need it."""
    return Faults(late=0.0, twice=0.0)


@dataclass
class Mix:
    """The transaction versions of producers, and the level of the cluster."""

    versions: tuple[int, ...] = (2,)
    level: int = 2


class World:
    def __init__(self, seed: int, faults: Faults | None = None, mix: Mix | None = None) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.faults = faults or Faults()
        self.mix = mix or Mix()
        self.now_ms = 0
        self.settings = TransactionSettings(
            transactional_id_expiration_ms=4_000,
            transaction_two_phase_commit_enable=self.mix.level >= BUMP_VERSION,
            transaction_abort_timed_out_transaction_cleanup_interval_ms=1_000,
            transaction_remove_expired_transaction_cleanup_interval_ms=1_500,
            transaction_version=self.mix.level,
        )
        self.history: list[str] = []
        self.partitions = {name: PartitionModel(name) for name in PARTITIONS}
        self.producers: list[Producer] = []
        self.is_storm = True
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._events_run = 0
        self._next_producer_id = 100
        self._owner_of: dict[tuple[int, int], Producer] = {}
        self._born: dict[tuple[int, int], int] = {}
        self._newest: dict[str, int] = {}
        self._transactional_id_of: dict[int, str] = {}
        self.host = Host(self)

    # Time and chance.

    @property
    def now(self) -> Instant:
        return Instant(WALL_MS + self.now_ms, self.now_ms)

    def after(self, by_ms: int, then: Callable[[], None]) -> None:
        self._sequence += 1
        heappush(self._events, (self.now_ms + by_ms, self._sequence, then))

    def run(self, for_ms: int) -> None:
        end_ms = self.now_ms + for_ms
        while self._events and self._events[0][0] <= end_ms:
            self.now_ms, _, event = heappop(self._events)
            self._events_run += 1
            self.check(
                self._events_run <= EVENTS_PER_SECOND_MAX * (1 + self.now_ms // 1_000), "busy"
            )
            event()
        self.now_ms = end_ms

    def chance(self, of: float) -> bool:
        return self.is_storm and self.random.random() < of

    def network(self, then: Callable[[], None]) -> None:
        """Have something arrive elsewhere: soon, or late, or twice, or not at all."""
        if self.chance(self.faults.loss):
            return
        if self.chance(self.faults.twice):
            self.after(self.random.randint(1, 5_000), then)
        is_late = self.chance(self.faults.late)
        self.after(self.random.randint(1, 15_000 if is_late else 20), then)

    def new_producer_id(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id

    def check(self, holds: bool, problem: str) -> None:
        assert holds, f"seed {self.seed}, {self.now_ms} ms: {problem}"

    # What happens by itself.

    def storm(self, for_ms: int) -> None:
        for number in range(2):
            self._spawn_later(f"t{number}", 0)
        if self.mix.level >= 1:
            self.host.begin_in_epoch("t0", 32_767 - self.random.randint(2, 12))
        self._fail_over_later()
        self.run(for_ms)

    def settle(self) -> None:
        """Let the network heal and nobody ask for anything; all that is open comes to an end."""
        self.is_storm = False
        for producer in self.producers:
            producer.is_alive = False
        self.run(SETTLE_MS)
        self._check_end()

    def _spawn_later(self, transactional_id: str, by_ms: int) -> None:
        def spawn() -> None:
            if not self.is_storm:
                return
            for older in self.producers:
                if older.transactional_id == transactional_id and self.random.random() < 0.3:
                    older.is_alive = False
            name = f"{transactional_id}.{len(self.producers)}"
            version = self.random.choice(self.mix.versions)
            producer = Producer(name, transactional_id, version, self.random)
            self.producers.append(producer)
            self._step(producer, None)
            self._spawn_later(transactional_id, self.random.randint(500, 8_000))

        self.after(by_ms, spawn)

    def _fail_over_later(self) -> None:
        def fail_over() -> None:
            if not self.is_storm or not self.faults.failover_ms:
                return
            if not self.host.has_uncommitted and self.random.random() < 0.95:
                self.after(3, fail_over)  # it is worse while something is on its way
            else:
                self.note("failover")
                self.check_replay()
                self.host.crash()
                self.after(self.random.randint(100, 800), self.host.elect)
                self._fail_over_later()

        self.after(self.random.randint(1_000, 2 * self.faults.failover_ms + 1_000), fail_over)

    def note(self, what: str) -> None:
        self.history.append(f"{self.now_ms} {what}")

    # Producers and their requests.

    def _step(self, producer: Producer, answer: Answer | None) -> None:
        if self.chance(self.faults.crash):
            producer.is_alive = False
        if not producer.is_alive:
            return
        try:
            ask = producer.script.send(answer)  # type: ignore[arg-type]  # None begins
        except StopIteration:
            producer.is_alive = False
        except FatalError as error:
            self.note(f"{producer.name} is over: {error}")
            producer.is_alive = False
        else:
            self.after(self.random.randint(0, 100), lambda: self._attempt(producer, ask))

    def _attempt(self, producer: Producer, ask: Ask) -> None:
        """Send a request; again if there is no answer, or one that says so."""
        if not producer.is_alive:
            return
        is_over = False

        def answered(answer: Answer) -> None:
            nonlocal is_over
            if is_over:
                return
            is_over = True
            if answer.code in RETRIABLE:
                self.after(50, lambda: self._attempt(producer, ask))
                return
            self.note(f"{producer.name} {ask.kind} {ask.who} {answer.code.name} {answer.identity}")
            self._step(producer, answer)

        def give_up() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._attempt(producer, ask)

        def reply(answer: Answer) -> None:
            self._on_served(producer, ask, answer)
            self.network(lambda: answered(answer))

        self.network(lambda: self._serve(producer, ask, reply))
        self.after(REQUEST_TIMEOUT_MS, give_up)

    def _serve(self, producer: Producer, ask: Ask, reply: Callable[[Answer], None]) -> None:
        if ask.kind == "init":
            self._serve_init(producer, ask, reply)
        elif ask.kind == "end":
            self._serve_end(producer, ask, reply)
        elif ask.kind == "add":
            self._look_up(producer, ask, lambda code: reply(Answer(code)), is_added=True)
        else:
            self._serve_write(producer, ask, reply)

    def _serve_init(self, producer: Producer, ask: Ask, reply: Callable[[Answer], None]) -> None:
        request = InitProducerIdRequest(
            transactional_id=producer.transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            producer_id=ask.who[0],
            producer_epoch=ask.who[1],
            keep_prepared_txn=ask.flag and self.mix.level >= BUMP_VERSION,
        )

        def call(caller: Caller) -> Result:
            shard = self.host.shard
            new_id = self.new_producer_id() if shard.needs_producer_id(request) else None
            return shard.init_producer_id(request, caller, self.now, new_id)

        def deliver(message: object) -> None:
            if not isinstance(message, InitProducerIdResponse):
                reply(_AGAIN)
                return
            ongoing = message.ongoing_txn_producer_id, message.ongoing_txn_producer_epoch
            identity = message.producer_id, message.producer_epoch
            reply(Answer(ErrorCode(message.error_code), identity, ongoing))

        self.host.call(call, 6, deliver)

    def _serve_end(self, producer: Producer, ask: Ask, reply: Callable[[Answer], None]) -> None:
        version = 5 if producer.version >= BUMP_VERSION else 4
        request = EndTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=ask.who[0],
            producer_epoch=ask.who[1],
            committed=ask.flag,
        )

        def call(caller: Caller) -> Result:
            shard = self.host.shard
            needs = shard.end_needs_producer_id(request, version)
            new_id = self.new_producer_id() if needs else None
            return shard.end(request, caller, self.now, new_id)

        def deliver(message: object) -> None:
            if not isinstance(message, EndTxnResponse):
                reply(_AGAIN)
                return
            identity = message.producer_id, message.producer_epoch
            reply(Answer(ErrorCode(message.error_code), identity))

        self.host.call(call, version, deliver)

    def _serve_write(self, producer: Producer, ask: Ask, reply: Callable[[Answer], None]) -> None:
        model = self.partitions[ask.partition]
        if model.is_open(*ask.who):
            reply(Answer(self._write(producer, ask, None)))
            return
        guard = model.guard(ask.who[0])

        def looked_up(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                code = self._write(producer, ask, guard)
            reply(Answer(code))

        is_added = producer.version >= BUMP_VERSION
        self.network(
            lambda: self._look_up(
                producer,
                ask,
                lambda code: self.network(lambda: looked_up(code)),
                is_added=is_added,
            )
        )

    def _write(self, producer: Producer, ask: Ask, guard: int | None) -> ErrorCode:
        model = self.partitions[ask.partition]
        before = model.appended
        assert ask.written is not None
        code = model.write(ask.who, ask.sequence, ask.written, guard)
        if model.appended > before:
            self._check_not_replaced(producer, ask)
        return code

    def _look_up(
        self, producer: Producer, ask: Ask, then: Callable[[ErrorCode], None], *, is_added: bool
    ) -> None:
        """Make a partition part of a transaction, or ask whether it is; answer when committed."""
        if not self.host.is_up:
            return
        shard, partition = self.host.shard, TopicPartition(ask.partition, 0)
        who = (producer.transactional_id, *ask.who, [partition])
        if is_added:
            records, codes = shard.add_partitions(
                *who, self.now, transaction_version=producer.version
            )
        else:
            records, codes = (), shard.verify_partitions(*who)

        def deliver(codes: Message | dict[TopicPartition, ErrorCode] | None) -> None:
            is_answer = isinstance(codes, dict)
            then(codes[partition] if is_answer else _AGAIN.code)  # type: ignore[index]

        is_refused = False

        def refuse(_: object) -> None:
            nonlocal is_refused
            is_refused = True
            deliver(None)

        self.host.apply(Result(records), refuse)
        if not is_refused:
            self.host.answer_when_committed(deliver, codes)

    # What must be so at any time.

    def _on_served(self, producer: Producer, ask: Ask, answer: Answer) -> None:
        """Look at an answer when it is given, whether or not it arrives."""
        if answer.code is not ErrorCode.NONE:
            return
        if answer.identity != (-1, -1):
            owner = self._owner_of.setdefault(answer.identity, producer)
            self._born.setdefault(answer.identity, len(self._born) + 1)
            self.check(owner is producer, f"{answer.identity} to {owner.name}, {producer.name}")
        is_taken_over = answer.ongoing != (-1, -1)
        if is_taken_over:
            # The older one's transaction is now another's to decide.
            for transaction in self._owner_of[answer.ongoing].transactions[-1:]:
                transaction.is_commit_asked = True
        if ask.kind in ("add", "end"):
            self._check_not_replaced(producer, ask)
        if ask.kind == "init" and ask.who == (-1, -1) and not is_taken_over:
            self._newest[producer.transactional_id] = self._born[answer.identity]

    def _check_not_replaced(self, producer: Producer, ask: Ask) -> None:
        """A producer that started later has the transactional id for itself."""
        newest = self._newest.get(producer.transactional_id, 0)
        is_newest = self._born[ask.who] >= newest
        self.check(is_newest, f"{ask.kind} {ask.who} of {producer.name}, which was replaced")

    def check_record(self, record: CoordinatorRecord, shard: TransactionShard) -> None:
        assert isinstance(record.key, TransactionLogKey)
        transactional_id = record.key.transactional_id
        if record.value is None:
            return
        assert isinstance(record.value, TransactionLogValue)
        producer_id = record.value.producer_id
        owner = self._transactional_id_of.setdefault(producer_id, transactional_id)
        self.check(owner == transactional_id, f"{producer_id} to {owner}, {transactional_id}")
        before = shard.transactions.get(transactional_id)
        if before is not None and before.producer_id == producer_id:
            goes_on = record.value.producer_epoch >= before.producer_epoch
            self.check(goes_on, f"{before} to {record.value}")

    def check_replay(self) -> None:
        if self.host.is_up and self.mix.level >= 1:
            self.check(
                self.host.loaded().transactions == self.host.shard.transactions, "replay differs"
            )

    # What must be so in the end.

    def _check_end(self) -> None:
        self.check_replay()
        for metadata in self.host.shard.transactions.values():
            self.check(metadata.state.may_expire, f"{metadata} does not end")
        decisions: dict[Token, set[tuple[bool, int]]] = defaultdict(set)
        decided_by: dict[int, set[Token]] = defaultdict(set)
        outcomes: dict[tuple[str, str], bool] = {}
        for name, model in self.partitions.items():
            for producer_id, entry in model.producers.items():
                self.check(not entry.open, f"{name}: {producer_id} is open: {entry.open}")
            for written, is_committed, offset in model.decided:
                decisions[written.token].add((is_committed, offset))
                decided_by[offset].add(written.token)
                at = name, written.value
                self.check(at not in outcomes, f"{at} is there twice")
                outcomes[at] = is_committed
        for token, several in decisions.items():
            self.check(len(several) == 1, f"{token} was decided by {several}")
        for offset, tokens in decided_by.items():
            self.check(len(tokens) == 1, f"decision {offset} was about {tokens}")
        for producer in self.producers:
            for transaction in producer.transactions:
                if transaction.told == "committed":
                    for at in transaction.acked:
                        self.check(outcomes.get(at, False), f"{at}, told committed, is not")
                if transaction.told == "aborted" or not transaction.is_commit_asked:
                    for is_committed, _ in decisions[transaction.token]:
                        self.check(not is_committed, f"{transaction} is committed")
