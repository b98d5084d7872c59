"""The admin client: one object with every operation, each in the module of its noun.

Missing, because no broker here has them yet: ACLs, quotas, delegation tokens, share
and streams groups.
"""

from collections.abc import Mapping
from random import Random
from types import TracebackType
from typing import Final, Self, Unpack

from odradek.client.admin.brokers import BrokerOperations
from odradek.client.admin.configs import ConfigOperations
from odradek.client.admin.driver import Driver
from odradek.client.admin.group_offsets import GroupOffsetOperations
from odradek.client.admin.groups import GroupOperations
from odradek.client.admin.log_dirs import LogDirOperations
from odradek.client.admin.partitions import PartitionOperations
from odradek.client.admin.topics import TopicOperations
from odradek.client.admin.transactions import TransactionOperations
from odradek.client.admin.users import UserOperations
from odradek.client.cluster import Cluster
from odradek.client.metrics import Metrics
from odradek.client.setting_types import AdminKeywords, AdminSettings
from odradek.client.settings import COMMON, Definition, Settings

SETTINGS: Final[Mapping[str, Definition]] = {
    **COMMON,
    "bootstrap.controllers": Definition(""),
    # Who asks about a topic does not want it made.
    "allow.auto.create.topics": Definition(False),
}


class Admin(
    TopicOperations,
    PartitionOperations,
    ConfigOperations,
    GroupOperations,
    GroupOffsetOperations,
    TransactionOperations,
    LogDirOperations,
    BrokerOperations,
    UserOperations,
):
    """Looks after a cluster.

    >>> async with Admin(bootstrap_servers="localhost:9092") as admin:
    ...     results = await admin.create_topics([NewTopic("orders", partitions=6)])
    ...     results["orders"].error            # None, or why not
    ...     results.unwrap()                   # the values, or the first error raised
    ...     await admin.list_offsets({TopicPartition("orders", 0): OffsetSpec.LATEST})

    Calls about many things ask each broker once and give a result for each thing. What may pass by
    itself is tried again for ``default.api.timeout.ms``, or the ``timeout_ms`` of the call.

    With ``bootstrap_controllers`` in the place of ``bootstrap_servers`` it asks the controllers,
    and needs no broker (KIP-919). They answer for the cluster, its quorum and features, and
    configs; all other calls fail with UNSUPPORTED_ENDPOINT_TYPE.
    """

    def __init__(
        self,
        settings: AdminSettings | None = None,
        *,
        random: Random | None = None,
        **keywords: Unpack[AdminKeywords],
    ) -> None:
        """Take settings in Kafka's names, or as keywords with underscores.

        ``random`` decides which broker is asked and how long is waited before another try.

        Raises:
            ConfigurationError: One is unknown or wrong.
        """
        self._cluster = Cluster(Settings(SETTINGS, settings, **keywords), random=random)
        self._driver = Driver(self._cluster)

    async def start(self) -> None:
        """Connect to a broker.

        Raises:
            KafkaTimeoutError: None could be reached in time.
        """
        await self._cluster.start()

    async def close(self) -> None:
        await self._cluster.close()

    def metrics(self) -> Metrics:
        """Return figures under Kafka's names, of the groups ``admin-client-…``."""
        return self._cluster.report("admin-client").values

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
