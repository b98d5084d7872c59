"""The topics that brokers write for themselves; clients are told so and leave them alone.

They are created when first needed, with configs of their own.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from odradek.broker import node_events
from odradek.core.config import BrokerConfig
from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.message import Message

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer

GROUP_TOPIC: Final = "__consumer_offsets"
TRANSACTION_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC, "__share_group_state"})

_QUIET_MS: Final = 60_000
"""How long the same reason is not told again."""
_REPLICATION_FACTORS: Final = {
    GROUP_TOPIC: "offsets.topic.replication.factor",
    TRANSACTION_TOPIC: "transaction.state.log.replication.factor",
}

Then = Callable[[ErrorCode, str | None], None]


class InternalTopics:
    def __init__(self, broker: "BrokerServer") -> None:
        self._broker = broker
        self._waiting: dict[str, list[Then]] = {}
        self._told: dict[str, tuple[str, float]] = {}

    def ensure(self, name: str, then: Then) -> None:
        """Call ``then`` when the topic is there, or with the reason why it cannot be yet."""
        if name in self._broker.image.topics:
            then(ErrorCode.NONE, None)
            return
        if name in self._waiting:
            self._waiting[name].append(then)
            return
        self._waiting[name] = [then]
        request = CreateTopicsRequest(topics=[creatable(name, self._broker.config)])
        try:
            self._broker.refuse_if_full()
        except ApiError as error:
            self._refuse(name, f"{name} cannot be created: {error}")
            return
        self._broker.controller.ask(
            request,
            lambda reply: self._on_created(name, reply),
            lambda error: self._refuse(name, f"{name} cannot be created: {error}"),
        )

    def _on_created(self, name: str, reply: Message) -> None:
        assert isinstance(reply, CreateTopicsResponse)
        (topic,) = reply.topics
        if topic.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self._finish(name, ErrorCode.NONE, None)
            return
        # Too few brokers for its replicas, above all: they may still come.
        why = f"{name} cannot be created: {topic.error_message}{_hint(name, topic.error_code)}"
        self._refuse(name, why)

    def _refuse(self, name: str, why: str) -> None:
        now_ms = self._broker.clock.monotonic_ms()
        told, told_ms = self._told.get(name, ("", 0))
        # Clients ask several times a second.
        if told != why or now_ms - told_ms >= _QUIET_MS:
            self._told[name] = why, now_ms
            node_events.internal_topic_refused(name, why)
        self._finish(name, ErrorCode.COORDINATOR_NOT_AVAILABLE, why)

    def _finish(self, name: str, code: ErrorCode, message: str | None) -> None:
        for then in self._waiting.pop(name):
            then(code, message)


def _hint(name: str, code: int) -> str:
    setting = _REPLICATION_FACTORS.get(name)
    if setting is None or code != ErrorCode.INVALID_REPLICATION_FACTOR:
        return ""
    return f" (start more brokers, or lower {setting})"


def creatable(name: str, config: BrokerConfig) -> CreatableTopic:
    """Return what to create for a topic that was asked for by name only."""
    if name == GROUP_TOPIC:
        prefix = "offsets.topic"
        configs = {"compression.type": "producer"}
    elif name == TRANSACTION_TOPIC:
        prefix = "transaction.state.log"
        configs = {
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.integer("transaction.state.log.min.isr")),
            "unclean.leader.election.enable": "false",
        }
    else:
        return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
    configs["cleanup.policy"] = "compact"
    configs["segment.bytes"] = str(config.integer(f"{prefix}.segment.bytes"))
    return CreatableTopic(
        name=name,
        num_partitions=config.integer(f"{prefix}.num.partitions"),
        replication_factor=config.integer(f"{prefix}.replication.factor"),
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
