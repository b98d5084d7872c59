"""Pipelines: a source of topics, steps in SQL or Python, expectations and sinks, in one YAML file.

    from odradek.spark import pipeline

    orders = pipeline.load("orders.yaml")   # or DefinitionError, with file, line and field
    pipeline.run(orders)

``yaml_positions``  YAML that knows its lines
``definition``      what a pipeline is
``loading``         from a file to a definition, or to all that is wrong with it
``sections``        the parts of a file, each for itself
``sql_text``        what can be said of SQL without Spark
``steps``           frames of the source, tables and steps
``expectations``    rows that are not as expected, and dead letters
``sinks``           the queries that write
``checkpoints``     how far it is: epochs, offsets to begin at, totals, a lock
``runner``          runs it
``failures``        what Spark throws, in one line
``progress``        how far its queries are
``totals``          what has been counted since an epoch began
``reset``           lag and new beginnings, without Spark
``display``         progress on a terminal, in a pipe, as JSON, for Prometheus
"""

from odradek.spark.pipeline.checkpoints import CheckpointError
from odradek.spark.pipeline.definition import AvailableNow, Definition, Every, Once, Trigger
from odradek.spark.pipeline.loading import load, parse
from odradek.spark.pipeline.progress import QueryProgress
from odradek.spark.pipeline.reset import Status, Target, ToOffset, reset, status
from odradek.spark.pipeline.runner import PipelineError, make_session, plan, run
from odradek.spark.pipeline.yaml_positions import DefinitionError, Problem

__all__ = [
    "AvailableNow",
    "CheckpointError",
    "Definition",
    "DefinitionError",
    "Every",
    "Once",
    "PipelineError",
    "Problem",
    "QueryProgress",
    "Status",
    "Target",
    "ToOffset",
    "Trigger",
    "load",
    "make_session",
    "parse",
    "plan",
    "reset",
    "run",
    "status",
]
