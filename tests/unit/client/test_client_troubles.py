"""What keeps a client from its work is told once, and not again and again; on a virtual clock."""

import pytest

from odradek.client.troubles import KEYS_MAX, QUIET_MS, SETTLED_MS, Troubles


class Teller:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog
        self.now_ms = 0.0
        self.troubles = Troubles("app", lambda: self.now_ms)

    def tell(self, key: str, reason: str, *, after_ms: float = 0, lasts_ms: float = 0) -> list[str]:
        self._caplog.clear()
        self.troubles.tell(key, reason, lasts_ms=lasts_ms)
        self.now_ms += after_ms
        return [each.getMessage() for each in self._caplog.records]


@pytest.fixture
def teller(caplog: pytest.LogCaptureFixture) -> Teller:
    return Teller(caplog)


def test_the_first_time_is_told_and_repeats_are_counted(teller: Teller) -> None:
    assert teller.tell("broker a:1", "refused", after_ms=1) == ["app: broker a:1: refused"]
    for _ in range(50):
        assert teller.tell("broker a:1", "refused", after_ms=1_000) == []
    teller.now_ms = QUIET_MS
    told = teller.tell("broker a:1", "refused")
    assert told == ["app: broker a:1: refused (51 times since the last report)"]


def test_another_reason_and_another_place_are_news(teller: Teller) -> None:
    assert teller.tell("broker a:1", "refused")
    assert teller.tell("broker a:1", "no such host")
    assert teller.tell("broker b:1", "refused")
    assert not teller.tell("broker a:1", "refused")
    assert not teller.tell("broker a:1", "no such host")


def test_what_was_over_and_comes_back_is_told_again(teller: Teller) -> None:
    assert teller.tell("broker a:1", "refused")
    teller.troubles.clear("broker a:1")
    assert not teller.tell("broker a:1", "refused"), "a connection that flutters is not news"
    teller.troubles.clear("broker a:1")
    teller.now_ms += SETTLED_MS
    assert teller.tell("broker a:1", "refused")


def test_what_passes_by_itself_is_told_only_if_it_lasts(teller: Teller) -> None:
    assert not teller.tell("topic t", "unknown", after_ms=400, lasts_ms=1_000)
    teller.troubles.clear("topic t")
    assert not teller.tell("topic t", "unknown", after_ms=999, lasts_ms=1_000)
    assert not teller.tell("topic t", "unknown", after_ms=1, lasts_ms=1_000)
    assert teller.tell("topic t", "unknown", lasts_ms=1_000)


def test_so_many_things_are_remembered_and_no_more(teller: Teller) -> None:
    for number in range(KEYS_MAX + 1):
        assert teller.tell(f"broker a:{number}", "refused")
    assert not teller.tell(f"broker a:{KEYS_MAX}", "refused")
    assert teller.tell("broker a:0", "refused"), "the oldest is forgotten"


def test_a_line_stays_a_line(teller: Teller) -> None:
    (line,) = teller.tell("broker a:1", "one\nWARNING two\x1b[31m" + "x" * 10_000)
    assert "\n" not in line
    assert "\x1b" not in line
    assert len(line) < 1_000
