"""The clients of a migration: they start before it, end after it, and none is replaced."""

from odradek.testing.anomalies import Isolation
from tests.interop.histories.groups import group_readers
from tests.interop.histories.load import Client, Load
from tests.interop.histories.ours import OdradekPoller, OdradekSender, OdradekTransactor
from tests.interop.histories.plain import PlainSender, Poller
from tests.interop.histories.transactional import Copier, Transactor


class SteadyTransactor(Transactor):
    crashing = 0.0


class SteadyCopier(Copier):
    leaving = 0.0


def clients_of(load: Load) -> list[Client]:
    return [
        PlainSender(load, "plain"),
        OdradekSender(load, "odradek-plain"),
        SteadyTransactor(load, "transactor"),
        OdradekTransactor(load, "odradek-transactor"),
        SteadyCopier(load, "copier-1", "members", subscribes=True),
        SteadyCopier(load, "copier-2", "members", subscribes=True),
        Poller(load, "committed", Isolation.READ_COMMITTED),
        Poller(load, "uncommitted", Isolation.READ_UNCOMMITTED),
        OdradekPoller(load, "odradek-committed", Isolation.READ_COMMITTED),
        *group_readers(load),
    ]
