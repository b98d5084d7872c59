"""Where a row came from: topic, partition and offset, also behind steps that dropped these columns.

A dead letter that cannot be found in its topic again is of little use, but ``SELECT value.*`` is
what most first steps do. The source of the dead-letter query has a column more, which is dropped at
once; here the plan that Spark has made of a step is gone through, and every projection on the way
is made to let the column pass. Rows stay what they are, SQL and Python see nothing of it.

What has no one origin has none here: rows of aggregations, of steps that make rows in Python, of
joins of the source with itself. Missing: Spark Connect, where plans are on the server.
"""

from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

ORIGIN: Final = "__odradek_origin"
NODES_MAX: Final = 1_000
"""Of a plan that is gone through: each costs several calls to the JVM."""
# All that hand on the rows of a child, or of one of them, with all its columns.
_PASSING: Final = frozenset(
    {
        *("Filter", "SubqueryAlias", "View", "CollectMetrics", "EventTimeWatermark"),
        *("Join", "Generate", "Repartition", "RepartitionByExpression", "ResolvedHint"),
    }
)


def origin_of(columns: DataFrame) -> Column:
    """Return the column that says where records of a source came from."""
    return f.struct(*(columns[name] for name in ("topic", "partition", "offset"))).alias(ORIGIN)


def with_origin(frame: DataFrame, source: DataFrame) -> DataFrame | None:
    """Return a frame with ORIGIN, the last column of ``source``; None if its rows have no such."""
    try:
        session = frame.sparkSession
        context = session.sparkContext
        assert context._jvm is not None
        origin = source._jdf.queryExecution().analyzed().output().last()
        plan = _Tracing(context._jvm, origin).extended(frame._jdf.queryExecution().analyzed())
        if plan is None:
            return None
        dataset = context._jvm.org.apache.spark.sql.classic.Dataset
        return DataFrame(dataset.ofRows(session._jsparkSession, plan), session)
    except (Py4JError, PySparkException):
        return None  # insides of Spark: another version may have others, and Spark Connect has none


class _Tracing:
    def __init__(self, jvm: Any, origin: Any) -> None:
        self._jvm = jvm
        self._origin = origin
        self._nodes = 0

    def extended(self, plan: Any) -> Any | None:
        """Return a plan with the origin in its output; None if it cannot be had."""
        self._nodes += 1
        if self._nodes > NODES_MAX:
            return None
        if plan.outputSet().contains(self._origin):
            return plan
        if plan.nodeName() == "Project":
            return self._extended_projection(plan)
        if plan.nodeName() not in _PASSING:
            return None
        children = _items(plan.children())
        extended = [self.extended(each) for each in children]
        if sum(each is not None for each in extended) != 1:
            return None
        pairs = zip(extended, children, strict=True)
        return plan.withNewChildren(self._sequence([new or old for new, old in pairs]))

    def _extended_projection(self, plan: Any) -> Any | None:
        child = self.extended(plan.child())
        if child is None:
            return None
        columns = [*_items(plan.projectList()), self._origin]
        project = self._jvm.org.apache.spark.sql.catalyst.plans.logical.Project
        return project(self._sequence(columns), child)

    def _sequence(self, items: list[Any]) -> Any:
        return self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(items)


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]
