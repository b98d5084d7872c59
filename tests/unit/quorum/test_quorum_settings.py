"""The configs of the quorum reach it."""

from odradek.core.config import STANDALONE, Address, load_broker_config, parse_overrides
from odradek.quorum.quorum_settings import QuorumSettings
from odradek.raft.config import RaftConfig
from odradek.raft.messages import VoterEndpoint

CLUSTER = {
    "process.roles": "broker,controller",
    "node.id": "2",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@one:9093,2@two:9094",
}


def settings(more: dict[str, str]) -> QuorumSettings:
    overrides = [f"{name}={value}" for name, value in {**CLUSTER, **more}.items()]
    config = load_broker_config(parse_overrides(overrides), base=STANDALONE).config
    return QuorumSettings.of(config)


def test_times_and_limits() -> None:
    found = settings(
        {
            "controller.quorum.election.timeout.ms": "11",
            "controller.quorum.election.backoff.max.ms": "12",
            "controller.quorum.fetch.timeout.ms": "13",
            "controller.quorum.request.timeout.ms": "14",
            "controller.quorum.retry.backoff.ms": "15",
            "controller.quorum.fetch.snapshot.max.bytes": "16",
            "controller.quorum.fetch.max.bytes": "17",
        }
    )
    assert found.raft == RaftConfig(
        election_timeout_ms=11,
        election_backoff_max_ms=12,
        fetch_timeout_ms=13,
        request_timeout_ms=14,
        retry_backoff_ms=15,
        fetch_snapshot_max_bytes=16,
    )
    assert found.fetch_max_bytes == 17
    assert settings({}).raft == RaftConfig()


def test_voters_and_listeners() -> None:
    found = settings({})
    assert found.static_voters == {1: Address("one", 9093), 2: Address("two", 9094)}
    assert found.listener == "CONTROLLER"
    assert found.endpoints == (VoterEndpoint("CONTROLLER", "127.0.0.1", 9093),)
    assert found.can_become_voter
    assert not found.is_alone


def test_a_node_that_is_only_a_broker_never_votes() -> None:
    found = settings(
        {
            "process.roles": "broker",
            "node.id": "3",
            "listeners": "PLAINTEXT://127.0.0.1:9092",
        }
    )
    assert not found.can_become_voter
    assert found.endpoints == ()
