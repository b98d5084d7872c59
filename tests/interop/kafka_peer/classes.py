"""The command of a JVM with Kafka's jars, which takes its classes from an archive.

Hundreds of JVMs are started in a run of the tests, and most of what they do is to load and check
the same classes. One server, run once on a machine, leaves them in a file beside the jars that the
others map (class data sharing): a tool or a server then starts with some 60 % of the CPU. A JVM to
which the archive does not fit, or which cannot write one, does without.
"""

import fcntl
import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from tests.interop.kafka_peer.jars import class_path, java
from tests.interop.kafka_peer.jvm import Jvm, broker_is_ready
from tests.interop.ports import HOST, free_ports

_CLUSTER_ID: Final = "b2RyYWRlay1hcmNoaXZlcw"
_FORMAT_SECONDS_MAX: Final = 300
_QUIET: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")


def command(
    main_class: str, *, heap_mib: int, log_level: str, libs: Path, options: Sequence[str]
) -> list[str]:
    """A small JVM that starts fast, speaks UTF-8 and logs to stderr."""
    return [
        java(),
        f"-Xmx{heap_mib}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *options,
        "-Dfile.encoding=UTF-8",
        "-Dsun.stdout.encoding=UTF-8",
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.xml')}",
        f"-Dkafka.peer.level={log_level}",
        *("-cp", class_path(libs)),
        main_class,
    ]


@cache
def shared_classes(libs: Path) -> tuple[str, ...]:
    """The options that let a JVM take its classes from the archive; the first call makes it."""
    archive = libs / f"classes-{_java_key()}.jsa"
    with (libs.parent / "classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            with tempfile.TemporaryDirectory(dir=libs.parent) as folder:
                filled = _fill(Path(folder), libs)
                if not filled.exists():  # a runtime without the archive of Java's own classes
                    return ()
                filled.rename(archive)
    return (f"-XX:SharedArchiveFile={archive}", *_QUIET)


def _java_key() -> str:
    """Tell one Java from another, and from itself after an upgrade."""
    found = Path(java()).resolve()
    text = f"{found} {found.stat().st_mtime_ns}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _fill(folder: Path, libs: Path) -> Path:
    """Run a server until it is ready; on its clean stop it writes what it has loaded."""
    port, controller_port = free_ports(2)
    properties = folder / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\n"
        "node.id=1\n"
        f"listeners=PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}\n"
        "controller.listener.names=CONTROLLER\n"
        f"controller.quorum.bootstrap.servers={HOST}:{controller_port}\n"
        f"log.dirs={folder / 'data'}\n"
    )
    plain = command(
        "kafka.tools.StorageTool", heap_mib=192, log_level="WARN", libs=libs, options=()
    )
    subprocess.run(
        [*plain, "format", "-t", _CLUSTER_ID, "-c", str(properties), "--standalone"],
        stdout=subprocess.DEVNULL,
        timeout=_FORMAT_SECONDS_MAX,
        check=True,
    )
    archive = folder / "classes.jsa"
    dumping = (f"-XX:ArchiveClassesAtExit={archive}", *_QUIET)
    server = command("kafka.Kafka", heap_mib=256, log_level="WARN", libs=libs, options=dumping)
    Jvm([*server, str(properties)], folder / "server.log", lambda: broker_is_ready(port)).stop()
    return archive
