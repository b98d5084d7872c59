"""Requests that get past the first check: random values, and names, ids and numbers that exist.

A request of random strings is refused because there is no such topic, and the code behind that
is never entered. So most values of a field come from a pool for its name: what the session set up,
and what earlier responses said (member ids, producer ids, epochs, topic ids, fetch sessions).
"""

from collections import defaultdict, deque
from collections.abc import Iterable
from random import Random
from typing import Any, Final

from fuzz.builder import Builder, Size
from fuzz.catalog import Entry
from odradek.core.ids import Uuid
from odradek.protocol.message import Message, Struct
from odradek.records import BatchBuilder, CompressionType
from tools.layout import FORMATS
from tools.notation import Field

POOL_MAX: Final = 24
KNOWN_SHARES: Final = (0.5, 0.9, 0.99)
"""How many values of one request are known ones: some requests are nearly right, some are wild."""
ROLES_MAX: Final = 8
ROLE_SHARE: Final = 0.6
_ROLE_FIELDS: Final = {
    "JoinGroup": ("group_id", "member_id", "generation_id", "group_instance_id"),
    "ConsumerGroupHeartbeat": ("group_id", "member_id", "generation_id"),
    "InitProducerId": ("transactional_id", "producer_id", "producer_epoch"),
    "Fetch": ("session_id",),
}
"""What belongs together: without it hardly any request would come from a member or a producer."""
SIZE: Final = Size(elements_max=3, bytes_max=300)
_TIMESTAMP_MS: Final = 1_700_000_000_000

_TOPIC, _GROUP, _NUMBER = "topic", "group", "number"
_SAME: Final = {
    "name": _TOPIC,
    "topic": _TOPIC,
    "topic_name": _TOPIC,
    "topic_names": _TOPIC,
    "topics": _TOPIC,
    "subscribed_topic_names": _TOPIC,
    "resource_name": _TOPIC,
    "group_id": _GROUP,
    "group_ids": _GROUP,
    "groups": _GROUP,
    "groups_names": _GROUP,
    "key": _GROUP,
    "coordinator_keys": _GROUP,
    "transactional_ids": "transactional_id",
    "partition": _NUMBER,
    "partitions": _NUMBER,
    "partition_index": _NUMBER,
    "partition_indexes": _NUMBER,
    "index": _NUMBER,
    "fetch_offset": _NUMBER,
    "committed_offset": _NUMBER,
    "offset": _NUMBER,
    "generation_id_or_member_epoch": "generation_id",
    "member_epoch": "generation_id",
    "producer_id_filters": "producer_id",
    "configuration_keys": "config",
    "value": "config_value",
}
"""Fields of one meaning under many names."""
_LEARNED: Final = frozenset(
    {"member_id", "generation_id", "producer_id", "producer_epoch", "topic_id", "session_id"}
    | {"client_instance_id", "subscription_id"}
)
"""What only a node can say. Names that it repeats are what it was asked, mostly nonsense."""

_KNOWN: Final[dict[str, tuple[object, ...]]] = {
    _TOPIC: (
        *("orders", "compacted", "empty", "orders", "compacted", "empty", "range"),
        *("__consumer_offsets", "__transaction_state"),
        *("__cluster_metadata", "retention.ms", "cleanup.policy", "segment.bytes", "1", "0", ""),
    ),
    _GROUP: ("classic", "consumer", "empty-group", "tx", ""),
    "transactional_id": ("tx", "tx-2", ""),
    "protocol_type": ("consumer", ""),
    "protocol_name": ("range", "roundrobin"),
    "config": ("retention.ms", "cleanup.policy", "compression.type", "log.retention.ms", ""),
    "config_value": ("1", "-1", "compact", "delete", "true", "gzip", "none", "", "1000000"),
    "member_id": ("", "", "", "made-up-member"),
    "group_instance_id": ("static-1", "static-2"),
    _NUMBER: (0, 1, 2, -1),
    "resource_type": (2, 4, 16, 32),
    "config_operation": (0, 1, 2, 3),
    "key_type": (0, 1, 2),
    "acks": (-1, 0, 1),
    "num_partitions": (1, 3, -1),
    "replication_factor": (1, -1),
    "count": (1, 2, 4, 5),
    "broker_ids": (1,),
    "replica_id": (-1, -2, 1),
    "leader_epoch": (-1, 0),
    "current_leader_epoch": (-1, 0),
    "generation_id": (-1, 0, 1),
    "session_epoch": (-1, 0, 1),
    "session_id": (0,),
    "producer_id": (-1, 0),
    "producer_epoch": (-1, 0, 1),
    "timestamp": (-1, -2, -3, -4, -5, -6, _TIMESTAMP_MS),
    "max_bytes": (1 << 20, 1 << 24),
    "partition_max_bytes": (1 << 20, 0),
    "min_bytes": (0, 1),
    "feature": ("metadata.version", "transaction.version", "kraft.version"),
    "upgrade_type": (1, 2, 3),
    "max_wait_ms": (0, 1, 500, 30_000),
    "timeout_ms": (0, 1, 30_000),
    "transaction_timeout_ms": (1, 10_000, 60_000),
    "session_timeout_ms": (6_000, 10_000, 30_000),
    "rebalance_timeout_ms": (0, 6_000, 30_000),
}


class Pools:
    """What is known to exist, by meaning; what responses say comes in and pushes out the oldest."""

    def __init__(self) -> None:
        self._learned: defaultdict[str, deque[object]] = defaultdict(lambda: deque(maxlen=POOL_MAX))
        self.roles: deque[dict[str, object]] = deque(maxlen=ROLES_MAX)
        """Values that belong to one member or one producer, by meaning."""

    def learn_role(self, api: str, request: Message, response: Message) -> None:
        """Take note of who the node thinks that its client is now."""
        if api not in _ROLE_FIELDS or getattr(response, "error_code", None) != 0:
            return
        values: dict[str, object] = {}
        for message in (request, response):
            names: tuple[str, ...] = message.__slots__
            for name in names:
                meaning = _SAME.get(name, name)
                if meaning in _ROLE_FIELDS[api]:
                    values[meaning] = getattr(message, name)
        self.roles.append(values)

    def of(self, field: str) -> list[object]:
        meaning = _SAME.get(field, field)
        return [*_KNOWN.get(meaning, ()), *self._learned[meaning]]

    def learn(self, message: Struct) -> None:
        for name in message.__slots__:
            self._learn(name, getattr(message, name))

    def _learn(self, name: str, value: object) -> None:
        if isinstance(value, Struct):
            self.learn(value)
        elif isinstance(value, list):
            for each in value[:POOL_MAX]:
                self._learn(name, each)
        elif isinstance(value, str | int | Uuid) and _SAME.get(name, name) in _LEARNED:
            self._learned[_SAME.get(name, name)].append(value)


class RequestBuilder(Builder):
    """Builds one request; most of its values are of the pools."""

    def __init__(self, entry: Entry, version: int, random: Random, pools: Pools) -> None:
        super().__init__(entry, version, random, SIZE, unknown_tags=True)
        self._pools = pools
        self._known_share = random.choice(KNOWN_SHARES)
        has_role = bool(pools.roles) and self._chance(ROLE_SHARE)
        self._role = random.choice(pools.roles) if has_role else {}

    def build(self) -> Message:
        made = self.struct(self._entry.message_class, self._entry.definition.fields)
        assert isinstance(made, Message)
        return made

    def value(self, field: Field) -> Any:
        meaning = _SAME.get(field.name, field.name)
        if meaning in self._role and not field.is_array and self._chance(self._known_share):
            value = self._role[meaning]
            if value is None and self._version in field.nullable:
                return None
            for each in _fitting(field, [value]):
                return each
        return super().value(field)

    def _element(self, field: Field) -> Any:
        if field.type == "records":
            return self._records()
        if not field.is_struct and self._chance(self._known_share):
            fitting = list(_fitting(field, self._pools.of(field.name)))
            if fitting:
                return self._random.choice(fitting)
        return super()._element(field)

    def _records(self) -> bytes:
        if self._chance(0.1):
            return self._bytes()
        random, batches = self._random, bytearray()
        for _ in range(random.choice((1, 1, 1, 2))):
            batches += self._batch()
        if self._chance(0.15):
            at = random.randrange(len(batches))
            batches[at] ^= 1 << random.randrange(8)
        return bytes(batches[: random.randrange(len(batches))] if self._chance(0.05) else batches)

    def _batch(self) -> bytes:
        random = self._random
        producer_id = self._integer_of("producer_id", (1 << 63) - 1)
        epoch = self._integer_of("producer_epoch", (1 << 15) - 1)
        builder = BatchBuilder(
            codec=random.choice(list(CompressionType)),
            producer_id=producer_id,
            producer_epoch=epoch if producer_id >= 0 else -1,
            base_sequence=random.choice((0, 1, 2)) if producer_id >= 0 else -1,
            transactional=producer_id >= 0 and self._chance(0.5),
            control=self._chance(0.05),
        )
        for _ in range(random.randint(1, 4)):
            key = random.choice((None, b"", b"key", b"\0\0\0\1"))
            value = random.choice((None, b"", b"value" * 20))
            builder.append(random.choice((-1, 0, _TIMESTAMP_MS, 1 << 62)), key, value)
        return bytes(builder.build())

    def _integer_of(self, name: str, most: int) -> int:
        of_role = self._role.get(name)
        if isinstance(of_role, int) and self._chance(self._known_share):
            return of_role
        values = [each for each in self._pools.of(name) if isinstance(each, int)]
        return self._random.choice([each for each in values if -1 <= each <= most])


def _fitting(field: Field, values: Iterable[object]) -> Iterable[object]:
    """Return those values that a field can hold: one name may have several types."""
    if field.type == "string":
        yield from (each for each in values if isinstance(each, str))
    elif field.type == "uuid":
        yield from (each for each in values if isinstance(each, Uuid))
    elif field.type in FORMATS and field.type not in ("bool", "float64"):
        bits = FORMATS[field.type][1] * 8
        low = 0 if field.type.startswith("u") else -1 << bits - 1
        high = 1 << (bits if low == 0 else bits - 1)
        yield from (
            each
            for each in values
            if isinstance(each, int) and not isinstance(each, bool) and low <= each < high
        )
