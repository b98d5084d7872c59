"""What a node has to tell its operator, in the log: each function is one kind of event."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, assert_never

from odradek.broker import lifecycle_events
from odradek.core.config import BrokerConfig
from odradek.core.errors import ApiError
from odradek.core.event import Event
from odradek.core.ids import TopicPartition, Uuid
from odradek.metadata.image import MetadataUpdate
from odradek.quorum.metadata_events import loss_fields
from odradek.storage.log_directory import LogDirectory
from odradek.storage.log_loading import LoadingProgress
from odradek.storage.recovery_loss import Loss

_node: Final = logging.getLogger("odradek.node")
_storage: Final = logging.getLogger("odradek.storage")
_topics: Final = logging.getLogger("odradek.topics")
_config: Final = logging.getLogger("odradek.config")


def started(
    config: BrokerConfig,
    cluster_id: str,
    endpoints: Mapping[str, tuple[str, int]],
    *,
    topics: int,
    took_ms: int,
) -> None:
    if not _node.isEnabledFor(logging.INFO):
        return
    from importlib.metadata import version  # 13 ms, for this one event

    protocols = config.security_protocols
    _node.info(
        Event(
            "started",
            version=version("odradek"),
            node_id=config.node_id,
            roles=sorted(config.process_roles),
            cluster_id=cluster_id,
            listeners=[
                f"{name}://{host}:{port} ({protocols[name]})"
                for name, (host, port) in endpoints.items()
            ],
            log_dirs=[str(path) for path in config.log_dirs],
            topics=topics,
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


def records_lost(losses: Iterable[Loss]) -> None:
    """Say what recovery gave up: one line for each log that is shorter now."""
    for loss in losses:
        _storage.warning(Event("records lost in recovery", **loss_fields(loss)))


def internal_topic_refused(name: str, reason: str) -> None:
    """Say that groups, or transactions, have no coordinator."""
    _topics.warning(Event("no internal topic", topic=name, reason=reason))


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


def directories_full(directories: Sequence[LogDirectory]) -> None:
    for directory in directories:
        _storage.error(
            Event(
                "log directory full: writes are refused, reads go on",
                log_dir=directory.path,
                logs=len(directory.logs),
                error=directory.shortage,
            )
        )


def directory_has_space(directory: LogDirectory, took_ms: int) -> None:
    _storage.warning(
        Event(
            "log directory has space again: writes are accepted",
            log_dir=directory.path,
            took_ms=took_ms,
        )
    )


def partition_offline(partition: TopicPartition, error: ApiError) -> None:
    """Say that a partition has no log that could be used; the directory's own event says why."""
    _storage.error(Event("partition offline", partition=partition, error=error))


def log_of_another_topic(partition: TopicPartition, found: Uuid, expected: Uuid) -> None:
    """Say that a log is set aside, because its topic was deleted and created again since."""
    _storage.warning(
        Event("log of another topic", partition=partition, topic_id=found, expected=expected)
    )


def replica_truncated(
    partition: TopicPartition, offset: int, end: int, high_watermark: int
) -> None:
    """Say that a follower's log is cut; a warning if committed records go (unclean election)."""
    event = Event(
        "replica truncated",
        partition=partition,
        offset=offset,
        log_end_offset=end,
        high_watermark=high_watermark,
    )
    level = logging.WARNING if offset < high_watermark else logging.INFO
    _storage.log(level, event)


def topics_changed(update: MetadataUpdate) -> Iterator[None]:
    """Tell of each topic that came or went, a step for each."""
    if not _topics.isEnabledFor(logging.INFO):
        return
    for gone in update.delta.topics_deleted:
        yield
        _topics.info(Event("topic deleted", topic=gone.name, topic_id=gone.topic_id))
    for topic_id in update.delta.topics_created:
        yield
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


def lifecycle(event: lifecycle_events.Event) -> None:
    """Say what becomes of this broker in its cluster."""
    match event:
        case lifecycle_events.Registered(epoch):
            _node.info(Event("registered", broker_epoch=epoch))
        case lifecycle_events.StillWaiting(why):
            _node.warning(Event("not registered yet: trying again", reason=why))
        case lifecycle_events.CaughtUp():
            _node.info(Event("caught up with the metadata"))
        case lifecycle_events.Unfenced():
            _node.info(Event("unfenced"))
        case lifecycle_events.Unheard(why):
            _node.warning(Event("likely fenced: heartbeats are not answered", reason=why))
        case lifecycle_events.FencedAgain(why):
            _node.warning(
                Event("fenced: the controller had no heartbeat in time; asking again", reason=why)
            )
        case lifecycle_events.MayStop(granted, why):
            level = logging.INFO if granted else logging.WARNING
            _node.log(level, Event("leaves the cluster", granted=granted, reason=why))
        case lifecycle_events.MustStop(why):
            _node.critical(Event("must stop", reason=why))
        case _:
            assert_never(event)
