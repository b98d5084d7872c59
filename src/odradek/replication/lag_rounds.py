"""When a broker looks for followers that lag behind what it leads.

A broker that was stalled has read no fetches meanwhile, and all of its followers seem to lag. If it
then shrank every ISR, its own pause would cost each partition its copies. So a round is left out
after a long turn; never two in a row, or a slow machine would keep dead followers in sync for ever.
"""

from typing import Final

STALL_MS_MIN: Final = 1_000


class LagRounds:
    __slots__ = ("_was_left_out",)

    def __init__(self) -> None:
        self._was_left_out = False

    def is_held(self, longest_turn_ms: int) -> bool:
        """Return whether to look in this round; given the longest turn since the last round."""
        is_stalled = longest_turn_ms > STALL_MS_MIN
        self._was_left_out = is_stalled and not self._was_left_out
        return not self._was_left_out
