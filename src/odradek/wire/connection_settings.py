"""The settings that decide how a connection is made, by Kafka's names.

``security.protocol``, ``sasl.…`` and ``ssl.…``: a client has them in its ``Settings``; a broker has
its own for each listener.
"""

from collections.abc import Set as AbstractSet
from typing import Any, Protocol


class ConnectionSettings(Protocol):
    @property
    def given(self) -> AbstractSet[str]:
        """The names that were set; all others have their defaults."""
        ...

    def text(self, name: str) -> str: ...

    def value(self, name: str) -> Any:
        """Return a setting that is an object of the caller's."""
        ...
