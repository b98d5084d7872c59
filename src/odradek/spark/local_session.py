"""A Spark session that is ready to use: ``spark = odradek.spark.session()``.

What it sets, and why; ``conf`` overrides all of it:

- Python workers run the interpreter that this program runs, not whatever ``python3`` is.
- Only errors are logged, in a line each: what is to be done about a worker that died Spark does,
  and hundreds of lines of Java hide the one that matters. ``spark.log.level``, whatever it is, asks
  for Spark's own log, with stacks. No progress bar, no web server.
- Threads of the driver have larger stacks: Spark looks for its own errors in those of
  ``foreachBatch`` with a regular expression that needs more, and would end with yet another.
- State of streams is kept in RocksDB, with a log of changes: ``transformWithState`` knows no other,
  and a store in the JVM's heap is written anew as a whole now and then. A checkpoint keeps the
  store that it was begun with.
- As many shuffle partitions as there are cores, not 200: each costs a task in every micro-batch.
- Checkpoints of local paths are written by ``FileSystemBasedCheckpointFileManager``: the default
  one starts 44 processes for a micro-batch, this one 12.
- The driver listens on the loopback interface, where a laptop without a network can reach it.

- Without a SPARK_HOME, Spark is the one that PySpark brings, less its zip (``spark_home``).

The last four are for ``local`` masters only.
"""

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final, cast

from pyspark.sql import SparkSession

from odradek.spark.java import find_java_home
from odradek.spark.spark_home import without_zip

_CHECKPOINTS: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_STATE_STORE: Final = "spark.sql.streaming.stateStore"
_STATE: Final = {
    f"{_STATE_STORE}.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{_STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
}
_LOGGING: Final = r"""
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.alwaysWriteExceptions = false
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: """
_FULL: Final = "%m%n%ex"
_ONE_LINE: Final = (
    r"%replace{%replace{%m: %ex{short.message}}{(?s)(: )?[\\r\\n].*}{}}"
    r"{Python worker exited unexpectedly.*}"
    r"{a Python worker died (killed, or out of memory); Spark runs the task again if it may}%n"
)
_STACK: Final = "-Xss16m"
_LOCAL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
}


def session(
    app_name: str = "odradek",
    master: str = "local[*]",
    conf: Mapping[str, Any] | None = None,
) -> SparkSession:
    """Return a session: the one of this process if it has one already, else a new one.

    ``master`` is a Spark master, or the address of a Spark Connect server (``sc://…``), which needs
    no Java here. Settings of ``conf`` win over what is set for you.

    Raises:
        NoJavaError: No Java that Spark can run on was found.
    """
    builder = SparkSession.builder.appName(app_name)
    given = {name: str(value) for name, value in (conf or {}).items()}
    if master.startswith("sc://"):
        return _made(builder.remote(master), _STATE | given)
    is_local = master.startswith("local")
    _prepare_environment(given, is_local=is_local)
    settings = _QUIET | _STATE
    if SparkSession.getActiveSession() is None:
        log = _log_settings(is_full="spark.log.level" in given)
        settings["spark.driver.extraJavaOptions"] = f"{_STACK} -Dlog4j2.configurationFile={log}"
    if is_local:
        settings |= _LOCAL
        settings["spark.sql.shuffle.partitions"] = str(os.cpu_count() or 1)
    with without_zip() if is_local else nullcontext():
        return _made(builder.master(master), settings | given)


def _made(builder: Any, settings: Mapping[str, str]) -> SparkSession:
    for name, value in settings.items():
        builder = builder.config(name, value)
    # A session of Spark Connect is of another class with the same methods.
    return cast("SparkSession", builder.getOrCreate())


def _log_settings(*, is_full: bool) -> str:
    """Return a file for log4j: Spark's own ones are loud until a session is there."""
    folder = Path(tempfile.mkdtemp(prefix="odradek-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "log4j2.properties"
    path.write_text(f"{_LOGGING}{_FULL if is_full else _ONE_LINE}\n")
    return path.as_uri()


def _prepare_environment(given: Mapping[str, str], *, is_local: bool) -> None:
    os.environ["JAVA_HOME"] = str(find_java_home(os.environ))
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Spark itself heeds this setting only in programs that spark-submit starts.
    python = given.get("spark.pyspark.python")
    if python is not None or is_local:
        # A leftover PYSPARK_PYTHON of another Python would fail on the first task.
        os.environ["PYSPARK_PYTHON"] = python or sys.executable
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
