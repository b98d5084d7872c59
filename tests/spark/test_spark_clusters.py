"""One pipeline file on every kind of Spark: local, local-cluster, standalone, Spark Connect."""

import json
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from sysconfig import get_path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import odradek
from odradek.spark import pipeline
from odradek.testing.broker import Broker
from tests.spark import cluster_program
from tests.spark.pipeline_files import consume, send, write_definition
from tests.spark.spark_daemons import connect_server, spark_environment, standalone

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
INSTALLED = Path(odradek.__file__).parents[1]
RUN_SECONDS_MAX = 840
EXECUTOR_SECONDS_MAX = 120
POLL_SECONDS = 0.1
RECORDS = 100
TOPICS = {"numbers": 2, "out": 2, "batch": 2}
SMALL = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
}
TEXT = """
source: {topics: [numbers], format: json, schema: "n INT"}
steps:
  - {name: numbers, sql: "SELECT value.n AS n FROM source"}
  - {name: doubled, python: "cluster_steps:double"}
sinks:
  - {name: topic, topic: out, key: n}
  - {name: archive, format: parquet, path: archive}
spark: {master: "${SPARK_MASTER:-local[2]}"}
"""
STEPS = """
from pyspark.sql import functions as f
@f.udf("int")
def twice(n):
    return 2 * n
def double(frame):
    return frame.withColumn("twice", twice("n"))
"""
ROWS = [{"n": n, "twice": 2 * n} for n in range(RECORDS)]
EXPECTED = {
    "archive": ROWS,
    "topic": sorted(json.dumps(row, separators=(",", ":")) for row in ROWS),
    "batch": sorted(f"row {n}" for n in range(cluster_program.BATCH_ROWS)),
}


@pytest.fixture
def servers() -> Iterator[str]:
    with Broker(topics=TOPICS) as broker:
        send(broker.bootstrap_servers, "numbers", [b'{"n":%d}' % n for n in range(RECORDS)])
        yield broker.bootstrap_servers


@pytest.fixture
def file(tmp_path: Path, servers: str) -> Path:
    (tmp_path / "cluster_steps.py").write_text(STEPS)
    return write_definition(tmp_path, servers, TEXT)


@pytest.fixture(scope="module")
def cluster_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(cluster_folder: Path) -> Iterator[str]:
    with standalone(cluster_folder) as url:
        yield url


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[str]:
    with connect_server(tmp_path) as address:
        yield address


def run_on(master: str, file: Path, servers: str, conf: dict[str, str]) -> dict[str, Any]:
    """Run the program with a driver of its own; return what it found."""
    settings = [f"{name}={value}" for name, value in conf.items()]
    arguments = [str(file), servers, str(file.parent), *settings]
    run = subprocess.run(
        [sys.executable, "-m", "tests.spark.cluster_program", *arguments],
        cwd=REPOSITORY,
        env=spark_environment(SPARK_MASTER=master),
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    answers = [line for line in run.stdout.splitlines() if line.startswith(cluster_program.ANSWER)]
    assert run.returncode == 0, run.stderr[-5000:]
    (answer,) = answers
    found = json.loads(answer.removeprefix(cluster_program.ANSWER))
    assert isinstance(found, dict)
    return found


def check(found: dict[str, Any], servers: str) -> None:
    assert {name: found[name] for name in EXPECTED} == EXPECTED
    # Not only Spark says so.
    assert sorted(value.decode() for value, _ in consume(servers, "out", 2)) == EXPECTED["topic"]


@pytest.mark.seed_row("U.2")
def test_on_threads(spark: SparkSession, servers: str, file: Path) -> None:
    definition = pipeline.load(file)
    assert definition.spark.master == "local[2]"
    check(cluster_program.run_all(spark, definition, servers, file.parent), servers)


@pytest.mark.seed_row("U.2")
def test_on_a_local_cluster_of_two_processes(servers: str, file: Path) -> None:
    found = run_on("local-cluster[2,1,1024]", file, servers, SMALL)
    check(found, servers)
    assert found["pythons"] == [[odradek.__file__, True]]


@pytest.mark.seed_row("U.2")
def test_on_a_standalone_cluster_of_two_workers(
    cluster: str, cluster_folder: Path, servers: str, file: Path
) -> None:
    found = run_on(cluster, file, servers, SMALL)
    check(found, servers)
    assert found["pythons"] == [[odradek.__file__, True]]
    for number in range(2):
        wait_for_an_executor(cluster_folder / f"worker-{number}")


def wait_for_an_executor(worker: Path) -> None:
    """Wait until a worker was given one: a late one hears of it when the other has done it all."""
    deadline = time.monotonic() + EXECUTOR_SECONDS_MAX
    while not list(worker.glob("app-*/[0-9]*")):
        assert time.monotonic() < deadline, f"no executor in {worker}"
        time.sleep(POLL_SECONDS)


def test_on_executors_that_lack_the_package_and_get_it_as_a_file(
    cluster: str, servers: str, file: Path, tmp_path: Path
) -> None:
    python = python_without_odradek(tmp_path)
    package = zipped(tmp_path / "odradek.zip")
    shipping = {"spark.pyspark.python": str(python), "spark.submit.pyFiles": str(package)}
    found = run_on(cluster, file, servers, {**SMALL, **shipping})
    check(found, servers)
    assert found["pythons"]
    for place, is_installed in found["pythons"]:
        assert place.endswith("/odradek.zip/odradek/__init__.py")
        assert not is_installed


@pytest.mark.seed_row("U.2")
def test_over_spark_connect(connect: str, servers: str, file: Path) -> None:
    check(run_on(connect, file, servers, {}), servers)


def python_without_odradek(folder: Path) -> Path:
    """Return a Python that has all that this one has, but not this package."""
    packages = folder / "packages"
    packages.mkdir()
    for each in {get_path("purelib"), get_path("platlib")}:
        for entry in Path(each).iterdir():
            if "odradek" not in entry.name:
                (packages / entry.name).symlink_to(entry)
    python = folder / "python-without-odradek"
    # -S: no site-packages, whose .pth files lead to this package.
    path = f'PYTHONPATH="$PYTHONPATH:{packages}"'
    python.write_text(f'#!/bin/sh\n{path} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    missing = subprocess.run(
        [python, "-c", "import pyarrow, odradek"],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert "No module named 'odradek'" in missing.stderr
    return python


def zipped(path: Path) -> Path:
    """Return the package as ``--py-files`` takes it; its compiled part stays behind."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in ("odradek", "pyspark_odradek"):
            for module in (INSTALLED / package).rglob("*.py"):
                archive.write(module, module.relative_to(INSTALLED))
    return path
