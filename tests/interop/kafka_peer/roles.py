"""Real Kafka nodes with one role: the controllers of a quorum, and brokers under any controllers.

    with KafkaQuorum(tmp_path, size=3) as quorum:
        with KafkaBroker(tmp_path / "broker", quorum.settings, node_id=1) as broker:
            ...

A quorum knows its voters in one of Kafka's two ways: ``static`` by ``controller.quorum.voters`` in
each node's config, otherwise by records that ``format --initial-controllers`` writes.
"""

import base64
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.interop.kafka_peer.jvm import listens
from tests.interop.kafka_peer.node import CLUSTER_ID, KafkaNode
from tests.interop.ports import HOST, free_ports

FIRST_CONTROLLER_ID = 3001


class Voter(NamedTuple):
    node_id: int
    port: int
    directory_id: str
    advertised_port: int
    """Where others look for it: a relay's, or its own."""


class KafkaController(KafkaNode):
    """A node whose only role is controller; it is ready when it listens, leader or not."""

    def __init__(
        self,
        data_dir: Path,
        voter: Voter,
        quorum: Mapping[str, str],
        format_as: Sequence[str],
        overrides: Mapping[str, str],
        *,
        cluster_id: str = CLUSTER_ID,
        format_arguments: Sequence[str] = (),
    ) -> None:
        own = {"process.roles": "controller", "node.id": str(voter.node_id)}
        super().__init__(
            data_dir, {**overrides, **own}, cluster_id=cluster_id, format_arguments=format_arguments
        )
        self._quorum = dict(quorum)
        self.voter = voter
        self.port = self.controller_port = voter.port
        self._formatted_as = list(format_as)

    @property
    def quorum(self) -> dict[str, str]:
        return self._quorum

    def _format_as(self) -> list[str]:
        return self._formatted_as

    def _is_ready(self) -> bool:
        return listens(self.controller_port)

    def _own_ports(self) -> dict[str, int]:
        return {"CONTROLLER": self.controller_port}

    def _advertised_ports(self) -> dict[str, int]:
        return {"CONTROLLER": self.voter.advertised_port}


class KafkaBroker(KafkaNode):
    """A node whose only role is broker; ``quorum`` are the settings that name the controllers."""

    def __init__(
        self,
        data_dir: Path,
        quorum: Mapping[str, str],
        *,
        node_id: int,
        overrides: Mapping[str, str] | None = None,
        cluster_id: str = CLUSTER_ID,
    ) -> None:
        own = {"process.roles": "broker", "node.id": str(node_id)}
        super().__init__(data_dir, {**(overrides or {}), **own}, cluster_id=cluster_id)
        self._quorum = dict(quorum)

    @property
    def quorum(self) -> dict[str, str]:
        return self._quorum

    def _format_as(self) -> list[str]:
        return []

    def _own_ports(self) -> dict[str, int]:
        return {"PLAINTEXT": self.port}


class KafkaQuorum:
    """Controllers that start one after the other on ``with``; leaving it kills those that run."""

    def __init__(
        self,
        folder: Path,
        size: int = 1,
        *,
        static: bool = False,
        overrides: Mapping[str, str] | None = None,
        cluster_id: str = CLUSTER_ID,
        format_arguments: Sequence[str] = (),
        relay: Callable[[str, int], int] = lambda _name, port: port,
    ) -> None:
        """``relay`` gets the name of a node and its port, and returns the port that others see."""
        self.static = static
        self.voters = tuple(
            Voter(number, port, _directory_id(), relay(f"controller {number}", port))
            for number, port in enumerate(free_ports(size), FIRST_CONTROLLER_ID)
        )
        self.controllers = tuple(
            KafkaController(
                folder / f"controller-{voter.node_id}",
                voter,
                self.settings,
                self._format_as(),
                overrides or {},
                cluster_id=cluster_id,
                format_arguments=format_arguments,
            )
            for voter in self.voters
        )
        self._running = ExitStack()

    @property
    def settings(self) -> dict[str, str]:
        """What a node's properties say of this quorum."""
        if self.static:
            voters = [f"{each.node_id}@{HOST}:{each.advertised_port}" for each in self.voters]
            return {"controller.quorum.voters": ",".join(voters)}
        return {"controller.quorum.bootstrap.servers": self.bootstrap_controllers}

    @property
    def bootstrap_controllers(self) -> str:
        return ",".join(f"{HOST}:{each.advertised_port}" for each in self.voters)

    def _format_as(self) -> list[str]:
        if self.static:
            return []
        voters = [
            f"{each.node_id}@{HOST}:{each.advertised_port}:{each.directory_id}"
            for each in self.voters
        ]
        return ["--initial-controllers", ",".join(voters)]

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            for each in self.controllers:
                each.start()
                starting.callback(_kill_if_running, each)
            self._running = starting.pop_all()
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._running.close()


def _kill_if_running(node: KafkaNode) -> None:
    if node.is_running:
        node.kill()


def _directory_id() -> str:
    """Return 16 random bytes in Kafka's text form, which must not begin like an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
