"""Members of consumer groups, of every client: who has which partition as they come and go.

The real Kafka runs the same tests, to prove them.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from odradek.testing.broker import Broker
from tests.interop.clients import Sent
from tests.interop.clients.confluent import Confluent
from tests.interop.group_members import (
    GROUP_CONFIGS,
    SESSION_MS_MIN,
    Kind,
    MemberProcess,
    join_in_turn,
    partitions_of,
    shorten_sessions,
    wait_for_share,
    wait_until,
)
from tests.interop.kafka_peer import KafkaNode

# What the real Kafka is asked to prove: the tests, with one client of each protocol.
PROVEN = [Kind("confluent"), Kind("confluent", "consumer")]
PYTHON = [
    Kind("confluent"),
    Kind("confluent", "consumer"),
    Kind("kafka-python"),
    Kind("aiokafka"),
]
JAVA = [Kind("java"), Kind("java", "consumer")]
_numbers = count(1)

Start = Callable[[], MemberProcess]


SLOW = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture(scope="module")
def odradek() -> Iterator[str]:
    with Broker(config=GROUP_CONFIGS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def kafka(kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with KafkaNode(tmp_path_factory.mktemp("kafka") / "data", GROUP_CONFIGS) as node:
        yield node.bootstrap_servers


def cases(quick: list[Kind]) -> pytest.MarkDecorator:
    """Run a test with all kinds; those that are not ``quick`` only where time does not matter."""
    chosen = [
        pytest.param(
            ("odradek", kind),
            id=f"odradek-{kind}",
            marks=[] if kind in quick else SLOW if kind in JAVA else pytest.mark.slow,
        )
        for kind in (*PYTHON, *JAVA)
    ]
    chosen += [pytest.param(("kafka", kind), id=f"kafka-{kind}", marks=SLOW) for kind in PROVEN]
    return pytest.mark.parametrize("case", chosen, indirect=True)


def sociable(kind: Kind) -> int:
    """Return how many members stand each other when the topics change under all at once."""
    return 1 if kind.client == "kafka-python" else 2


@pytest.fixture
def case(request: pytest.FixtureRequest) -> tuple[str, Kind]:
    """Where a broker is, and who its clients are."""
    target, kind = request.param
    if kind.client == "java":
        request.getfixturevalue("kafka_libs")
    return request.getfixturevalue(target), kind


@pytest.fixture
def servers(case: tuple[str, Kind]) -> str:
    return case[0]


@pytest.fixture
def kind(case: tuple[str, Kind]) -> Kind:
    return case[1]


@pytest.fixture
def start(servers: str, kind: Kind) -> Iterator[Start]:
    """Starts a process for members."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(MemberProcess(kind, servers))


@pytest.fixture
def witness(servers: str) -> Confluent:
    return Confluent(servers)


@pytest.fixture
def topic() -> str:
    """A name that no other test uses, and that no other is the beginning of."""
    return f"topic-{next(_numbers)}-"


@pytest.mark.seed_row("2.2", "4.9")
@cases(quick=PYTHON)
def test_each_partition_has_one_member_as_members_come_and_go(
    start: Start, witness: Confluent, topic: str
) -> None:
    witness.create_topic(topic, 4)
    partitions = partitions_of(topic, 4)
    for _, number in partitions:
        witness.produce(topic, [Sent(None, b"v")] * 5, partition=number)
    process = start()
    join = partial(process.join, topic, [topic])
    members = join_in_turn(partitions, *[join] * 6)  # at last, two of them have nothing to do

    busy = [member for member in members if member.assigned]
    for member in busy[:2]:
        member.leave()
        members.remove(member)
    wait_for_share(members, partitions)
    wait_until(
        lambda: len({each for m in members for each in m.read}) == 20,
        lambda: "; ".join(f"{m.name} has {m.assigned} and has read {m.read}" for m in members),
    )
    assert not any(member.errors for member in members)


@pytest.mark.seed_row("4.9")
@cases(quick=PROVEN)
def test_the_others_take_over_from_one_that_was_killed(
    start: Start, servers: str, witness: Confluent, topic: str
) -> None:
    witness.create_topic(topic, 4)
    shorten_sessions(servers, topic)
    partitions = partitions_of(topic, 4)
    victims, process = start(), start()
    joins = [
        partial(each.join, topic, [topic], session_ms=SESSION_MS_MIN)
        for each in (victims, process, process)
    ]
    _, *members = join_in_turn(partitions, *joins)
    victims.kill()
    wait_for_share(members, partitions)


@pytest.mark.seed_row("4.9")
@cases(quick=PYTHON)
def test_new_partitions_are_assigned(
    start: Start, kind: Kind, witness: Confluent, topic: str
) -> None:
    witness.create_topic(topic, 2)
    process = start()
    members = [process.join(topic, [topic]) for _ in range(sociable(kind))]
    wait_for_share(members, partitions_of(topic, 2))
    witness.grow_topic(topic, 6)
    wait_for_share(members, partitions_of(topic, 6))


@pytest.mark.seed_row("4.9")
@cases(quick=[Kind("confluent"), Kind("aiokafka")])
def test_a_pattern_catches_a_topic_that_comes_later(
    start: Start, kind: Kind, witness: Confluent, topic: str
) -> None:
    """The broker resolves patterns anew every ten seconds, and not more often."""
    witness.create_topic(f"{topic}a", 2)
    witness.create_topic(f"other-{topic}", 2)
    process = start()
    # RE2 on the broker has to match the whole name, the regular expressions of clients need not.
    end = ".*" if kind.protocol == "consumer" else ""
    members = [process.join(topic, pattern=f"^{topic}[ab]{end}") for _ in range(sociable(kind))]
    # Not fair: where clients resolve patterns, they learn of a topic at different times.
    wait_for_share(members, partitions_of(f"{topic}a", 2), is_fair=False)
    witness.create_topic(f"{topic}b", 2)
    both = partitions_of(f"{topic}a", 2) + partitions_of(f"{topic}b", 2)
    wait_for_share(members, both, is_fair=False)
    # This one's network thread stumbles over any broker's answer for a topic id that is gone.
    if kind != Kind("java", "consumer"):
        witness.delete_topic(f"{topic}a")
        wait_for_share(members, partitions_of(f"{topic}b", 2), is_fair=False)
