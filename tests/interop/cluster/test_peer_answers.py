"""What brokers ask of each other, with every mistake: our answers beside those of a real Kafka.

Strangers that claim to be followers, earlier runs of a follower, wrong leader epochs, ISRs proposed
by who does not lead, markers of coordinators that are none: refused as in Kafka, and nothing moves.
"""

import pytest

from tests.cluster.flavours import Kafka, Odradek
from tests.interop.cluster.peer_golden import (
    DELIBERATE_COUNT,
    GOLDEN,
    answers_of,
    is_deliberate,
    read,
)

pytestmark = pytest.mark.slow


def test_answers_are_those_that_were_recorded_of_kafka() -> None:
    ours, theirs = answers_of(Odradek()), read(GOLDEN.read_text())
    assert ours.keys() == theirs.keys()
    different = {case for case in ours if ours[case] != theirs[case]}
    meant = {case for case in different if is_deliberate(case, ours[case], theirs[case])}
    assert {case: (ours[case], theirs[case]) for case in different - meant} == {}
    assert len(meant) == DELIBERATE_COUNT


@pytest.mark.kafka
@pytest.mark.usefixtures("kafka_libs")
def test_what_was_recorded_is_what_kafka_answers() -> None:
    recorded = read(GOLDEN.read_text())
    now = answers_of(Kafka())
    assert {case: answer for case, answer in now.items() if answer != recorded[case]} == {}
    assert now.keys() == recorded.keys()
