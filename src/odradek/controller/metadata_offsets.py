"""How far brokers have applied the metadata log, and what they wait for there. Soft state.

A broker that has registered is unfenced when it has applied its own registration.

A broker that shuts down gives its leaders away. It may stop when all others know of that: until
then they, and clients that ask them, would go to a broker that is gone. So the offset of the change
is kept, and the shutdown is granted when every active broker has reported an offset behind it.

A new active controller knows neither offset. It waits until brokers have reported again.
"""

from collections.abc import Iterable
from typing import Final

_UNKNOWN: Final = -1


class MetadataOffsets:
    def __init__(self, start_offset: int) -> None:
        """``start_offset``: all that the controller began with is at or before it."""
        self._start_offset = start_offset
        self._registered: dict[int, int] = {}
        self._applied: dict[int, int] = {}
        self._shutdown: dict[int, int] = {}

    def on_registered(self, broker_id: int, offset: int) -> None:
        """Take note of where the record of a broker's registration lies."""
        self._registered[broker_id] = offset

    def registered_at(self, broker_id: int) -> int:
        """Return an offset that is not before a broker's registration.

        A predecessor may have registered it. Where in the log is not known then; not behind what
        this controller began with.
        """
        return self._registered.get(broker_id, self._start_offset)

    def on_heartbeat(self, broker_id: int, applied_offset: int) -> None:
        self._applied[broker_id] = applied_offset

    def forget(self, broker_id: int) -> None:
        self._applied.pop(broker_id, None)
        self._shutdown.pop(broker_id, None)

    def on_shutdown(self, broker_id: int, change_offset: int, *, is_new: bool) -> None:
        """Keep the offset of the last record that moves leaders away from a broker."""
        if is_new or broker_id not in self._shutdown:
            self._shutdown[broker_id] = change_offset

    def may_stop(self, broker_id: int, active: Iterable[int]) -> bool:
        """Whether all ``active`` brokers have applied the change of a broker that shuts down."""
        change_offset = self._shutdown.get(broker_id)
        if change_offset is None:
            return False
        return all(self._applied.get(each, _UNKNOWN) >= change_offset for each in active)
