"""The commands of a migration: what the script runs is what docs/migration.md tells an operator.

Kafka's scripts and ours take the same arguments. The way to Odradek is gone with Kafka's and the
way back with ours, but for what is done on a node that joins.
"""

import shlex
from collections.abc import Iterator, Mapping
from string import Template
from typing import Final, NamedTuple, Protocol

from tests.interop.cluster.kafka_tools import KafkaTools
from tests.interop.odradek_tool import odradek_tool


class Command(NamedTuple):
    words: str
    is_new_nodes: bool = False
    """It is given on the node that joins, with the tools that are there."""


_AT: Final = "--bootstrap-server $BOOTSTRAP"
_REASSIGN: Final = f"reassign-partitions {_AT}"
# A Kafka broker goes on forwarding to the controller that led before, which says that it does not
# lead: DescribeQuorum knows no NOT_CONTROLLER.
_QUORUM: Final = "metadata-quorum --bootstrap-controller $CONTROLLERS"

FEATURES: Final = Command(f"features {_AT} describe")
UNDER_REPLICATED: Final = Command(f"topics {_AT} --describe --under-replicated-partitions")
FORMAT: Final = Command(
    "storage format --cluster-id $CLUSTER_ID --config $CONFIG --no-initial-controllers",
    is_new_nodes=True,
)
START: Final = Command("serve $CONFIG", is_new_nodes=True)
ENDPOINTS: Final = Command(f"cluster list-endpoints {_AT}")
TOPICS: Final = Command(f"topics {_AT} --list")
GENERATE: Final = Command(
    f"{_REASSIGN} --topics-to-move-json-file topics.json --broker-list $NEW --generate"
)
EXECUTE: Final = Command(f"{_REASSIGN} --reassignment-json-file $PLAN --throttle $RATE --execute")
CANCEL: Final = Command(f"{_REASSIGN} --reassignment-json-file $PLAN --cancel")
VERIFY: Final = Command(f"{_REASSIGN} --reassignment-json-file $PLAN --verify")
LOG_DIRS: Final = Command(f"log-dirs {_AT} --describe --broker-list $OLD")
ADD_VOTER: Final = Command(f"{_QUORUM} --command-config $CONFIG add-controller", is_new_nodes=True)
QUORUM: Final = Command(f"{_QUORUM} describe --status")
REMOVE_VOTER: Final = Command(
    f"{_QUORUM} remove-controller --controller-id $ID --controller-directory-id $DIRECTORY_ID"
)
STOP: Final = Command("kill -TERM $PID")
UNREGISTER: Final = Command(f"cluster unregister {_AT} --id $ID")

COMMANDS: Final = (
    *(FEATURES, UNDER_REPLICATED, FORMAT, START, ENDPOINTS, TOPICS, GENERATE, EXECUTE, CANCEL),
    *(VERIFY, LOG_DIRS, ADD_VOTER, QUORUM, REMOVE_VOTER, STOP, UNREGISTER),
)


class CommandError(Exception):
    """A command ended with something else than 0."""


class Tools(Protocol):
    """One of the two sets of command-line tools."""

    def line(self, command: Command) -> str:
        """Return a command as an operator types it, with its variables."""
        ...

    def run(self, words: list[str]) -> str:
        """Return what a command prints.

        Raises:
            CommandError: It failed.
        """
        ...


class OdradekTools:
    def line(self, command: Command) -> str:
        return command.words if command == STOP else f"odradek {command.words}"

    def run(self, words: list[str]) -> str:
        made = odradek_tool(*words, check=False)
        if made.returncode:
            raise CommandError(made.stdout + made.stderr)
        return made.stdout


class KafkaScripts:
    """Kafka's, all in one JVM: starting a new one for each would take longer than its work."""

    def __init__(self, tools: KafkaTools | None = None) -> None:
        """Without ``tools`` it only says how commands look."""
        self._tools = tools

    def line(self, command: Command) -> str:
        if command == STOP:
            return command.words
        name, _, arguments = command.words.partition(" ")
        name = "server-start" if command == START else name
        return f"kafka-{name}.sh {arguments}"

    def run(self, words: list[str]) -> str:
        assert self._tools is not None
        tool, *arguments = words
        status, out, err = self._tools.try_words(tool, arguments)
        if status:
            raise CommandError(out + err)
        return out


def filled(command: Command, variables: Mapping[str, object]) -> list[str]:
    """Return the words of a command, without the name of a script."""
    return shlex.split(Template(command.words).substitute(variables))


def guide_lines() -> Iterator[str]:
    """Yield all commands as the guide has them: there and back."""
    kafkas, ours = KafkaScripts(), OdradekTools()
    for old, new in ((kafkas, ours), (ours, kafkas)):
        for command in COMMANDS:
            yield (new if command.is_new_nodes else old).line(command)
