"""Transactions that nobody ends, and coordinators that stop meanwhile.

A coordinator that stops between a decision and its markers is made by taking records off the end of
its log and of the partition's: that is what a crash in between leaves.
"""

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from odradek.broker.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC
from odradek.coordinator.transaction.metadata import EPOCH_MAX, TransactionMetadata
from odradek.coordinator.transaction.records import transaction_record
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.protocol.generated.end_txn import EndTxnResponse
from odradek.protocol.generated.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from odradek.protocol.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.records import BatchBuilder
from odradek.storage.config import LogConfig
from odradek.storage.disk import OsDisk
from odradek.storage.log import Log
from odradek.storage.recovery import LogSettings, open_log
from tests.broker_connection import BrokerConnection
from tests.transaction_requests import (
    GROUP_KEY,
    T0,
    T1,
    TransactionalProducer,
    find_coordinator,
)
from tests.unit.broker.transaction_broker import DAY_SECONDS, SMALL, offsets, running, state_of

NONE = ErrorCode.NONE
SAFE_DOWNGRADE = 2
DEADLINE_SECONDS = 120
LONG_SECONDS = 1_000
"""Longer than the timeout of any transaction here, and than the interval of looking for them."""
STATE = TopicPartition(TRANSACTION_TOPIC, 0)


def open_stopped(data_dir: Path, partition: TopicPartition) -> Log:
    """Open a log whose broker is stopped."""
    settings = LogSettings(LogConfig())
    disk, folder = OsDisk(), data_dir / str(partition)
    log, _ = open_log(partition, disk, folder, settings, now_ms=0, random=Random(1), clean=True)
    return log


def cut(data_dir: Path, partition: TopicPartition, records: int) -> None:
    """Take records off the end of a log."""
    log = open_stopped(data_dir, partition)
    assert log.truncate_to(log.log_end_offset - records, now_ms=0)
    log.close()


def set_level(connection: BrokerConnection, level: int) -> None:
    update = FeatureUpdateKey(
        feature="transaction.version", max_version_level=level, upgrade_type=SAFE_DOWNGRADE
    )
    request = UpdateFeaturesRequest(feature_updates=[update])
    answer = connection.ask(request, UpdateFeaturesResponse)
    assert answer.error_code == NONE, answer.error_message


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Time.


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(level: int) -> None:
    with running() as (broker, connection):
        set_level(connection, level)
        producer = TransactionalProducer(connection, timeout_ms=300_000).begin()
        assert producer.add(T0) == {T0: NONE}
        assert producer.produce(b"x", version=11) == NONE
        broker.clock.advance(150)
        assert state_of(connection) == "Ongoing"
        broker.clock.advance(200)
        assert state_of(connection) == "CompleteAbort"
        assert offsets(broker) == (2, 2)
        assert producer.produce(b"y", version=11) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert producer.end(commit=True, version=4) == ErrorCode.PRODUCER_FENCED
        assert producer.begin().add(T0) == {T0: NONE}
        assert producer.produce(b"z", version=11) == NONE


def test_a_transactional_id_that_nobody_uses_is_forgotten() -> None:
    with running() as (broker, connection):
        producer = TransactionalProducer(connection, timeout_ms=900_000).begin()
        broker.clock.advance(6 * DAY_SECONDS)
        assert state_of(connection) == "Empty"
        broker.clock.advance(2 * DAY_SECONDS)
        assert state_of(connection) == "TRANSACTIONAL_ID_NOT_FOUND"
        assert producer.add(T0) == {T0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}


# Markers by hand.


def marker_request(
    producer: TransactionalProducer, partition: TopicPartition, coordinator_epoch: int = 0
) -> WriteTxnMarkersRequest:
    topic = WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[topic],
        coordinator_epoch=coordinator_epoch,
    )
    return WriteTxnMarkersRequest(markers=[marker])


def write_marker(
    connection: BrokerConnection,
    producer: TransactionalProducer,
    partition: TopicPartition,
    version: int = 1,
) -> ErrorCode:
    request = marker_request(producer, partition)
    answer = connection.ask(request, WriteTxnMarkersResponse, version)
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


@pytest.mark.parametrize("version", [1, 2])
def test_an_administrator_ends_a_transaction_that_hangs(version: int) -> None:
    trusting = {**SMALL, "transaction.partition.verification.enable": "false"}
    with running(trusting) as (broker, connection):
        producer = TransactionalProducer(connection).begin()
        # Written without the coordinator's knowledge, so nobody will ever end it.
        assert producer.produce(b"x", version=11) == NONE
        broker.clock.advance(LONG_SECONDS)
        assert state_of(connection) == "Empty"
        assert offsets(broker) == (0, 1)

        assert write_marker(connection, producer, T0, version) == NONE
        assert offsets(broker) == (2, 2)


def test_markers_are_refused_where_they_cannot_be_written() -> None:
    with running() as (_, connection):
        producer = TransactionalProducer(connection).begin()
        ghost = TopicPartition("ghost", 0)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert write_marker(connection, producer, ghost) == unknown
        assert write_marker(connection, producer, TopicPartition("t", 9)) == unknown
        assert write_marker(connection, producer, TopicPartition(GROUP_TOPIC, 0)) == unknown
        producer.produce(b"x")
        producer.end(commit=True)
        producer.producer_epoch = 0
        assert write_marker(connection, producer, T0) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_offsets_of_a_transaction_are_given_up_by_a_marker() -> None:
    trusting = {**SMALL, "transaction.partition.verification.enable": "false"}
    with running(trusting) as (broker, connection):
        producer = TransactionalProducer(connection).begin()
        find_coordinator(connection, "g", GROUP_KEY)
        assert producer.commit_offset(7, version=4) == NONE
        group = TopicPartition(GROUP_TOPIC, 0)
        assert offsets(broker, group) == (0, 1)
        assert write_marker(connection, producer, group) == NONE
        assert offsets(broker, group) == (2, 2)


def test_the_offsets_topic_may_be_deleted_during_a_transaction() -> None:
    with running() as (_, connection):
        producer = TransactionalProducer(connection).begin()
        find_coordinator(connection, "g", GROUP_KEY)
        assert producer.commit_offset(7) == NONE
        assert producer.produce(b"x") == NONE
        delete = DeleteTopicsRequest(topics=[DeleteTopicState(name=GROUP_TOPIC)], timeout_ms=1000)
        assert connection.ask(delete, DeleteTopicsResponse).responses[0].error_code == NONE
        assert producer.end(commit=True) == NONE
        assert state_of(connection) == "CompleteCommit"


# Restarts.


def test_a_transaction_goes_on_after_a_restart(tmp_path: Path) -> None:
    with running(data_dir=tmp_path) as (_, connection):
        before = TransactionalProducer(connection).begin()
        find_coordinator(connection, "g", GROUP_KEY)
        assert before.produce(b"x") == NONE
        assert before.commit_offset(7) == NONE
    with running(data_dir=tmp_path) as (broker, connection):
        assert state_of(connection) == "Ongoing"
        after = TransactionalProducer(connection)
        after.producer_id, after.producer_epoch = before.producer_id, before.producer_epoch
        assert after.produce(b"y", partition=T1) == NONE
        assert after.end(commit=True) == NONE
        assert offsets(broker, T0) == offsets(broker, T1) == (2, 2)
        assert offsets(broker, TopicPartition(GROUP_TOPIC, 0)) == (2, 2)


def test_a_transaction_times_out_after_a_restart(tmp_path: Path) -> None:
    with running(data_dir=tmp_path) as (_, connection):
        TransactionalProducer(connection).begin().produce(b"x")
    with running(data_dir=tmp_path) as (broker, connection):
        broker.clock.advance(LONG_SECONDS)
        assert state_of(connection) == "CompleteAbort"
        assert offsets(broker) == (2, 2)


@pytest.mark.parametrize("commit", [True, False])
def test_markers_are_written_after_a_restart(tmp_path: Path, commit: bool) -> None:
    with running(data_dir=tmp_path) as (_, connection):
        producer = TransactionalProducer(connection).begin()
        producer.produce(b"x")
        producer.produce(b"y", partition=T1)
        assert producer.end(commit=commit) == NONE
    cut(tmp_path, STATE, 1)  # that it is complete
    cut(tmp_path, T1, 1)  # T0 has its marker and gets another
    complete = "CompleteCommit" if commit else "CompleteAbort"
    with running(data_dir=tmp_path) as (broker, connection):
        wait_until(lambda: state_of(connection) == complete)
        assert offsets(broker, T1) == (2, 2)
        assert offsets(broker, T0) == (3, 3)
        producer = TransactionalProducer(connection).begin()
        assert producer.produce(b"z") == NONE


# Epochs that are used up.


def with_last_epoch(data_dir: Path, *, timeout_ms: int) -> TransactionMetadata:
    """Make a broker's data in which a transactional id has come to its last epoch."""
    with running(data_dir=data_dir) as (_, connection):
        given = TransactionalProducer(connection).begin()
    last = TransactionMetadata(
        transactional_id=given.transactional_id,
        producer_id=given.producer_id,
        producer_epoch=EPOCH_MAX - 1,
        timeout_ms=timeout_ms,
        previous_producer_id=given.producer_id,
        updated_ms=time.time_ns() // 1_000_000,
    )
    record = transaction_record(last, transaction_version=2)
    log = open_stopped(data_dir, STATE)
    builder = BatchBuilder()
    builder.append(last.updated_ms, record.key_bytes(), record.value_bytes())
    log.append_as_leader(builder.build(), leader_epoch=0, now_ms=last.updated_ms)
    log.close()
    return last


def test_after_the_last_epoch_comes_another_producer_id(tmp_path: Path) -> None:
    last = with_last_epoch(tmp_path, timeout_ms=60_000)
    with running(data_dir=tmp_path) as (broker, connection):
        producer = TransactionalProducer(connection)
        producer.producer_id, producer.producer_epoch = last.identity
        assert producer.produce(b"x") == NONE
        late = producer.end_request(commit=True)
        for _ in range(2):
            answer = connection.ask(late, EndTxnResponse)
            assert (answer.error_code, answer.producer_epoch) == (NONE, 0)
            assert answer.producer_id > last.producer_id
        producer.take(answer)
        assert offsets(broker) == (2, 2)
        assert producer.produce(b"y") == NONE
        assert producer.end(commit=True) == NONE


def test_a_transaction_of_the_last_epoch_times_out_too(
    tmp_path: Path,
) -> None:
    last = with_last_epoch(tmp_path, timeout_ms=1)
    with running(data_dir=tmp_path) as (broker, connection):
        producer = TransactionalProducer(connection)
        producer.producer_id, producer.producer_epoch = last.identity
        assert producer.produce(b"x") == NONE

        def is_aborted() -> bool:
            broker.clock.advance(LONG_SECONDS)  # first it asks for a producer id, then it has one
            return state_of(connection) == "CompleteAbort"

        wait_until(is_aborted)
        assert offsets(broker) == (2, 2)
        producer.begin()
        assert producer.producer_id > last.producer_id
