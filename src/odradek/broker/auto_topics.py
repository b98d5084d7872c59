"""Topics that are created because a client asked for them by name (``auto.create.topics.enable``).

The client's Metadata is answered at once, with UNKNOWN_TOPIC_OR_PARTITION, and the client asks
again. The controller is asked in the client's name, once for a topic, however many clients ask. Why
it refused is the answer to the next Metadata that names the topic: without it a client would wait
for a topic that cannot exist, and not know why.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from odradek.broker.context import RequestContext
from odradek.broker.internal_topics import creatable
from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.generated.create_topics import CreateTopicsRequest, CreateTopicsResponse
from odradek.protocol.message import Message

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer

RECORDS_MAX: Final = 1_000
"""Records of one change that creates topics because clients asked for them."""
REFUSED_MAX: Final = 1_000
"""Topics whose refusal is remembered; the oldest is forgotten first."""
TIMEOUT_MS: Final = 30_000

_NOT_REMEMBERED: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,  # the next Metadata names it
        # Clients ask again by themselves after these.
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


class AutoTopics:
    def __init__(self, broker: "BrokerServer") -> None:
        self._broker = broker
        self._creating: set[str] = set()
        self._refused: dict[str, ErrorCode] = {}

    def create_soon(self, client: RequestContext, names: Iterable[str]) -> None:
        """Create topics that a client asked for, with the defaults."""
        if not self._broker.may_have_space:
            return
        wanted = [name for name in dict.fromkeys(names) if name not in self._creating]
        # No more in one change than it may have records, else it would be refused as a whole.
        count_max = max(RECORDS_MAX // (self._broker.config.num_partitions + 1), 1)
        for start in range(0, len(wanted), count_max):
            self._create(client, wanted[start : start + count_max])

    def take_refusal(self, name: str) -> ErrorCode | None:
        """Return why the topic could not be created; once."""
        return self._refused.pop(name, None)

    def _create(self, client: RequestContext, names: Sequence[str]) -> None:
        self._creating.update(names)
        topics = [creatable(name, self._broker.config) for name in names]
        request = CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)

        def created(response: Message) -> None:
            assert isinstance(response, CreateTopicsResponse)
            self._creating.difference_update(names)
            for topic in response.topics:
                self._remember(topic.name, ErrorCode(topic.error_code))

        def failed(error: ApiError) -> None:
            self._creating.difference_update(names)
            for name in names:
                self._remember(name, error.code)

        self._broker.controller.ask(request, created, failed, client=client)

    def _remember(self, name: str, code: ErrorCode) -> None:
        if code in _NOT_REMEMBERED:
            return
        self._refused.pop(name, None)
        self._refused[name] = code
        if len(self._refused) > REFUSED_MAX:
            del self._refused[next(iter(self._refused))]
