"""What the active controller logs when brokers are fenced and partitions lose their leader."""

import logging

import pytest

from odradek.control.cluster_events import cluster_changed
from odradek.core.event import Event
from odradek.core.ids import Uuid
from odradek.metadata.image import ClusterImage
from odradek.protocol.generated.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from odradek.protocol.message import Message

TOPIC_ID = Uuid(b"sixteen-byte-id!")
PARTITIONS = 12
CLUSTER = ClusterImage().apply(
    [
        RegisterBrokerRecord(broker_id=1, broker_epoch=3, fenced=False),
        RegisterBrokerRecord(broker_id=2, broker_epoch=4, fenced=False),
        TopicRecord(name="t", topic_id=TOPIC_ID),
        *(
            PartitionRecord(
                topic_id=TOPIC_ID, partition_id=number, replicas=[2, 1], isr=[2], leader=2
            )
            for number in range(PARTITIONS)
        ),
    ]
)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "odradek.controller")
    return caplog


def told(
    lines: pytest.LogCaptureFixture, before: ClusterImage, *records: Message
) -> tuple[ClusterImage, list[tuple[str, str, dict[str, object]]]]:
    """Return the image after the records, and level, beginning and fields of what was logged."""
    update = before.advance(records)
    cluster_changed(before, update)
    found = [(each.levelname, each.msg) for each in lines.records]
    lines.clear()
    return update.image, [
        (level, event.name.partition(":")[0], dict(event.fields))
        for level, event in found
        if isinstance(event, Event)
    ]


def leader(number: int, leader: int) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=number, leader=leader)


def test_partitions_that_lose_their_leader_are_one_line(lines: pytest.LogCaptureFixture) -> None:
    gone, found = told(lines, CLUSTER, *(leader(number, -1) for number in range(PARTITIONS)))
    ((level, name, fields),) = found
    assert (level, name) == ("ERROR", "partitions have no leader")
    assert fields == {
        "count": PARTITIONS,
        "partitions": sorted(f"t-{number}" for number in range(10)),
        "have_all": ["2"],
        "last_in_sync": [],
    }
    assert told(lines, gone, leader(0, -1))[1] == [], "it has been told"
    assert told(lines, gone, leader(0, 2), leader(1, 1))[1] == [
        ("INFO", "partitions have a leader again", {"count": 2})
    ]


def test_a_leader_that_changes_is_no_news(lines: pytest.LogCaptureFixture) -> None:
    assert told(lines, CLUSTER, leader(0, 1))[1] == []


@pytest.mark.parametrize(
    ("change", "level", "expected"),
    [
        ({}, "WARNING", "broker fenced"),
        ({"in_controlled_shutdown": 1}, "INFO", "broker fenced"),
    ],
)
def test_a_broker_that_is_fenced_is_told_with_the_reason(
    lines: pytest.LogCaptureFixture, change: dict[str, int], level: str, expected: str
) -> None:
    record = BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=4, fenced=1, **change)  # type: ignore[arg-type]
    fenced, found = told(lines, CLUSTER, record)
    assert found == [(level, expected, {"broker_id": 2})]
    unfence = BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=4, fenced=-1)
    assert told(lines, fenced, unfence)[1] == [("INFO", "broker unfenced", {"broker_id": 2})]


def test_a_broker_that_was_started_again_is_not_taken_for_one_that_is_silent(
    lines: pytest.LogCaptureFixture,
) -> None:
    again = RegisterBrokerRecord(broker_id=2, broker_epoch=9, fenced=True)
    assert told(lines, CLUSTER, again)[1] == [("INFO", "broker fenced", {"broker_id": 2})]
