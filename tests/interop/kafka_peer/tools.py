"""Kafka's command-line tools, run from the jars by the name of their script."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.interop.kafka_peer.classes import command, shared_classes
from tests.interop.kafka_peer.jars import resolve_jars

TOOL_SECONDS_MAX = 120

# `kafka-<name>.sh` of Kafka 4.3 and the class it runs.
MAIN_CLASSES = {
    "acls": "org.apache.kafka.tools.AclCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "jmx": "org.apache.kafka.tools.JmxTool",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "metadata-shell": "org.apache.kafka.shell.MetadataShell",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "server-start": "kafka.Kafka",
    "share-consumer-perf-test": "org.apache.kafka.tools.ShareConsumerPerformance",
    "share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "storage": "kafka.tools.StorageTool",
    "streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
    "streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "verifiable-share-consumer": "org.apache.kafka.tools.VerifiableShareConsumer",
}

ToolRun = subprocess.CompletedProcess[str]


def java_command(main_class: str, *, heap_mib: int, log_level: str, libs: Path) -> list[str]:
    """A small JVM that starts fast, speaks UTF-8 and logs to stderr."""
    options = shared_classes(libs)
    return command(main_class, heap_mib=heap_mib, log_level=log_level, libs=libs, options=options)


def kafka_tool(
    name: str,
    *arguments: str | Path,
    stdin: str | None = None,
    cwd: Path | None = None,
    timeout_seconds: float = TOOL_SECONDS_MAX,
    check: bool = True,
) -> ToolRun:
    """Run `kafka-<name>.sh arguments...`; `name` is a key of MAIN_CLASSES or a class.

    `check` raises on a non-zero exit code. Some tools print `Error: ...` and exit 0 all the same.
    """
    main_class = MAIN_CLASSES.get(name, name)
    command = java_command(main_class, heap_mib=192, log_level="WARN", libs=resolve_jars())
    run = subprocess.run(
        [*command, *map(str, arguments)],
        input=stdin if stdin is not None else "",
        capture_output=True,
        encoding="utf-8",
        cwd=cwd,
        timeout=timeout_seconds,
        check=False,
    )
    if check and run.returncode != 0:
        output = f"{run.stdout[-2000:]}\n{run.stderr[-4000:]}"
        raise RuntimeError(f"kafka-{name} {arguments} exited with {run.returncode}:\n{output}")
    return run


def dump_log(files: Iterable[Path] | Path, *flags: str, cwd: Path | None = None) -> str:
    """What the real DumpLogSegments prints for these files; paths print as they were given."""
    listed = [files] if isinstance(files, Path) else list(files)
    return kafka_tool("dump-log", "--files", ",".join(map(str, listed)), *flags, cwd=cwd).stdout
