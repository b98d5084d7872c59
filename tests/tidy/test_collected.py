"""What a run of the tests holds all the time costs the garbage collector nothing."""

import gc

import pytest


def test_what_is_collected_is_frozen(request: pytest.FixtureRequest) -> None:
    items = len(request.session.items)
    assert gc.get_freeze_count() > 10_000 + items
    assert not any(each is request.node for each in gc.get_objects())
