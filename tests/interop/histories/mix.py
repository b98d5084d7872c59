"""Which clients a run has."""

from odradek.testing.anomalies import Isolation
from tests.interop.histories.aio_transactor import AioTransactor
from tests.interop.histories.load import Client, Load
from tests.interop.histories.plain import PlainSender, Poller
from tests.interop.histories.transactional import Copier, Transactor


def mixed_clients(load: Load) -> list[Client]:
    """Some of each."""
    return [
        PlainSender(load, "plain-1"),
        PlainSender(load, "plain-2"),
        Transactor(load, "transactor-1"),
        Transactor(load, "transactor-2"),
        AioTransactor(load, "aiokafka"),
        Copier(load, "copier-1", "members", subscribes=True),
        Copier(load, "copier-2", "members", subscribes=True),
        Copier(load, "copier-3", "alone", subscribes=False),
        Poller(load, "committed", Isolation.READ_COMMITTED),
        Poller(load, "uncommitted", Isolation.READ_UNCOMMITTED),
    ]


def plain_clients(load: Load) -> list[Client]:
    return [each for each in mixed_clients(load) if isinstance(each, PlainSender | Poller)]
