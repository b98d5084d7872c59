"""*Works: yes* in docs/configs.md is earned: a test sees the effect, and is named."""

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from odradek.core.config.definitions import CONFIGS
from odradek.core.config.values import ConfigResourceType
from tests.config_effects import (
    BROKER_EFFECTS,
    CLIENT_METRICS_EFFECTS,
    GROUP_EFFECTS,
    TOPIC_EFFECTS,
    Tests,
)

TESTS = Path(__file__).parents[1]
EFFECTS: Mapping[ConfigResourceType, Mapping[str, Tests]] = {
    ConfigResourceType.TOPIC: TOPIC_EFFECTS,
    ConfigResourceType.BROKER: BROKER_EFFECTS,
    ConfigResourceType.GROUP: GROUP_EFFECTS,
    ConfigResourceType.CLIENT_METRICS: CLIENT_METRICS_EFFECTS,
}


@cache
def functions_in(path: str) -> frozenset[str]:
    tree = ast.parse((TESTS / path).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, kinds))


@pytest.mark.parametrize("resource", EFFECTS)
def test_what_works_is_what_a_test_sees(resource: ConfigResourceType) -> None:
    working = {name for name, row in CONFIGS[resource].items() if row.implemented}
    named = set(EFFECTS[resource])
    assert not working - named, "said to work, and no test is named in tests/config_effects.py"
    assert not named - working, "has a test, and the table does not say that it works"


def test_the_tests_that_are_named_are_there() -> None:
    tests = {test for effects in EFFECTS.values() for named in effects.values() for test in named}
    missing = [
        test
        for test in sorted(tests)
        if test.partition("::")[2] not in functions_in(test.partition("::")[0])
    ]
    assert not missing
