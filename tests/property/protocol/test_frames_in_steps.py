"""A response that is encoded in steps is the one that is encoded at once, in every version."""

from collections.abc import Generator, Iterator
from random import Random

import pytest

from fuzz.builder import SMALL, build
from fuzz.catalog import entries
from odradek.broker.dispatch import LARGE_ARRAYS
from odradek.protocol.apis import ALL_APIS
from odradek.protocol.framing import STEP_ELEMENTS, frame_response, frame_response_in_steps
from odradek.protocol.message import Buffer

APIS = {api.name: api for api in ALL_APIS}


@pytest.mark.parametrize("name", LARGE_ARRAYS)
def test_a_response_in_steps_is_the_same(name: str) -> None:
    api, array, entry = APIS[name], LARGE_ARRAYS[name], entries()[f"{name}Response"]
    random = Random(name)
    for version in range(api.version_min, api.version_max + 1):
        for size in (1, STEP_ELEMENTS, 2 * STEP_ELEMENTS + 7):
            message = build(entry, version, random, SMALL)
            elements = list[object]()
            while len(elements) < size:
                elements += getattr(build(entry, version, random, SMALL), array) or []
            setattr(message, array, elements[:size])
            whole = b"".join(frame_response(message, api, version, 5))
            framed: list[Buffer] = []
            steps = _counted(frame_response_in_steps(message, array, api, version, 5), framed)
            assert sum(1 for _ in steps) == -(-size // STEP_ELEMENTS)
            assert b"".join(framed) == whole, (version, size)
            assert len(getattr(message, array)) == size


def _counted(steps: Generator[None, None, list[Buffer]], framed: list[Buffer]) -> Iterator[None]:
    framed += yield from steps
