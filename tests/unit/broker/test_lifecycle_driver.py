"""A broker's lifecycle on a loop, with a controller that answers at once, later, or not at all."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from random import Random
from typing import Any

import pytest

from odradek.broker.lifecycle import BrokerLifecycle
from odradek.broker.lifecycle_driver import (
    LifecycleDriver,
    LifecycleEndedError,
    lifecycle_settings,
)
from odradek.broker.lifecycle_events import BrokerState, LifecycleSettings
from odradek.controller import Controller
from odradek.controller.settings import ControllerSettings
from odradek.core.config import STANDALONE, load_broker_config, parse_overrides
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.metadata import SUPPORTED_FEATURES
from odradek.protocol.generated.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from odradek.protocol.generated.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
)
from odradek.protocol.message import Message
from odradek.testing.simulation import World

SECONDS_MAX = 120


class ControllerHere:
    """A channel to a real controller, whose records are committed at once."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._controller = Controller(ControllerSettings(node_id=9, cluster_id="c"))
        self._records = 0
        self.is_reachable = True
        self.is_slow = False
        self.is_closed = False
        self.requests: list[Message] = []
        self._apply(self._controller.activate(now_ms()).records)

    @property
    def last_offset(self) -> int:
        return self._records - 1

    def ask(
        self,
        request: Message,
        then: Callable[[Message], None],
        failed: Callable[[ApiError], None],
    ) -> None:
        self.requests.append(request)
        loop = asyncio.get_running_loop()
        if not self.is_reachable:
            error = ApiError(ErrorCode.REQUEST_TIMED_OUT, "no controller is reachable")
            loop.call_later(1, failed, error)
        elif self.is_slow:
            loop.call_later(0.02, then, self._answer(request))
        else:
            then(self._answer(request))

    def _answer(self, request: Message) -> Message:
        now_ms, offset = self._now_ms(), self._records
        try:
            if isinstance(request, BrokerHeartbeatRequest):
                heartbeat = self._controller.broker_heartbeat(request, now_ms, offset)
                self._apply(heartbeat.records)
                return heartbeat.reply
            assert isinstance(request, BrokerRegistrationRequest)
            registered = self._controller.register_broker(request, now_ms, offset)
            self._apply(registered.records)
        except ApiError as error:
            if isinstance(request, BrokerHeartbeatRequest):
                return BrokerHeartbeatResponse(error_code=error.code)
            return BrokerRegistrationResponse(error_code=error.code)
        return registered.reply

    def unregister(self, broker_id: int) -> None:
        self._apply(self._controller.unregister_broker(broker_id).records)

    def _apply(self, records: Any) -> None:
        for record in records:
            self._controller.replay(record.message)
            self._records += 1

    def close(self) -> None:
        self.is_closed = True


class Broker:
    def __init__(self, world: World, channel: ControllerHere | None = None) -> None:
        self._world = world
        self.sim = world.add_node(f"b{len(world.nodes)}")
        self.channel = channel or ControllerHere(self.sim.clock.monotonic_ms)
        registration = BrokerRegistrationRequest(
            broker_id=1,
            cluster_id="c",
            incarnation_id=Uuid.random(world.random(self.sim.name)),
            features=[
                Feature(name=name, min_supported_version=each.min, max_supported_version=each.max)
                for name, each in SUPPORTED_FEATURES.items()
            ],
            log_dirs=[Uuid(b"x" * 16)],
        )
        self.ends: list[str] = []
        self.driver = LifecycleDriver(
            BrokerLifecycle(registration, LifecycleSettings(), Random(1)),
            self.channel,
            self.sim.clock,
            on_must_stop=self.ends.append,
        )

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._world.run_until_done(self.sim.spawn(coroutine), SECONDS_MAX)

    async def start(self) -> None:
        self.driver.start()
        self.driver.on_metadata_applied(self.channel.last_offset)
        await self.driver.until_caught_up()
        self.driver.on_logs_loaded()
        await self.driver.until_unfenced()


@pytest.fixture
def world() -> Iterator[World]:
    with World(1) as made:
        yield made


def test_with_a_controller_in_the_process_a_start_takes_no_time(world: World) -> None:
    broker = Broker(world)
    begun_ms = broker.sim.clock.monotonic_ms()
    broker.run(broker.start())
    assert broker.sim.clock.monotonic_ms() == begun_ms
    assert broker.driver.state is BrokerState.RUNNING
    assert not broker.driver.is_fenced
    assert broker.driver.broker_epoch > 0


def test_heartbeats_go_on_by_themselves_until_the_driver_is_closed(world: World) -> None:
    broker = Broker(world)
    broker.channel.is_slow = True
    broker.run(broker.start())
    before = len(broker.channel.requests)
    world.run_for(21)
    assert len(broker.channel.requests) - before == 10

    async def close() -> None:
        broker.driver.close()

    broker.run(close())
    assert broker.channel.is_closed
    world.run_for(60)
    assert len(broker.channel.requests) - before == 10


def test_a_broker_leaves_when_the_controller_says_so(world: World) -> None:
    broker = Broker(world)
    broker.run(broker.start())
    left = broker.run(broker.driver.leave())
    assert left.granted
    assert broker.driver.state is BrokerState.SHUTTING_DOWN
    again = Broker(world, broker.channel)
    again.run(again.start())  # no session is in the way
    assert again.driver.broker_epoch > broker.driver.broker_epoch


def test_a_broker_leaves_after_five_seconds_without_a_controller(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(world)
    broker.run(broker.start())
    broker.channel.is_reachable = False
    begun_ms = broker.sim.clock.monotonic_ms()
    with caplog.at_level(logging.INFO, "odradek.node"):
        assert not broker.run(broker.driver.leave()).granted
    assert broker.sim.clock.monotonic_ms() - begun_ms == 5_000
    assert "no controller has answered" in caplog.text


def test_whoever_waits_for_a_broker_that_must_stop_is_given_the_reason(world: World) -> None:
    broker = Broker(world)
    broker.channel.is_reachable = False
    with pytest.raises(LifecycleEndedError, match="no controller registered this broker in 60 s"):
        broker.run(broker.start())
    assert len(broker.ends) == 1


def test_a_broker_that_was_unregistered_stops_with_one_line(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(world)
    broker.run(broker.start())
    broker.channel.unregister(1)
    with caplog.at_level(logging.WARNING, "odradek.node"):
        world.run_for(60)
    assert len(broker.ends) == 1
    assert len(caplog.records) == 1
    assert broker.driver.state is BrokerState.SHUTTING_DOWN


def test_the_settings_are_those_of_the_configs() -> None:
    texts = {
        "broker.heartbeat.interval.ms": "1000",
        "broker.session.timeout.ms": "6000",
        "initial.broker.registration.timeout.ms": "5000",
        "log.dir.failure.timeout.ms": "7000",
        "controlled.shutdown.enable": "false",
    }
    overrides = parse_overrides(f"{name}={value}" for name, value in texts.items())
    assert lifecycle_settings(
        load_broker_config(overrides, base=STANDALONE).config
    ) == LifecycleSettings(
        heartbeat_interval_ms=1_000,
        session_ms=6_000,
        registration_ms_max=5_000,
        directory_failure_ms_max=7_000,
        controlled_shutdown=False,
    )
