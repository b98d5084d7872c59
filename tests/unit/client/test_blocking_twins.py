"""Blocking clients have what asyncio ones have, in the same shape, and names are found lazily."""

import inspect
import subprocess
import sys
from typing import Any

import pytest

import odradek.client
from odradek.client import (
    Admin,
    BlockingAdmin,
    BlockingConsumer,
    BlockingProducer,
    Consumer,
    Producer,
)
from tools import blocking_twins

PAIRS = [(Admin, BlockingAdmin), (Producer, BlockingProducer), (Consumer, BlockingConsumer)]
BY_HAND = {("Producer", "send"), ("Producer", "send_arrow")}


def public(found: type) -> dict[str, Any]:
    return {
        name: member
        for name, member in inspect.getmembers(found)
        if not name.startswith("_") and (callable(member) or isinstance(member, property))
    }


@pytest.mark.parametrize("kind", blocking_twins.KINDS, ids=lambda kind: kind.name)
def test_generated_modules_are_what_their_sources_give(kind: blocking_twins.Kind) -> None:
    assert kind.path.read_text() == blocking_twins.write(kind), (
        "run: python -m tools.blocking_twins"
    )


@pytest.mark.parametrize(("core", "twin"), PAIRS, ids=lambda each: each.__name__)
def test_a_twin_has_the_same_methods_with_the_same_arguments(core: type, twin: type) -> None:
    assert set(public(core)) == set(public(twin))
    for name, method in {**public(core), "__init__": core.__init__}.items():  # type: ignore[misc]
        theirs, ours = inspect.signature(method), inspect.signature(getattr(twin, name))
        assert list(map(shape, theirs.parameters.values())) == list(
            map(shape, ours.parameters.values())
        ), name
        if not inspect.isgeneratorfunction(inspect.unwrap(getattr(twin, name))) and (
            (core.__name__, name) not in BY_HAND
        ):
            assert theirs.return_annotation == ours.return_annotation, name
        assert not inspect.iscoroutinefunction(getattr(twin, name)), name


def shape(parameter: inspect.Parameter) -> tuple[object, ...]:
    # Two lambdas are never equal.
    default = "…" if callable(parameter.default) else parameter.default
    return parameter.name, parameter.kind, parameter.annotation, default


@pytest.mark.parametrize("name", odradek.client.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(odradek.client, name).__name__ == name


def test_the_table_of_names_is_the_list_of_names() -> None:
    assert sorted(odradek.client._MODULES) == odradek.client.__all__
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        odradek.client.Nonsense  # noqa: B018


def test_an_admin_does_not_pay_for_the_consumer() -> None:
    code = (
        "import sys, odradek.client; odradek.client.Admin; "
        "sys.exit(any(name.startswith('odradek.client.consumer') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=180).returncode == 0
