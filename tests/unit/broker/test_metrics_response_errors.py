"""Every error code that a response can carry is found, wherever it is in it."""

from importlib import import_module
from typing import Any

import pytest

from odradek.broker.dispatch import SPOKEN
from odradek.broker.metrics.response_errors import _children, error_counter
from odradek.protocol.apis import Api
from odradek.protocol.generated import fetch, metadata, produce
from odradek.protocol.message import Struct


def test_codes_are_counted_at_every_depth() -> None:
    response = fetch.FetchResponse(
        error_code=70,
        responses=[
            fetch.FetchableTopicResponse(
                partitions=[fetch.PartitionData(error_code=code) for code in (3, 0, 1, 3)]
            ),
            fetch.FetchableTopicResponse(),
        ],
    )
    errors: dict[int, int] = {}
    error_counter(fetch.FetchResponse)(response, errors)
    error_counter(fetch.FetchResponse)(response, errors)
    assert errors == {70: 2, 3: 4, 1: 2}


def test_lists_that_are_null_have_no_errors() -> None:
    errors: dict[int, int] = {}
    error_counter(produce.ProduceResponse)(produce.ProduceResponse(), errors)
    error_counter(metadata.MetadataResponse)(metadata.MetadataResponse(), errors)
    assert errors == {}


def _slots(kind: object) -> tuple[str, ...]:
    return kind.__slots__ if isinstance(kind, type) and issubclass(kind, Struct) else ()


def filled(kind: type[Struct]) -> Any:
    """Build a struct in which every list has an element and every error code is 7."""
    struct = kind()
    for name, child in _children(kind):
        setattr(struct, name, [filled(child)])
    if "error_code" in kind.__slots__:
        struct.error_code = 7  # type: ignore[attr-defined]
    return struct


@pytest.mark.parametrize("api", SPOKEN, ids=lambda api: api.name)
def test_as_many_as_the_text_of_the_response_shows(api: Api) -> None:
    response = filled(api.response())
    errors: dict[int, int] = {}
    error_counter(api.response())(response, errors)
    text = repr(response)
    assert errors.get(7, 0) == text.count("error_code=7")
    module = import_module(api.response().__module__)
    with_code = [kind for kind in vars(module).values() if "error_code" in _slots(kind)]
    assert [kind.__name__ for kind in with_code if f"{kind.__name__}(" not in text] == []
