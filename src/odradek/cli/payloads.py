"""What performance tests send: random letters of some size, lines of a file, or numbers."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from odradek.cli.tool_options import ToolError

PAYLOAD_FILE_BYTES_MAX: Final = 2**30
_LETTERS: Final = bytes(65 + number % 26 for number in range(256))

Payload = Callable[[int], bytes]
"""Gives the value of a record by its number."""


def random_letters(size: int, random: Random) -> Payload:
    # Bytes folded into 26 letters: those from A to V come a tenth more often.
    return lambda _: random.randbytes(size).translate(_LETTERS)


def numbers(index: int) -> bytes:
    return b"%d" % index


def chosen_from(payloads: list[bytes], random: Random) -> Payload:
    return lambda _: random.choice(payloads)


def read_payloads(path: Path, delimiter: str) -> list[bytes]:
    r"""Return the payloads of a file; a delimiter of ``\n`` is a line end.

    Raises:
        ToolError: There is no such file, or nothing in it.
    """
    try:
        size = path.stat().st_size
    except OSError:
        size = 0
    if not size:
        raise ToolError("File does not exist or empty file provided.")
    if size > PAYLOAD_FILE_BYTES_MAX:
        raise ToolError(f"{path} has more than {PAYLOAD_FILE_BYTES_MAX} bytes")
    separator = (delimiter.replace("\\n", "\n") or "\n").encode()
    payloads = path.read_bytes().split(separator)
    return payloads if payloads[-1] else payloads[:-1]
