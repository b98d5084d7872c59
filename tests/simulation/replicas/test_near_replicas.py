"""Consumers read from a follower in their rack (KIP-392), and from the leader when it dies."""

from collections.abc import Iterator
from contextlib import contextmanager

from odradek.client import Consumer
from odradek.core.config.consistency import RACK_AWARE_SELECTOR
from tests.simulation.replicas.three_nodes import ThreeNodes, nodes_in_racks

RACKS = {1: "a", 2: "b", 3: "a"}
FETCH_WAIT_SECONDS = 0.5
VALUES = [b"%d" % number * 100 for number in range(50)]


@contextmanager
def two_racks() -> Iterator[ThreeNodes]:
    with nodes_in_racks(RACKS, replica_selector_class=RACK_AWARE_SELECTOR) as nodes:
        nodes.run(nodes.send(*VALUES, acks="all"))
        nodes.wait_until(lambda: set(nodes.ends().values()) == {(len(VALUES), len(VALUES))})
        yield nodes


def consumer(nodes: ThreeNodes, rack: str) -> Consumer:
    return Consumer(
        "orders",
        bootstrap_servers=nodes.layout.bootstrap_servers,
        auto_offset_reset="earliest",
        client_rack=rack,
        random=nodes.world.random("consumer"),
        now_ms=nodes.client.clock.now_ms,
        monotonic_ms=nodes.client.clock.monotonic_ms,
    )


async def read(reader: Consumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    while len(values) < count:
        for records in (await reader.poll(timeout=1.0)).values():
            values.extend(record.value for record in records)
    return values


def bytes_out(nodes: ThreeNodes) -> dict[int, int]:
    return {each: nodes.replica(each).traffic.bytes_out for each in RACKS}


def bytes_read_from(nodes: ThreeNodes, rack: str) -> dict[int, int]:
    """Have a consumer in a rack read everything; return how many bytes each node served."""

    async def read_all() -> list[bytes | None]:
        async with consumer(nodes, rack) as reader:
            return await read(reader, len(VALUES))

    before = bytes_out(nodes)
    assert nodes.run(read_all()) == VALUES
    return {each: count - before[each] for each, count in bytes_out(nodes).items()}


def test_a_consumer_reads_every_byte_from_the_follower_in_its_rack() -> None:
    with two_racks() as nodes:
        served = bytes_read_from(nodes, "b")
        assert served == {1: 0, 2: served[2], 3: 0}
        assert served[2] > sum(map(len, VALUES))


def test_the_leader_answers_at_once_where_to_read() -> None:
    with two_racks() as nodes:

        async def story() -> float:
            async with consumer(nodes, "b") as reader:
                await read(reader, len(VALUES))
                return nodes.world.now

        begun = nodes.world.now
        ended = nodes.run(story())
        assert ended - begun < FETCH_WAIT_SECONDS


def test_the_leader_serves_consumers_of_its_rack_and_of_racks_without_replicas() -> None:
    with two_racks() as nodes:
        for rack in ("a", "c", ""):
            served = bytes_read_from(nodes, rack)
            assert served == {1: served[1], 2: 0, 3: 0}, rack


def test_a_consumer_returns_to_the_leader_when_its_follower_dies() -> None:
    with two_racks() as nodes:

        async def story() -> list[bytes | None]:
            async with consumer(nodes, "b") as reader:
                values = await read(reader, len(VALUES))
                nodes.machines[2].kill()
                await nodes.send(b"after", acks="all", servers=(1, 3))
                return values + await read(reader, 1)

        assert nodes.run(story()) == [*VALUES, b"after"]


def test_without_a_selector_the_leader_serves_all() -> None:
    with nodes_in_racks(RACKS) as nodes:
        nodes.run(nodes.send(*VALUES, acks="all"))
        served = bytes_read_from(nodes, "b")
        assert served == {1: served[1], 2: 0, 3: 0}
