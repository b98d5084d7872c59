"""A record of a coordinator's topic: a typed key, and a value or a tombstone."""

from typing import NamedTuple

from odradek.protocol.message import Message
from odradek.protocol.versioned import encode_key, encode_versioned


class CoordinatorRecord(NamedTuple):
    """``value`` is None in a tombstone; ``version`` is the value's."""

    key: Message
    value: Message | None
    version: int = 0

    def key_bytes(self) -> bytes:
        return encode_key(self.key)

    def value_bytes(self) -> bytes | None:
        return None if self.value is None else encode_versioned(self.value, self.version)
