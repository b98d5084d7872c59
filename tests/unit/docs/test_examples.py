"""What ``make run`` runs."""

import pytest

from examples import round_trip


def test_the_round_trip_ends_with_all_records(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_trip, "DEADLINE_SECONDS", 180)
    round_trip.main()
    shown = capsys.readouterr().out
    assert "produced 10000 records" in shown
    assert "consumed 10000 records" in shown
    assert shown.endswith("stopped cleanly\n")
