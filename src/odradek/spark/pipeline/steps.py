"""From a definition to Spark's DataFrames: the source, tables, steps and what is expected of them.

Each query gets frames of its own, because each reads the source by itself. SQL sees the source,
tables and steps as temporary views of their names. Spark analyses a frame when it is made (over
Spark Connect when its schema is asked for), and what it says is told with file, line and field.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from odradek.spark.formats import CORRUPT
from odradek.spark.pipeline.definition import (
    DEAD_LETTERS,
    SOURCE,
    Definition,
    Place,
    PythonStep,
    SqlStep,
    Step,
    Table,
    Watermark,
)
from odradek.spark.pipeline.expectations import (
    SOURCE_COUNT,
    Rejects,
    apply_expectation,
    corrupt_records,
    counting,
    sound_records,
)
from odradek.spark.pipeline.failures import SPARK_ERRORS, first_words
from odradek.spark.pipeline.origins import ORIGIN, origin_of
from odradek.spark.pipeline.yaml_positions import DefinitionError, Problem
from odradek.spark.source import FORMAT

StepFunction = Callable[..., object]


class Frames:
    """The frames of one query."""

    def __init__(
        self, definition: Definition, spark: SparkSession, query: str, start: Mapping[str, str]
    ) -> None:
        """Make them all.

        Raises:
            DefinitionError: Spark says that something cannot be.
        """
        self._definition = definition
        self._spark = spark
        self._by_name: dict[str, DataFrame] = {}
        self._rejects = Rejects(definition.name, [], query == DEAD_LETTERS, [])
        self._make_source(query, start)
        for table in definition.tables:
            self._keep(table.name, self._make(table.place, self._table, table))
        for step in definition.steps:
            frame = self._make(step.place, self._step, step)
            self._keep(step.name, self._checked(step.name, frame))

    def __getitem__(self, name: str) -> DataFrame:
        return self._by_name[name]

    def dead_letters(self) -> DataFrame:
        """Return all that has to be put aside, as records for a topic."""
        frames = self._rejects.frames
        assert frames, "only made where something can be rejected"
        union = frames[0]
        for more in frames[1:]:
            union = union.unionByName(more)
        return union

    def _keep(self, name: str, frame: DataFrame) -> None:
        self._by_name[name] = frame
        frame.createOrReplaceTempView(name)

    def _make(self, place: Place, make: Callable[..., DataFrame], *given: object) -> DataFrame:
        try:
            frame = make(*given)
            _ = frame.schema  # Spark Connect analyses no earlier
        except SPARK_ERRORS as error:
            raise spark_problem(self._definition, place, error) from error
        return frame

    # The source.

    def _make_source(self, query: str, start: Mapping[str, str]) -> None:
        source = self._definition.source
        options = self._definition.source_options(query)
        if start:
            options = {name: v for name, v in options.items() if not name.startswith("starting")}
            options |= start
        for place, schema in source.schemas.items():
            # Alone, so that what Spark says is of what is in the file.
            self._check_schema(place, schema)
        reader = self._spark.readStream.format(FORMAT).options(**options)
        frame = self._make(source.place, reader.load)
        is_for_dead_letters = self._rejects.is_wanted
        if is_for_dead_letters:
            # Spark would count a record once for each time that it is read.
            frame = counting(frame, SOURCE_COUNT, f.lit(False))
        if source.has_format:
            if source.corrupt == "dead_letters" and is_for_dead_letters:
                self._rejects.frames.append(corrupt_records(self._definition.name, frame))
            frame = sound_records(frame, source.corrupt, is_counted=not is_for_dead_letters)
            frame = frame.drop(CORRUPT)
        if is_for_dead_letters and not self._definition.is_remote:
            with_places = frame.select("*", origin_of(frame))
            self._rejects.origins.append(with_places)
            frame = with_places.drop(ORIGIN)
        frame = self._make(source.place, _watermarked, frame, source.watermark)
        self._keep(SOURCE, self._checked(SOURCE, frame))

    def _check_schema(self, place: Place, schema: str) -> None:
        try:
            StructType.fromDDL(schema)
        except SPARK_ERRORS as error:
            raise spark_problem(self._definition, place, error) from error

    def _checked(self, name: str, frame: DataFrame) -> DataFrame:
        expectations = [each for each in self._definition.expectations if each.step == name]
        for each in expectations:
            frame = self._make(each.place, apply_expectation, frame, each, self._rejects)
        return frame

    # Tables and steps.

    def _table(self, table: Table) -> DataFrame:
        reader = self._spark.read.format(table.format).options(**table.options)
        if table.schema is not None:
            reader = reader.schema(table.schema)
        return reader.load() if table.path is None else reader.load(table.path)

    def _step(self, step: Step) -> DataFrame:
        match step:
            case SqlStep():
                frame = self._spark.sql(step.sql)
            case PythonStep():
                frame = self._call(step)
        return _watermarked(frame, step.watermark)

    def _call(self, step: PythonStep) -> DataFrame:
        function = find_function(self._definition, step, self._spark)
        try:
            frame = function(*(self._by_name[name] for name in step.inputs))
        except SPARK_ERRORS:
            raise
        except Exception as error:
            what = f"{step.module}:{step.function} failed: {type(error).__name__}: {error}"
            raise _problem(self._definition, step.place, what) from error
        if not isinstance(frame, DataFrame):
            what = f"{step.module}:{step.function} returned {type(frame).__name__}"
            raise _problem(self._definition, step.place, f"{what}, not a DataFrame")
        return frame


def find_function(
    definition: Definition, step: PythonStep, spark: SparkSession | None = None
) -> StepFunction:
    """Import the function of a step; modules beside the file are sent to the executors.

    Raises:
        DefinitionError: There is no such module or function.
    """
    if definition.folder not in sys.path:
        sys.path.insert(0, definition.folder)
    try:
        module = importlib.import_module(step.module)
        function = getattr(module, step.function)
    except Exception as error:
        what = f"{step.module}:{step.function} cannot be imported: {type(error).__name__}: {error}"
        raise _problem(definition, step.place, what) from error
    if not callable(function):
        raise _problem(definition, step.place, f"{step.function} is not a function")
    path = Path(getattr(module, "__file__", None) or "")
    # Functions travel to the executors by the name of their module.
    if spark is not None and str(path.parent) == definition.folder:
        spark.addArtifacts(str(path), pyfile=True)
    return function  # type: ignore[no-any-return]  # it was only looked up


def spark_problem(definition: Definition, place: Place, error: Exception) -> DefinitionError:
    return _problem(definition, place, first_words(error))


def _problem(definition: Definition, place: Place, message: str) -> DefinitionError:
    return DefinitionError([Problem(definition.file, place.line, place.field, message)])


def _watermarked(frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    if watermark is None:
        return frame
    return frame.withWatermark(watermark.column, watermark.delay)
