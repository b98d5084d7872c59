"""Kafka in Python: a durable, partitioned, replicated log that every Kafka client can talk to."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name: str) -> str:
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # When it is asked for: to read the metadata of packages costs more than this import.
        from importlib.metadata import version

        found = globals()[name] = version("odradek")
        return found
