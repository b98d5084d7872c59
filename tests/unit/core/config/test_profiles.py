"""Configs that follow from the size of a cluster."""

import pytest

from odradek.core.config import STANDALONE
from odradek.core.config.profiles import internal_topics


@pytest.mark.parametrize(
    ("brokers", "copies", "needed"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)]
)
def test_internal_topics_have_as_many_copies_as_there_are_brokers_for(
    brokers: int, copies: int, needed: int
) -> None:
    configs = internal_topics(brokers)
    assert configs["offsets.topic.replication.factor"] == str(copies)
    assert configs["transaction.state.log.replication.factor"] == str(copies)
    assert configs["transaction.state.log.min.isr"] == str(needed)


def test_a_node_that_is_alone_has_the_only_copy() -> None:
    assert internal_topics(1).items() <= STANDALONE.items()
