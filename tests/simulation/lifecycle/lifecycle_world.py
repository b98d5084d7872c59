"""Brokers' lifecycles and the real controller, on virtual time, with a network that loses things.

The controller is `odradek.controller.Controller` with a metadata log that commits a little later;
on a failover what is not committed is lost and a new controller replays the rest. Brokers apply
committed records with a lag of their own. Processes crash, pause, restart, and are started twice.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Final, TypeVar

from odradek.broker.lifecycle import BrokerLifecycle, Request, Response
from odradek.broker.lifecycle_events import (
    BrokerState,
    CaughtUp,
    LifecycleSettings,
    MayStop,
    MustStop,
    StillWaiting,
    Unfenced,
)
from odradek.controller import Controller
from odradek.controller.result import Result
from odradek.controller.settings import ControllerSettings
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.metadata import SUPPORTED_FEATURES, ClusterImage
from odradek.protocol.generated.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from odradek.protocol.generated.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
)
from odradek.protocol.generated.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.message import Message

T = TypeVar("T")

CLUSTER: Final = "cluster-of-a-storm-----"
BROKERS: Final = (1, 2, 3)
SETTLE_MS: Final = 90_000
WATCH_MS: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    loss: float = 0.05
    delay_ms_max: int = 30
    timeout_ms: int = 1_000
    commit_ms_max: int = 15
    lag_ms_max: int = 60
    fault_ms: int = 4_000
    """On average, between two faults of a process or of the controller."""


class ControllerModel:
    """The active controller and its log."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.log: list[Message] = []
        self.committed = 0
        self.image = ClusterImage()
        self.unfenced: set[tuple[int, int]] = set()
        """Broker ids and epochs that were unfenced at some time, as committed."""
        self.is_up = True
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._claim()

    def _claim(self) -> None:
        settings = ControllerSettings(node_id=0, cluster_id=CLUSTER)
        self._controller = Controller(settings, None, self.image)
        self._apply(self._controller.activate(self._world.now_ms), lambda _none: None)

    def fail_over(self, away_ms: int) -> None:
        self.is_up = False
        del self.log[self.committed :]
        self._waiting.clear()
        self._world.call_later(away_ms, self._come_back)

    def _come_back(self) -> None:
        self.is_up = True
        self._claim()

    def handle(self, request: Request, reply: Callable[[Response], None]) -> None:
        if not self.is_up:
            return
        now_ms = self._world.now_ms
        try:
            if isinstance(request, BrokerHeartbeatRequest):
                heartbeat = self._controller.broker_heartbeat(request, now_ms, len(self.log))
                self._apply(heartbeat, reply)
            else:
                epoch = len(self.log)
                self._apply(self._controller.register_broker(request, now_ms, epoch), reply)
        except ApiError as error:
            if isinstance(request, BrokerHeartbeatRequest):
                reply(BrokerHeartbeatResponse(error_code=error.code))
            else:
                reply(BrokerRegistrationResponse(error_code=error.code))

    def create_topic(self) -> None:
        """Give brokers something to lead, when all of them are there for the first time."""
        unfenced = [each for each in self.image.brokers.values() if not each.fenced]
        if self.is_up and not self._controller.image.topics and len(unfenced) == len(BROKERS):
            topic = CreatableTopic(name="t", num_partitions=6, replication_factor=len(BROKERS))
            request = CreateTopicsRequest(topics=[topic])
            self._apply(
                self._controller.create_topics(request, self._world.random), lambda _reply: None
            )

    def fence_stale(self) -> None:
        if self.is_up:
            result = self._controller.fence_stale_broker(self._world.now_ms)
            self._apply(result, lambda _id: None)

    def unregister(self, broker_id: int) -> None:
        if self.is_up and broker_id in self._controller.image.brokers:
            self._apply(self._controller.unregister_broker(broker_id), lambda _reply: None)

    def _apply(self, result: Result[T], then: Callable[[T], None]) -> None:
        for record in result.records:
            self._controller.replay(record.message)
            self.log.append(record.message)
        self._waiting.append((len(self.log), lambda: then(result.reply)))
        wait_ms = self._world.random.randint(0, self._world.faults.commit_ms_max)
        controller = self._controller
        self._world.call_later(wait_ms, lambda: self._commit(controller))

    def _commit(self, controller: Controller) -> None:
        if controller is not self._controller or not self.is_up:
            return
        while self._waiting:
            end, reply = self._waiting.popleft()
            self.image = self.image.apply(self.log[self.committed : end])
            self.committed = end
            self._world.on_committed(self.image)
            reply()


class Process:
    """One start of a broker."""

    def __init__(self, world: "World", broker_id: int, previous_epoch: int) -> None:
        self.broker_id = broker_id
        self._world = world
        self.name = f"{broker_id}/{len(world.processes)}"
        registration = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER,
            incarnation_id=Uuid(world.random.randbytes(16)),
            features=[
                Feature(name=name, min_supported_version=each.min, max_supported_version=each.max)
                for name, each in SUPPORTED_FEATURES.items()
            ],
            log_dirs=[Uuid(b"the disk of no. "[:15] + bytes([broker_id]))],
            previous_broker_epoch=previous_epoch,
        )
        self.machine = BrokerLifecycle(registration, LifecycleSettings(), world.random)
        self.is_alive = True
        self.has_loaded = False
        self.is_leaving = False
        self.paused_until_ms = 0
        self.applied = -1
        self.requests = 0
        self._armed_ms = -1
        self._asked = self._answered = 0
        self.machine.start(world.now_ms)
        self.fetch()
        self.go_on()

    @property
    def epoch(self) -> int:
        return self.machine.broker_epoch

    def _later(self, wait_ms: int, call: Callable[[], None]) -> None:
        """Call this process later; not while it is paused, never when it is dead."""

        def run() -> None:
            if not self.is_alive:
                return
            if self._world.now_ms < self.paused_until_ms:
                self._later(self.paused_until_ms - self._world.now_ms, call)
                return
            call()
            self.go_on()

        self._world.call_later(wait_ms, run)

    def fetch(self) -> None:
        """Apply what is committed, a little later."""

        def apply() -> None:
            self.applied = max(self.applied, self._world.controller.committed - 1)
            self.machine.on_metadata_applied(self.applied, self._world.now_ms)

        self._later(self._world.random.randint(1, self._world.faults.lag_ms_max), apply)

    def go_on(self) -> None:
        world, machine = self._world, self.machine
        machine.tick(world.now_ms)
        request = machine.take_request(world.now_ms)
        if request is not None:
            self.requests += 1
            self._send(request)
        machine.check_invariants()
        for event in machine.take_events():
            world.note(f"{self.name} {event}")
            match event:
                case CaughtUp():
                    assert self.applied >= self.epoch, "loads logs with an old image"
                    self._later(world.random.randint(0, 3_000), self._on_loaded)
                case Unfenced():
                    world.check_unfenced(self)
                case MayStop() | MustStop():
                    world.on_end(self, event)
                case StillWaiting():
                    world.check_waiting(self)
        self._arm()

    def _on_loaded(self) -> None:
        self.has_loaded = True
        self.machine.on_logs_loaded(self._world.now_ms)

    def _arm(self) -> None:
        deadline_ms = self.machine.next_deadline_ms()
        if deadline_ms is None or deadline_ms == self._armed_ms:
            return
        self._armed_ms = deadline_ms

        def due() -> None:
            if self._armed_ms == deadline_ms:
                self._armed_ms = -1

        # All else is in ``go_on``, which comes after every call.
        self._later(max(deadline_ms - self._world.now_ms, 0), due)

    def _send(self, request: Request) -> None:
        world = self._world
        self._asked += 1
        number = self._asked

        def answered(outcome: Response | ApiError) -> None:
            if number != self._asked or number == self._answered:
                return
            self._answered = number
            if isinstance(outcome, ApiError):
                self.machine.on_failure(outcome, world.now_ms)
            else:
                self.machine.on_response(outcome, world.now_ms)

        def reply(response: Response) -> None:
            if not world.loses():
                self._later(world.delay_ms(), lambda: answered(response))

        if not world.loses():
            world.call_later(world.delay_ms(), lambda: world.controller.handle(request, reply))
        timed_out = ApiError(ErrorCode.REQUEST_TIMED_OUT, "no answer")
        self._later(world.faults.timeout_ms, lambda: answered(timed_out))


@dataclass(slots=True)
class World:
    seed: int
    faults: Faults = field(default_factory=Faults)
    now_ms: int = 0
    history: list[str] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    random: Random = field(init=False)
    controller: ControllerModel = field(init=False)
    is_calm: bool = False
    _heap: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    _count: int = 0
    _clean_epochs: dict[int, int] = field(default_factory=dict)
    _unregistered: set[int] = field(default_factory=set)
    _expected_fenced: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.controller = ControllerModel(self)
        for broker_id in BROKERS:
            self.begin(broker_id)
        self._watch_sessions()
        self._next_fault()

    # Time.

    def call_later(self, wait_ms: int, call: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._heap, (self.now_ms + wait_ms, self._count, call))

    def run(self, for_ms: int) -> None:
        end_ms = self.now_ms + for_ms
        while self._heap and self._heap[0][0] <= end_ms:
            self.now_ms, _, call = heappop(self._heap)
            call()
        self.now_ms = end_ms

    def settle(self) -> None:
        """Let nothing more go wrong: every broker must be at work then, once."""
        self.is_calm = True
        for broker_id in BROKERS:
            if not self.alive(broker_id):
                self.begin(broker_id)
        self.run(SETTLE_MS)
        before = {process.name: process.requests for process in self.processes}
        self.run(WATCH_MS)
        for broker_id in BROKERS:
            at_work = [each for each in self.alive(broker_id) if not each.machine.is_fenced]
            assert len(at_work) == 1, f"{self.seed}: {len(at_work)} processes of {broker_id} serve"
            (process,) = at_work
            assert process.machine.state is BrokerState.RUNNING
            broker = self.controller.image.brokers[broker_id]
            assert (broker.epoch, broker.fenced) == (process.epoch, False)
            assert self.alive(broker_id) == [process], "a second process has not given up"
        for process in self.processes:
            sent = process.requests - before[process.name]
            assert sent <= WATCH_MS / 2_000 + 1, "heartbeats without a pause"

    def note(self, line: str) -> None:
        self.history.append(f"{self.now_ms} {line}")

    # The network.

    def loses(self) -> bool:
        return not self.is_calm and self.random.random() < self.faults.loss

    def delay_ms(self) -> int:
        return self.random.randint(0, self.faults.delay_ms_max)

    # Processes.

    def alive(self, broker_id: int) -> list[Process]:
        return [each for each in self.processes if each.broker_id == broker_id and each.is_alive]

    def begin(self, broker_id: int) -> None:
        process = Process(self, broker_id, self._clean_epochs.pop(broker_id, -1))
        self.processes.append(process)
        self.note(f"{process.name} starts")

    def on_end(self, process: Process, event: MayStop | MustStop) -> None:
        process.is_alive = False
        broker = self.controller.image.brokers.get(process.broker_id)
        if isinstance(event, MustStop):
            self._check_must_stop(process, event)
        else:
            assert process.is_leaving, "it was not asked to leave"
            if event.granted:
                is_gone = broker is None or broker.epoch != process.epoch or broker.fenced
                assert is_gone, f"{process.name} leaves while it leads"
                self._clean_epochs[process.broker_id] = process.epoch
        self.call_later(self.random.randint(0, 5_000), lambda: self._begin_again(process.broker_id))

    def _begin_again(self, broker_id: int) -> None:
        if not self.alive(broker_id):
            self.begin(broker_id)

    # What must hold.

    def on_committed(self, image: ClusterImage) -> None:
        for process in self.processes:
            process.fetch()
        for broker in image.brokers.values():
            key = broker.broker_id, broker.epoch
            if not broker.fenced and key not in self.controller.unfenced:
                self.controller.unfenced.add(key)
                for process in self.processes:
                    if (process.broker_id, process.epoch) == key:
                        assert process.has_loaded, f"{process.name} leads before it has its logs"

    def check_unfenced(self, process: Process) -> None:
        assert (process.broker_id, process.epoch) in self.controller.unfenced
        assert process.has_loaded
        assert process.applied >= process.epoch, "serves clients with an image that lacks it"

    def check_waiting(self, process: Process) -> None:
        others = [each for each in self.processes if each.broker_id == process.broker_id]
        assert len(others) > 1, "it waits for a predecessor and there was none"

    def _check_must_stop(self, process: Process, event: MustStop) -> None:
        broker = self.controller.image.brokers.get(process.broker_id)
        is_replaced = broker is None or broker.epoch != process.epoch
        was_taken = process.broker_id in self._unregistered
        if "no controller registered" in event.why:
            assert process.epoch == -1
        else:
            assert is_replaced or was_taken, f"{process.name} stops without a reason: {event}"

    # Faults.

    def _watch_sessions(self) -> None:
        self.controller.create_topic()
        self.controller.fence_stale()
        self.call_later(250, self._watch_sessions)

    def _next_fault(self) -> None:
        wait_ms = round(self.random.expovariate(1 / self.faults.fault_ms))
        self.call_later(wait_ms, self._fault)

    def _fault(self) -> None:
        if self.is_calm:
            return
        broker_id = self.random.choice(BROKERS)
        alive = self.alive(broker_id)
        kind = self.random.choice(
            ("crash", "pause", "leave", "leave", "failover", "twin", "forget")
        )
        self.note(f"fault: {kind} {broker_id}")
        if kind == "failover":
            self.controller.fail_over(self.random.randint(100, 4_000))
        elif kind == "twin":
            self.begin(broker_id)
        elif kind == "forget":
            if self.random.random() < 0.5:
                self._unregistered.add(broker_id)
                self.controller.unregister(broker_id)
        elif alive:
            self._hit(kind, alive[0])
        self._next_fault()

    def _hit(self, kind: str, process: Process) -> None:
        if kind == "crash":
            process.is_alive = False
            self._clean_epochs.pop(process.broker_id, None)
            wait_ms = self.random.randint(0, 15_000)
            self.call_later(wait_ms, lambda: self._begin_again(process.broker_id))
        elif kind == "pause":
            process.paused_until_ms = self.now_ms + self.random.randint(100, 20_000)
        else:
            process.is_leaving = True
            process.machine.begin_shutdown(self.now_ms)
            process.go_on()
