"""Which transactions hang: open in a partition, but no coordinator knows that they are there."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final, TypeAlias, TypeVar

from odradek.client.admin.admin import Admin
from odradek.client.admin.transactions import ProducerState
from odradek.client.errors import BrokerError
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition

T = TypeVar("T")

OpenTransaction: TypeAlias = tuple[TopicPartition, ProducerState]

# A broker with a hundred thousand partitions is not to be asked about all of them at once.
_AT_ONCE: Final = 500
_NO_OFFSET: Final = -1


async def find_hanging(
    admin: Admin,
    topic: str | None,
    partition: int | None,
    broker_id: int | None,
    older_than_ms: int,
) -> list[OpenTransaction]:
    """Search one partition, one topic or all topics; ``broker_id`` limits it to its replicas."""
    if topic is not None and partition is not None:
        partitions = [TopicPartition(topic, partition)]
    else:
        partitions = await _partitions(admin, topic, broker_id)
    candidates = []
    for some in _chunks(partitions):
        found = (await admin.describe_producers(some, broker=broker_id)).unwrap()
        candidates += [
            (key, each)
            for key, producers in found.items()
            for each in producers
            if each.transaction_start_offset != _NO_OFFSET and each.last_timestamp < older_than_ms
        ]
    known = await _known(admin, {each.producer_id for _, each in candidates})
    return [(key, each) for key, each in candidates if (each.producer_id, key) not in known]


async def _partitions(
    admin: Admin, topic: str | None, broker_id: int | None
) -> list[TopicPartition]:
    names = [topic] if topic is not None else await _all_topics(admin)
    found = []
    for some in _chunks(names):
        for description in (await admin.describe_topics(some)).unwrap().values():
            found += [
                TopicPartition(description.name, each.partition)
                for each in description.partitions
                if broker_id is None or broker_id in each.replicas
            ]
    return found


async def _all_topics(admin: Admin) -> list[str]:
    return [each.name for each in await admin.list_topics(include_internal=True)]


async def _known(admin: Admin, producer_ids: Collection[int]) -> set[tuple[int, TopicPartition]]:
    """Return the partitions in which coordinators are going to end transactions of producers."""
    if not producer_ids:
        return set()
    listed = await admin.list_transactions(producer_ids=producer_ids)
    names = {each.transactional_id: each.producer_id for each in listed}
    known = set()
    for name, result in (await admin.describe_transactions(names)).items():
        error = result.error
        if isinstance(error, BrokerError) and error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            continue  # it went while we asked
        known |= {(names[name], key) for key in result.unwrap().partitions}
    return known


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), _AT_ONCE):
        yield items[start : start + _AT_ONCE]
