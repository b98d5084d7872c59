"""What a node has to tell its operator, in the log: each function is one kind of event."""

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from odradek.broker.event_log import Event
from odradek.core.errors import ApiError
from odradek.core.ids import TopicPartition
from odradek.metadata.image import MetadataUpdate
from odradek.storage.log_directory import LogDirectory
from odradek.storage.log_loading import LoadingProgress

if TYPE_CHECKING:
    from odradek.broker.node import Node

_node: Final = logging.getLogger("odradek.node")
_storage: Final = logging.getLogger("odradek.storage")
_topics: Final = logging.getLogger("odradek.topics")
_config: Final = logging.getLogger("odradek.config")


def started(node: "Node", took_ms: int) -> None:
    if not _node.isEnabledFor(logging.INFO):
        return
    from importlib.metadata import version  # 13 ms, for this one event

    protocols = node.config.security_protocols
    _node.info(
        Event(
            "started",
            version=version("odradek"),
            node_id=node.node_id,
            cluster_id=node.cluster_id,
            listeners=[
                f"{name}://{host}:{port} ({protocols[name]})"
                for name, (host, port) in node.server.endpoints.items()
            ],
            log_dirs=[str(path) for path in node.config.log_dirs],
            topics=len(node.image.topics),
            took_ms=took_ms,
        )
    )


def stopped(node_id: int, took_ms: int, *, clean: bool) -> None:
    level = logging.INFO if clean else logging.ERROR
    _node.log(level, Event("stopped", node_id=node_id, clean=clean, took_ms=took_ms))


def failed(what: str, error: BaseException) -> None:
    """Say that the node cannot go on."""
    _node.critical(Event("failed", what=what, error=error), exc_info=error)


def logs_opened(progress: Iterable[LoadingProgress], problems: Sequence[str]) -> None:
    """Say how the logs were found: what had to be recovered, what is not as it should be."""
    for latest in progress:
        if latest.recovered:
            _storage.warning(
                Event(
                    "logs recovered after an unclean stop",
                    logs=latest.logs,
                    recovered=latest.recovered,
                    checked_bytes=latest.checked_bytes,
                )
            )
    for problem in problems:
        _storage.warning(Event("problem in a log directory", problem=problem))


def directories_offline(directories: Sequence[LogDirectory]) -> None:
    for directory in directories:
        _storage.error(
            Event(
                "log directory offline",
                log_dir=directory.path,
                logs=len(directory.logs),
                error=directory.error,
            )
        )


def partition_offline(partition: TopicPartition, error: ApiError) -> None:
    """Say that a partition has no log that could be used; the directory's own event says why."""
    _storage.error(Event("partition offline", partition=partition, error=error))


def topics_changed(update: MetadataUpdate) -> None:
    if not _topics.isEnabledFor(logging.INFO):
        return
    for gone in update.delta.topics_deleted:
        _topics.info(Event("topic deleted", topic=gone.name, topic_id=gone.topic_id))
    for topic_id in update.delta.topics_created:
        topic = update.image.topics_by_id[topic_id]
        _topics.info(
            Event(
                "topic created",
                topic=topic.name,
                topic_id=topic_id,
                partitions=len(topic.partitions),
            )
        )


def configs_refused(names: Sequence[str]) -> None:
    """Say which dynamic configs do not count; never their values, which may be secrets."""
    if names:
        _config.warning(Event("dynamic configs cannot be used and are left out", configs=names))
