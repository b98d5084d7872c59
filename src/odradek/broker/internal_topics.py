"""The topics that brokers write for themselves; clients are told so and leave them alone.

They are created when first needed, with configs of their own.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from odradek.core.config import BrokerConfig
from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from odradek.broker.node import Node

GROUP_TOPIC: Final = "__consumer_offsets"
TRANSACTION_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC, "__share_group_state"})

Then = Callable[[ErrorCode, str | None], None]


class InternalTopics:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._waiting: dict[str, list[Then]] = {}

    def ensure(self, name: str, then: Then) -> None:
        """Call ``then`` when the topic is there, or with the reason why it cannot be yet."""
        if name in self._node.image.topics:
            then(ErrorCode.NONE, None)
            return
        if name in self._waiting:
            self._waiting[name].append(then)
            return
        self._waiting[name] = [then]
        request = CreateTopicsRequest(topics=[creatable(name, self._node.config)])
        try:
            self._node.change(
                lambda controller: controller.create_topics(request, self._node.random),
                lambda reply: self._on_created(name, reply),
            )
        except ApiError as error:
            self._finish(name, ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))

    def _on_created(self, name: str, reply: CreateTopicsResponse) -> None:
        (topic,) = reply.topics
        if topic.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self._finish(name, ErrorCode.NONE, None)
            return
        # Too few brokers for its replicas, above all: they may still come.
        why = f"{name} cannot be created: {topic.error_message}"
        self._finish(name, ErrorCode.COORDINATOR_NOT_AVAILABLE, why)

    def _finish(self, name: str, code: ErrorCode, message: str | None) -> None:
        for then in self._waiting.pop(name):
            then(code, message)


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
