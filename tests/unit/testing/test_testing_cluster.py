"""The embedded cluster: real nodes in this process that tests can break."""

import errno
import gc
import threading
from collections.abc import Iterator

import confluent_kafka
import pytest

from odradek.testing import Cluster
from odradek.testing.cluster.node import Condition


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Cluster(nodes=3, topics={"orders": (2, 3)}) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    yield shared
    shared.mend()


def produce(cluster: Cluster, topic: str, values: range, *, is_idempotent: bool = True) -> None:
    """Write with acks=all; return when all is acknowledged."""
    config = {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": is_idempotent}
    producer = confluent_kafka.Producer({**config, "acks": "all"})
    failed: list[object] = []
    for value in values:
        producer.produce(
            topic, b"%d" % value, partition=0, on_delivery=lambda error, _: failed.append(error)
        )
    assert producer.flush(60) == 0
    assert failed == [None] * len(values)


def consume(cluster: Cluster, topic: str, count: int) -> list[int]:
    config = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": f"readers-of-{topic}",
        "auto.offset.reset": "earliest",
    }
    consumer = confluent_kafka.Consumer(config)
    try:
        consumer.subscribe([topic])
        found: list[int] = []
        while len(found) < count:
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None
            found.append(int(message.value() or b""))
        return found
    finally:
        consumer.close()


def test_it_starts_with_topics_and_replicas_in_sync(cluster: Cluster) -> None:
    state = cluster.state
    assert state.brokers == {1, 2, 3}
    assert cluster.controller.id == state.controller
    assert [number for topic, number, _ in state.partitions if topic == "orders"] == [0, 1]
    assert cluster.leader("orders", 1).id in {1, 2, 3}
    cluster.wait_until_healthy()


@pytest.mark.seed_row("0.7")
def test_nothing_acknowledged_is_lost_by_a_kill_and_a_partition(cluster: Cluster) -> None:
    cluster.create_topic("survivor", min_insync_replicas="2")
    produce(cluster, "survivor", range(100))
    killed = cluster.leader("survivor")
    killed.kill()
    assert killed.condition is Condition.KILLED
    produce(cluster, "survivor", range(100, 200))
    killed.start()
    cluster.wait_until_healthy()

    lonely = cluster.leader("survivor")
    cluster.isolate(lonely.id)
    cluster.wait_for(lambda: cluster.leader("survivor") is not lonely)
    produce(cluster, "survivor", range(200, 300))
    cluster.heal()
    cluster.wait_until_healthy()
    assert consume(cluster, "survivor", 300) == list(range(300))


def test_a_paused_node_loses_its_partitions_and_comes_back(cluster: Cluster) -> None:
    paused = cluster.leader("orders")
    paused.pause()
    assert paused.condition is Condition.PAUSED
    assert cluster.leader("orders") is not paused
    paused.resume()
    cluster.wait_until_healthy()
    assert cluster.state.brokers == {1, 2, 3}


def test_a_controller_that_is_cut_off_is_replaced(cluster: Cluster) -> None:
    before = cluster.controller
    cluster.split([before.id])
    cluster.wait_for(lambda: cluster.state.controller not in (None, before.id))
    assert cluster.controller is not before
    cluster.heal()
    cluster.wait_until_healthy()


def test_a_cut_one_way_holds_back_what_a_follower_asks_for(cluster: Cluster) -> None:
    leader = cluster.leader("orders")
    follower = next(node for node in cluster if node not in (leader, cluster.controller))
    cluster.cut(follower.id, leader.id, both_ways=False)

    # Once the follower is out of the ISR. Not idempotent, since librdkafka may ask the follower for
    # a producer id, and go on asking, though it does not reach the controller.
    produce(cluster, "orders", range(10), is_idempotent=False)
    found = cluster.partition("orders")
    assert found is not None
    assert follower.id not in found.isr
    assert f"cut: {follower.id} to {leader.id}" in cluster.describe()
    cluster.heal()
    cluster.wait_until_healthy()


def test_a_paused_node_can_be_killed(cluster: Cluster) -> None:
    node = cluster[1]
    node.pause()
    node.kill()
    with pytest.raises(RuntimeError, match="node 1 does not run: it is killed"):
        node.kill()
    with pytest.raises(RuntimeError, match="node 1 does not run"):
        node.pause()
    node.start()
    with pytest.raises(RuntimeError, match="node 1 is running"):
        node.start()


def test_a_node_whose_only_disk_fails_gives_up_by_itself(cluster: Cluster) -> None:
    node = cluster[2]
    node.disk.fail("write", errno.EIO)
    cluster.wait_for(lambda: node.condition is Condition.FAILED)
    cluster.wait_for(lambda: cluster.state.brokers == {1, 3})
    cluster.mend()
    assert node.is_running


def test_a_node_starts_again_after_a_clean_stop(cluster: Cluster) -> None:
    produce(cluster, "orders", range(10))
    cluster[3].stop()
    assert cluster[3].condition is Condition.STOPPED
    cluster.wait_for(lambda: cluster.state.brokers == {1, 2})
    cluster[3].restart()
    cluster.wait_until_healthy()


def test_a_wiped_disk_is_filled_again(cluster: Cluster) -> None:
    cluster.create_topic("copied")
    produce(cluster, "copied", range(50))
    node = cluster[1]
    with pytest.raises(RuntimeError, match="node 1 is running: kill it first"):
        node.wipe()
    node.kill()
    cluster.wait_for(lambda: cluster.state.brokers == {2, 3})
    node.wipe()
    node.start()
    cluster.wait_until_healthy()
    others = [each for each in cluster if each is not node]
    for each in others:
        each.pause()
    for each in others:
        each.resume()
    assert consume(cluster, "copied", 50) == list(range(50))


def test_a_clock_of_one_node_can_be_set(cluster: Cluster) -> None:
    leader = cluster.leader("orders")
    leader.clock.step_wall(-3600)
    others = [node for node in cluster if node is not leader]
    assert all(node.clock.now_ms() > leader.clock.now_ms() + 3_500_000 for node in others)
    leader.clock.step_wall(3600)
    leader.clock.advance(0.001)


def test_waiting_for_what_does_not_come_shows_the_state(cluster: Cluster) -> None:
    with pytest.raises(TimeoutError, match=r"for a miracle\ncontroller \d, brokers \[1, 2, 3\]"):
        cluster.wait_for(lambda: False, 0.01, "a miracle")


def test_it_leaves_no_threads_and_no_sockets() -> None:
    before = set(threading.enumerate())
    with Cluster(nodes=2, topics=["t"]) as cluster:
        cluster[1].pause()
        cluster[2].kill()
    left = [each for each in set(threading.enumerate()) - before if each.name.startswith("odradek")]
    for _ in range(30):
        # Threads of killed nodes' workers end when nobody can use them any more. Coroutines that
        # the first collection closes keep what they held until the next.
        gc.collect()
        for thread in left:
            thread.join(1)
        left = [each for each in left if each.is_alive()]
        if not left:
            break
    assert left == []


async def in_asyncio() -> None:
    async with Cluster(nodes=1, topics={"t": 3}) as cluster:
        await cluster.create_topic_async("u", 2)
        leader = await cluster.leader_async("u", 1)
        await leader.restart_async()
        await cluster.wait_until_healthy_async()
        found = await cluster.wait_for_async(lambda: cluster.partition("t", 2))
        assert found.replicas == (1,)


def test_programs_with_a_loop_can_await_it() -> None:
    import asyncio

    asyncio.run(in_asyncio())


def test_racks_are_given_in_turn_and_configs_hold() -> None:
    with Cluster(nodes=4, racks=["a", "b"], config={"num.partitions": "7"}) as cluster:
        assert [node.rack for node in cluster] == ["a", "b", "a", "b"]
        assert cluster[4].node.config.num_partitions == 7
        assert not cluster[4].node.config.is_controller


@pytest.mark.parametrize("nodes", [0, 21])
def test_a_cluster_has_one_to_twenty_nodes(nodes: int) -> None:
    with pytest.raises(ValueError, match=f"{nodes} nodes: choose from 1 to 20"):
        Cluster(nodes=nodes)


def test_a_config_that_does_not_exist_is_refused() -> None:
    with pytest.raises(Exception, match=r"num\.partition"):
        Cluster(config={"num.partition": "3"})


def test_a_topic_that_cannot_be_is_refused(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="cannot create topic two words"):
        cluster.create_topic("two words")
