"""From what a request says about replicas to the partitions it creates.

In steps, a partition at a time: one topic may be created with ten thousand of them.
"""

from collections.abc import Generator, Iterable, Sequence
from random import Random

from odradek.controller.placement import UsableBroker, place_each
from odradek.controller.view import ClusterView
from odradek.core.errors import ApiError, ErrorCode
from odradek.metadata import PartitionImage

PartitionSteps = Generator[None, None, list[PartitionImage]]


def place_partitions(
    view: ClusterView,
    *,
    partitions: int,
    replication_factor: int,
    random: Random,
    existing: Iterable[Sequence[int]] = (),
) -> PartitionSteps:
    """Place new partitions over the brokers that take replicas.

    Raises:
        ApiError: INVALID_REPLICATION_FACTOR.
    """
    usable = [
        UsableBroker(broker.broker_id, broker.rack, broker.fenced)
        for broker in view.image.brokers.values()
        if not broker.in_controlled_shutdown and broker.takes_replicas
    ]
    placed = place_each(
        usable,
        partitions=partitions,
        replication_factor=replication_factor,
        random=random,
        existing=existing,
    )
    created = []
    for replicas in placed:
        yield
        created.append(new_partition(view, replicas))
    return created


def assigned_partitions(
    view: ClusterView,
    assignments: Iterable[tuple[int, Sequence[int]]],
    replication_factor: int | None = None,
) -> PartitionSteps:
    """Check replicas that a request lists for partitions by number, preferred leader first.

    All partitions must have the same number of them; that of the first if none is given.

    Raises:
        ApiError: INVALID_REPLICA_ASSIGNMENT.
    """
    created = []
    for number, replicas in assignments:
        yield
        check_brokers(view, replicas)
        if replication_factor is None:
            replication_factor = len(replicas)
        if len(replicas) != replication_factor:
            raise _refused(
                f"a partition with {len(replicas)} replica(s), but this is not consistent with "
                f"previous partitions, which have {replication_factor} replica(s)."
            )
        partition = new_partition(view, replicas)
        if not partition.isr:
            problem = "All brokers specified in the manual partition assignment for partition"
            problem += f" {number} are fenced or in controlled shutdown."
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        created.append(partition)
    return created


def new_partition(view: ClusterView, replicas: Sequence[int]) -> PartitionImage:
    isr = tuple(broker_id for broker_id in replicas if view.is_active(broker_id))
    return PartitionImage(
        replicas=tuple(replicas),
        directories=tuple(view.default_directory(broker_id) for broker_id in replicas),
        isr=isr,
        leader=isr[0] if isr else -1,
    )


def check_brokers(view: ClusterView, replicas: Sequence[int]) -> None:
    if not replicas:
        raise _refused("an empty replica list.")
    for broker_id in sorted(replicas):
        broker = view.image.brokers.get(broker_id)
        if broker is None:
            raise _refused(f"broker {broker_id}, but no such broker is registered.")
        if not broker.takes_replicas:
            raise _refused(f"broker {broker_id}, but all its log directories are cordoned.")
        if replicas.count(broker_id) > 1:
            raise _refused(f"the broker {broker_id} more than once.")


def _refused(what: str) -> ApiError:
    problem = f"The manual partition assignment includes {what}"
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
