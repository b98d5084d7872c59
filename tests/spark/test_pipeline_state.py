"""State that a Python step keeps by itself (transformWithState), which takes RocksDB."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.spark import pipeline
from odradek.testing.broker import Broker
from tests.spark.pipeline_files import consume, load_definition, send

pytestmark = pytest.mark.slow

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
HEAP = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
TEXT = """
source: {topics: [numbers], format: json, schema: "n INT"}
steps:
  - {name: parsed, sql: SELECT value.n AS n FROM source}
  - {name: seen, python: "seeing:count"}
sinks:
  - {name: out, topic: out, mode: update}
"""
# In the function: Spark's driver runs it in a process that knows no modules of this session.
SEEING = """
import pandas as pd
from pyspark.sql.streaming import StatefulProcessor

def count(frame):
    class Seeing(StatefulProcessor):
        def init(self, handle):
            self.seen = handle.getValueState("seen", "times long")

        def handleInputRows(self, key, rows, timers):
            before = self.seen.get()[0] if self.seen.exists() else 0
            times = before + sum(len(each) for each in rows)
            self.seen.update((times,))
            yield pd.DataFrame({"n": [key[0]], "times": [times]})

        def close(self):
            pass

    return frame.groupBy("n").transformWithStateInPandas(
        Seeing(), outputStructType="n int, times long", outputMode="Update", timeMode="None"
    )
"""


@pytest.fixture
def rocks(spark: SparkSession) -> Iterator[str]:
    """Spark's own setting, which is put back."""
    store = spark.conf.get(PROVIDER)
    assert store is not None
    yield store
    spark.conf.set(PROVIDER, store)


def test_transform_with_state_runs_but_where_an_old_checkpoint_forbids_it(
    spark: SparkSession, rocks: str, tmp_path: Path
) -> None:
    (tmp_path / "seeing.py").write_text(SEEING)
    with Broker(topics=["numbers", "out"]) as broker:
        servers = broker.bootstrap_servers
        definition = load_definition(tmp_path, servers, TEXT)
        send(servers, "numbers", [b'{"n":1}', b'{"n":1}', b'{"n":2}'])
        for store in (HEAP, rocks):
            # The checkpoint goes on with what it was begun with.
            spark.conf.set(PROVIDER, store)
            with pytest.raises(pipeline.PipelineError) as refused:
                pipeline.run(definition, spark=spark)
            told = str(refused.value)
            assert told.startswith("out: transformWithState needs RocksDB, but state is kept by")
            assert "HDFSBackedStateStoreProvider: the checkpoint was begun with that" in told
            assert "\n" not in told
        pipeline.reset(definition, pipeline.ToOffset(0))
        pipeline.run(definition, spark=spark)
        found = [json.loads(value) for value, _ in consume(servers, "out")]
        assert sorted((each["n"], each["times"]) for each in found) == [(1, 2), (2, 1)]
