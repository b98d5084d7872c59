"""From what a request says about replicas to the partitions it creates."""

from collections.abc import Iterable, Sequence
from random import Random

from odradek.controller.placement import UsableBroker, place_replicas
from odradek.controller.view import ClusterView
from odradek.core.errors import ApiError, ErrorCode
from odradek.metadata import PartitionImage


def place_partitions(
    view: ClusterView,
    *,
    partitions: int,
    replication_factor: int,
    random: Random,
    existing: Iterable[Sequence[int]] = (),
) -> list[PartitionImage]:
    """Place new partitions over the brokers that take replicas.

    Raises:
        ApiError: INVALID_REPLICATION_FACTOR.
    """
    usable = [
        UsableBroker(broker.broker_id, broker.rack, broker.fenced)
        for broker in view.image.brokers.values()
        if not broker.in_controlled_shutdown and broker.takes_replicas
    ]
    placed = place_replicas(
        usable,
        partitions=partitions,
        replication_factor=replication_factor,
        random=random,
        existing=existing,
    )
    return [new_partition(view, replicas) for replicas in placed]


def assigned_partitions(
    view: ClusterView, assignments: Iterable[Sequence[int]], replication_factor: int | None = None
) -> list[PartitionImage]:
    """Check replicas that a request lists, preferred leader first.

    All partitions must have the same number of them; that of the first if none is given.

    Raises:
        ApiError: INVALID_REPLICA_ASSIGNMENT.
    """
    created = []
    for number, replicas in enumerate(assignments):
        _check_brokers(view, replicas)
        if replication_factor is None:
            replication_factor = len(replicas)
        if len(replicas) != replication_factor:
            problem = f"{len(replicas)} replicas where other partitions have {replication_factor}"
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        partition = new_partition(view, replicas)
        if not partition.isr:
            problem = f"assignment {number}: all its brokers are fenced or shutting down"
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


def _check_brokers(view: ClusterView, replicas: Sequence[int]) -> None:
    if not replicas:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition without replicas")
    if len(set(replicas)) != len(replicas):
        problem = f"a broker twice among {list(replicas)}"
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    for broker_id in replicas:
        broker = view.image.brokers.get(broker_id)
        if broker is None:
            problem = f"broker {broker_id} is not registered"
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        if not broker.takes_replicas:
            problem = f"every log directory of broker {broker_id} is cordoned"
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
