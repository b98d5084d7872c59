"""Where a real Kafka's controller stood, ours decides the same.

The archives hold every record that Kafka 4.3 wrote while a broker started, stopped and crashed.
Each test replays the log up to such a moment, asks our controller, and compares record for record.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from odradek.controller import Controller, bootstrap_records
from odradek.core.ids import Uuid
from odradek.metadata import VersionedRecord
from odradek.protocol.generated.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.protocol.generated.broker_heartbeat import BrokerHeartbeatRequest
from odradek.protocol.generated.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from odradek.protocol.generated.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
)
from odradek.protocol.message import Message
from tests.interop.kafka_peer.golden import unpack
from tests.unit.controller.cluster import CLUSTER_ID, settings
from tests.unit.metadata.golden_log import batches

Batch = tuple[int, list[Message]]
"""Base offset and records."""


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> list[Batch]:
    folder: Path = unpack("recovered", tmp_path_factory.mktemp("recovered"))
    return [
        (where.last_offset - len(messages) + 1, messages)
        for messages, where in batches(folder)
        if messages
    ]


def before(history: list[Batch], base_offset: int) -> Controller:
    controller = Controller(settings())
    for offset, messages in history:
        if offset < base_offset:
            for message in messages:
                controller.replay(message)
    return controller


def moments(history: list[Batch], chosen: Callable[[list[Message]], bool]) -> list[Batch]:
    found = [batch for batch in history if chosen(batch[1])]
    assert found, "the archive has such a moment"
    return found


def same(ours: Sequence[VersionedRecord], kafkas: Sequence[Message]) -> None:
    """The order of partitions is a hash map's in Kafka; that of other records counts."""

    def order(message: Message) -> tuple[bool, Uuid, int]:
        assert isinstance(message, PartitionChangeRecord)
        return True, message.topic_id, message.partition_id

    def parts(messages: list[Message]) -> tuple[list[Message], list[Message]]:
        moved = [each for each in messages if isinstance(each, PartitionChangeRecord)]
        others = [each for each in messages if not isinstance(each, PartitionChangeRecord)]
        return sorted(moved, key=order), others

    assert parts([record.message for record in ours]) == parts(list(kafkas))


def changes_broker(**fields: object) -> Callable[[list[Message]], bool]:
    def chosen(messages: list[Message]) -> bool:
        return any(
            isinstance(each, BrokerRegistrationChangeRecord)
            and all(getattr(each, name) == value for name, value in fields.items())
            for each in messages
        )

    return chosen


def heartbeat(controller: Controller, *, want_shut_down: bool = False) -> Sequence[VersionedRecord]:
    request = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=controller.image.brokers[1].epoch,
        current_metadata_offset=1 << 40,
        want_shut_down=want_shut_down,
    )
    return controller.broker_heartbeat(request, 0, 0).records


def test_bootstrap_records(history: list[Batch]) -> None:
    assert [record.message for record in bootstrap_records()] == history[0][1]


def test_a_broker_registers_anew_after_a_clean_and_an_unclean_stop(history: list[Batch]) -> None:
    registrations = moments(history, lambda each: isinstance(each[-1], RegisterBrokerRecord))
    sizes = []
    for base_offset, kafkas in registrations:
        theirs = kafkas[-1]
        assert isinstance(theirs, RegisterBrokerRecord)
        controller = before(history, base_offset)
        known = controller.image.brokers.get(1)
        request = BrokerRegistrationRequest(
            broker_id=1,
            cluster_id=CLUSTER_ID,
            incarnation_id=theirs.incarnation_id,
            listeners=[
                Listener(name=each.name, host=each.host, port=each.port)
                for each in theirs.end_points
            ],
            features=[
                Feature(
                    name=each.name,
                    min_supported_version=each.min_supported_version,
                    max_supported_version=each.max_supported_version,
                )
                for each in theirs.features
            ],
            rack=theirs.rack,
            log_dirs=theirs.log_dirs,
            previous_broker_epoch=-1 if known is None or len(kafkas) > 1 else known.epoch,
        )
        result = controller.register_broker(request, 0, base_offset)
        same(result.records, kafkas)
        assert result.reply.broker_epoch == theirs.broker_epoch
        sizes.append(len(kafkas))
    assert max(sizes) > 10, "among them the one after the crash, with a change per partition"


def test_unfencing_elects_leaders(history: list[Batch]) -> None:
    unfencings = moments(history, changes_broker(fenced=-1))
    for base_offset, kafkas in unfencings:
        # A broker reports its cordoned directories, none, with the same or the next heartbeat.
        kept = [
            each
            for each in kafkas
            if not isinstance(each, BrokerRegistrationChangeRecord) or each.fenced
        ]
        same(heartbeat(before(history, base_offset)), kept)
    assert max(len(kafkas) for _, kafkas in unfencings) > 10


def test_controlled_shutdown_moves_leaders(history: list[Batch]) -> None:
    for base_offset, kafkas in moments(history, changes_broker(in_controlled_shutdown=1)):
        same(heartbeat(before(history, base_offset), want_shut_down=True), kafkas)


def test_fencing_after_shutdown_or_when_the_session_is_over(history: list[Batch]) -> None:
    for base_offset, kafkas in moments(history, changes_broker(fenced=1)):
        controller = before(history, base_offset)
        same(controller.fence_broker(1).records, kafkas)


def test_blocks_of_producer_ids(history: list[Batch]) -> None:
    for base_offset, kafkas in moments(
        history, lambda each: isinstance(each[0], ProducerIdsRecord)
    ):
        controller = before(history, base_offset)
        epoch = controller.image.brokers[1].epoch
        request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
        same(controller.allocate_producer_ids(request).records, kafkas)
