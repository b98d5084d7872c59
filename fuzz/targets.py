"""What is fuzzed: each target knows its valid inputs and how to decode a damaged one."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

CORPUS = Path(__file__).parent / "corpus"


class Input(NamedTuple):
    """Bytes, and which decoder of the target they are for."""

    label: str
    data: bytes


class Target(ABC):
    """One package's decoders."""

    name: str

    @abstractmethod
    def seeds(self) -> list[Input]:
        """Return valid inputs for every decoder, always the same."""

    @abstractmethod
    def decode(self, given: Input) -> bool:
        """Return whether the input decoded; False when it was refused in the proper way.

        Any exception that leaves this method is a finding.
        """

    @abstractmethod
    def peak_bytes_max(self, size: int) -> int:
        """Return how much memory decoding an input of ``size`` bytes may take at once."""

    def mend(self, given: Input, random: Random) -> Input:  # noqa: ARG002
        """Return the damaged input with its checksums made good, where it has any."""
        return given

    def corpus(self) -> list[Input]:
        """Return the seeds and the committed nasty inputs."""
        return [*self.seeds(), *read_corpus(self.name)]


def read_corpus(name: str) -> list[Input]:
    """Read ``corpus/NAME.txt``: a line is ``label: hex  # why``."""
    path = CORPUS / f"{name}.txt"
    found: list[Input] = []
    for line in path.read_text().splitlines() if path.exists() else ():
        content = line.partition("#")[0].strip()
        if content:
            label, _, text = content.partition(":")
            found.append(Input(label, bytes.fromhex(text)))
    return found


def _protocol() -> Target:
    from fuzz.protocol_target import ProtocolTarget

    return ProtocolTarget()


def _records() -> Target:
    from fuzz.records_target import RecordsTarget

    return RecordsTarget()


TARGETS: Final[Mapping[str, Callable[[], Target]]] = {"protocol": _protocol, "records": _records}
"""A new target is one more line here; its package is imported when it is asked for."""
