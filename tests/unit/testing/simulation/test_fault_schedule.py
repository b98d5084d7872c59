"""Faults as lines, and shrinking them to those that matter."""

from collections.abc import Sequence
from random import Random

from odradek.testing.simulation.schedule import (
    KINDS,
    OF_PROGRAMS,
    Fault,
    draw_schedule,
    parse_schedule,
    shrink,
)

MANY = [Fault(float(number), 1.0, "kill", "node-1") for number in range(16)]


def draw(seed: int, programs: Sequence[str]) -> list[Fault]:
    return draw_schedule(
        Random(seed),
        count=200,
        seconds=20,
        kinds=KINDS,
        nodes=["node-1", "node-2"],
        programs=programs,
    )


def test_lines_are_read_as_they_were_printed() -> None:
    drawn = draw(1, ["worker"])
    assert parse_schedule("\n".join(map(str, drawn))) == drawn
    assert {fault.kind for fault in drawn} == set(KINDS)


def test_there_are_no_faults_of_programs_without_programs() -> None:
    assert not {fault.kind for fault in draw(2, [])} & set(OF_PROGRAMS)


def test_what_does_not_matter_is_left_out() -> None:
    needed = {MANY[3], MANY[11]}
    assert shrink(MANY, lambda fewer: needed <= set(fewer), 100) == [MANY[3], MANY[11]]


def test_a_failure_that_needs_no_fault_has_none() -> None:
    assert shrink(MANY, lambda _: True, 100) == []


def test_shrinking_gives_up_after_so_many_runs() -> None:
    runs = []

    def still_fails(fewer: Sequence[Fault]) -> bool:
        runs.append(fewer)
        return False

    assert shrink(MANY, still_fails, 5) == MANY
    assert len(runs) == 5
