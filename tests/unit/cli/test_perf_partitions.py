"""``odradek perf partitions`` measures a real broker and draws what it found."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from odradek.cli.main import main
from odradek.cli.partition_sweep import Measured
from odradek.cli.sweep_plot import sweep_figure
from odradek.testing.broker import Broker

FOUND = [Measured(n, 10.0 * n, 1.0, 30.0, 1.0) for n in (1, 2, 12)]


def test_the_figure_has_axes_units_and_a_legend() -> None:
    figure = sweep_figure(FOUND, "so many records")
    (axes,) = figure.axes
    assert axes.get_title() == "so many records"
    assert axes.get_xlabel() == "partitions"
    assert "MB/sec" in axes.get_ylabel()
    assert [each.get_text() for each in axes.get_xticklabels()] == ["1", "2", "12"]
    legend = axes.get_legend()
    assert legend is not None
    assert [each.get_text() for each in legend.get_texts()] == ["producer", "consumer"]
    curves: list[Any] = [line.get_ydata() for line in axes.lines]
    assert [list(each) for each in curves] == [[10.0, 20.0, 120.0], [30.0, 30.0, 30.0]]


@pytest.mark.seed_row("1.9")
def test_a_sweep_prints_figures_and_draws_them(odradek_broker: Broker, tmp_path: Path) -> None:
    picture = tmp_path / "sweep.png"
    asked = ["--partitions", "1,3", "--num-records", "50", "--record-size", "10", "--timeout"]
    server = ["--bootstrap-server", odradek_broker.bootstrap_servers]
    result = CliRunner().invoke(
        main, ["perf", "partitions", *server, *asked, "60000", "--json", "--plot", str(picture)]
    )
    assert result.exit_code == 0, result.output
    assert [each["partitions"] for each in json.loads(result.stdout)] == [1, 3]
    # One line for each number, and no bar: nobody watches.
    lines = result.stderr.splitlines()
    assert [line.split(":")[0] for line in lines] == ["1 partitions", "3 partitions"]
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    assert (width, height) == (960, 600)


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.cli.perf.can_draw", lambda: False)
    server = ["--bootstrap-server", "127.0.0.1:1"]
    result = CliRunner().invoke(main, ["perf", "partitions", *server, "--plot", "x.png"])
    assert result.exit_code == 1
    assert "pip install 'odradek[plot]'" in result.stderr
