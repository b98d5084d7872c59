"""The journey itself: there and back, step by step."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from examples.migration import commands
from examples.migration.clients import clients_of
from examples.migration.commands import (
    Command,
    CommandError,
    KafkaScripts,
    OdradekTools,
    Tools,
    filled,
)
from examples.migration.replicas import Compared, Replicas
from examples.migration.site import CLEAN_ENDS, Site
from examples.migration.waits import Step, waits
from odradek.broker.clock import SystemClock
from odradek.client import BlockingAdmin, NewTopic
from odradek.testing.anomalies import check
from tests.cluster.processes import ClusterNode, wait_until
from tests.interop.cluster.kafka_tools import KafkaTools
from tests.interop.histories.groups import GroupReader, unread
from tests.interop.histories.load import INPUTS, KEYS, OUTPUTS, Client, Load

RATE: Final = 50_000_000
"""Bytes a second that moves may take, for each broker."""
PROGRESS: Final = 200
"""Values that clients must send after each step before the next."""
LINES_MAX: Final = 20
COMPARING_SECONDS_MAX: Final = 60
PAUSE_SECONDS: Final = 0.5
ELECTION_SECONDS: Final = 3.0
"""Kafka's tool asks a leader that has just resigned for a minute before it gives up."""
COMMAND_SECONDS_MAX: Final = 300
"""How long a command may be repeated until it says what is waited for."""


class Journey:
    def __init__(self, folder: Path, count: int, seed: int) -> None:
        self.folder = folder
        self.site = Site(folder, count)
        self.replicas = Replicas(self.site.cluster)
        self.seed = seed
        self.problems: list[str] = []
        self._began = time.monotonic()
        self._clock = SystemClock()
        self._steps: list[Step] = []
        self._tools: Tools = OdradekTools()
        self._new_tools: Tools = self._tools
        self._load: Load | None = None

    def run(self) -> list[str]:
        """Go there and back; return what went wrong."""
        site, kafka_tools = self.site, KafkaTools()
        with site.cluster, kafka_tools:
            with self.step(f"Kafka's nodes {site.kafka_ids} start"):
                site.start()
                self.create_topics()
            load = self._load = Load(site.client_servers, self.seed)
            clients = clients_of(load)
            with load.running(clients):
                self.wait_for_progress()
                kafkas, ours = KafkaScripts(kafka_tools), OdradekTools()
                self.go(kafkas, ours, site.kafka_ids, site.odradek_ids)
                self.go(ours, kafkas, site.odradek_ids, site.kafka_ids)
            self.judge(clients)
        return [*self.problems, *load.problems]

    def go(
        self, tools: Tools, new_tools: Tools, old: tuple[int, ...], new: tuple[int, ...]
    ) -> None:
        """Replace the nodes ``old`` by the nodes ``new``."""
        self._tools, self._new_tools = tools, new_tools
        with self.step("look whether all is well"):
            self.run_command(commands.FEATURES)
            self.wait_until_replicated()
        for node in self.site.nodes(new):
            with self.step(f"{node.flavour.name} node {node.id} joins"):
                self.join(node)
        with self.step(f"the way from {old} to {new} is planned, gone, and given up"):
            self.plan(new)
            self.compare(is_quiet=False)
            self.change_mind()
        with self.step(f"partitions move from {old} to {new}"):
            self.move("move.json")
            self.until(commands.LOG_DIRS, is_empty, OLD=",".join(map(str, old)))
        with self.step(
            "replicas are compared with each other and with those that were there before"
        ):
            self.compare(is_quiet=False)
        for leaving, joining in zip(old, new, strict=True):
            with self.step(f"node {joining} gets a vote, node {leaving} gives its own back"):
                self.change_voters(leaving, joining)
        for node in self.site.nodes(old):
            with self.step(f"{node.flavour.name} node {node.id} leaves"):
                self.leave(node)

    # Steps.

    def create_topics(self) -> None:
        copies = len(self.site.kafka_ids)
        topics = [NewTopic("in", len(INPUTS), copies), NewTopic("out", len(OUTPUTS), copies)]
        with BlockingAdmin(bootstrap_servers=self.site.cluster.bootstrap_servers) as admin:
            admin.create_topics(topics).unwrap()

    def join(self, node: ClusterNode) -> None:
        self.site.prepare(node)
        self.run_command(commands.FORMAT, CONFIG=node.properties)
        self.say_command(commands.START)
        node.restart()
        self.run_command(commands.ENDPOINTS)

    def plan(self, new: tuple[int, ...]) -> None:
        """Write where partitions are, and where they are to be."""
        names = self.run_command(commands.TOPICS).split()
        self.write("topics.json", {"version": 1, "topics": [{"topic": each} for each in names]})
        said = self.run_command(commands.GENERATE, NEW=",".join(map(str, new)))
        before, after = (json.loads(line) for line in said.splitlines() if line.startswith("{"))
        self.write("back.json", before)
        self.write("move.json", after)

    def change_mind(self) -> None:
        """Begin to move, stop, and put back what has moved already."""
        self.run_command(commands.EXECUTE, PLAN="move.json", RATE=RATE)
        # Refused for what comes to its end by itself at that moment.
        self.until(commands.CANCEL, lambda _: True, PLAN="move.json")
        self.move("back.json")

    def move(self, plan: str) -> None:
        self.run_command(commands.EXECUTE, PLAN=plan, RATE=RATE)
        self.until(commands.VERIFY, is_over, PLAN=plan)

    def change_voters(self, leaving: int, joining: int) -> None:
        (node,) = self.site.nodes([joining])
        self.change_until(lambda now: joining in now, commands.ADD_VOTER, CONFIG=node.properties)
        directory_id = voters_in(self.run_command(commands.QUORUM))[leaving]
        self.change_until(
            lambda now: leaving not in now,
            commands.REMOVE_VOTER,
            ID=leaving,
            DIRECTORY_ID=directory_id,
        )

    def change_until(
        self, is_done: Callable[[dict[int, str]], bool], command: Command, **variables: Any
    ) -> None:
        """Ask for a change of the voters until it is made.

        One that is refused may have been made, or be made later: the leader changed meanwhile, or
        the controller lags.
        """
        self.say_command(command)

        def is_changed(said: str) -> bool:
            if not is_done(voters_in(said)):
                with suppress(CommandError):
                    self.run_quietly(command, **variables)
                time.sleep(ELECTION_SECONDS)
                return False
            return True

        self.until(commands.QUORUM, is_changed)

    def leave(self, node: ClusterNode) -> None:
        self.say_command(commands.STOP)
        code = node.stop()
        if code not in CLEAN_ENDS:
            self.problems.append(f"node {node.id} ended with {code}")
        self.run_command(commands.UNREGISTER, ID=node.id)
        self.wait_until_replicated()

    def wait_until_replicated(self) -> None:
        self.until(commands.UNDER_REPLICATED, lambda said: not said.strip())

    def compare(self, *, is_quiet: bool) -> None:
        """Compare all replicas with each other, and with those that were there before."""
        found: list[Compared] = []

        def is_same() -> bool:
            found[:] = [self.replicas.compare(is_quiet=is_quiet)]
            return not found[0].differences

        # A follower may be a fetch behind.
        with suppress(AssertionError):
            wait_until(is_same, "replicas are the same", COMPARING_SECONDS_MAX)
        self.say(f"{'NOT ' if found[0].differences else ''}the same: {found[0]}")
        self.problems += found[0].differences

    def judge(self, clients: list[Client]) -> None:
        """Compare replicas at rest, and what clients saw with what may be."""
        load = self._load
        assert load is not None
        load.drain()
        with self.step("replicas are compared at rest"):
            self.compare(is_quiet=True)
        with self.step("what clients saw is judged"):
            history = load.recorder.history()
            report = check(history, drained=frozenset(KEYS))
            self.say("\n".join(str(report).splitlines()[:LINES_MAX]))
            self.problems += map(str, report.bad)
            readers = [each for each in clients if isinstance(each, GroupReader)]
            self.problems += unread(history, readers)
        with self.step("how long clients waited for an acknowledgement"):
            self.say("\n".join(map(str, waits(history, self._steps))))

    # What steps are made of.

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        began, began_at = time.monotonic(), self._clock.monotonic_us()
        sent = self._load.sent if self._load else 0
        print(f"{began - self._began:6.1f} s  {what}", flush=True)
        yield
        self.wait_for_progress()
        sent = (self._load.sent if self._load else 0) - sent
        self._steps.append(Step(what, began_at, self._clock.monotonic_us()))
        self.say(f"{time.monotonic() - began:.1f} s, clients sent {sent} records meanwhile")

    def wait_for_progress(self) -> None:
        """Wait until clients go on; they do nothing before the journey and after it."""
        load = self._load
        if load is None or load.stopped.is_set():
            return
        goal = load.sent + PROGRESS
        wait_until(lambda: load.sent >= goal or bool(load.problems), "clients go on")
        assert not load.problems, load.problems

    def say(self, text: str) -> None:
        print("".join(f"{'':10}{line}\n" for line in text.splitlines()), end="", flush=True)

    def tools_for(self, command: Command) -> Tools:
        return self._new_tools if command.is_new_nodes else self._tools

    def say_command(self, command: Command) -> None:
        self.say(f"$ {self.tools_for(command).line(command)}")

    def run_command(self, command: Command, **variables: Any) -> str:
        self.say_command(command)
        return self.run_quietly(command, **variables)

    def run_quietly(self, command: Command, **variables: Any) -> str:
        cluster = self.site.cluster
        known = {
            "BOOTSTRAP": cluster.bootstrap_servers,
            "CONTROLLERS": self.site.controllers,
            "CLUSTER_ID": cluster.cluster_id,
        }
        words = filled(command, {**known, **variables})
        files = {each.name: str(each) for each in self.folder.glob("*.json")}
        return self.tools_for(command).run([files.get(word, word) for word in words])

    def until(self, command: Command, is_done: Callable[[str], object], **variables: Any) -> None:
        """Run a command again and again until it succeeds and says what is waited for."""
        self.say_command(command)

        def is_said() -> bool:
            try:
                said = self.run_quietly(command, **variables)
            except CommandError as error:
                last[:] = [str(error)]
            else:
                last[:] = [said]
                if is_done(said):
                    return True
            time.sleep(PAUSE_SECONDS)  # as an operator does before the next look
            return False

        last: list[str] = []
        try:
            wait_until(is_said, command.words, COMMAND_SECONDS_MAX)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{last}") from None

    def write(self, name: str, document: dict[str, Any]) -> None:
        (self.folder / name).write_text(json.dumps(document))


def is_over(said: str) -> bool:
    assert "still in progress" in said or "is completed" in said, said
    return "still in progress" not in said


def is_empty(said: str) -> bool:
    """Tell whether `log-dirs` found no partition; it prints one line of JSON."""
    (line,) = (each for each in said.splitlines() if each.startswith("{"))
    brokers = json.loads(line)["brokers"]
    return not any(where["partitions"] for each in brokers for where in each["logDirs"])


def voters_in(said: str) -> dict[int, str]:
    """Return the voters that `metadata-quorum describe --status` names, with their directories."""
    (line,) = re.findall(r"^CurrentVoters:\s+(\[.*\])$", said, re.MULTILINE)
    return {each["id"]: each["directoryId"] for each in json.loads(line)}
