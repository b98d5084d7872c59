"""A controller's role on a quorum of which the test says what is committed, and on its own time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from odradek.control.controller_server import ControllerServer
from odradek.core.config import BrokerConfig, load_broker_config
from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.metadata.features import SUPPORTED_FEATURES
from odradek.protocol.apis import Api, api_named
from odradek.protocol.generated.broker_heartbeat import BrokerHeartbeatRequest
from odradek.protocol.generated.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from odradek.protocol.generated.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.generated.metadata_records import BrokerRegistrationChangeRecord
from odradek.protocol.message import Message
from odradek.quorum.active_controller import Caller
from tests.unit.control.quorum_stand_in import StandInQuorum, Turns

CLUSTER_ID = "cluster-a"
LISTENER = "CONTROLLER"


def config(**texts: str) -> BrokerConfig:
    base = {
        "process.roles": "controller",
        "node.id": "1",
        "listeners": "CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": LISTENER,
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "log.dirs": "/data",
        **{name.replace("_", "."): text for name, text in texts.items()},
    }
    return load_broker_config(base=base).config


@dataclass
class ManualTimers:
    """Timers that fire when the test moves the clock on; a clock as well."""

    time_ms: int = 1_000
    due: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    armed: int = 0

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> int:
        return self.time_ms

    def monotonic_us(self) -> int:
        return self.time_ms * 1_000

    def call_later(self, seconds: float, call: Callable[[], None]) -> "_Timer":
        self.armed += 1
        entry = (self.time_ms + round(seconds * 1_000), self.armed, call)
        self.due.append(entry)
        return _Timer(self, entry)

    def advance(self, time_ms: int) -> None:
        """Move on, and call what becomes due, each at its time."""
        end_ms = self.time_ms + time_ms
        while self.due and min(self.due)[0] <= end_ms:
            entry = min(self.due)
            self.due.remove(entry)
            self.time_ms = max(self.time_ms, entry[0])
            entry[2]()
        self.time_ms = end_ms

    def sleep(self, time_ms: int) -> None:
        """Move on as a node does that was stopped: timers fire late."""
        self.time_ms += time_ms
        self.advance(0)


@dataclass
class _Timer:
    timers: ManualTimers
    entry: tuple[int, int, Callable[[], None]]

    def cancel(self) -> None:
        if self.entry in self.timers.due:
            self.timers.due.remove(self.entry)


class ControlSite:
    def __init__(self, **texts: str) -> None:
        self.quorum = StandInQuorum()
        self.turns = Turns()
        self.timers = ManualTimers()
        self.server = ControllerServer(
            config(**texts),
            self.quorum,
            cluster_id=CLUSTER_ID,
            clock=self.timers,
            random=Random(1),
            slices=self.turns.slices,
            call_later=self.timers.call_later,
        )

    def lead(self) -> None:
        self.quorum.lead(self.server)
        self.commit()

    def commit(self) -> None:
        self.turns.take_all()
        self.quorum.commit(self.server)

    def lose(self) -> None:
        self.quorum.leader_id = 2
        self.server.on_leadership_lost()
        self.quorum.epoch += 1

    def ask(self, request: Message, version: int | None = None) -> Message:
        """Have a request answered, with all that it takes."""
        answers = self.send(request, version)
        self.commit()
        (answer,) = answers
        return answer

    def send(self, request: Message, version: int | None = None) -> list[Message]:
        """Send a request; the list gets its answer."""
        answers: list[Message] = []
        self.server.apis.handle(request, caller(request, version), answers.append)
        return answers

    def register(self, broker_id: int) -> int:
        response = self.ask(registration(broker_id))
        assert isinstance(response, BrokerRegistrationResponse)
        assert response.error_code == ErrorCode.NONE
        return response.broker_epoch

    def start_broker(self, broker_id: int) -> int:
        epoch = self.register(broker_id)
        self.beat(broker_id, epoch)
        return epoch

    def beat(self, broker_id: int, epoch: int) -> Message:
        offset = self.quorum.log_end_offset
        return self.ask(
            BrokerHeartbeatRequest(
                broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=offset
            )
        )

    @property
    def fencings(self) -> int:
        """How often a broker was fenced after it had been unfenced."""
        return sum(
            isinstance(record, BrokerRegistrationChangeRecord) and record.fenced > 0
            for batch in self.quorum.batches
            for record in batch
        )

    @property
    def fenced(self) -> list[int]:
        return [
            each.broker_id for each in self.server.control.image.brokers.values() if each.fenced
        ]


def api_of(request: Message) -> Api:
    return api_named(type(request).__name__.removesuffix("Request"))


def caller(request: Message, version: int | None = None) -> Caller:
    api = api_of(request)
    newest = api.version_stable_max if version is None else version
    return Caller(api, newest, "User:alice", LISTENER, "192.0.2.1", "a-client")


def registration(broker_id: int) -> BrokerRegistrationRequest:
    features = {**SUPPORTED_FEATURES}
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=Uuid.random(Random(broker_id)),
        listeners=[Listener(name="PLAINTEXT", host="h", port=9092 + broker_id)],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in features.items()
        ],
        log_dirs=[Uuid.random(Random(100 + broker_id))],
    )


def new_topics(*names: str, replicas: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=1, replication_factor=replicas)
            for name in names
        ]
    )
