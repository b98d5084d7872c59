"""One run of the fuzzer over one target: deterministic from its seed, and what it found."""

import resource
import time
import traceback
import tracemalloc
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random

from fuzz.mutation import Mutator
from fuzz.targets import Input, Target

FINDINGS = Path(__file__).parent / "findings"
FINDINGS_MAX = 100
WARM_UP_RUNS = 2000
"""Inputs after which caches are full and memory may grow no more."""
RSS_GROWTH_BYTES_MAX = 32 << 20
TRACED_PERIOD, TRACED_RUNS = 2500, 50
"""Of so many inputs so many run under tracemalloc: it is slow, and leaks a little at each start."""
ANOTHER_LABEL_SHARE = 0.05
"""Inputs given to the decoder of another message or version."""
MEND_SHARE = 0.75


@dataclass
class Report:
    target: str
    seed: int
    inputs: int = 0
    decoded: int = 0
    refused: int = 0
    findings: dict[str, str] = field(default_factory=dict)
    """Where it went wrong, and the input that shows it; the first of each kind."""
    unexpected: int = 0
    peak_bytes: int = 0
    rss_growth_bytes: int = 0
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        return bool(self.unexpected) or self.rss_growth_bytes > RSS_GROWTH_BYTES_MAX

    def __str__(self) -> str:
        return (
            f"{self.target}: seed {self.seed}, {self.inputs} inputs, "
            f"{self.unexpected} unexpected exceptions, {self.refused} refused, "
            f"{self.decoded} decoded, largest allocation {self.peak_bytes / 1024:.0f} KiB, "
            f"RSS growth {self.rss_growth_bytes / (1 << 20):.1f} MiB, {self.seconds:.0f} s"
        )


class Session:
    """Throws mutated inputs at a target and keeps the score."""

    def __init__(self, target: Target, seed: int, findings: Path = FINDINGS) -> None:
        self._target = target
        self._random = Random(seed)
        self._corpus = target.corpus()
        self._mutator = Mutator(self._random, [given.data for given in self._corpus])
        self._findings = findings
        self.report = Report(target.name, seed)

    def run(self, runs: int) -> Report:
        started = time.monotonic()
        rss_bytes = 0
        for number in range(runs):
            given = self._next_input()
            phase = number % TRACED_PERIOD
            if phase == 0:
                tracemalloc.start()
            elif phase == TRACED_RUNS:
                tracemalloc.stop()
            if phase < TRACED_RUNS:
                self._try_traced(given)
            else:
                self._try(given)
            if number == min(WARM_UP_RUNS, runs - 1):
                rss_bytes = peak_rss_bytes()
        tracemalloc.stop()
        self.report.rss_growth_bytes = peak_rss_bytes() - rss_bytes
        self.report.seconds = time.monotonic() - started
        return self.report

    def _next_input(self) -> Input:
        random = self._random
        label, data = random.choice(self._corpus)
        if random.random() < ANOTHER_LABEL_SHARE:
            label = random.choice(self._corpus).label
        given = Input(label, self._mutator.mutate(data))
        return self._target.mend(given, random) if random.random() < MEND_SHARE else given

    def _try(self, given: Input) -> None:
        self.report.inputs += 1
        try:
            decoded = self._target.decode(given)
        except Exception as error:
            self._on_finding(given, error)
            return
        if decoded:
            self.report.decoded += 1
        else:
            self.report.refused += 1

    def _try_traced(self, given: Input) -> None:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        self._try(given)
        peak = tracemalloc.get_traced_memory()[1] - before
        self.report.peak_bytes = max(self.report.peak_bytes, peak)
        if peak > self._target.peak_bytes_max(len(given.data)):
            error = MemoryError(f"{peak} bytes for an input of {len(given.data)}")
            self._on_finding(given, error)

    def _on_finding(self, given: Input, error: Exception) -> None:
        """Count it; save the first of each kind, which is where it was raised."""
        self.report.unexpected += 1
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "guard"
        kind = f"{type(error).__name__} at {place} in {given.label}"
        if kind in self.report.findings or len(self.report.findings) >= FINDINGS_MAX:
            return
        self._findings.mkdir(exist_ok=True)
        name = f"{self._target.name}-{sha256(given.data).hexdigest()[:12]}.txt"
        path = self._findings / name
        trace = "".join(traceback.format_exception(error))
        comment = "".join(f"# {line}\n" for line in trace.splitlines())
        path.write_text(f"{given.label}: {given.data.hex()}\n{comment}")
        self.report.findings[kind] = str(path)


def peak_rss_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
