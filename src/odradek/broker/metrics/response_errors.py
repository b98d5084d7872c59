"""Where the error codes of a response are, found once per API and then just read.

The generated classes say which fields they have; from these a function is put together that looks
only at what can lead to an ``error_code``. Zero, no error, is not counted.
"""

from collections.abc import Callable, Iterator
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from odradek.protocol.message import Message, Struct

Errors = dict[int, int]
"""How often each error code was answered."""

CountErrors = Callable[[Any, Errors], None]


def error_counter(response: type[Message]) -> CountErrors:
    """Return the function that counts the error codes of such a response, in all its depth."""
    return _HOT.get(response.__name__) or _counter(response) or _count_none


def _count_produce(response: Any, errors: Errors) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            if code := partition.error_code:
                errors[code] = errors.get(code, 0) + 1


def _count_fetch(response: Any, errors: Errors) -> None:
    if code := response.error_code:
        errors[code] = errors.get(code, 0) + 1
    for topic in response.responses:
        for partition in topic.partitions:
            if code := partition.error_code:
                errors[code] = errors.get(code, 0) + 1


_HOT: Final = {"ProduceResponse": _count_produce, "FetchResponse": _count_fetch}
"""The same as would be put together, spelled out: a third of the time."""


def _count_none(struct: Any, errors: Errors) -> None:
    """Count the errors of a response that has no place for any."""


def _counter(kind: type[Struct]) -> CountErrors | None:
    """Return a function for one struct and all below it; None if there is nothing to count."""
    lists: list[tuple[str, CountErrors]] = []
    for name, child in _children(kind):
        count = _counter(child)
        if count is not None:
            lists.append((name, count))
    has_own = "error_code" in kind.__slots__
    if not (has_own or lists):
        return None

    def count_all(struct: Any, errors: Errors) -> None:
        if has_own and (code := struct.error_code):
            errors[code] = errors.get(code, 0) + 1
        for name, count in lists:
            for each in getattr(struct, name) or ():
                count(each, errors)

    return count_all


def _children(kind: type[Struct]) -> Iterator[tuple[str, type[Struct]]]:
    """Iterate over the lists of structs; no code is in a struct that is not in a list."""
    hints = get_type_hints(kind.__init__)
    for name in kind.__slots__:
        hint = hints[name]
        kinds = get_args(hint) if get_origin(hint) is UnionType else (hint,)
        for each in kinds:
            inner = get_args(each)[0] if get_origin(each) is list else None
            if isinstance(inner, type) and issubclass(inner, Struct):
                yield name, inner
