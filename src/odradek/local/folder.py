"""The folder of a local cluster.

::

    cluster.json             the layout; written last, so a folder that has it is complete
    lock                     held by the supervisor while the cluster is up
    run.json                 the supervisor and the nodes that run: pids, and when they began
    events.log               what happened, a line each
    node-1/server.properties
    node-1/node.log          its log
    node-1/data/             its log directory
    snapshots/NAME/          copies of the data of all nodes

``run.json`` stays when a supervisor is killed, so that ``down`` finds what is left of its nodes.
"""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

from odradek.core.java_properties import format_properties
from odradek.local.errors import LocalClusterError
from odradek.local.layout import (
    Layout,
    NodeLayout,
    from_json,
    initial_controllers,
    node_properties,
    to_json,
)
from odradek.local.process_identity import ProcessIdentity

_LAYOUT: Final = "cluster.json"
_LOCK: Final = "lock"
_RUN: Final = "run.json"
_EVENTS: Final = "events.log"
_IGNORED: Final = ".gitignore"
_OURS: Final = re.compile(
    r"node-\d+|snapshots|events\.log|lock|\.gitignore|(cluster|run)\.json(\.new)?"
)


class RunRecord(NamedTuple):
    """What runs: who supervises, where it listens for commands, and its nodes."""

    supervisor: ProcessIdentity
    socket: str
    is_ready: bool
    nodes: Mapping[int, ProcessIdentity]


class ClusterFolder:
    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.shown = str(path)
        """As the user wrote it."""

    def node_folder(self, node_id: int) -> Path:
        return self.path / f"node-{node_id}"

    def properties_file(self, node_id: int) -> Path:
        return self.node_folder(node_id) / "server.properties"

    def data_folder(self, node_id: int) -> Path:
        return self.node_folder(node_id) / "data"

    def log_file(self, node_id: int) -> Path:
        return self.node_folder(node_id) / "node.log"

    @property
    def layout_file(self) -> Path:
        return self.path / _LAYOUT

    @property
    def events_file(self) -> Path:
        return self.path / _EVENTS

    # Its life.

    def load(self) -> Layout | None:
        """Return the layout of the cluster that lies here; None if there is nothing yet.

        Raises:
            LocalClusterError: What lies here is something else, or not complete.
        """
        try:
            text = (self.path / _LAYOUT).read_text(errors="replace")  # from_json says it is damaged
        except FileNotFoundError:
            self._check_empty()
            return None
        except OSError as error:
            raise LocalClusterError(f"{self.shown}: {error.strerror}") from error
        layout = from_json(text, f"{self.shown}/{_LAYOUT}")
        for node in layout.nodes:
            for needed in (
                self.properties_file(node.id),
                self.data_folder(node.id) / "meta.properties",
            ):
                if not needed.exists():
                    raise LocalClusterError(
                        f"{needed} is missing, so node {node.id} cannot start: put it back,"
                        f" restore a snapshot, or remove {self.shown} and begin anew"
                    )
        return layout

    def existing(self) -> Layout:
        """Return the layout of the cluster that lies here.

        Raises:
            LocalClusterError: There is none.
        """
        layout = self.load()
        if layout is None:
            raise LocalClusterError(
                f"there is no cluster in {self.shown}: `odradek up` makes one, --dir says where"
            )
        return layout

    def _check_empty(self) -> None:
        self.check_ours()
        names = self._names()
        if _RUN in names or _EVENTS in names:
            raise LocalClusterError(
                f"{self.shown}/{_LAYOUT} is missing, and nodes have run here: put it back, restore"
                f" a snapshot, or choose another --dir"
            )
        if names - {_LOCK}:
            raise LocalClusterError(
                f"{self.shown} is half written: an `odradek up` was interrupted in it before any"
                f" node ran; remove it (rm -r {self.shown}) and try again"
            )

    def check_ours(self) -> None:
        """See that nothing but a cluster lies here.

        Raises:
            LocalClusterError: Something else does, and is not to be touched.
        """
        others = [name for name in self._names() if not _OURS.fullmatch(name)]
        if others:
            raise LocalClusterError(
                f"{self.shown} has other files in it ({others[0]}): choose another --dir"
            )

    def _names(self) -> set[str]:
        try:
            return {each.name for each in self.path.iterdir()}
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise LocalClusterError(f"{self.shown}: {error.strerror}") from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one who runs this cluster.

        Raises:
            LocalClusterError: Somebody else does.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / _LOCK).open("a")
        except OSError as error:
            raise LocalClusterError(f"{self.shown}: {error.strerror}") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise LocalClusterError(
                    f"a cluster is running in {self.shown} already: `odradek local status` shows"
                    " it, `odradek down` ends it"
                ) from error
            yield

    @property
    def is_locked(self) -> bool:
        try:
            with self.locked():
                return False
        except LocalClusterError:
            return True

    def create(self, layout: Layout) -> None:
        """Write the files of a new cluster, and format its nodes."""
        (self.path / _IGNORED).write_text("*\n")
        for node in layout.nodes:
            self.create_node(layout, node)
        self.write_layout(layout)

    def create_node(self, layout: Layout, node: NodeLayout) -> None:
        """Write the files of a node, and format its data."""
        # Not at the top: what only looks at a cluster need not load a broker.
        from odradek.local.formatting import format_node

        folder = self.node_folder(node.id)
        if folder.exists():  # of a node that was added, and never part of the layout
            shutil.rmtree(folder)
        folder.mkdir()
        data = self.data_folder(node.id)
        properties = self.properties_file(node.id)
        properties.write_bytes(format_properties(node_properties(layout, node, str(data))))
        voters = None if node.directory_id is None else initial_controllers(layout)
        format_node(properties, layout.cluster_id, voters)

    def write_layout(self, layout: Layout) -> None:
        self._replace(_LAYOUT, to_json(layout, version("odradek")))

    def remove(self) -> None:
        shutil.rmtree(self.path)

    # What runs.

    def write_run(self, record: RunRecord) -> None:
        document = {
            "supervisor": record.supervisor._asdict(),
            "socket": record.socket,
            "isReady": record.is_ready,
            "nodes": {str(node): each._asdict() for node, each in record.nodes.items()},
        }
        self._replace(_RUN, json.dumps(document))

    def read_run(self) -> RunRecord | None:
        try:
            document = json.loads((self.path / _RUN).read_text())
        except FileNotFoundError:
            return None
        return RunRecord(
            ProcessIdentity.from_json(document["supervisor"]),
            document["socket"],
            document["isReady"],
            {
                int(node): ProcessIdentity.from_json(each)
                for node, each in document["nodes"].items()
            },
        )

    def remove_run(self) -> None:
        (self.path / _RUN).unlink(missing_ok=True)

    def _replace(self, name: str, text: str) -> None:
        new = self.path / f"{name}.new"
        with new.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path / name)
