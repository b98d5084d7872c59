"""A transactional producer: a script that asks, and what it may conclude from the answers."""

from collections.abc import Generator
from dataclasses import dataclass, field
from random import Random

from odradek.core.errors import ErrorCode
from tests.simulation.transactions.partition_model import Token, Written

PARTITIONS = ("p0", "p1", "p2")
BUMP_VERSION = 2


@dataclass(frozen=True)
class Ask:
    """One request, in the same words however often it is sent."""

    kind: str
    who: tuple[int, int] = (-1, -1)
    partition: str = ""
    sequence: int = 0
    written: Written | None = None
    flag: bool = False
    """To commit, or to keep what is prepared."""


@dataclass(frozen=True)
class Answer:
    code: ErrorCode
    identity: tuple[int, int] = (-1, -1)
    ongoing: tuple[int, int] = (-1, -1)


class FatalError(Exception):
    """This incarnation is over; a program would be started anew."""


Asking = Generator[Ask, Answer, Answer]
Script = Generator[Ask, Answer, None]


@dataclass
class Transaction:
    token: Token
    acked: list[tuple[str, str]] = field(default_factory=list)
    is_commit_asked: bool = False
    told: str = ""


class Producer:
    def __init__(self, name: str, transactional_id: str, version: int, random: Random) -> None:
        self.name = name
        self.transactional_id = transactional_id
        self.version = version
        self.is_alive = True
        self.transactions: list[Transaction] = []
        self._random = random
        self._identity = (-1, -1)
        self._sequences: dict[str, int] = {}
        self.script = self._run()

    def _run(self) -> Script:
        is_keeping = self.version >= BUMP_VERSION and self._random.random() < 0.2
        started = yield from self._start(Ask("init", flag=is_keeping))
        if started.ongoing != (-1, -1):
            # What another prepared: nobody here knows its records, only that it ends in one way.
            is_commit = self._random.random() < 0.5
            answer = yield from self._ask(Ask("end", self._identity, flag=is_commit))
            self._become(answer.identity)
        while self._random.random() < 0.95:
            yield from self._transact()
            if self._random.random() < 0.1:
                yield from self._start(Ask("init", self._identity))

    def _start(self, ask: Ask) -> Asking:
        answer = yield from self._ask(ask)
        self._become(answer.identity)
        return answer

    def _become(self, identity: tuple[int, int]) -> None:
        if identity != self._identity:
            self._identity = identity
            self._sequences.clear()

    def _ask(self, ask: Ask) -> Asking:
        answer = yield ask
        if answer.code is not ErrorCode.NONE:
            raise FatalError(f"{ask.kind}: {answer.code.name}")
        return answer

    def _transact(self) -> Script:
        transaction = Transaction((self.name, len(self.transactions)))
        self.transactions.append(transaction)
        is_commit = self._random.random() < 0.7
        partitions = self._random.sample(PARTITIONS, self._random.randint(1, len(PARTITIONS)))
        for partition in partitions:
            if not (yield from self._write_some(partition, transaction)):
                is_commit = False
                break
        yield from self._end(transaction, is_commit=is_commit)

    def _write_some(self, partition: str, transaction: Transaction) -> Generator[Ask, Answer, bool]:
        # Some forget. In the first transaction of an epoch the partition's leader finds out; later
        # it may take the write for one of the transaction before, which is why there is version 2.
        is_forgotten = len(self.transactions) == 1 and self._random.random() < 0.2
        if self.version < BUMP_VERSION and not is_forgotten:
            yield from self._ask(Ask("add", self._identity, partition))
        for _ in range(self._random.randint(1, 3)):
            sequence = self._sequences.get(partition, 0)
            value = f"{self.name}/{transaction.token[1]}/{partition}/{sequence}"
            written = Written(transaction.token, value)
            answer = yield Ask("write", self._identity, partition, sequence, written)
            if answer.code is ErrorCode.TRANSACTION_ABORTABLE:
                return False
            if answer.code is not ErrorCode.NONE:
                raise FatalError(f"write: {answer.code.name}")
            self._sequences[partition] = sequence + 1
            transaction.acked.append((partition, value))
        return True

    def _end(self, transaction: Transaction, *, is_commit: bool) -> Script:
        transaction.is_commit_asked |= is_commit
        answer = yield from self._ask(Ask("end", self._identity, flag=is_commit))
        transaction.told = "committed" if is_commit else "aborted"
        if self.version >= BUMP_VERSION:
            self._become(answer.identity)
