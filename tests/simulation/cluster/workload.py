"""What clients do to the control plane: our own clients, each on a machine of its own.

Administrators create and delete topics, add partitions, set configs and describe; other clients ask
for producer ids; a producer writes all the time to topics with one replica.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING, Final

from odradek.client import Admin, Consumer, NewPartitions, NewTopic, Producer
from odradek.client.admin.configs import ConfigResource
from odradek.client.errors import BrokerError, KafkaError
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.testing.simulation import SimNode
from tests.simulation.cluster.ledger import Ledger

if TYPE_CHECKING:
    from tests.simulation.cluster.cluster import Cluster

DATA_TOPIC: Final = "data"
FLOOD_PARTITIONS: Final = 1_000
FLOODS_MAX: Final = 3
ADMIN_MS_MAX: Final = 10_000
CONFIGS: Final = ("retention.ms", "segment.ms", "max.message.bytes", "flush.ms")


def make_admin(cluster: "Cluster", node: SimNode, purpose: str) -> Admin:
    return Admin(
        bootstrap_servers=cluster.layout.bootstrap_servers,
        client_id=f"{node.name}-{purpose}",
        request_timeout_ms=5_000,
        default_api_timeout_ms=ADMIN_MS_MAX,
        random=cluster.world.random(f"admin/{node.name}/{purpose}"),
    )


class Administrator:
    """Changes topics of its own, one thing after the other."""

    def __init__(self, cluster: "Cluster", node: SimNode) -> None:
        self._cluster = cluster
        self._ledger: Ledger = cluster.ledger
        self._node = node
        self._random: Random = cluster.world.random(f"administrator/{node.name}")
        self._mine: dict[str, int] = {}  # topic to partitions, as far as sure
        self._unset: dict[str, list[str]] = {}
        self._made = 0

    async def run(self) -> None:
        admin = make_admin(self._cluster, self._node, "changes")
        while not self._cluster.is_over:
            try:
                await admin.start()
                break
            except KafkaError:
                await asyncio.sleep(0.5)
        try:
            while not self._cluster.is_over:
                await self._step(admin)
                await asyncio.sleep(self._random.uniform(0.1, 2.0))
        finally:
            await admin.close()

    def steps(self) -> list[Callable[[Admin], Awaitable[None]]]:
        """Return what may be done next; what stands there twice is done more often."""
        return [
            self._create,
            self._create,
            self._delete,
            self._grow,
            self._configure,
            self._configure,
            self._describe,
            self._take_producer_id,
            self._take_producer_id,
        ]

    def replication_factor(self) -> int:
        return 1

    async def _step(self, admin: Admin) -> None:
        step = self._random.choice(self.steps())
        if step in (self._delete, self._grow, self._configure) and not self._mine:
            step = self._create
        what = step.__name__.removeprefix("_")
        try:
            await step(admin)
        except KafkaError as error:
            self._ledger.count(what, error)
            self._cluster.say(f"{self._node.name} {what}: {error}")
        else:
            self._ledger.count(what, None)

    async def _create(self, admin: Admin) -> None:
        self._made += 1
        name = f"{self._node.name}-{self._made}"
        partitions = self._random.randint(1, 3)
        new = NewTopic(name, partitions, self.replication_factor())
        created = (await admin.create_topics([new])).unwrap()[name]
        self._ledger.created[name] = created.topic_id
        self._ledger.partitions[name] = partitions
        self._mine[name] = partitions
        self._unset[name] = list(CONFIGS)
        self._cluster.on_acknowledged(name)

    async def _delete(self, admin: Admin) -> None:
        name = self._random.choice(sorted(self._mine))
        del self._mine[name]
        self._ledger.doomed.add(name)
        try:
            (await admin.delete_topics([name])).unwrap()
        except BrokerError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            # The answer to an earlier try was lost.
        self._ledger.deleted[name] = self._ledger.created[name]
        self._cluster.on_acknowledged(name)

    async def _grow(self, admin: Admin) -> None:
        name = self._random.choice(sorted(self._mine))
        total = self._mine.pop(name) + 1  # back when it is known how many there are
        (await admin.create_partitions({name: NewPartitions(total)})).unwrap()
        self._mine[name] = self._ledger.partitions[name] = total
        self._cluster.on_acknowledged(name)

    async def _configure(self, admin: Admin) -> None:
        name = self._random.choice(sorted(self._mine))
        if not self._unset[name]:
            return
        key, value = self._unset[name].pop(), str(self._random.randrange(1_000_000, 2_000_000))
        changes = {ConfigResource.topic(name): {key: value}}
        (await admin.alter_configs(changes)).unwrap()
        self._ledger.configs[name, key] = value
        self._cluster.on_acknowledged(name)

    async def _describe(self, admin: Admin) -> None:
        await admin.list_topics()
        if self._random.random() < 0.5:
            await admin.describe_quorum()
        else:
            await admin.describe_cluster()

    async def _take_producer_id(self, admin: Admin) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = await admin._cluster.ask_any(request, InitProducerIdResponse)
        if answer.error_code:
            raise BrokerError(ErrorCode(answer.error_code), "no producer id")
        self._ledger.count("producer id", None)
        count = len(self._ledger.producer_ids)
        self._ledger.on_producer_id(answer.producer_id, f"{self._node.name} {count}")


async def flood(cluster: "Cluster", node: SimNode, until: float) -> None:
    """Have some large plans made that change nothing."""
    loop = asyncio.get_running_loop()
    admin = make_admin(cluster, node, f"flood {loop.time()}")
    large = NewTopic("large", partitions=FLOOD_PARTITIONS, replication_factor=1)
    try:
        await admin.start()
        for _ in range(FLOODS_MAX):
            if loop.time() < until:
                await admin.create_topics([large], validate_only=True)
    except KafkaError as error:
        cluster.ledger.count("flood", error)
    finally:
        await admin.close()


async def produce(cluster: "Cluster", node: SimNode) -> None:
    """Write to the data topic until all is over; what fails may be there or not."""
    ledger: Ledger = cluster.ledger
    sent = ledger.sent.setdefault(node.name, [])
    producer = Producer(
        bootstrap_servers=cluster.layout.bootstrap_servers,
        client_id=f"{node.name}-producer",
        max_block_ms=600_000,
        delivery_timeout_ms=600_000,
        request_timeout_ms=5_000,
        random=cluster.world.random(f"producer/{node.name}"),
        now_ms=node.clock.now_ms,
    )
    async with producer:
        while not cluster.is_over:
            value = f"{node.name} {len(sent)}".encode()
            sent.append(value)
            try:
                await (await producer.send(DATA_TOPIC, value, key=node.name.encode()))
                ledger.acknowledged.add(value)
            except KafkaError as error:
                ledger.count("produce", error)
            await asyncio.sleep(0.5)


async def read_all(cluster: "Cluster", node: SimNode) -> list[bytes]:
    """Read the data topic until all that was acknowledged is there, and a while longer."""
    ledger: Ledger = cluster.ledger
    values: list[bytes] = []
    consumer = Consumer(
        DATA_TOPIC,
        bootstrap_servers=cluster.layout.bootstrap_servers,
        client_id=f"{node.name}-consumer",
        auto_offset_reset="earliest",
        random=cluster.world.random(f"consumer/{node.name}"),
        now_ms=node.clock.now_ms,
    )
    async with consumer:
        quiet = 0
        while quiet < 4 or (quiet < 40 and not ledger.acknowledged <= set(values)):
            polled = await consumer.poll(timeout=0.5)
            for records in polled.values():
                values.extend(record.value for record in records if record.value is not None)
            quiet = 0 if polled else quiet + 1
    return values
