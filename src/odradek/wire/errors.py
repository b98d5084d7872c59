"""Why a request to another node failed. One tree: ``except KafkaError`` catches all of it.

``odradek.client.errors`` gives these names to users of the clients. A refusal by a broker carries
its wire code; ``retriable`` tells whether trying again can help, and the message ends with what to
do where that is known.
"""

from collections.abc import Mapping
from typing import Final

from odradek.core.errors import ErrorCode, OdradekError

_STATUS: Final = "`odradek local status --bootstrap-server HOST:PORT`"
_CODES: Final = {int(code): code for code in ErrorCode}
_WHAT_TO_DO: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "create the topic, or check its name",
    ErrorCode.TOPIC_ALREADY_EXISTS: "choose another name, or use the topic that is there",
    ErrorCode.MESSAGE_TOO_LARGE: "raise max.message.bytes of the topic, or send less at once",
    ErrorCode.RECORD_LIST_TOO_LARGE: "raise segment.bytes of the topic, or send less at once",
    ErrorCode.LEADER_NOT_AVAILABLE: f"start a replica that may lead: {_STATUS} names those",
    ErrorCode.NOT_ENOUGH_REPLICAS: (
        f"start the replicas that are not in sync, which {_STATUS} names, or wait until they have"
        " caught up"
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "the records are written, but replicas left the ISR meanwhile: start those that are"
        f" missing, which {_STATUS} names"
    ),
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: (
        "stop the other process with this broker id, or wait until its session is over:"
        " broker.session.timeout.ms after its last heartbeat"
    ),
    ErrorCode.OFFSET_OUT_OF_RANGE: "seek to an offset that the log still has",
    ErrorCode.NON_EMPTY_GROUP: "stop the group's consumers first",
    ErrorCode.FENCED_INSTANCE_ID: "another consumer uses this group.instance.id: give each its own",
    ErrorCode.PRODUCER_FENCED: "another producer uses this transactional.id: close this one",
    ErrorCode.INVALID_PRODUCER_EPOCH: "close this producer and make a new one",
    ErrorCode.TRANSACTION_ABORTABLE: "abort the transaction and try it again",
    ErrorCode.UNSUPPORTED_VERSION: "the broker is too old for this",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "raise group.max.size, or use fewer consumers",
    ErrorCode.INVALID_SESSION_TIMEOUT: "keep session.timeout.ms within the broker's limits",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "ask for the right to use this topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "ask for the right to use this group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ask for the right to administer this cluster",
}


class KafkaError(OdradekError):
    """Anything that can go wrong between the two ends of a connection."""

    retriable = False


def describe_code(code: ErrorCode) -> str:
    """Return the name of a code, with what to do where that is known."""
    advice = _WHAT_TO_DO.get(code)
    return code.name if advice is None else f"{code.name} ({advice})"


class BrokerError(KafkaError):
    """A broker refused; ``code`` says why, ``message`` does in its own words if it has any.

    ``advice`` says what to do, where that is not what the code itself calls for.
    """

    def __init__(
        self, code: int, message: str | None = None, *, about: str = "", advice: str = ""
    ) -> None:
        self.code = _CODES.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)
        self.about = about
        self.message = message
        parts = [f"{about}: " if about else "", self.code.name]
        if message:
            parts.append(f": {message}")
        advice = advice or _WHAT_TO_DO.get(self.code, "")
        if advice:
            parts.append(f" ({advice})")
        super().__init__("".join(parts))

    @property
    def retriable(self) -> bool:  # type: ignore[override]  # a class attribute in the base
        return self.code.retriable


class ConnectionLostError(KafkaError):
    """A connection broke, or could not be made. Whether the request was carried out is unknown."""

    retriable = True


class KafkaTimeoutError(KafkaError, TimeoutError):
    """Something took longer than the caller wanted to wait."""

    retriable = True


class UnsupportedError(KafkaError):
    """The broker does not speak what this needs."""


class AuthenticationError(KafkaError):
    """A broker does not believe that we are who we say, or cannot show that it is one of ours."""


class ConfigurationError(KafkaError, ValueError):
    """A setting is unknown, of the wrong kind, or does not go with another."""


def check(code: int, message: str | None = None, *, about: str = "") -> None:
    """Raise what a code of a response means, unless it is NONE."""
    if code:
        raise BrokerError(code, message, about=about)
