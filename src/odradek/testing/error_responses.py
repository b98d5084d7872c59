"""What a broker would answer to refuse a request: an error, at the place where its API has one.

The place is found in the shape of the response, at the version that is spoken. An ``error_code``
of the whole response is the place; where there is none, every part of the request (a partition, a
group, a resource) is answered with one: request ``topics`` → ``partitions`` become response
``responses`` → ``partitions``, whatever the arrays are called. Fetch has both and uses the first
for its sessions only; so has Metadata, for REBOOTSTRAP_REQUIRED.

``find_place`` says None if there is no place: an ElectLeaders v0 for all partitions, a Fetch of
nothing, any Metadata request (its topics are known only when it was handled: ``overlay``).
"""

from collections.abc import Iterator
from typing import Any, Final, get_args, get_origin, get_type_hints

from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.apis import Api
from odradek.protocol.message import Message, Struct

MESSAGE: Final = "injected by odradek.testing"

ERROR_FIELDS: Final = ("error_code", "partition_error_code")
TOPIC_FIELDS: Final = ("name", "topic", "topic_name")

_IDENTITIES: Final = (
    *TOPIC_FIELDS,
    "topic_id",
    "index",
    "partition",
    "partition_index",
    "partition_id",
    "group_id",
    "key",
    "resource_type",
    "resource_name",
    "transactional_id",
    "member_id",
    "group_instance_id",
    "producer_id",
    "feature",
    "user",
    "entity",
)
"""Fields by which a client knows to which part of its request an answer belongs."""

_UNKNOWN: Final[dict[str, Any]] = {
    "base_offset": -1,
    "high_watermark": -1,
    "committed_offset": -1,
    "low_watermark": -1,
    "generation_id": -1,
    "producer_id": -1,
    "producer_epoch": -1,
    "node_id": -1,
    "port": -1,
    "aborted_transactions": None,
    "records": b"",
}
"""What Kafka puts where there is nothing to say; the default of a definition is often zero."""

_UNANSWERED: Final = ("forgotten_topics_data",)

_FOR_THE_WHOLE: Final = {
    "Fetch": (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ),
    "Metadata": (ErrorCode.REBOOTSTRAP_REQUIRED,),
}
"""Errors of the whole response, in the APIs that answer others part by part."""


def find_place(api: Api, request: Message | None, version: int, code: ErrorCode) -> Message | None:
    """Return the response that refuses a request; None if it has no place for an error."""
    for message in (MESSAGE, None):
        refused = _Refusal(api, version, code, message).of(request)
        try:
            if refused is not None:
                refused.encode(version)
            return refused
        except ApiError:  # this version has no room for messages
            continue
    raise AssertionError(f"{api.name} v{version} cannot be refused")


def is_for_the_whole(api: Api, version: int, code: ErrorCode) -> bool:
    """Whether this error is one of the whole response, and not of parts of it."""
    if code not in _FOR_THE_WHOLE.get(api.name, (code,)):
        return False
    return "error_code" in _fields(api.response()) and _carries(
        api.response(), "error_code", None, version
    )


def overlay(response: Message, code: ErrorCode, topics: set[str] | None) -> int:
    """Put the error on topics of a Metadata response, all or those named; return how many."""
    hit = 0
    for topic in getattr(response, "topics", None) or ():
        if topics is None or topic.name in topics:
            topic.error_code = code
            topic.partitions = []
            hit += 1
    return hit


def merge(response: Message, refused: Message) -> None:
    """Add the parts of one response to another's."""
    for name, element in _fields(type(refused)).items():
        if element is not None and (parts := getattr(refused, name)):
            setattr(response, name, [*(getattr(response, name) or ()), *parts])


class _Refusal:
    """One refusal: what all its parts have in common."""

    def __init__(self, api: Api, version: int, code: ErrorCode, message: str | None) -> None:
        self._api = api
        self._kind = api.response()
        self._version = version
        self._code = code
        self._message = message

    def of(self, request: Message | None) -> Message | None:
        if is_for_the_whole(self._api, self._version, self._code):
            whole = self._refused(self._kind, {"error_code": self._code})
            assert isinstance(whole, Message)
            return whole
        if self._api.name == "Metadata" or request is None:
            return None
        arrays = self._mirrored(self._kind, request)
        return self._kind(**arrays) if any(arrays.values()) else None

    def _mirrored(self, kind: type[Struct], request: Struct) -> dict[str, list[Struct]]:
        """Return the arrays of a response, or of a part of it, that lead to errors."""
        arrays = {}
        for name, element in _fields(kind).items():
            if element is None or not _leads_to_error(element):
                continue
            if kind is self._kind and not _carries(self._kind, name, element, self._version):
                continue
            has_it = isinstance(getattr(request, name, None), list)
            parts = _parts(request, [name] if has_it else _arrays(request))
            arrays[name] = [self._answer(element, part) for part in parts]
        return arrays

    def _answer(self, kind: type[Struct], part: object) -> Struct:
        """Answer one part of a request: a struct, or a plain name or number."""
        fields = _fields(kind)
        values: dict[str, Any] = {}
        if isinstance(part, Struct):
            values = {n: getattr(part, n) for n in _IDENTITIES if n in fields and hasattr(part, n)}
        key = next((name for name in fields if name in _IDENTITIES), None)
        if key is not None and key not in values:
            values[key] = _key_of(part)
        error = next((name for name in ERROR_FIELDS if name in fields), None)
        if error is not None:
            return self._refused(kind, {**values, error: self._code})
        assert isinstance(part, Struct)
        return kind(**values, **self._mirrored(kind, part))

    def _refused(self, kind: type[Any], values: dict[str, Any]) -> Struct:
        """Return a struct with an error in it, and nothing that it does not know."""
        fields = _fields(kind)
        unknown = {
            name: value
            for name, value in _UNKNOWN.items()
            if name in fields
            and (kind is not self._kind or _carries(kind, name, None, self._version, value))
        }
        refused: Struct = kind(**{**unknown, **values})
        if "error_message" in fields and self._message is not None:
            refused.error_message = self._message  # type: ignore[attr-defined]
        return refused


def _parts(request: Struct, arrays: list[str]) -> Iterator[object]:
    """Yield the elements of arrays; what has no identity stands for what is in it."""
    for name in arrays:
        for part in getattr(request, name):
            inside = _arrays(part) if isinstance(part, Struct) else []
            if inside and not any(field in part.__slots__ for field in _IDENTITIES):
                yield from _parts(part, inside)
            else:
                yield part


def _key_of(part: object) -> object:
    if isinstance(part, Struct):
        return next(getattr(part, name) for name in part.__slots__ if name in _IDENTITIES)
    return part


def _fields(kind: type[Struct]) -> dict[str, type[Struct] | None]:
    """Return the fields of a struct, and for arrays of structs what they are made of."""
    name = f"{kind.__module__}.{kind.__name__}"
    if name not in _FIELDS:
        hints = get_type_hints(kind.__init__)
        _FIELDS[name] = {field: _element(hints[field]) for field in kind.__slots__}
    return _FIELDS[name]


_FIELDS: Final[dict[str, dict[str, type[Struct] | None]]] = {}


def _element(hint: Any) -> type[Struct] | None:
    for choice in (hint, *get_args(hint)):
        if get_origin(choice) is list:
            (element,) = get_args(choice)
            if isinstance(element, type) and issubclass(element, Struct):
                return element
    return None


def _arrays(request: Struct) -> list[str]:
    return [
        name
        for name in request.__slots__
        if isinstance(getattr(request, name), list) and name not in _UNANSWERED
    ]


def _leads_to_error(kind: type[Struct]) -> bool:
    fields = _fields(kind)
    return any(name in fields for name in ERROR_FIELDS) or any(
        _leads_to_error(element) for element in fields.values() if element is not None
    )


def _carries(
    kind: type[Message], field: str, element: type[Struct] | None, version: int, value: Any = 1
) -> bool:
    """Whether a field of a response is sent in this version: try it out."""
    sent = kind(**{field: value if element is None else [element()]})
    try:
        received = kind.decode(sent.to_bytes(version), version)
    except ApiError:
        return False
    return bool(getattr(received, field) == getattr(sent, field))


def topic_arrays(request: Struct) -> list[str]:
    """Return which arrays of a request have topics in them."""
    return [name for name in _arrays(request) if "topic" in name]


def topics_in(request: Struct) -> Iterator[Any]:
    """Yield what stands for a topic in a request, at any depth: structs, or plain names."""
    arrays = topic_arrays(request)
    for name in arrays or _arrays(request):
        for part in getattr(request, name):
            if arrays:
                yield part
            elif isinstance(part, Struct):
                yield from topics_in(part)


def can_name_topics(kind: type[Struct]) -> bool:
    fields = _fields(kind)
    return any("topic" in name for name in fields) or any(
        can_name_topics(element) for element in fields.values() if element is not None
    )
