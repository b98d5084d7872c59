"""A round of shrinking is left out after a long turn of the loop."""

from odradek.replication.lag_rounds import LagRounds


def test_a_round_after_a_stall_is_left_out_and_never_two_in_a_row() -> None:
    assert not LagRounds().is_held(1_001)
    rounds = LagRounds()
    turns = (0, 1_000, 1_001, 1_001, 5_000, 0, 1_001, 0, 0)
    expected = [True, True, False, True, False, True, False, True, True]
    assert [rounds.is_held(turn) for turn in turns] == expected
