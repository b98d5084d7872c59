"""CRC-32C, as batches and snapshots have it: the function of the ``crc32c`` package, loaded alone.

The package looks up its own version when it is imported. That brings in ``importlib.metadata`` and
``email`` and is a tenth of the time that an embedded broker may take to be there.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any, Final

Crc32c = Callable[..., int]


def _load() -> Any:
    package = find_spec("crc32c")
    inside = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", inside)
    if spec is None or spec.loader is None:
        return import_module("crc32c")  # put together in another way: the whole of it, then
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


crc32c: Final[Crc32c] = _load().crc32c
"""``crc32c(data, value=0)``: the checksum of ``data`` behind what has the checksum ``value``."""
