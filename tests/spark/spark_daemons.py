"""Spark's own servers for tests: a standalone master with two workers, and Spark Connect.

Each takes a port that the operating system gives it and tells it in its log. They stop when the
test run ends, also if it is killed.
"""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyspark

from odradek.spark.java import find_java_home
from tests.interop.kafka_peer.jvm import until_parent_ends
from tests.spark.quick_java import QUICK_JAVA

HOME = Path(pyspark.__file__).parent
HOST = "127.0.0.1"
START_SECONDS_MAX = 240
STOP_SECONDS_MAX = 60
POLL_SECONDS = 0.1
WORKERS = 2

MASTER_READY = re.compile(r"Starting Spark master at (spark://\S+:\d+)\n.*elected leader", re.S)
WORKER_READY = re.compile(r"Successfully registered with master (\S+)")
CONNECT_READY = re.compile(r"Spark Connect server started at: (\S+:\d+)")


def spark_environment(**more: str) -> dict[str, str]:
    """Return an environment in which Spark's programs find Java, Python and each other."""
    # Python workers shall find bytecode, as those of an installed package do.
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {
        **kept,
        "JAVA_HOME": str(find_java_home(os.environ)),
        "JAVA_TOOL_OPTIONS": QUICK_JAVA,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": HOST,
        **more,
    }


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """A master and two workers of one core; gives its URL. Executors run in ``worker-N``."""
    with contextlib.ExitStack() as stack:
        command = ["org.apache.spark.deploy.master.Master", "--host", HOST]
        ports = ["--port", "0", "--webui-port", "0"]
        master = daemon([*command, *ports], folder / "master.log", MASTER_READY)
        url = stack.enter_context(master)
        workers = [worker(folder, number, url) for number in range(WORKERS)]
        for each in workers:
            stack.enter_context(each)
        yield url


def worker(folder: Path, number: int, url: str) -> contextlib.AbstractContextManager[str]:
    command = ["org.apache.spark.deploy.worker.Worker", "--host", HOST, "--webui-port", "0"]
    sizes = ["--cores", "1", "--memory", "1g"]
    place = ["--work-dir", str(folder / f"worker-{number}")]
    log = folder / f"worker-{number}.log"
    return daemon([*command, *sizes, *place, url], log, WORKER_READY)


@contextlib.contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A server of Spark Connect on ``local[2]``; gives its ``sc://`` address."""
    settings = {
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": HOST,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
    }
    pairs = [each for name, value in settings.items() for each in ("--conf", f"{name}={value}")]
    service = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command = ["org.apache.spark.deploy.SparkSubmit", *service, "--master", "local[2]"]
    command = [*command, *pairs, "spark-internal"]
    with daemon(command, folder / "connect.log", CONNECT_READY, memory="768m") as address:
        yield f"sc://{address}"


@contextlib.contextmanager
def daemon(
    command: Sequence[str], log: Path, ready: re.Pattern[str], memory: str = "256m"
) -> Iterator[str]:
    """Run one of Spark's classes; gives the first group of what its log has to say."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*until_parent_ends(), str(HOME / "bin" / "spark-class"), *command],
            cwd=log.parent,
            env=spark_environment(SPARK_DAEMON_MEMORY=memory),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield told(process, log, ready)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def told(process: subprocess.Popen[bytes], log: Path, ready: re.Pattern[str]) -> str:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        has_ended = process.poll() is not None
        text = log.read_text(errors="replace")
        if (match := ready.search(text)) is not None:
            return match[1]
        if has_ended or time.monotonic() > deadline:
            raise RuntimeError(f"not ready, exit code {process.returncode}\n{text[-4000:]}")
        time.sleep(POLL_SECONDS)
