"""The producer when brokers refuse, are slow, hang up or die: nothing lost, nothing hangs."""

import asyncio
import itertools
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from odradek.client.errors import BrokerError, ClosedError, KafkaTimeoutError
from odradek.client.producer import Producer
from odradek.client.producer.coordination import Coordination
from odradek.client.settings import as_settings
from odradek.core.errors import ErrorCode
from odradek.testing.broker import Broker
from tests.interop.client.produced_records import new_topic, values_in, wait_for_topic
from tests.interop.node_process import NodeProcess

_names = itertools.count()
FAST = {"retry.backoff.ms": 5, "retry.backoff.max.ms": 50, "reconnect.backoff.ms": 5}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


@pytest.fixture
def topic(broker: Broker) -> Iterator[str]:
    name = f"faults-{next(_names)}"
    broker.create_topic(name, partitions=2)
    yield name
    broker.clear_faults()


def run(main: Callable[[], Awaitable[None]], seconds: float = 120) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await main()

    asyncio.run(bounded())


def numbers(count: int) -> list[bytes | None]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.parametrize(
    "refusal",
    [
        "NOT_LEADER_OR_FOLLOWER",
        "NOT_ENOUGH_REPLICAS",
        "KAFKA_STORAGE_ERROR",
        "UNKNOWN_TOPIC_ID",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "UNKNOWN_PRODUCER_ID",
    ],
)
def test_refusals_that_pass_are_not_noticed(broker: Broker, topic: str, refusal: str) -> None:
    async def main() -> None:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "batch.size": 500, **FAST}
        async with Producer(as_settings(settings)) as producer:
            for value in numbers(20):
                await (await producer.send(topic, value, partition=0))
            fault = broker.fail("Produce", refusal, times=3, topic=topic)
            for value in numbers(200)[20:]:
                await producer.send(topic, value, partition=0)
            await producer.flush()
            assert fault.fired == 3

    run(main)
    assert values_in(broker.bootstrap_servers, topic) == numbers(200)


@pytest.mark.seed_row("0.6")
def test_answers_that_get_lost_duplicate_nothing(broker: Broker, topic: str) -> None:
    async def main() -> None:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "batch.size": 500, **FAST}
        async with Producer(as_settings(settings)) as producer:
            fault = broker.drop("Produce", after=True, times=5, topic=topic)
            futures = [await producer.send(topic, each, partition=0) for each in numbers(500)]
            await producer.flush()
            assert fault.fired == 5
            assert [each.result().offset for each in futures] == list(range(500))

    run(main)
    assert values_in(broker.bootstrap_servers, topic) == numbers(500)


def test_connections_that_break_lose_nothing(broker: Broker, topic: str) -> None:
    async def main() -> None:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "batch.size": 500, **FAST}
        async with Producer(as_settings(settings)) as producer:
            for number, value in enumerate(numbers(2000)):
                await producer.send(topic, value, partition=0)
                if number % 400 == 399:
                    broker.drop_connections()

    run(main)
    assert values_in(broker.bootstrap_servers, topic) == numbers(2000)


def test_a_broker_that_does_not_answer_is_asked_again_on_a_new_connection(
    broker: Broker, topic: str
) -> None:
    async def main() -> None:
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "request.timeout.ms": 2_000,
            **FAST,
        }
        async with Producer(as_settings(settings)) as producer:
            broker.delay("Produce", 600, times=1, topic=topic)
            futures = [await producer.send(topic, each, partition=0) for each in numbers(100)]
            await producer.flush()
            assert all(each.exception() is None for each in futures)

    run(main)
    assert values_in(broker.bootstrap_servers, topic) == numbers(100)


def test_without_idempotence_order_is_kept_with_one_request_at_a_time(
    broker: Broker, topic: str
) -> None:
    async def main() -> None:
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "batch.size": 500,
            "enable.idempotence": False,
            "max.in.flight.requests.per.connection": 1,
            **FAST,
        }
        async with Producer(as_settings(settings)) as producer:
            broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=4, topic=topic)
            for value in numbers(300):
                await producer.send(topic, value, partition=0)

    run(main)
    assert values_in(broker.bootstrap_servers, topic) == numbers(300)


@pytest.mark.slow
def test_what_cannot_be_delivered_fails_after_delivery_timeout_ms(
    broker: Broker, topic: str
) -> None:
    async def main() -> None:
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "request.timeout.ms": 2_000,
            # Time enough for what can be delivered, on any machine.
            "delivery.timeout.ms": 10_000,
            **FAST,
        }
        async with Producer(as_settings(settings)) as producer:
            await (await producer.send(topic, b"before", partition=0))
            with broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=None, topic=topic):
                began = time.monotonic()
                lost = await producer.send(topic, b"lost", partition=0)
                await producer.flush()
                assert time.monotonic() - began > 8
                with pytest.raises(KafkaTimeoutError, match="NOT_ENOUGH_REPLICAS"):
                    await lost
            # Its sequence is gone with it; a new epoch goes on.
            await (await producer.send(topic, b"after", partition=0))

    run(main)
    assert values_in(broker.bootstrap_servers, topic) == [b"before", b"after"]


def test_a_refusal_for_good_harms_only_its_own_batch(broker: Broker, topic: str) -> None:
    async def main() -> None:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, **FAST}
        async with Producer(as_settings(settings)) as producer:
            await (await producer.send(topic, b"0", partition=0))
            broker.fail("Produce", "INVALID_RECORD", times=1, topic=topic)
            refused = await producer.send(topic, b"bad", partition=0)
            with pytest.raises(BrokerError) as told:
                await refused
            assert told.value.code is ErrorCode.INVALID_RECORD
            await (await producer.send(topic, b"1", partition=0))
            await (await producer.send(topic, b"2", partition=1))

    run(main)
    assert sorted(map(str, values_in(broker.bootstrap_servers, topic))) == ["b'0'", "b'1'", "b'2'"]


@pytest.mark.seed_row("3.8")
def test_memory_that_is_full_blocks_and_then_says_so(broker: Broker, topic: str) -> None:
    async def main() -> None:
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "buffer.memory": 50_000,
            "max.block.ms": 300,
        }
        async with Producer(as_settings(settings)) as producer:
            await wait_for_topic(producer, topic)
            await (await producer.send(topic, b"warm", partition=0))
            held = broker.delay("Produce", 600, times=None, topic=topic)

            async def fill() -> None:
                while True:
                    await producer.send(topic, b"x" * 1000, partition=0)

            with pytest.raises(KafkaTimeoutError, match=r"buffer\.memory"):
                await fill()
            held.clear()
            await producer.flush()
            assert producer._accumulator.pool.free_bytes == 50_000
            await (await producer.send(topic, b"again", partition=0))

    run(main)


@pytest.mark.seed_row("4.7")
def test_senders_that_wait_for_memory_go_on_in_their_turn(broker: Broker, topic: str) -> None:
    async def main() -> None:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "buffer.memory": 32_768}
        async with Producer(as_settings(settings)) as producer:
            for value in numbers(20_000):
                await producer.send(topic, value, partition=0)

    run(main)
    assert values_in(broker.bootstrap_servers, topic) == numbers(20_000)


def test_close_is_over_in_its_time_with_a_broker_that_hangs(broker: Broker, topic: str) -> None:
    async def main() -> None:
        producer = Producer(bootstrap_servers=broker.bootstrap_servers)
        await producer.start()
        await (await producer.send(topic, b"warm", partition=0))
        broker.delay("Produce", 600, times=None, topic=topic)
        lost = await producer.send(topic, b"x", partition=0)
        began = time.monotonic()
        await producer.close(timeout_seconds=0.3)
        assert time.monotonic() - began < 60, "it has waited for the broker"
        with pytest.raises(ClosedError, match="before the record was delivered"):
            await lost
        with pytest.raises(ClosedError):
            await producer.send(topic, b"more")
        await producer.close()  # nothing happens

    run(main)


def test_close_ends_sends_that_wait(broker: Broker, topic: str) -> None:
    async def main() -> None:
        producer = Producer(bootstrap_servers=broker.bootstrap_servers, buffer_memory=20_000)
        await producer.start()
        await (await producer.send(topic, b"warm", partition=0))
        broker.delay("Produce", 600, times=None, topic=topic)

        async def fill() -> None:
            while True:
                future = await producer.send(topic, b"x" * 1000, partition=0)
                future.add_done_callback(lambda done: done.exception())

        filling = asyncio.create_task(fill())
        while not producer._accumulator.pool.waiting:
            await asyncio.sleep(0.001)
        await producer.close(timeout_seconds=0.1)
        with pytest.raises(ClosedError):
            await filling
        assert not producer._accumulator.incomplete, "nothing is left whose future would hang"

    run(main)


def test_who_is_cancelled_gets_out(broker: Broker, topic: str) -> None:
    async def work(is_sent: asyncio.Event) -> None:
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await (await producer.send(topic, b"warm", partition=0))
            broker.delay("Produce", 600, times=None, topic=topic)
            lost = await producer.send(topic, b"x", partition=0)
            is_sent.set()
            await lost

    async def main() -> None:
        is_sent = asyncio.Event()
        task = asyncio.create_task(work(is_sent))
        await is_sent.wait()
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - began < 60, "it has waited for the broker"

    run(main)


def test_an_idle_producer_whose_broker_is_gone_does_nothing_in_vain() -> None:
    async def main() -> None:
        broker = Broker()
        await asyncio.to_thread(broker.start)
        settings = {"metadata.max.age.ms": 20, **FAST}
        async with Producer(
            as_settings({"bootstrap.servers": broker.bootstrap_servers, **settings})
        ) as producer:
            await asyncio.to_thread(broker.stop)
            turns, run_once = 0, producer._sender._run

            def counted() -> None:
                nonlocal turns
                turns += 1
                run_once()

            producer._sender._run = counted  # type: ignore[method-assign]
            began = time.monotonic()
            await asyncio.sleep(1)
            seconds = time.monotonic() - began
            assert turns < 100 * seconds, "about one for each try of metadata"

    run(main)


def test_a_cancelled_send_or_future_harms_nobody(broker: Broker, topic: str) -> None:
    async def main() -> None:
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            first = await producer.send(topic, b"first", partition=0)
            first.cancel()
            await (await producer.send(topic, b"second", partition=0))

    run(main)
    assert values_in(broker.bootstrap_servers, topic) == [b"first", b"second"]


def test_a_fork_is_told_to_make_its_own(broker: Broker, topic: str) -> None:
    async def main() -> None:
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            child = os.fork()
            if child == 0:
                # No event loop survives a fork: a coroutine is driven by hand.
                try:
                    producer.send(topic, b"x").send(None)
                except ClosedError:
                    os._exit(7)
                finally:
                    os._exit(1)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 7
            await (await producer.send(topic, b"of the parent", partition=0))

    run(main)
    assert values_in(broker.bootstrap_servers, topic) == [b"of the parent"]


def test_without_a_broker_start_gives_up() -> None:
    async def main() -> None:
        producer = Producer(bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=300)
        with pytest.raises(KafkaTimeoutError):
            await producer.start()
        await producer.close()

    run(main)


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_is_aborted_while_a_batch_of_it_is_tried_again(
    broker: Broker, topic: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def has_version_2(self: Coordination, transactional_id: str) -> bool:
        return version == 2

    monkeypatch.setattr(Coordination, "has_version_2", has_version_2)

    async def main() -> None:
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": f"{topic}-{version}",
            **FAST,
        }
        async with Producer(as_settings(settings)) as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send(topic, b"kept 1", partition=0)
            await producer.begin_transaction()
            fault = broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=None, topic=topic)
            await producer.send(topic, b"dropped", partition=0)
            while not fault.fired:
                await asyncio.sleep(0.001)
            await producer.abort_transaction()
            fault.clear()
            async with producer.transaction():
                await producer.send(topic, b"kept 2", partition=0)

    run(main)
    assert values_in(broker.bootstrap_servers, topic) == [b"kept 1", b"kept 2"]


@pytest.mark.slow
def test_a_transaction_outlives_its_coordinator(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data", ("--log-level", "error")) as node:
        topic = new_topic(node.bootstrap_servers)

        async def main() -> None:
            settings = {
                "bootstrap.servers": node.bootstrap_servers,
                "transactional.id": "tx",
                # None of them is over before the node is back, however long that takes.
                "transaction.timeout.ms": 400_000,
                "delivery.timeout.ms": 400_000,
                "max.block.ms": 400_000,
                **FAST,
            }
            async with Producer(as_settings(settings)) as producer:
                await producer.init_transactions()
                for number in range(6):
                    async with producer.transaction():
                        sent = await producer.send(topic, b"%d" % number)
                        if number % 3 == 1:
                            await sent
                        if number % 2:
                            node.kill()
                            await asyncio.to_thread(node.start)

        run(main, 400)
        assert values_in(node.bootstrap_servers, topic) == numbers(6)
