"""Our ``metadata-quorum`` and Kafka's, on our quorum and on Kafka's: voters come and go alike.

The same script four times, with all that is refused in it: the same exit codes, lines and messages.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.cli.main import main
from odradek.core.ids import Uuid
from tests.cluster.asking import create_until_done, describe_quorum
from tests.cluster.flavours import Flavour, Kafka, Odradek, address
from tests.cluster.processes import Cluster, ClusterNode, wait_until
from tests.interop.cluster.kafka_tools import KafkaTools

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.usefixtures("kafka_libs")]

FIRST, SECOND, ABSENT, BROKER = 1, 2, 3, 11
ROLES = {FIRST: "broker,controller", SECOND: "controller", ABSENT: "controller"}
OTHER = "AAAAAAAAAAAAAAAAAAAAAQ"
CONFIGS = {"controller.quorum.request.timeout.ms": "15000"}  # of a change, too, with its commit
LAGS = "lagging behind"
Said = tuple[int, str, str]
Run = Callable[..., Said]


@pytest.fixture(scope="module")
def tools(kafka_libs: Path) -> Iterator[KafkaTools]:
    started = KafkaTools()
    with started:
        yield started


def directory_id(node: ClusterNode) -> str:
    text = (node.data_dir / "meta.properties").read_text()
    found = re.search(r"^directory\.id=(\S+)$", text, re.MULTILINE)
    assert found is not None
    return found[1]


def normal(cluster: Cluster, said: Said) -> Said:
    """Leave out what differs from cluster to cluster, and the names of Java's exceptions."""
    code, out, err = said
    err = re.sub(r"^org\.apache\.\S+Exception: ", "", (err.splitlines() or [""])[0])
    for node in cluster.nodes.values():
        place = address(node.places["CONTROLLER"].port)
        out, err = (
            text.replace(directory_id(node), f"directory-{node.id}").replace(place, f"at-{node.id}")
            for text in (out, err)
        )
    err = re.sub(r"\[(ReplicaKey.*)\]", in_order, err)
    return code, out, err


def in_order(found: "re.Match[str]") -> str:
    return "[" + ", ".join(sorted(re.findall(r"ReplicaKey\([^)]*\)", found[1]))) + "]"


def story(cluster: Cluster, run: Run) -> list[Said]:
    first, second, absent = (cluster.nodes[each] for each in (FIRST, SECOND, ABSENT))
    told: list[Said] = []

    def say(*arguments: str, of: ClusterNode | None = None) -> Said:
        config = ("--command-config", str(of.properties)) if of else ()
        told.append(normal(cluster, run(*config, *arguments)))
        return told[-1]

    def remove(node_id: int, directory: str, *more: str) -> None:
        arguments = ("--controller-id", str(node_id), "--controller-directory-id", directory)
        say("remove-controller", *arguments, *more)

    say("add-controller")
    say("add-controller", "--dry-run", of=second)
    say("add-controller", of=absent)  # nobody listens there
    wait_until(lambda: LAGS not in say("add-controller", of=second)[2], f"{SECOND} is caught up")
    told[:] = [each for each in told if LAGS not in each[2]]
    say("add-controller", of=second)
    remove(9, OTHER)
    remove(SECOND, OTHER)
    remove(SECOND, str(Uuid(bytes(16))))
    remove(SECOND, directory_id(second), "--dry-run")
    remove(SECOND, directory_id(second))
    remove(SECOND, directory_id(second))
    remove(FIRST, directory_id(first))  # the last one
    remove(-1, OTHER)
    return told


def by_ours(cluster: Cluster, asked: int = FIRST) -> Run:
    servers = ("--bootstrap-server", cluster.nodes[asked].bootstrap_servers)

    def run(*arguments: str) -> Said:
        result = CliRunner().invoke(main, ["metadata-quorum", *servers, *arguments])
        return result.exit_code, result.stdout, result.stderr

    return run


def by_kafkas(cluster: Cluster, tools: KafkaTools) -> Run:
    servers = ("--bootstrap-server", cluster.nodes[FIRST].bootstrap_servers)
    return lambda *arguments: tools.try_run("metadata-quorum", servers, *arguments)


def test_voters_are_added_and_removed_alike(tools: KafkaTools, tmp_path: Path) -> None:
    stories: dict[str, list[Said]] = {}
    for flavour in (Odradek(), Kafka()):
        with Cluster(
            tmp_path / flavour.name,
            ROLES,
            flavour,
            quorum="dynamic",
            configs=CONFIGS,
            is_relayed=False,
            first_voters=(FIRST,),
        ) as cluster:
            for each in (FIRST, SECOND):
                cluster.nodes[each].start()
            for each in (FIRST, SECOND):
                cluster.nodes[each].wait_until_ready()
            stories[f"ours on {flavour.name}"] = story(cluster, by_ours(cluster))
            stories[f"Kafka's on {flavour.name}"] = story(cluster, by_kafkas(cluster, tools))
    expected = stories.pop("Kafka's on kafka")
    assert [code for code, *_ in expected] == [1, 0, 1, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1]
    for name, told in stories.items():
        assert told == expected, name


@pytest.mark.parametrize("first", ["odradek", "kafka"])
def test_a_controller_of_the_other_kind_gets_a_vote_and_takes_over(
    first: str, tmp_path: Path
) -> None:
    kinds: dict[int, Flavour] = {FIRST: Odradek(), SECOND: Kafka(), BROKER: Odradek()}
    if first == "kafka":
        kinds |= {FIRST: Kafka(), SECOND: Odradek()}
    roles = {FIRST: "controller", SECOND: "controller", BROKER: "broker"}
    with Cluster(
        tmp_path,
        roles,
        kinds,
        quorum="dynamic",
        configs=CONFIGS,
        is_relayed=False,
        first_voters=(FIRST,),
    ) as cluster:
        cluster.start()
        broker, node = cluster.nodes[BROKER], cluster.nodes[FIRST]
        run = by_ours(cluster, BROKER)
        create_until_done(broker, "before", [BROKER])
        config = ("--command-config", str(cluster.nodes[SECOND].properties))
        wait_until(lambda: run(*config, "add-controller")[0] == 0, f"{SECOND} votes")
        run("remove-controller", "-i", str(FIRST), "-d", directory_id(node))

        def has_taken_over() -> bool:
            found = describe_quorum(broker)
            return found is not None and (found.leader_id, *found.voters) == (SECOND, SECOND)

        wait_until(has_taken_over, f"{SECOND} leads alone")
        create_until_done(broker, "after", [BROKER])
        node.stop()
        create_until_done(broker, "at-last", [BROKER])
