"""How many bytes a record takes at most; what is not a record is refused here, in words.

Every record that is not appended the short way comes through (hot path:
``bench/client_producer.py``), and each with headers: what is checked is what is measured anyway.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from odradek.client.producer.batch import Headers
from odradek.records import record_size_max

_BYTES: Final = (bytes, bytearray, memoryview)
_EXAMPLE: Final = '[("trace", b"1")]'


def size_of(key: Any, value: Any, headers: Headers | None) -> int:
    """Return how many bytes a record has at most.

    Raises:
        TypeError: It has something in it that is not bytes, or headers that are not pairs.
    """
    for each in (key, value):
        if each is not None and not isinstance(each, _BYTES):
            kind = type(each).__name__
            raise TypeError(f"keys and values are bytes or None, not {kind}: set a serializer")
    if not headers:
        return record_size_max(key, value)
    if not _is_plain(headers):
        _check(headers)
    return record_size_max(key, value, headers)


def _is_plain(headers: Any) -> bool:
    """Whether headers are what they nearly always are: the full check costs five times as much."""
    if headers.__class__ is not list and headers.__class__ is not tuple:
        return False
    for header in headers:
        if header.__class__ is not tuple or len(header) != 2:
            return False
        key, value = header
        if key.__class__ is not str or value.__class__ is not bytes:
            return False
    return True


def _check(headers: Any) -> None:
    if isinstance(headers, Iterator):
        # It would be measured, and then be empty when it is written.
        kind = type(headers).__name__
        raise TypeError(f"headers are a list of (key, value) pairs, not a {kind}: make it a list")
    if not isinstance(headers, Sequence) or isinstance(headers, str | bytes):
        kind = type(headers).__name__
        advice = ": send list(headers.items())" if hasattr(headers, "items") else ""
        raise TypeError(f"headers are (key, value) pairs, as in {_EXAMPLE}, not {kind}{advice}")
    for number, header in enumerate(headers):
        if not isinstance(header, tuple | list) or len(header) != 2:
            raise TypeError(f"header {number} is a (key, value) pair, not {header!r:.100}")
        key, value = header
        if not isinstance(key, (str, *_BYTES)):
            raise TypeError(f"header {number}: its key is str or bytes, not {type(key).__name__}")
        if value is not None and not isinstance(value, _BYTES):
            advice = ": call encode() on it" if isinstance(value, str) else ""
            kind = type(value).__name__
            raise TypeError(f"header {key!r}: its value is bytes or None, not {kind}{advice}")
