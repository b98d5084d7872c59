"""The fuzzer itself: a short run finds nothing, and it would find something if there were."""

from pathlib import Path
from random import Random

import pytest

from fuzz.mutation import BYTES_MAX, Mutator
from fuzz.protocol_target import ProtocolTarget
from fuzz.session import Session
from fuzz.targets import TARGETS, Input, Target, read_corpus
from odradek.protocol.generated import fetch
from odradek.protocol.generated.fetch import FetchRequest

SHORT_RUNS = 20_000


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_mutated_inputs_are_refused_or_decode(name: str, tmp_path: Path) -> None:
    report = Session(TARGETS[name](), seed=1, findings=tmp_path / "findings").run(SHORT_RUNS)
    assert not report.failed, f"{report} {report.findings}"
    assert report.refused + report.decoded == report.inputs == SHORT_RUNS
    # Both ways are really taken: noise would all be refused, copies would all decode.
    assert min(report.refused, report.decoded) > SHORT_RUNS // 10


@pytest.mark.parametrize("name", TARGETS)
def test_every_seed_decodes(name: str) -> None:
    target = TARGETS[name]()
    assert [given.label for given in target.seeds() if not target.decode(given)] == []


def test_the_seeds_cover_every_message_version_three_times() -> None:
    labels = [given.label for given in ProtocolTarget().seeds()]
    assert len(labels) == 3 * len(set(labels)) == 3 * 792


@pytest.mark.parametrize("name", TARGETS)
def test_nasty_inputs_are_refused_or_decode(name: str) -> None:
    target, nasty = TARGETS[name](), read_corpus(name)
    assert len(nasty) >= 10
    assert sum(not target.decode(given) for given in nasty) > len(nasty) // 2


def test_one_seed_gives_one_history(tmp_path: Path) -> None:
    def history(seed: int) -> tuple[int, int]:
        report = Session(ProtocolTarget(), seed, findings=tmp_path).run(500)
        return report.decoded, report.refused

    assert history(3) == history(3)
    assert history(3) != history(4)


def test_mutations_change_the_data_and_never_outgrow_the_limit() -> None:
    mutator = Mutator(Random(1), [b"other" * 9000])
    data = b"0123456789" * 20
    assert sum(mutator.mutate(data) != data for _ in range(500)) > 480
    assert max(len(mutator.mutate(data * 300)) for _ in range(100)) <= BYTES_MAX
    assert isinstance(mutator.mutate(b""), bytes)


class _Broken(Target):
    """A decoder with the mistakes that the fuzzer is there to find."""

    name = "broken"

    def seeds(self) -> list[Input]:
        return [Input("it", b"seed")]

    def decode(self, given: Input) -> bool:
        if given.data[:1] != b"s":
            raise IndexError("an escaped exception")
        return len(bytearray(1 << 20 if len(given.data) > 4 else 0)) >= 0

    def peak_bytes_max(self, size: int) -> int:
        return 1 << 19


def test_findings_are_counted_and_saved_once_per_kind(tmp_path: Path) -> None:
    report = Session(_Broken(), seed=1, findings=tmp_path).run(2000)
    assert report.failed
    assert report.unexpected > 100
    kinds = sorted(kind.partition(" ")[0] for kind in report.findings)
    assert kinds == ["IndexError", "MemoryError"]
    saved = [Path(path).read_text() for path in report.findings.values()]
    assert all(text.startswith("it: ") for text in saved)
    assert any("an escaped exception" in text for text in saved)


def test_a_missing_check_in_a_decoder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let errors of the struct module escape, as they would without the catch-all."""

    def unguarded(data: bytes, version: int) -> FetchRequest:
        message, _ = FetchRequest.DECODERS[version](memoryview(data), 0)
        assert isinstance(message, FetchRequest)
        return message

    monkeypatch.setattr(fetch.FetchRequest, "decode", unguarded)
    report = Session(ProtocolTarget(), seed=1, findings=tmp_path).run(2000)
    assert report.failed
    assert {kind.rpartition(" in ")[2].split()[0] for kind in report.findings} == {"FetchRequest"}
