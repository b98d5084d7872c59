"""How other processes tell the supervisor what to do: a Unix socket, a JSON object a line.

::

    → {"command": "kill", "node": 2}
    ← {"say": "node 2: SIGKILL"}          any number of lines, as the work goes on
    ← {"done": {…}} or {"error": "…"}     the last line

The socket lies in a directory of its own that only this user can enter: its path must be short,
and the cluster's folder may be deep.
"""

import asyncio
import json
import socket
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from odradek.core.errors import OdradekError
from odradek.local.errors import LocalClusterError
from odradek.local.folder import ClusterFolder

LINE_BYTES_MAX: Final = 1 << 20
ANSWER_SECONDS_MAX: Final = 900
"""Moving all partitions from a node takes time; nothing may take for ever."""
QUICK_SECONDS_MAX: Final = 20
QUICK: Final = frozenset({"processes", "down"})
"""What is answered at once, if the supervisor is not stopped itself."""

Say = Callable[[str], None]
CarryOut = Callable[[Mapping[str, Any], Say], Awaitable[Mapping[str, Any]]]


class CommandServer:
    def __init__(self, carry_out: CarryOut) -> None:
        self._carry_out = carry_out
        self._folder = tempfile.TemporaryDirectory(prefix="odradek-")
        self.path = str(Path(self._folder.name) / "socket")

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(
            self._on_connection, self.path, limit=LINE_BYTES_MAX
        )

    async def stop(self) -> None:
        self._server.close()
        self._folder.cleanup()

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        def tell(document: Mapping[str, Any]) -> None:
            if not writer.is_closing():
                writer.write(json.dumps(document).encode() + b"\n")

        try:
            request = json.loads(await reader.readline())
            tell({"done": dict(await self._carry_out(request, lambda text: tell({"say": text})))})
        except (OdradekError, OSError, ValueError, KeyError, TypeError) as error:
            tell({"error": str(error)})
        finally:
            writer.close()


def ask_supervisor(folder: ClusterFolder, request: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Have the supervisor carry a command out; returns what comes of it.

    Raises:
        LocalClusterError: None runs, or it refuses.
    """
    folder.existing()
    record = folder.read_run()
    if record is None or not record.supervisor.is_alive():
        raise LocalClusterError(f"the cluster in {folder.shown} is not up: `odradek up` starts it")
    with socket.socket(socket.AF_UNIX) as connection:
        is_quick = request["command"] in QUICK
        connection.settimeout(QUICK_SECONDS_MAX if is_quick else ANSWER_SECONDS_MAX)
        try:
            connection.connect(record.socket)
            connection.sendall(json.dumps(dict(request)).encode() + b"\n")
            with connection.makefile("rb") as answers:
                for line in answers:
                    answer = json.loads(line)
                    if "error" in answer:
                        raise LocalClusterError(answer["error"])
                    if "done" in answer:
                        done: dict[str, Any] = answer["done"]
                        return done
                    say(answer["say"])
        except OSError as error:
            pid = record.supervisor.pid
            problem = f"the supervisor of {folder.shown} (pid {pid}) does not answer"
            raise LocalClusterError(f"{problem}: {error}") from error
    raise LocalClusterError(f"the supervisor of {folder.shown} ended meanwhile")
