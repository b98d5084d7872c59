"""Follows the transactions of a log from batch to batch, to tell what of them is still needed.

Which batches were aborted is known from the transaction indexes before the first one is read. A
marker is needed as long as there is a batch of its transaction, even an empty one: without it the
transaction would look open. So a marker may go if none was seen, which is the case from the
cleaning after the one that dropped the last of them.

An aborted transaction stays in the index exactly as long as its marker is in the log. A reader that
is told of it but does not find the marker would leave out all that the producer writes later.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from odradek.records import BatchHeader
from odradek.storage.transaction_index import AbortedTransaction


class EndedTransaction(NamedTuple):
    has_data: bool
    """There was a batch of it; the marker must stay."""
    aborted: AbortedTransaction | None
    """Its entry in the transaction index, which stays if the marker does."""


class Transactions:
    """The transactions of one log, as far as it was read; batches come in their order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._upcoming = deque(sorted(aborted, key=lambda each: each.first_offset))
        self._aborting: dict[int, AbortedTransaction] = {}  # by producer id
        self._with_data: set[int] = set()  # producer ids whose current transaction has a batch

    def on_data(self, header: BatchHeader) -> bool:
        """Take note of a batch of a transaction; return whether that was aborted."""
        self._begin(header)
        self._with_data.add(header.producer_id)
        return header.producer_id in self._aborting

    def on_marker(self, header: BatchHeader) -> EndedTransaction:
        """Take note of a marker."""
        self._begin(header)
        has_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        return EndedTransaction(has_data, self._aborting.pop(header.producer_id, None))

    def _begin(self, header: BatchHeader) -> None:
        upcoming = self._upcoming
        while upcoming and upcoming[0].first_offset <= header.last_offset:
            begun = upcoming.popleft()
            if begun.last_offset >= header.base_offset:  # else it was over before the first batch
                self._aborting[begun.producer_id] = begun
