"""Partitioners, the buffer pool, settings, and the states of a transaction."""

from collections import Counter
from random import Random

import pytest

from odradek.client.errors import BrokerError, ConfigurationError, KafkaTimeoutError
from odradek.client.producer.buffer_pool import BufferPool
from odradek.client.producer.partitioners import (
    RoundRobin,
    StickyPartition,
    partition_for_key,
)
from odradek.client.producer.settings import DEFINITIONS, ProducerOptions, options_from
from odradek.client.producer.transaction import (
    ProducerFencedError,
    Transaction,
    TransactionFailedError,
    TransactionState,
)
from odradek.client.settings import Settings
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.records import CompressionType

PARTITION = TopicPartition("t", 0)


def test_keys_go_where_kafkas_clients_put_them() -> None:
    # From examples of Kafka's own: the hashes of these keys, without their sign.
    hashes = {b"21": -973932308, b"foobar": -790332482, b"abc": 479470107, b"": 275646681}
    for key, hashed in hashes.items():
        assert partition_for_key(key, 1000) == (hashed & 0x7FFFFFFF) % 1000


def test_round_robin_goes_by_topic_over_what_has_a_leader() -> None:
    chosen = RoundRobin()
    assert [chosen("a", b"k", None, [0, 1, 2], [0, 2]) for _ in range(3)] == [0, 2, 0]
    assert [chosen("b", None, None, [0, 1], []) for _ in range(3)] == [0, 1, 0]


def test_a_partition_is_stuck_to_until_a_batch_is_full_or_as_much_was_sent() -> None:
    sticky = StickyPartition(100, Random(1))
    seen = [sticky.choose([5], None)]
    for size, is_full in ((60, False), (60, False)):
        sticky.produced(size, is_full=is_full)
        seen.append(sticky.current or -1)
    sticky.choose([5], None)
    sticky.produced(10, is_full=True)
    seen.append(sticky.current or -1)
    assert seen == [5, 5, -1, -1]


def test_long_queues_are_chosen_less_often() -> None:
    sticky = StickyPartition(100, Random(1))
    counts = Counter(sticky.choose([0, 1, 2], [0, 3, 1]) for _ in range(7000))
    # Kafka's weights: one more than the longest, less the own length: 4, 1, 3 of 8.
    assert counts[0] / 7000 == pytest.approx(4 / 8, abs=0.03)
    assert counts[1] / 7000 == pytest.approx(1 / 8, abs=0.03)
    assert counts[2] / 7000 == pytest.approx(3 / 8, abs=0.03)
    counts = Counter(sticky.choose([0, 1, 2], [2, 2, 2]) for _ in range(6000))
    assert all(abs(counts[each] / 6000 - 1 / 3) < 0.03 for each in (0, 1, 2))


@pytest.mark.seed_row("3.8")
def test_memory_is_given_in_the_order_it_was_asked_for() -> None:
    pool = BufferPool(100)
    granted: list[str] = []
    assert pool.try_reserve(80)
    pool.wait(50, lambda: granted.append("large"))
    second = pool.wait(10, lambda: granted.append("small"))
    assert not pool.try_reserve(5), "others wait"
    pool.release(30)
    assert granted == ["large"]
    pool.release(50)
    assert granted == ["large", "small"]
    assert second.is_granted
    pool.give_up(second)
    pool.release(50)
    assert pool.free_bytes == 100


def test_who_leaves_the_line_lets_the_next_have_it() -> None:
    pool = BufferPool(100)
    granted: list[str] = []
    assert pool.try_reserve(70)
    first = pool.wait(60, lambda: granted.append("first"))
    pool.wait(30, lambda: granted.append("second"))
    pool.give_up(first)
    assert granted == ["second"]


def options(**keywords: object) -> ProducerOptions:
    return options_from(Settings(DEFINITIONS, {"bootstrap.servers": "a:1"}, **keywords))


def test_defaults_are_those_of_kafka_4() -> None:
    made = options()
    assert (made.acks, made.idempotent, made.linger_ms, made.batch_size) == (-1, True, 5, 16_384)
    assert (made.buffer_memory, made.max_block_ms, made.in_flight_max) == (33_554_432, 60_000, 5)
    assert (made.delivery_timeout_ms, made.max_request_size) == (120_000, 1_048_576)
    assert made.codec is CompressionType.NONE


def test_batches_are_bounded_by_what_was_chosen_or_go_further() -> None:
    assert options().batch_size_max == 4 * 16_384
    assert options(batch_size=16_384).batch_size_max == 16_384
    assert options(batch_size=0).batch_size_max == 0
    assert options(max_request_size=20_000).batch_size_max == 20_000
    assert options(max_request_size=2_000).batch_size_max == 16_384


def test_idempotence_gives_way_unless_it_was_asked_for() -> None:
    assert not options(acks=1).idempotent
    assert not options(retries=0).idempotent
    assert not options(max_in_flight_requests_per_connection=6).idempotent
    with pytest.raises(ConfigurationError, match="retries"):
        options(retries=0, enable_idempotence=True)
    with pytest.raises(ConfigurationError, match="acks"):
        options(acks=0, transactional_id="t")


def test_a_level_belongs_to_its_codec() -> None:
    assert options(compression_type="zstd", compression_zstd_level=7).codec_level == 7
    assert options(compression_type="zstd").codec_level is None
    assert options(compression_type="snappy", compression_gzip_level=9).codec_level is None
    with pytest.raises(ConfigurationError, match=r"gzip\.level"):
        options(compression_type="gzip", compression_gzip_level=0)


def test_the_delivery_timeout_holds_one_attempt() -> None:
    assert options(linger_ms=100_000, request_timeout_ms=100_000).delivery_timeout_ms == 200_000
    with pytest.raises(ConfigurationError, match=r"delivery\.timeout\.ms"):
        options(delivery_timeout_ms=1000)


def ready_transaction(*, is_v2: bool) -> Transaction:
    transaction = Transaction("tx")
    transaction.is_v2 = is_v2
    transaction.move_to(TransactionState.INITIALIZING)
    transaction.move_to(TransactionState.READY)
    transaction.begin()
    return transaction


def test_a_partition_waits_for_the_coordinator_before_version_2() -> None:
    transaction = ready_transaction(is_v2=False)
    transaction.add(PARTITION)
    assert not transaction.may_send(PARTITION)
    assert transaction.take_to_add() == [PARTITION]
    transaction.add(PARTITION)
    assert transaction.take_to_add() == []
    transaction.on_added([PARTITION])
    assert transaction.may_send(PARTITION)
    assert transaction.is_begun


def test_a_partition_waits_for_nobody_in_version_2() -> None:
    transaction = ready_transaction(is_v2=True)
    transaction.add(PARTITION)
    assert transaction.may_send(PARTITION)
    assert transaction.take_to_add() == []


def test_a_failed_batch_allows_nothing_but_abort() -> None:
    transaction = ready_transaction(is_v2=False)
    transaction.on_batch_failed(KafkaTimeoutError("late"))
    for call in (transaction.check_in_transaction, transaction.start_commit, transaction.begin):
        with pytest.raises(TransactionFailedError, match="late"):
            call()
    transaction.start_abort()
    assert transaction.needs_epoch
    transaction.on_ended()
    assert transaction.state is TransactionState.READY
    assert not transaction.needs_epoch


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_being_fenced_is_the_end(code: ErrorCode) -> None:
    transaction = ready_transaction(is_v2=True)
    raised = transaction.on_refused(BrokerError(code))
    assert isinstance(raised, ProducerFencedError)
    for call in (transaction.begin, transaction.start_commit, transaction.start_abort):
        with pytest.raises(ProducerFencedError):
            call()


def test_an_abort_that_is_refused_is_not_aborted_again() -> None:
    transaction = ready_transaction(is_v2=True)
    transaction.start_abort()
    transaction.on_refused(BrokerError(ErrorCode.TRANSACTION_ABORTABLE))
    assert transaction.state is TransactionState.FATAL_ERROR
