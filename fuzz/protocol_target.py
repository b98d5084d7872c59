"""Every decoder of ``odradek.protocol``: 792 message-versions.

A message that decodes is encoded and decoded again: the second encoding must be equal, so that
what a broker stores or forwards is what it understood.
"""

from random import Random

from fuzz.builder import FULL, SMALL, USUAL, build
from fuzz.catalog import message_versions
from fuzz.targets import Input, Target
from odradek.core.errors import ApiError, CorruptionError
from odradek.protocol.message import Message


class ProtocolTarget(Target):
    name = "protocol"

    def __init__(self) -> None:
        self._decoders: dict[str, tuple[type[Message], int]] = {
            f"{entry.name} v{version}": (entry.message_class, version)
            for entry, version in message_versions()
        }

    def seeds(self) -> list[Input]:
        inputs: list[Input] = []
        for entry, version in message_versions():
            label = f"{entry.name} v{version}"
            for size in (FULL, SMALL, USUAL):
                message = build(entry, version, Random(f"{label} {size}"), size)
                inputs.append(Input(label, message.to_bytes(version)))
        return inputs

    def decode(self, given: Input) -> bool:
        cls, version = self._decoders[given.label]
        try:
            message = cls.decode(given.data, version)
        except (CorruptionError, ApiError):
            return False
        encoded = message.to_bytes(version)
        assert cls.decode(encoded, version).to_bytes(version) == encoded, "changed on the way"
        return True

    def peak_bytes_max(self, size: int) -> int:
        """An element of one byte becomes an object of some 65; then twice more, to encode it."""
        return 64 * 1024 + 160 * size
