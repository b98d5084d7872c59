"""Identifiers, in the forms in which Kafka sends and shows them.

Topic, cluster and directory ids are UUIDs. On the wire they are 16 bytes; in tools, file names
and ``meta.properties`` they are URL-safe base64 without padding (22 characters).
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from random import Random
from typing import Final, NamedTuple, Self

from odradek.core.errors import CorruptionError


class Uuid(bytes):
    """The 16 bytes of a UUID, printed as Kafka prints them.

    A ``bytes`` and not a ``uuid.UUID``, because requests carry one per topic and making the latter
    costs more than decoding the rest of the topic.
    """

    __slots__ = ()

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse the 22-character form.

        Raises:
            CorruptionError: The text is not 16 bytes of URL-safe base64.
        """
        try:
            parsed = cls(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        except ValueError as error:
            raise CorruptionError(f"not a base64 UUID: {text!r}") from error
        # Decoding skips foreign characters and stray low bits, so compare the way back.
        if len(parsed) != 16 or str(parsed) != text:
            raise CorruptionError(f"not a base64 UUID: {text!r}")
        return parsed

    @classmethod
    def random(cls, random: Random) -> Self:
        """Return a version 4 UUID that is not reserved and does not start with a dash.

        Tools take ids as arguments, where a leading dash would look like an option.
        """
        while True:
            raw = bytearray(random.randbytes(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            made = cls(raw)
            if made not in RESERVED_UUIDS and not str(made).startswith("-"):
                return made

    def __str__(self) -> str:
        return urlsafe_b64encode(self).rstrip(b"=").decode("ascii")

    def __repr__(self) -> str:
        return f"Uuid({str(self)!r})"


ZERO_UUID: Final = Uuid(16)
"""Means "no id": UUID fields of the protocol have no null."""

METADATA_TOPIC_ID: Final = Uuid(bytes(15) + b"\x01")
"""The topic id of ``__cluster_metadata``."""

RESERVED_UUIDS: Final = frozenset({ZERO_UUID, METADATA_TOPIC_ID})


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
