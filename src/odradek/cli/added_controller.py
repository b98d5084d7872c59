"""The controller that ``metadata-quorum add-controller`` adds, from its own properties.

As in Kafka's tool, ``--command-config`` is both: what the client needs, and the config file of the
controller. Its metadata directory is on this machine, and names the directory id.
"""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Final, NamedTuple

from odradek.cli.tool_options import ToolError
from odradek.client.admin.brokers import QuorumEndpoint
from odradek.core.config.listeners import Listener, parse_listeners
from odradek.core.errors import OdradekError
from odradek.core.ids import Uuid
from odradek.storage.disk import OsDisk
from odradek.storage.log_dir_files import read_meta_properties

NO_CONFIG: Final = (
    "You must supply the configuration file of the controller you are adding when using"
    " add-controller."
)
_IS_IT: Final = "Is this a valid controller configuration file?"


class AddedController(NamedTuple):
    controller_id: int
    directory_id: Uuid
    endpoints: tuple[QuorumEndpoint, ...]

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "AddedController":
        """Return what the properties say.

        Raises:
            ToolError: They are not those of a controller, or it is not formatted.
        """
        controller_id = _controller_id(properties)
        directory = _metadata_directory(properties)
        return cls(controller_id, _directory_id(directory), _endpoints(properties))


def _controller_id(properties: Mapping[str, str]) -> int:
    text = properties.get("node.id")
    if text is None:
        raise ToolError(f"node.id not found in configuration file. {_IS_IT}")
    if not text.strip().lstrip("-").isdecimal():
        raise ToolError(f"node.id {text!r} is not a number. {_IS_IT}")
    if int(text) < 0:
        raise ToolError(f"node.id was negative in configuration file. {_IS_IT}")
    if "controller" not in properties.get("process.roles", ""):
        problem = "process.roles did not contain 'controller' in configuration file."
        raise ToolError(f"{problem} {_IS_IT}")
    return int(text)


def _metadata_directory(properties: Mapping[str, str]) -> str:
    if "metadata.log.dir" in properties:
        return properties["metadata.log.dir"]
    if "log.dirs" in properties:
        return properties["log.dirs"].strip().split(",")[0]
    raise ToolError(f"Neither metadata.log.dir nor log.dirs were found. {_IS_IT}")


def _directory_id(directory: str) -> Uuid:
    meta = read_meta_properties(OsDisk(), PurePath(directory))
    if meta is None:
        raise ToolError(f"Unable to read meta.properties from {directory}")
    if meta.directory_id is None:
        raise ToolError(f"No directory id found in {directory}")
    return meta.directory_id


def _endpoints(properties: Mapping[str, str]) -> tuple[QuorumEndpoint, ...]:
    known: dict[str, Listener] = {}
    for name in ("listeners", "advertised.listeners"):
        entries = [each.strip() for each in properties.get(name, "").split(",") if each.strip()]
        try:
            known |= {each.name: each for each in parse_listeners(name, entries)}
        except OdradekError as error:
            raise ToolError(str(error)) from error
    names = properties.get("controller.listener.names")
    if names is None:
        raise ToolError(f"controller.listener.names was not found. {_IS_IT}")
    endpoints = []
    for name in (each.strip().upper() for each in names.split(",")):
        if name not in known:
            raise ToolError(f"Cannot find information about controller listener name: {name}")
        listener = known[name]
        endpoints.append(QuorumEndpoint(name, listener.host or "localhost", listener.port))
    return tuple(endpoints)
