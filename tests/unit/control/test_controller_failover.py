"""Three controllers on a metadata quorum with disks: one decides, and another goes on."""

from dataclasses import dataclass
from functools import partial

import pytest

from odradek.control.controller_server import ControllerServer
from odradek.core.errors import ErrorCode
from odradek.core.slices import Slices
from odradek.protocol.generated.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from odradek.protocol.generated.broker_registration import BrokerRegistrationResponse
from odradek.protocol.generated.create_topics import CreateTopicsResponse
from odradek.protocol.message import Message
from odradek.protocol.refusals import error_codes
from odradek.testing.simulation.clocks import SimClock
from tests.unit.control.control_site import config, new_topics, registration
from tests.unit.quorum.quorum_members import CLUSTER_ID, Member, QuorumCluster


@dataclass
class Controllers:
    """A controller on each member; ``lives`` of the member bound what its timers do."""

    cluster: QuorumCluster
    servers: dict[int, ControllerServer]

    @classmethod
    def started(cls, seed: int) -> "Controllers":
        made = cls(QuorumCluster(seed), {})
        for member in made.cluster.members.values():
            made.start(member)
        return made

    def start(self, member: Member) -> None:
        member.start()
        world = self.cluster.world
        clock = SimClock(lambda: world.now)
        server = ControllerServer(
            config(node_id=str(member.id), **VOTERS),
            member.quorum,
            cluster_id=CLUSTER_ID,
            clock=clock,
            random=world.random(f"controller {member.id}/{member.lives}"),
            slices=Slices(clock.monotonic_us, lambda call: member._call_later(0, call)),
            call_later=member._call_later,
        )
        self.servers[member.id] = server
        member.quorum.add_listener(server)  # no vote has been counted yet

    def active(self) -> ControllerServer:
        def actives() -> list[ControllerServer]:
            servers = [self.servers[each.id] for each in self.cluster.up()]
            return [each for each in servers if each.host.is_active]

        self.cluster.run_until(lambda: len(actives()) == 1)
        return actives()[0]

    def member(self, server: ControllerServer) -> Member:
        return self.cluster.members[server.control.config.node_id]

    def ask(self, request: Message) -> Message:
        """Ask the active controller until one answers, as a broker does."""
        while True:
            answers: list[Message] = []
            self.active().handle_own(request, answers.append)
            self.cluster.run_until(partial(bool, answers))
            if ErrorCode.NOT_CONTROLLER not in error_codes(answers[0]):
                return answers[0]

    def register(self, broker_id: int) -> int:
        request = registration(broker_id)
        request.cluster_id = CLUSTER_ID
        answer = self.ask(request)
        assert isinstance(answer, BrokerRegistrationResponse)
        assert answer.error_code == ErrorCode.NONE
        return answer.broker_epoch

    def beat(self, broker_id: int, epoch: int) -> BrokerHeartbeatResponse:
        offset = self.active().control.quorum.committed_image.provenance.last_offset
        answer = self.ask(
            BrokerHeartbeatRequest(
                broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=offset
            )
        )
        assert isinstance(answer, BrokerHeartbeatResponse)
        return answer

    def create(self, *names: str) -> dict[str, int]:
        answer = self.ask(new_topics(*names))
        assert isinstance(answer, CreateTopicsResponse)
        return {each.name: each.error_code for each in answer.topics}


VOTERS = {"controller_quorum_voters": "1@host-1:9001,2@host-2:9002,3@host-3:9003"}


def begun(seed: int) -> tuple[Controllers, int]:
    """Return controllers with one broker, and its epoch."""
    controllers = Controllers.started(seed)
    epoch = controllers.register(101)
    assert not controllers.beat(101, epoch).is_fenced
    return controllers, epoch


@pytest.mark.parametrize("seed", range(5))
def test_another_controller_goes_on_with_all_that_was_answered(seed: int) -> None:
    controllers, epoch = begun(seed)
    assert controllers.create("orders") == {"orders": ErrorCode.NONE}
    first = controllers.active()
    controllers.member(first).kill()
    assert controllers.create("orders", "payments") == {
        "orders": ErrorCode.TOPIC_ALREADY_EXISTS,
        "payments": ErrorCode.NONE,
    }
    assert controllers.active() is not first
    assert not controllers.beat(101, epoch).is_fenced, "sessions began anew"


@pytest.mark.parametrize("seed", range(5))
def test_a_controller_that_is_cut_off_answers_nobody_and_forgets(seed: int) -> None:
    controllers, _ = begun(seed)
    first = controllers.active()
    member = controllers.member(first)
    controllers.cluster.isolate(member)
    answers: list[Message] = []
    first.handle_own(new_topics("lost"), answers.append)
    assert answers == []
    others = [each for each in controllers.cluster.up() if each is not member]
    controllers.cluster.run_until(
        lambda: (
            any(controllers.servers[each.id].host.is_active for each in others)
            and not first.host.is_active
        )
    )
    assert [set(error_codes(each)) for each in answers] == [{0, ErrorCode.NOT_CONTROLLER}]
    controllers.cluster.cut.clear()
    assert controllers.create("kept") == {"kept": ErrorCode.NONE}
    controllers.cluster.run_until(lambda: "kept" in member.topics)
    assert "lost" not in member.topics


def test_a_broker_that_died_with_the_controller_is_fenced_by_the_next() -> None:
    controllers, _ = begun(11)
    controllers.member(controllers.active()).kill()
    successor = controllers.active()
    image = successor.control.quorum.committed_image
    assert not image.brokers[101].fenced
    begun_at = controllers.cluster.world.now
    controllers.cluster.run_until(
        lambda: controllers.active().control.image.brokers[101].fenced, seconds=30
    )
    assert 8 < controllers.cluster.world.now - begun_at < 12


def test_a_controller_that_comes_back_follows_and_may_lead_again() -> None:
    controllers, _ = begun(12)
    first = controllers.member(controllers.active())
    first.kill(power=True)
    assert controllers.create("meanwhile") == {"meanwhile": ErrorCode.NONE}
    controllers.start(first)
    controllers.cluster.run_until(lambda: "meanwhile" in first.topics)
    second = controllers.member(controllers.active())
    second.kill()
    assert controllers.create("later") == {"later": ErrorCode.NONE}
    controllers.cluster.run_until(lambda: {"meanwhile", "later"} <= first.topics)


def test_idle_controllers_keep_the_log_moving_for_those_that_follow() -> None:
    controllers, _ = begun(13)
    ends = [each.quorum.loaded_offset for each in controllers.cluster.up()]
    controllers.cluster.world.run_for(3)
    moved = [
        each.quorum.loaded_offset - end
        for each, end in zip(controllers.cluster.up(), ends, strict=True)
    ]
    assert all(4 <= each <= 7 for each in moved)
