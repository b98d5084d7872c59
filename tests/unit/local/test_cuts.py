"""From the words of `odradek local cut` to what each node holds back."""

from random import Random

import pytest

from odradek.local.cuts import held_ports, lost_brokers, parse_cut, shown_cuts
from odradek.local.errors import LocalClusterError
from odradek.local.layout import Layout, Wishes, plan_layout


@pytest.fixture
def layout() -> Layout:
    return plan_layout(Wishes(), Random(1))


@pytest.fixture
def separate() -> Layout:
    return plan_layout(Wishes(controllers="separate"), Random(1))


@pytest.mark.parametrize(
    ("word", "pairs", "shown"),
    [
        ("1:2", {(1, 2), (2, 1)}, "1 and 2"),
        ("3>1", {(3, 1)}, "3 to 1"),
        ("2", {(1, 2), (2, 1), (2, 3), (3, 2)}, "1 and 2, 2 and 3"),
    ],
)
def test_words(layout: Layout, word: str, pairs: set[tuple[int, int]], shown: str) -> None:
    assert parse_cut(word, layout) == pairs
    assert shown_cuts(pairs) == shown


@pytest.mark.parametrize("word", ["", "1-2", "1:", ":2", "1:2:3", "x", "1:1", "-1", "9999999999"])
def test_a_word_that_is_none_is_refused_with_those_that_are(layout: Layout, word: str) -> None:
    with pytest.raises(LocalClusterError, match=r"give N, N:M, or 'N>M'|there must be two nodes"):
        parse_cut(word, layout)


def test_a_node_alone_cannot_be_cut_off() -> None:
    with pytest.raises(LocalClusterError, match="there must be two nodes"):
        parse_cut("1", plan_layout(Wishes(nodes=1), Random(1)))


def test_both_ends_hold_their_own_connections_back(layout: Layout) -> None:
    """A connection that one end opened is cut there alone: the other end knows no port of it."""
    cuts = {(1, 2)}
    assert held_ports(cuts, layout, 1) == {9093: "send", 9193: "send"}
    assert held_ports(cuts, layout, 2) == {9092: "receive", 9192: "receive"}
    assert held_ports(cuts, layout, 3) == {}
    assert held_ports({(1, 2), (2, 1)}, layout, 2) == {9092: "both", 9192: "both"}


def test_who_cannot_talk_with_the_controller_is_lost(layout: Layout) -> None:
    assert lost_brokers(parse_cut("1:2", layout), layout, controller=2) == {1}
    assert lost_brokers(parse_cut("1>2", layout), layout, controller=2) == {1}
    assert lost_brokers(parse_cut("1:3", layout), layout, controller=2) == set()


def test_a_controller_without_a_majority_is_lost_itself(layout: Layout) -> None:
    assert lost_brokers(parse_cut("2", layout), layout, controller=2) == {2}


def test_separate_controllers_are_no_brokers_to_lose(separate: Layout) -> None:
    assert lost_brokers(parse_cut("101", separate), separate, controller=101) == set()
    assert lost_brokers(parse_cut("2:101", separate), separate, controller=101) == {2}
