"""An administrator of replicated topics: changes them, and has leaders elected."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from odradek.client import Admin, NewTopic
from odradek.client.errors import BrokerError
from odradek.core.errors import ErrorCode
from tests.simulation.cluster.data_workload import LOOSE
from tests.simulation.cluster.workload import Administrator

if TYPE_CHECKING:
    from tests.simulation.cluster.data_cluster import DataCluster

MIN_ISR: Final = "min.insync.replicas"


class DataAdministrator(Administrator):
    _cluster: "DataCluster"

    def steps(self) -> list[Callable[[Admin], Awaitable[None]]]:
        return [
            self._create,
            self._delete,
            self._grow,
            self._configure,
            self._describe,
            self._take_producer_id,
            self._recreate,
            self._elect,
            self._elect,
            self._delete_records,
        ]

    def replication_factor(self) -> int:
        return self._random.randint(1, 3)

    async def _recreate(self, admin: Admin) -> None:
        """Delete a topic that is written to, and make another one with its name."""
        try:
            (await admin.delete_topics(["again"])).unwrap()
        except BrokerError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        (await admin.create_topics([NewTopic("again", 1, 3, configs={MIN_ISR: "2"})])).unwrap()

    async def _elect(self, admin: Admin) -> None:
        """Let the preferred leaders lead, wherever they do not."""
        for error in (await admin.elect_leaders()).errors.values():
            self._ledger.count("elect a leader", error)

    async def _delete_records(self, admin: Admin) -> None:
        (await admin.delete_records({self._random.choice(LOOSE): -1})).unwrap()
