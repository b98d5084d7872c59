"""A controller over a metadata quorum of one, on disk and without sockets.

The brokers are simulated: they register and send heartbeats, and do nothing with the metadata.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from odradek.broker.clock import SystemClock
from odradek.control.controller_server import ControllerServer
from odradek.core.config import load_broker_config
from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.core.slices import Slices
from odradek.metadata.features import SUPPORTED_FEATURES
from odradek.protocol.generated.broker_heartbeat import BrokerHeartbeatRequest
from odradek.protocol.generated.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from odradek.protocol.message import Message
from odradek.quorum.metadata_log import METADATA_PARTITION
from odradek.quorum.metadata_quorum import MetadataQuorum
from odradek.raft.messages import ReplicaKey
from odradek.storage.disk import OsDisk

CLUSTER_ID: Final = "b2RyYWRlay1zY2FsZS0tLQ"
RACKS: Final = 4
_CONFIGS: Final = {
    "process.roles": "controller",
    "node.id": "1000",
    "listeners": "CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1000@127.0.0.1:9093",
    "log.dirs": "/nowhere",
}


class _Never:
    """A timer that does not fire: brokers that are not simulated further keep their sessions."""

    def cancel(self) -> None:
        pass


def _call_never(_seconds: float, _call: Callable[[], None]) -> _Never:
    return _Never()


class ControlSite:
    """To be made on a running loop."""

    def __init__(self, folder: Path) -> None:
        loop = asyncio.get_running_loop()
        clock = SystemClock()
        config = load_broker_config(base=_CONFIGS).config
        self.slices = Slices(clock.monotonic_us, loop.call_soon)
        self.folder = folder / str(METADATA_PARTITION)
        self.folder.mkdir(parents=True)
        self.quorum = MetadataQuorum(
            OsDisk(),
            self.folder,
            key=ReplicaKey(config.node_id, Uuid.random(Random(0))),
            cluster_id=CLUSTER_ID,
            clock=clock,
            random=Random(1),
        )
        self.server = ControllerServer(
            config,
            self.quorum,
            cluster_id=CLUSTER_ID,
            clock=clock,
            random=Random(2),
            slices=self.slices,
            call_later=_call_never,
        )
        self.quorum.add_listener(self.server)
        self.quorum.start()
        self.quorum.load_with(lambda steps: self.slices.run(steps, lambda _none: None))
        self._epochs: dict[int, int] = {}

    async def ask(self, request: Message) -> Any:
        """Return the answer, which comes when all that it rests on is committed."""
        answered: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.server.handle_own(request, answered.set_result)
        answer = await answered
        await asyncio.sleep(0)  # small requests are answered at once; the next has its own turn
        return answer

    async def start_broker(self, broker_id: int) -> None:
        features = [
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ]
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=Uuid.random(Random(broker_id)),
            listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=9092)],
            features=features,
            rack=f"rack-{broker_id % RACKS}",
            log_dirs=[Uuid.random(Random(1_000 + broker_id))],
        )
        answer = await self.ask(request)
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
        self._epochs[broker_id] = answer.broker_epoch
        await self.beat(broker_id)

    async def beat(self, broker_id: int, *, want_fence: bool = False) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self._epochs[broker_id],
            current_metadata_offset=self.quorum.log_end_offset,
            want_fence=want_fence,
        )
        answer = await self.ask(request)
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
        assert answer.is_fenced is want_fence

    def close(self) -> None:
        self.server.stop()
        self.slices.stop()
        self.quorum.close()
