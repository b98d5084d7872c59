"""The memory that a producer may fill: ``buffer.memory`` bytes, first come, first served.

A batch reserves ``batch.size`` bytes, or what its one large record needs, when it begins, and gives
them back when it is done. Who finds no room waits in line: nobody gets past a large request by
being small, or it would never be served.

Kafka's Java client keeps a list of used buffers, because a new one costs zeroing and garbage. The
encoder here grows its own buffer and gives it away to the socket, so only the count is kept.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

WAITING_MAX: Final = 100_000


class Reservation:
    """A place in the line; ``is_granted`` when the bytes are there."""

    __slots__ = ("is_granted", "on_granted", "size")

    def __init__(self, size: int, on_granted: Callable[[], None]) -> None:
        self.size = size
        self.on_granted = on_granted
        self.is_granted = False


class BufferPool:
    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.free_bytes = total_bytes
        self._waiting: deque[Reservation] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def try_reserve(self, size: int) -> bool:
        """Take bytes if they are free and nobody waits for them."""
        if self._waiting or size > self.free_bytes:
            return False
        self.free_bytes -= size
        return True

    def wait(self, size: int, on_granted: Callable[[], None]) -> Reservation:
        """Stand in line; ``on_granted`` is called when the bytes are taken.

        Raises:
            BufferError: Too many wait already.
        """
        assert size <= self.total_bytes, "would wait for ever"
        if len(self._waiting) >= WAITING_MAX:
            raise BufferError(f"{WAITING_MAX} sends wait for memory already: await them")
        reservation = Reservation(size, on_granted)
        self._waiting.append(reservation)
        return reservation

    def give_up(self, reservation: Reservation) -> None:
        """Leave the line, or give back what was granted."""
        if reservation.is_granted:
            self.release(reservation.size)
        else:
            self._waiting.remove(reservation)
            self._grant()  # the next in line may be smaller

    def release(self, size: int) -> None:
        self.free_bytes += size
        assert self.free_bytes <= self.total_bytes, "released more than was reserved"
        self._grant()

    def _grant(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0].size <= self.free_bytes:
            reservation = waiting.popleft()
            self.free_bytes -= reservation.size
            reservation.is_granted = True
            reservation.on_granted()
