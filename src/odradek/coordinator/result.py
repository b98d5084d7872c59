"""What a coordinator makes of a request or of time passing.

A reply need not be to the request that caused it: the last member to join answers all who wait. So
every request carries a ``waiter``, a token of the caller's, and replies name whom they are for.
"""

from collections.abc import Hashable
from typing import NamedTuple

from odradek.coordinator.record import CoordinatorRecord
from odradek.protocol.message import Message

Waiter = Hashable


class Caller(NamedTuple):
    """Who asks: a token for the reply, the version of the API, and what the group may show."""

    waiter: Waiter
    version: int
    client_id: str
    client_host: str


class Reply(NamedTuple):
    waiter: Waiter
    message: Message


class Producer(NamedTuple):
    producer_id: int
    producer_epoch: int


class Result(NamedTuple):
    """Append ``records`` as one batch and replay them; once committed, send ``replies``.

    With a ``producer`` the batch is part of that producer's transaction.
    """

    records: tuple[CoordinatorRecord, ...] = ()
    replies: tuple[Reply, ...] = ()
    producer: Producer | None = None
