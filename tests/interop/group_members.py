"""Members of consumer groups in processes of their own, and what they say happened to them.

``MemberProcess`` runs any number of members of one client, and can be killed: to the broker that is
the death of all of them without a word. The programs are ``group_member_program.py`` and
``GroupMembers.java``.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from typing import IO, Any, NamedTuple

from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from tests.interop.kafka_peer import resolve_jars
from tests.interop.kafka_peer.jvm import until_parent_ends
from tests.interop.kafka_peer.tools import java_command

DEADLINE_SECONDS = 180
# A machine with ten times more to do than cores lets a process stand still for seconds. Who is
# given up for that joins anew, and what a test saw before does not hold any more.
SESSION_MS = 30_000
SESSION_MS_MIN = 2_000
GROUP_CONFIGS = {
    "log.retention.ms": "-1",  # whatever timestamps the records have
    # Sessions of the classic protocol are chosen by the member, of the consumer protocol by these.
    "group.min.session.timeout.ms": str(SESSION_MS_MIN),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS_MIN),
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.regex.refresh.interval.ms": "10000",
}
HERE = Path(__file__).parent
Partition = tuple[str, int]
_numbers = count(1)


class Kind(NamedTuple):
    """A client and the protocol it speaks."""

    client: str
    protocol: str = "classic"

    def __str__(self) -> str:
        return f"{self.client}-{self.protocol}"


class Event(NamedTuple):
    what: str
    partitions: tuple[Partition, ...] = ()


class Member:
    """A member as its process reports of it; ``assigned`` is what it has now."""

    def __init__(self, process: "MemberProcess", name: str) -> None:
        self.name = name
        self.assigned: set[Partition] = set()
        self.rebalances: list[Event] = []
        """Every assignment and revocation that was not empty, in order."""
        self.read: list[tuple[Partition, int]] = []
        self.errors: list[str] = []
        self.committed: dict[Partition, int] = {}
        """What the broker has acknowledged."""
        self.commits = 0
        self.has_left = False
        self.restarts = 0
        """How often its client hung and was begun anew, which costs it all it had."""
        self._process = process

    def leave(self) -> None:
        """Close the consumer, and return when that is done."""
        self._process.tell({"do": "leave", "name": self.name})
        self._process.wait_until(lambda: self.has_left, f"{self.name} has left")

    def commit(self) -> None:
        """Commit what was read, and return when the broker has acknowledged it."""
        commits = self.commits
        self.begin_commit()
        self._process.wait_until(lambda: self.commits > commits, f"{self.name} has committed")

    def begin_commit(self) -> None:
        self._process.tell({"do": "commit", "name": self.name})

    def on_event(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "read":
                self.read.append(((event["topic"], event["partition"]), event["offset"]))
            case "committed":
                for topic, number, offset in event["offsets"]:
                    self.committed[topic, number] = offset
                self.commits += 1
            case "left":
                self.has_left = True
                self.assigned.clear()
            case "restarted":
                self.restarts += 1
            case "error":
                self.errors.append(event["message"])
            case what:
                partitions = tuple((topic, number) for topic, number in event["partitions"])
                change = self.assigned.update if what == "assigned" else self._drop
                change(partitions)
                if partitions:
                    self.rebalances.append(Event(what, partitions))

    def _drop(self, partitions: Iterable[Partition]) -> None:
        self.assigned.difference_update(partitions)


class MemberProcess(AbstractContextManager["MemberProcess"]):
    """Runs until its ``with`` block is left."""

    def __init__(self, kind: Kind, servers: str) -> None:
        self.members: dict[str, Member] = {}
        self._kind = kind
        self._servers = servers
        self._process = subprocess.Popen(
            [*until_parent_ends(), *_command(kind.client)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._reader = threading.Thread(target=self._read, name="members", daemon=True)
        self._reader.start()

    def join(
        self,
        group: str,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        name: str | None = None,
        instance: str | None = None,
        assignor: str | None = None,
        session_ms: int = SESSION_MS,
    ) -> Member:
        """Begin a member. It takes part as soon as it can; wait for what it is to have."""
        name = name or f"member-{next(_numbers)}"
        member = self.members[name] = Member(self, name)
        self.tell(
            {
                "do": "join",
                "name": name,
                "servers": self._servers,
                "group": group,
                "topics": list(topics),
                "pattern": pattern,
                "protocol": self._kind.protocol,
                "session_ms": session_ms,
                "instance": instance,
                "assignor": assignor,
            }
        )
        return member

    def kill(self) -> None:
        """SIGKILL: the members say nothing to the broker, nor to us."""
        self._process.kill()
        self._process.wait()
        for member in self.members.values():
            member.assigned.clear()

    def tell(self, command: Mapping[str, Any]) -> None:
        stdin = _pipe(self._process.stdin)
        stdin.write(json.dumps(command).encode() + b"\n")
        stdin.flush()

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, lambda: f"{what}: {self._describe()}")

    def _describe(self) -> str:
        return "; ".join(
            f"{name} has {sorted(member.assigned)}, errors {member.errors}"
            for name, member in self.members.items()
        )

    def _read(self) -> None:
        with _pipe(self._process.stdout) as events:
            for line in events:
                # A JVM warns on stdout, and who is killed may not come to the end of a line.
                if line.startswith(b"{") and line.endswith(b"\n"):
                    event = json.loads(line)
                    self.members[event["name"]].on_event(event)

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        _pipe(self._process.stdin).close()


def wait_until(
    condition: Callable[[], bool],
    what: Callable[[], str],
    seconds: float = DEADLINE_SECONDS,
) -> float:
    """Poll until a condition holds; return the seconds that took."""
    start = time.monotonic()
    waiting = threading.Event()
    while not condition():
        assert time.monotonic() < start + seconds, f"not within {seconds} s: {what()}"
        waiting.wait(0.01)
    return time.monotonic() - start


def wait_for_share(
    members: Iterable[Member],
    partitions: Iterable[Partition],
    seconds: float = DEADLINE_SECONDS,
    *,
    is_fair: bool = True,
) -> float:
    """Wait until all members together have each partition exactly once, as fair as can be."""
    members, wanted = list(members), sorted(partitions)
    least, extra = divmod(len(wanted), len(members))

    def is_shared() -> bool:
        assert not any(member.has_left for member in members), describe()
        shares = [set(member.assigned) for member in members]
        if sorted(each for share in shares for each in share) != wanted:
            return False
        return not is_fair or all(least <= len(each) <= least + bool(extra) for each in shares)

    def describe() -> str:
        return "; ".join(f"{m.name} has {sorted(m.assigned)} {m.errors}" for m in members)

    return wait_until(is_shared, describe, seconds)


def wait_until_stable(servers: str, group: str, number: int) -> None:
    """Wait until the broker says so of a group, with so many members.

    Who gets no partition has no event to tell that it is in; and a member of the consumer protocol
    has its partitions before the broker knows.
    """
    admin = AdminClient({"bootstrap.servers": servers})

    def describe() -> tuple[Any, int]:
        found = admin.describe_consumer_groups([group])[group].result(DEADLINE_SECONDS)
        return found.state, len(found.members)

    wanted = (ConsumerGroupState.STABLE, number)
    wait_until(lambda: describe() == wanted, lambda: f"{group} is {describe()}")


def shorten_sessions(servers: str, group: str) -> None:
    """Have the broker give members of the consumer protocol up early; others choose themselves."""
    entry = ConfigEntry(
        "consumer.session.timeout.ms",
        str(SESSION_MS_MIN),
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": servers})
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_SECONDS)


def join_in_turn(partitions: Iterable[Partition], *joins: Callable[[], Member]) -> list[Member]:
    """Begin members, each when those before it share the partitions.

    Of two rebalances in quick succession, kafka-python may not tell its listener the second; Kafka
    sees the same.
    """
    members: list[Member] = []
    for join in joins:
        members.append(join())
        wait_for_share(members, partitions)
    return members


def partitions_of(topic: str, number: int) -> list[Partition]:
    return [(topic, each) for each in range(number)]


def _command(client: str) -> list[str]:
    if client == "java":
        source = str(HERE / "GroupMembers.java")
        return java_command(source, heap_mib=192, log_level="ERROR", libs=resolve_jars())
    return [sys.executable, "-W", "ignore", str(HERE / "group_member_program.py"), client]


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
