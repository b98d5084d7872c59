"""Records: their bytes, what version 0 leaves out, and what a real Kafka wrote."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.coordinator.result import Caller
from odradek.coordinator.transaction.metadata import TransactionMetadata
from odradek.coordinator.transaction.records import (
    decode_transaction_record,
    loaded_metadata,
    tombstone,
    transaction_record,
)
from odradek.coordinator.transaction.state import LEGAL_PREDECESSORS, TransactionState
from odradek.core.errors import CorruptionError
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.end_txn import EndTxnRequest
from odradek.protocol.generated.init_producer_id import InitProducerIdRequest
from odradek.protocol.generated.transaction_records import TransactionLogKey, TransactionLogValue
from odradek.records import read_records
from odradek.storage.scan import iter_batches
from tests.interop.kafka_peer.golden import unpack
from tests.unit.coordinator.transaction.transaction_driver import (
    P0,
    P1,
    Q0,
    WALL_MS,
    TransactionDriver,
)

S = TransactionState
FULL = TransactionMetadata(
    transactional_id="t",
    producer_id=258,
    producer_epoch=3,
    timeout_ms=60_000,
    state=S.PREPARE_COMMIT,
    partitions=frozenset({Q0, P1, P0}),
    start_ms=1,
    updated_ms=2,
    client_version=2,
    previous_producer_id=257,
    next_producer_id=259,
    next_producer_epoch=5,
    last_producer_epoch=2,
)
_BODY = "0000000000000102" + "0003" + "0000ea60" + "02"
_TIMES = "0000000000000002" + "0000000000000001"


def test_bytes_of_version_1() -> None:
    record = transaction_record(FULL, 1)
    assert record.key_bytes().hex() == "0000" + "0001" + b"t".hex()
    assert record.value_bytes() == bytes.fromhex(
        "0001"
        + _BODY
        + ("03" + "07" + b"orders".hex() + "03" + "00000000" + "00000001" + "00")
        + ("09" + b"payments".hex() + "02" + "00000000" + "00")
        + _TIMES
        + ("04" + "0008" + "0000000000000101" + "0108" + "0000000000000103")
        + ("0202" + "0002" + "0302" + "0005")
    )


def test_version_0_leaves_out_what_it_cannot_carry() -> None:
    record = transaction_record(FULL, 0)
    assert record.value_bytes() == bytes.fromhex(
        "0000"
        + _BODY
        + ("00000002" + "0006" + b"orders".hex() + "00000002" + "00000000" + "00000001")
        + ("0008" + b"payments".hex() + "00000001" + "00000000")
        + _TIMES
    )


@pytest.mark.parametrize(("level", "version"), [(0, 0), (1, 1), (2, 1)])
def test_version_of_values_follows_the_feature(level: int, version: int) -> None:
    driver = TransactionDriver(level)
    driver.at(S.ONGOING)
    assert {value[:2] for _, value in driver.log if value} == {version.to_bytes(2, "big")}


def test_living_coordinator_knows_what_version_0_leaves_out() -> None:
    driver = TransactionDriver(level=0)
    old = driver.put(32_766)
    new = driver.init(had=old)
    again = driver.init(had=old)
    assert (again.producer_id, again.producer_epoch) == (new.producer_id, 0)
    driver.reload()
    assert driver.metadata.previous_producer_id == -1


def test_everything_but_the_last_epoch_comes_back() -> None:
    record = transaction_record(FULL, 2)
    decoded = decode_transaction_record(record.key_bytes(), record.value_bytes())
    assert decoded is not None
    assert isinstance(decoded[1], TransactionLogValue)
    loaded = loaded_metadata("t", decoded[1])
    assert loaded == FULL
    assert loaded.last_producer_epoch == -1


def test_tombstone() -> None:
    record = tombstone("t")
    assert decode_transaction_record(record.key_bytes(), record.value_bytes()) == (
        TransactionLogKey(transactional_id="t"),
        None,
    )


def test_type_that_is_not_known_is_none() -> None:
    assert decode_transaction_record(b"\x00\x01\x00\x01t", b"") is None


@pytest.mark.parametrize("state", [-1, 6, 7, 8])
def test_state_that_cannot_be_on_disk_is_corruption(state: int) -> None:
    record = transaction_record(FULL, 2)
    assert isinstance(record.value, TransactionLogValue)
    record.value.transaction_status = state
    with pytest.raises(CorruptionError):
        decode_transaction_record(record.key_bytes(), record.value_bytes())


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x02", b"\x00\x01\x00"])
def test_value_that_cannot_be_read_is_corruption(value: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_transaction_record(tombstone("t").key_bytes(), value)


# What a real Kafka wrote for clients of both generations, and what we write when asked the same.


Logged = tuple[str, TransactionLogValue, bytes]


@pytest.fixture(scope="module", params=["clean", "crashed"])
def kafkas(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[Logged]:
    name = str(request.param)
    return list(_read(unpack(name, tmp_path_factory.mktemp(name))))


def _read(folder: Path) -> Iterator[Logged]:
    for path in sorted(folder.glob("__transaction_state-*/*.log")):
        data = path.read_bytes()
        for header in iter_batches(data):
            for record in read_records(data, header):
                assert record.value is not None
                raw = bytes(record.value)
                decoded = decode_transaction_record(bytes(record.key or b""), raw)
                assert decoded is not None
                key, value = decoded
                assert isinstance(key, TransactionLogKey)
                assert isinstance(value, TransactionLogValue)
                yield key.transactional_id, value, raw


def test_kafkas_records_are_replayed(kafkas: list[Logged]) -> None:
    driver = TransactionDriver()
    states: dict[str, TransactionState] = {}
    for offset, (transactional_id, value, raw) in enumerate(kafkas):
        metadata = loaded_metadata(transactional_id, value)
        if transactional_id in states:
            assert states[transactional_id] in LEGAL_PREDECESSORS[metadata.state]
        states[transactional_id] = metadata.state
        key = TransactionLogKey(transactional_id=transactional_id)
        driver.shard.replay(key, value, offset=offset, producer_id=-1)
        driver.shard.check_invariants()
        if len(metadata.partitions) <= 1:  # else the order is that of a hash table
            assert transaction_record(metadata, 2).value_bytes() == raw
    assert len(states) >= 4


def test_asked_what_kafka_was_asked_we_write_what_kafka_wrote(kafkas: list[Logged]) -> None:
    driver = TransactionDriver()
    for transactional_id, value, raw in kafkas:
        wanted = loaded_metadata(transactional_id, value)
        driver.now_ms = wanted.updated_ms - WALL_MS
        before = len(driver.log)
        _ask(driver, wanted)
        assert driver.shard.transactions[transactional_id] == wanted
        assert len(driver.log) == before + 1
        if len(wanted.partitions) <= 1:
            assert driver.log[-1][1] == raw


def _ask(driver: TransactionDriver, wanted: TransactionMetadata) -> None:
    """Ask for what must have led to ``wanted``."""
    shard, name = driver.shard, wanted.transactional_id
    current = shard.transactions.get(name)
    if wanted.state is S.EMPTY:
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=wanted.timeout_ms
        )
        caller = Caller("", 5, "", "")
        driver.apply(shard.init_producer_id(request, caller, driver.now, wanted.producer_id))
        return
    assert current is not None
    if wanted.state is S.ONGOING:
        driver.add(
            current.identity,
            *sorted(_added(current, wanted)),
            version=wanted.client_version,
            of=name,
        )
    elif wanted.state.is_prepared:
        version = 5 if wanted.client_version == 2 else 4
        end = EndTxnRequest(
            transactional_id=name,
            producer_id=current.producer_id,
            producer_epoch=current.producer_epoch,
            committed=wanted.state is S.PREPARE_COMMIT,
        )
        driver.apply(shard.end(end, Caller("", version, "", ""), driver.now))
    else:
        _mark(driver, current)


def _added(current: TransactionMetadata, wanted: TransactionMetadata) -> set[TopicPartition]:
    return set(wanted.partitions - current.partitions)


def _mark(driver: TransactionDriver, current: TransactionMetadata) -> None:
    for partition in current.partitions:
        driver.apply(
            driver.shard.on_marker_written(
                current.transactional_id, *current.identity, partition, driver.now
            )
        )
