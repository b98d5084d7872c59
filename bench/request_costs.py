"""What requests cost a node that stands alone, in counts that no load upsets, of several versions.

    python -m bench.request_costs [--instructions | --cpu | --functions] [--only WORD] [TREE ...]

A tree is a checkout with its ``.venv`` (``git worktree add TREE COMMIT``, then ``make setup``
there); without one it is this checkout. Each tree runs an embedded broker with files in a process
of its own, and gets the same frames, round by round in turns.

    bytecodes      executed in functions of ours (``frame.f_trace_opcodes``)
    calls          of functions of ours
    instructions   of the whole process under valgrind, the interpreter's and the kernel's door too
    cpu            nanoseconds of the loop's thread, the least and the median of the rounds

Bytecodes and calls are counted while a client waits for each answer. The least of the rounds
counts, because timers of the broker may come between and only ever add. For the other two, frames
are put into a connection without a socket, many in one turn of the loop, so that nothing comes
between: only what is answered at once can be measured so.

``--functions`` lists where the bytecodes go in each tree, function by function; ``--only`` asks for
some requests and no others.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.apis import api_for_key
from odradek.protocol.framing import frame_request
from odradek.protocol.generated.fetch import FetchResponse
from odradek.protocol.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.protocol.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.protocol.generated.produce import ProduceResponse
from odradek.protocol.generated.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from odradek.protocol.message import Message
from tests.broker_connection import BrokerConnection
from tests.record_requests import FETCH_VERSION, fetch_request, produce_request
from tests.transaction_requests import GROUP_KEY, TransactionalProducer, find_coordinator

PRODUCE_VERSION: Final = 9
HEARTBEAT_VERSION: Final = 4
COMMIT_VERSION: Final = 9
MEMBERS: Final = 3
MARKERS_SECONDS: Final = 0.03
"""Until they are written: a producer that is early is refused, and its requests count twice."""
START_SECONDS_MAX: Final = 300
PARTITIONS: Final = tuple(TopicPartition("t", number) for number in range(3))
_HERE: Final = Path(__file__).resolve().parent
_TOTAL: Final = re.compile(rb"^(?:totals|summary): (\d+)", re.M)


class Mode(NamedTuple):
    rounds: int
    operations: int
    """Of a round: several, as what follows an answer may be counted for the next one."""


MODES: Final = {"count": Mode(8, 20), "instructions": Mode(1, 100), "cpu": Mode(200, 50)}

Counts = dict[str, list[float]]
"""For one operation, by function: bytecodes and calls; or one entry with what else was measured."""
Operation = Callable[[], None]


# What is asked of a broker.


class Group:
    """A classic group whose members join again and again, each over its own connection."""

    def __init__(self, connections: list[BrokerConnection]) -> None:
        self.generation = -1
        self.member_ids: list[str] = []
        self._rebalances = 0
        find_coordinator(connections[0], "g", GROUP_KEY)
        for count, connection in enumerate(connections, 1):
            named = connection.ask(self._join(""), JoinGroupResponse)
            assert named.error_code == ErrorCode.MEMBER_ID_REQUIRED
            self.member_ids.append(named.member_id)
            self._connections = connections[:count]
            self.rebalance()

    def _join(self, member_id: str) -> JoinGroupRequest:
        # What is new each time, so that each member's join begins a rebalance, whichever is first.
        metadata = b"%08d" % self._rebalances
        return JoinGroupRequest(
            group_id="g",
            session_timeout_ms=300_000,
            rebalance_timeout_ms=300_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )

    def rebalance(self) -> None:
        """Have each member send a JoinGroup and then a SyncGroup."""
        self._rebalances += 1
        pairs = list(zip(self.member_ids, self._connections, strict=True))
        for member_id, connection in reversed(pairs):
            connection.send(self._join(member_id))
        joined = [connection.receive(JoinGroupResponse) for connection in self._connections]
        assert not any(each.error_code for each in joined), joined
        self.generation = joined[0].generation_id
        leader = joined[0].leader
        for member_id, connection in sorted(pairs, key=lambda pair: pair[0] == leader):
            assignments = [
                SyncGroupRequestAssignment(member_id=each, assignment=b"partitions")
                for each in (self.member_ids if member_id == leader else ())
            ]
            sync = SyncGroupRequest(
                group_id="g",
                generation_id=self.generation,
                member_id=member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=assignments,
            )
            connection.send(sync)
        for connection in self._connections:
            assert not connection.receive(SyncGroupResponse).error_code


def requests(group: Group) -> dict[str, tuple[Message, int, type[Message]]]:
    """Return what is answered at once: requests with their versions, and what they are answered."""

    def produce(size: int, count: int) -> tuple[Message, int, type[Message]]:
        return produce_request("t", *[b"v" * size] * count), PRODUCE_VERSION, ProduceResponse

    beat = HeartbeatRequest(
        group_id="g", generation_id=group.generation, member_id=group.member_ids[0]
    )
    return {
        "Produce, 1 of 100 B": produce(100, 1),
        "Produce, 1 of 1 KiB": produce(1024, 1),
        "Produce, 16 KiB of 100 B": produce(100, 150),
        "Produce, 16 KiB of 1 KiB": produce(1024, 15),
        "Produce, 1 MB of 100 B": produce(100, 9_000),
        "Produce, 1 MB of 1 KiB": produce(1024, 950),
        "Fetch": (fetch_request(["t"]), FETCH_VERSION, FetchResponse),
        "Heartbeat": (beat, HEARTBEAT_VERSION, HeartbeatResponse),
    }


def error_in(response: Message) -> int:
    if isinstance(response, ProduceResponse):
        return response.responses[0].partition_responses[0].error_code
    if isinstance(response, FetchResponse):
        return response.responses[0].partitions[0].error_code
    assert isinstance(response, HeartbeatResponse)
    return response.error_code


def operations(connection: BrokerConnection, group: Group) -> dict[str, Operation]:

    at_once = requests(group)

    def asking(name: str) -> Operation:
        request, version, response = at_once[name]

        def ask() -> None:
            if isinstance(request, HeartbeatRequest):
                request.generation_id = group.generation
            assert not error_in(connection.ask(request, response, version))

        return ask

    def commit_offset() -> None:
        offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=group.generation,
            member_id=group.member_ids[0],
            topics=[OffsetCommitRequestTopic(name="t", partitions=[offset])],
        )
        answer = connection.ask(request, OffsetCommitResponse, COMMIT_VERSION)
        assert not answer.topics[0].partitions[0].error_code

    asking("Produce, 1 of 100 B")()  # for the fetches
    first = TransactionalProducer(connection, "first").begin()
    second = TransactionalProducer(connection, "second").begin()

    def transact_1() -> None:
        assert not any(first.add(*PARTITIONS).values())
        for partition in PARTITIONS:
            assert not first.produce(b"v" * 100, partition=partition, version=11)
        assert not first.end(commit=True, version=4)
        time.sleep(MARKERS_SECONDS)

    def transact_2() -> None:
        for partition in PARTITIONS:
            assert not second.produce(b"v" * 100, partition=partition, version=12)
        assert not second.end(commit=True, version=5)
        time.sleep(MARKERS_SECONDS)

    return {
        **{name: asking(name) for name in at_once},
        "OffsetCommit": commit_offset,
        f"JoinGroup and SyncGroup of {MEMBERS}": group.rebalance,
        "transaction": transact_1,
        "transaction.version 2": transact_2,
    }


# Brokers.


class Tree:
    """A broker of one version, and what was measured of it."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.name = folder.name
        python = folder / ".venv/bin/python"
        assert python.exists(), f"{python} does not exist: run make setup in {folder}"
        self._scratch = tempfile.TemporaryDirectory(prefix="odradek-bench-")
        self._dumps = Path(self._scratch.name, "callgrind.out")
        self._mode = mode
        program = [str(python), str(_HERE / "request_costs_broker.py")]
        if mode == "instructions":
            options = ["-q", "--instr-atstart=no", f"--callgrind-out-file={self._dumps}"]
            program = ["valgrind", "--tool=callgrind", *options, *program]
        elif mode == "count":
            program.append("--count")
        # Sets and dicts of strings are walked alike in every run.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        self._process = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=folder
        )
        self.rounds: dict[str, list[Counts]] = {}
        port = int(self._line())
        self._connections = [BrokerConnection(port) for _ in range(MEMBERS)]
        connection = self._connections[0]
        self.group = Group(self._connections)
        self.operations = operations(connection, self.group)

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the broker has ended"
        return line

    def _ask(self, line: str) -> dict[str, list[int]]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()
        answer: dict[str, list[int]] = json.loads(self._line())
        return answer

    def begin(self) -> None:
        """Start to count, now that everything that is slow is done."""
        if self._mode == "instructions":
            self._callgrind("-i", "on")

    def _callgrind(self, *arguments: str) -> None:
        command = ["callgrind_control", *arguments, str(self._process.pid)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _instructions(self) -> int:
        """Return how many there were since the last call."""
        for old in self._dumps.parent.glob("callgrind.out.*"):
            old.unlink()
        self._callgrind("-d")
        (dump,) = self._dumps.parent.glob("callgrind.out.*")
        found = _TOTAL.search(dump.read_bytes())
        assert found is not None
        return int(found[1])

    def _measured(self, name: str, count: int) -> dict[str, list[int]]:
        if self._mode == "count":
            self._ask("take")
            for _ in range(count):
                self.operations[name]()
            return self._ask("take")
        request, version, _ = requests(self.group)[name]
        api = api_for_key(request.ID)
        frame = b"".join(frame_request(request, api, version, 1, "bench")).hex()
        if self._mode == "cpu":
            return self._ask(f"feed {count} {frame}")
        self._instructions()
        self._ask(f"feed {count} {frame}")
        fewer = self._instructions()
        self._ask(f"feed {2 * count} {frame}")  # what each feed takes itself comes off
        return {"process": [self._instructions() - fewer, 0]}

    def measure(self, name: str, *, is_counted: bool = True) -> None:
        """Add a round."""
        count = 1 if "1 MB" in name else MODES[self._mode].operations
        taken = self._measured(name, count)
        if is_counted:
            each = {key: [n / count for n in counts] for key, counts in taken.items()}
            self.rounds.setdefault(name, []).append(each)

    def least(self, name: str) -> Counts:
        return min(self.rounds[name], key=total)

    def close(self) -> None:
        for each in self._connections:
            each.close()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(START_SECONDS_MAX)
        self._scratch.cleanup()


def total(counts: Counts, which: int = 0) -> float:
    return sum(each[which] for each in counts.values())


# Tables.


def show(title: str, trees: list[Tree], figure: Callable[[Tree, str], float]) -> None:
    print(f"\n{title} for each request")
    for name in trees[0].rounds:
        figures = [figure(tree, name) for tree in trees]
        shown = "".join(f"{each:>14,.0f}" for each in figures)
        ratios = "".join(f"{each / figures[0]:>8.3f}" for each in figures[1:])
        print(f"    {name:<32}{shown}{ratios}")


def show_functions(trees: list[Tree], name: str) -> None:
    print(f"\nbytecodes (calls) of {name}, by function")
    all_counts = [tree.least(name) for tree in trees]
    functions = {function for counts in all_counts for function in counts}

    def most(function: str) -> float:
        return -max(counts.get(function, [0, 0])[0] for counts in all_counts)

    for function in sorted(functions, key=most):
        shown = ""
        for counts in all_counts:
            bytecodes, calls = counts.get(function, (0, 0))
            shown += f"{bytecodes:>10,.1f} ({calls:.1f})"
        print(f"{shown}  {function}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.request_costs")
    parser.add_argument("trees", nargs="*", type=Path, metavar="TREE")
    kind = parser.add_mutually_exclusive_group()
    for mode in ("instructions", "cpu"):
        kind.add_argument(f"--{mode}", dest="mode", action="store_const", const=mode)
    kind.add_argument("--functions", action="store_true")
    parser.add_argument("--only", default="", metavar="WORD", help="requests with it in their name")
    parser.set_defaults(mode="count")
    arguments = parser.parse_args()
    folders = [folder.absolute() for folder in arguments.trees or [_HERE.parent]]
    trees = [Tree(each, arguments.mode) for each in folders]
    answered_at_once = requests(trees[0].group)
    names = [
        name
        for name in trees[0].operations
        if arguments.only in name and (arguments.mode == "count" or name in answered_at_once)
    ]
    for tree in trees:
        tree.begin()
    for name in names:
        for tree in trees:
            tree.measure(name, is_counted=False)
        for _ in range(MODES[arguments.mode].rounds):
            for tree in trees:
                tree.measure(name)
    for tree in trees:
        tree.close()
    print(" " * 36 + "".join(f"{tree.name:>14}" for tree in trees))
    if arguments.functions:
        for name in names:
            show_functions(trees, name)
    elif arguments.mode == "count":
        show("bytecodes", trees, lambda tree, name: total(tree.least(name)))
        show("calls", trees, lambda tree, name: total(tree.least(name), 1))
    else:
        show(arguments.mode, trees, lambda tree, name: total(tree.least(name)))
    if arguments.mode == "cpu":
        show("cpu, medians,", trees, lambda tree, name: median(map(total, tree.rounds[name])))


if __name__ == "__main__":
    main()
