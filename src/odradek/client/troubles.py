"""What keeps a client from its work, in its log: each thing once, with its reason.

Clients retry most failures by themselves, some without end. Without a line in the log an
address with a typing error looks like a program that hangs. With a line per attempt it looks like a
thousand problems. So the same trouble is told when it first comes up, then once a minute for as
long as it goes on, with the number of times in between.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

QUIET_MS: Final = 60_000
"""How long the same trouble is not told again."""
SETTLED_MS: Final = 10_000
"""The same, if it was over meanwhile."""
KEYS_MAX: Final = 100
LINES_MAX: Final = 120
"""In a minute, of one client, whatever happens."""
_CHARACTERS_MAX: Final = 500

_log: Final = logging.getLogger("odradek.client")


@dataclass(slots=True)
class _Trouble:
    since_ms: float
    told_ms: float | None = None
    repeats: int = 0
    is_over: bool = False


class Troubles:
    def __init__(self, client_id: str, clock: Callable[[], float]) -> None:
        """``clock`` counts milliseconds, from any beginning."""
        self._client_id = client_id
        self._clock = clock
        self._known: dict[tuple[str, str], _Trouble] = {}
        self._minute_ms = -float(QUIET_MS)
        self._lines = 0

    def tell(self, key: str, reason: str, *, lasts_ms: float = 0) -> None:
        """Tell of a trouble unless that was done just now.

        ``key`` says with what. ``lasts_ms`` is for what often passes by itself: it is told when it
        has been there for so long.
        """
        now_ms = self._clock()
        trouble = self._find(key, reason, now_ms)
        if now_ms - trouble.since_ms < lasts_ms:
            return
        quiet_ms = SETTLED_MS if trouble.is_over else QUIET_MS
        if trouble.told_ms is not None and now_ms - trouble.told_ms < quiet_ms:
            trouble.repeats += 1
            return
        if not self._has_room(now_ms):
            return
        _log.warning("%s: %s: %s%s", self._client_id, _plain(key), _plain(reason), _often(trouble))
        trouble.told_ms, trouble.repeats, trouble.is_over = now_ms, 0, False

    def clear(self, key: str) -> None:
        """Take in that it works: when it next does not, that is news."""
        for known, trouble in list(self._known.items()):
            if known[0] == key:
                trouble.is_over = True
                if trouble.told_ms is None:
                    del self._known[known]

    def _find(self, key: str, reason: str, now_ms: float) -> _Trouble:
        trouble = self._known.pop((key, reason), None) or _Trouble(now_ms)
        while len(self._known) >= KEYS_MAX:
            del self._known[next(iter(self._known))]
        self._known[key, reason] = trouble
        return trouble

    def _has_room(self, now_ms: float) -> bool:
        if now_ms - self._minute_ms >= QUIET_MS:
            self._minute_ms, self._lines = now_ms, 0
        self._lines += 1
        return self._lines <= LINES_MAX


def _often(trouble: _Trouble) -> str:
    if not trouble.repeats:
        return ""
    return f" ({trouble.repeats + 1} times since the last report)"


def _plain(text: str) -> str:
    """Keep what strangers said from looking like lines of its own."""
    shown = "".join(each if each.isprintable() else " " for each in text[:_CHARACTERS_MAX])
    return shown if len(text) <= _CHARACTERS_MAX else f"{shown}…"
