"""Runs a pipeline: all queries are planned before the first is started, and end together.

If one fails the others are stopped, and the failure is told in one line. Whatever was running is
taken up where it was by the next start, also after the driver was killed.

To stop is to interrupt: a batch that is under way is given up, and repeated by the next start.
"""

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Final, cast

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from odradek.client.errors import KafkaError
from odradek.core.ids import TopicPartition
from odradek.spark.local_session import session
from odradek.spark.offsets import LATEST, Everywhere
from odradek.spark.options import parse_options
from odradek.spark.pipeline.checkpoints import Checkpoints, Epoch
from odradek.spark.pipeline.definition import Definition, Trigger
from odradek.spark.pipeline.failures import cause
from odradek.spark.pipeline.progress import QueryProgress
from odradek.spark.pipeline.sinks import PlannedQuery
from odradek.spark.pipeline.steps import Frames
from odradek.spark.planning import Planner

POLL_SECONDS: Final = 0.5
START_POLL_SECONDS: Final = 0.05
START_POLLS_SHOWN: Final = 10
"""One of so many: to ask Spark for progress costs more than to ask whether a query is there."""
START_ATTEMPTS_MAX: Final = 30
ENDS_TIMEOUT_MS: Final = 5_000
# First of the query, in a thread that has yet to start, then of its sources.
_INITIALIZING: Final = "Initializing "
_TOO_SLOW: Final = "Python worker failed to connect back"
# What a batch writes must be spread over tasks as it was before the driver died, or the sink
# cannot tell what is there already; adaptive plans depend on what a run happened to see.
_CONF: Final = {"spark.sql.adaptive.enabled": "false"}
# What calls of Spark raise when its JVM is no more.
_GONE: Final = (Py4JError, ConnectionError, EOFError)

_log: Final = logging.getLogger(__name__)

OnProgress = Callable[[Mapping[str, QueryProgress]], None]
OnStage = Callable[[str], None]


class PipelineError(RuntimeError):
    """A query failed; the message says which and why."""


def run(
    definition: Definition,
    *,
    spark: SparkSession | None = None,
    trigger: Trigger | None = None,
    on_session: Callable[[], None] = lambda: None,
    on_stage: OnStage = lambda _: None,
    on_progress: OnProgress = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, QueryProgress]:
    """Run a pipeline until it ends by itself, fails, or ``should_stop``; return how far it got.

    Without ``spark`` it gets a session of its own, as its file says. ``trigger`` is instead of the
    one in the file. ``on_session`` is called when Spark is there, ``on_stage`` with what is done
    next until the first batches come, which may take minutes, and ``on_progress`` after every
    micro-batch of a query.

    Raises:
        DefinitionError: Spark finds something wrong with it; nothing has run.
        CheckpointError: It is running already, or its checkpoint is damaged.
        PipelineError: One of its queries failed.
    """
    checkpoints = Checkpoints(definition.checkpoint)
    with checkpoints.lock(), _session(definition, spark, on_stage) as used:
        on_session()
        started = Run(definition, used, checkpoints, checkpoints.epoch(), on_stage)
        return started.to_its_end(
            definition.trigger if trigger is None else trigger,
            on_progress,
            should_stop,
            # A session that ends with the run has nothing more to say of what it gives up.
            on_stop=(lambda: _silence(used)) if spark is None else lambda: None,
        )


def plan(definition: Definition, spark: SparkSession | None = None) -> None:
    """Have Spark look at all queries, and run none.

    Raises:
        DefinitionError: Something is wrong with one.
    """
    checkpoints = Checkpoints(definition.checkpoint)
    with _session(definition, spark) as used:
        Run(definition, used, checkpoints, checkpoints.epoch()).plan()


def make_session(definition: Definition) -> SparkSession:
    """Return a session as the pipeline's file wants it."""
    settings = definition.spark
    with _python_path(definition.folder):
        return session(f"odradek {definition.name}", settings.master, {**_CONF, **settings.conf})


@contextlib.contextmanager
def _python_path(folder: str) -> Iterator[None]:
    """Let processes that Spark's driver starts find the modules of steps.

    Modules are sent to executors, but not to those: they prepare ``transformWithState``, and have
    what the environment had when the JVM was started.
    """
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, before)))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@contextlib.contextmanager
def _session(
    definition: Definition, given: SparkSession | None, on_stage: OnStage = lambda _: None
) -> Iterator[SparkSession]:
    if given is not None:
        yield given
        return
    on_stage(f"starting Spark ({definition.spark.master})")
    made = make_session(definition)
    try:
        yield made
    finally:
        with contextlib.suppress(*_GONE):
            made.stop()


def _silence(spark: SparkSession) -> None:
    """Keep Spark from telling, with a stack for each task, that it was interrupted as it should."""
    with contextlib.suppress(PySparkException, *_GONE):  # over Spark Connect there is no context
        spark.sparkContext.setLogLevel("OFF")


class Run:
    def __init__(
        self,
        definition: Definition,
        spark: SparkSession,
        checkpoints: Checkpoints,
        epoch: Epoch,
        on_stage: OnStage = lambda _: None,
    ) -> None:
        self._definition = definition
        self._on_stage = on_stage
        self._spark = spark
        self._checkpoints = checkpoints
        self._epoch = epoch
        self._queries: dict[str, StreamingQuery] = {}
        totals = checkpoints.totals(epoch, definition.queries)
        self._progress = {name: QueryProgress(name, each) for name, each in totals.items()}

    def plan(self) -> dict[str, PlannedQuery]:
        return {name: self._planned(name) for name in self._definition.queries}

    def _planned(self, name: str) -> PlannedQuery:
        frames = Frames(self._definition, self._spark, name, self._epoch.start_options())
        counts = self._checkpoints.dead_letter_file(self._epoch, name)
        return PlannedQuery(self._definition, name, frames, self._epoch.number, counts)

    def to_its_end(
        self,
        trigger: Trigger,
        on_progress: OnProgress,
        should_stop: Callable[[], bool],
        on_stop: Callable[[], None],
    ) -> dict[str, QueryProgress]:
        try:
            self._start(trigger, on_progress, should_stop)
            self._watch(on_progress, should_stop)
            if should_stop():
                on_stop()
        except (PipelineError, PySparkException, *_GONE):
            # Those who stop a whole group of processes stop Spark's too.
            if not should_stop():
                raise
        finally:
            self._stop()
        return self._progress

    def _start(
        self, trigger: Trigger, on_progress: OnProgress, should_stop: Callable[[], bool]
    ) -> None:
        if should_stop():
            return
        names = ", ".join(self._definition.queries)
        self._on_stage(f"planning {names}")
        planned = self.plan()
        is_remote = self._definition.is_remote
        for name, query in planned.items():
            if not should_stop():
                # Spark Connect looks views up when a query starts, so they have to be its own.
                own = self._planned(name) if is_remote else query
                self._on_stage(f"starting {name}")
                self._start_one(own, trigger, on_progress, should_stop)
        waiting = [name for name, each in self._progress.items() if each.last_batch is None]
        if waiting:
            told = "Spark takes a while to plan it, minutes on a busy machine"
            self._on_stage(f"waiting for the first batch of {', '.join(waiting)}: {told}")

    def _start_one(
        self,
        planned: PlannedQuery,
        trigger: Trigger,
        on_progress: OnProgress,
        should_stop: Callable[[], bool],
    ) -> None:
        """Start a query and wait until its source is there; those before it run, and are shown.

        Spark gives a source's process ten seconds to come up, whatever its settings. On a busy
        machine that is too short, above all for many at once: so they come one after the other,
        and get another try.
        """
        checkpoint = self._checkpoints.of_query(self._epoch, planned.name)
        for _ in range(START_ATTEMPTS_MAX):
            query = self._queries[planned.name] = planned.start(checkpoint, trigger)
            for poll in count():
                if not query.isActive or not query.status["message"].startswith(_INITIALIZING):
                    break
                if should_stop():
                    return
                if poll % START_POLLS_SHOWN == 0:
                    self._show_started(on_progress)
                time.sleep(START_POLL_SECONDS)
            failure = query.exception()
            if failure is None or _TOO_SLOW not in str(failure):
                return
            told = "Spark waits ten seconds for the process of a source, and it took longer"
            self._on_stage(f"starting {planned.name} again: {told}")

    def _watch(self, on_progress: OnProgress, should_stop: Callable[[], bool]) -> None:
        """Return when all have ended, or are told to; a failure of one is the end of all."""
        running = dict(self._queries)
        while running and not should_stop():
            for name, query in list(running.items()):
                if self._has_ended(name, query, POLL_SECONDS / len(running)):
                    del running[name]
                self._show(name, query, on_progress)

    def _show_started(self, on_progress: OnProgress) -> None:
        for name, query in self._queries.items():
            self._show(name, query, on_progress)

    def _show(self, name: str, query: StreamingQuery, on_progress: OnProgress) -> None:
        if self._take_progress(name, query):
            self._keep_totals()
            on_progress(self._progress)

    def _has_ended(self, name: str, query: StreamingQuery, timeout_seconds: float) -> bool:
        try:
            # Whole seconds are all that its annotation knows, but it takes fractions.
            return bool(query.awaitTermination(cast("Any", timeout_seconds)))
        except StreamingQueryException as error:
            raise PipelineError(f"{name}: {cause(str(error))}") from error

    def _take_progress(self, name: str, query: StreamingQuery) -> bool:
        mine = self._progress[name]
        last = query.lastProgress
        if last is None:
            return False
        batch = last["batchId"]
        is_next = mine.last_batch is not None and batch - mine.last_batch <= 1
        recent = [last] if is_next else query.recentProgress
        is_new = mine.take(json.loads(each.json) for each in recent)
        if is_new:
            self._checkpoints.take_dead_letters(self._epoch, name, mine.totals)
            if mine.needs_ends:
                mine.measure(self._ends())
        return is_new

    def _ends(self) -> Mapping[TopicPartition, int]:
        """Return where the partitions of the source end now; nothing if nobody answers."""
        quick = {
            "kafka.default.api.timeout.ms": str(ENDS_TIMEOUT_MS),
            "fetchOffset.numRetries": "1",
        }
        planner = Planner(parse_options({**self._definition.source_options(), **quick}))
        try:
            return planner.resolve(Everywhere(LATEST), "latest")
        except KafkaError as error:
            _log.debug("lag is not known: %s", error)
            return {}

    def _stop(self) -> None:
        for name, query in self._queries.items():
            with contextlib.suppress(PySparkException, *_GONE):
                query.stop()
                self._take_progress(name, query)
        self._keep_totals()

    def _keep_totals(self) -> None:
        totals = {name: each.totals for name, each in self._progress.items()}
        self._checkpoints.keep_totals(self._epoch, totals)
