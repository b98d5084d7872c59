"""What real Kafka nodes say to each other, read by our protocol classes through a relay.

`SPOKEN` is what a controller listener must serve for a Kafka broker under it and Kafka voters
beside it. Run with `-s` to read the transcript.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import confluent_kafka
import pytest

from odradek.protocol.framing import open_request, open_response
from odradek.protocol.generated import broker_heartbeat, envelope, fetch, update_raft_voter
from odradek.protocol.generated.principal import DefaultPrincipalData
from odradek.protocol.versioned import decode_versioned
from odradek.quorum.raft_channel_port import Sender
from odradek.quorum.raft_requests import request_from_wire, request_to_wire
from odradek.quorum.raft_responses import leader_address_in, response_from_wire, response_to_wire
from odradek.raft.messages import VoterEndpoint
from tests.interop.clients.confluent import Confluent
from tests.interop.cluster.exchange import Call, Exchange, spoken, transcript
from tests.interop.cluster.observer import wait_until
from tests.interop.kafka_peer import KafkaBroker, KafkaQuorum, kafka_tool
from tests.interop.kafka_peer.node import CLUSTER_ID

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.usefixtures("kafka_libs")]

BY_VOTERS: Final = {
    "ApiVersions": (4,),
    "BeginQuorumEpoch": (1,),
    "ControllerRegistration": (0,),
    "EndQuorumEpoch": (1,),
    "Fetch": (18,),
    "Vote": (2,),
}
BY_A_BROKER: Final = {
    "AllocateProducerIds": (0,),
    "AssignReplicasToDirs": (0,),
    "BrokerHeartbeat": (2,),
    "BrokerRegistration": (4,),
    "CreateTopics": (7,),  # internal topics; all that clients ask for is in Envelope
    "Envelope": (0,),
    "FetchSnapshot": (1,),
}
BY_TOOLS: Final = {"DescribeCluster": (2,), "DescribeQuorum": (2,)}
RAFT: Final = {"BeginQuorumEpoch", "EndQuorumEpoch", "Fetch", "FetchSnapshot", "Vote"}
SNAPSHOT_AFTER_BYTES: Final = "2000"
CALL_SECONDS: Final = 90.0


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    """Three controllers elect twice; a broker with two directories comes, works and goes."""
    folder = tmp_path_factory.mktemp("exchange")
    frequent = {"metadata.log.max.record.bytes.between.snapshots": SNAPSHOT_AFTER_BYTES}
    with Exchange() as exchange:
        with KafkaQuorum(folder, 3, overrides=frequent, relay=exchange.relay) as quorum:
            first = wait_for_leader(exchange, lambda _: True)
            wait_for_calls(exchange, "ControllerRegistration", 3)
            leader = quorum.controllers[first - quorum.voters[0].node_id]
            wait_until(lambda: list(leader.data_dir.glob("*/*[1-9]*.checkpoint")), "no snapshot")
            leader.stop()
            wait_for_leader(exchange, lambda leader: leader != first)
            directories = f"{folder / 'broker'},{folder / 'other'}"
            overrides = {"log.dirs": directories}
            with KafkaBroker(
                folder / "broker", quorum.settings, node_id=1, overrides=overrides
            ) as broker:
                work(broker.bootstrap_servers)
                wait_for_calls(exchange, "AssignReplicasToDirs", 1)
            tool = ("metadata-quorum", "--bootstrap-controller", quorum.bootstrap_controllers)
            assert "LeaderId:" in kafka_tool(*tool, "describe", "--status").stdout
        said = exchange.calls()
    print("\n".join(transcript(said)))
    assert exchange.problems == []
    return said


def work(servers: str) -> None:
    """Create a topic, write to it with an idempotent producer, and commit offsets in a group."""
    Confluent(servers).create_topic("t", 2)
    settings = {"bootstrap.servers": servers, "enable.idempotence": True}
    producer = confluent_kafka.Producer(settings)
    producer.produce("t", b"v", partition=0)
    assert producer.flush(CALL_SECONDS) == 0
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "g"})
    place = confluent_kafka.TopicPartition("t", 0, 1)
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()


def wait_for_calls(exchange: Exchange, api: str, count: int) -> None:
    def came() -> bool:
        answered = [call for call in exchange.calls() if call.api == api and call.response]
        return len(answered) >= count

    wait_until(came, f"not {count} {api}")


def wait_for_leader(exchange: Exchange, wanted: Callable[[int], bool]) -> int:
    """Return the leader that a Fetch with records named last."""
    found: list[int] = []

    def named() -> bool:
        for call in reversed(exchange.calls()):
            if isinstance(call.response, fetch.FetchResponse) and call.response.responses:
                part = call.response.responses[0].partitions[0]
                if part.error_code == 0 and part.current_leader is not None:
                    found[:] = [part.current_leader.leader_id]
                    return wanted(found[0])
        return False

    wait_until(named, "no other leader")
    return found[0]


def test_all_of_it_is_understood_and_served_by_a_controller(calls: list[Call]) -> None:
    assert spoken(calls) == dict(sorted({**BY_VOTERS, **BY_A_BROKER, **BY_TOOLS}.items()))


def test_our_codecs_of_the_quorum_say_the_same_in_the_same_bytes(calls: list[Call]) -> None:
    said = [call for call in calls if call.api in RAFT and call.response is not None]
    assert {call.api for call in said} == RAFT
    for call in said:
        assert request_again(call) == call.request.to_bytes(call.version)
        assert response_again(call) == call.response.to_bytes(call.version)  # type: ignore[union-attr]


def request_again(call: Call) -> bytes:
    request = request_from_wire(call.request, 0, cluster_id=CLUSTER_ID, own_id=-1)
    named = getattr(call.request, "leader_endpoints", ())
    endpoints = tuple(VoterEndpoint(each.name, each.host, each.port) for each in named)
    ours = request_to_wire(
        request, Sender(CLUSTER_ID, endpoints, getattr(call.request, "max_bytes", 0))
    )
    if isinstance(ours, fetch.FetchRequest):
        # Kafka leaves the limit of the partition at 0 and means the one of the request.
        ours.topics[0].partitions[0].partition_max_bytes = 0
    return ours.to_bytes(call.version)


def response_again(call: Call) -> bytes:
    assert call.response is not None
    answer = response_from_wire(call.response, 0, sender=0)
    ours = response_to_wire(answer, leader_address_in(call.response), call.version)
    if isinstance(ours, fetch.FetchResponse) and isinstance(call.response, fetch.FetchResponse):
        # Not read by any replica of this log.
        theirs, part = (each.responses[0].partitions[0] for each in (call.response, ours))
        part.log_start_offset = theirs.log_start_offset
        part.aborted_transactions = theirs.aborted_transactions
    return ours.to_bytes(call.version)


def test_the_life_of_a_broker_in_its_heartbeats(calls: list[Call]) -> None:
    said = [
        (call.request, call.response)
        for call in calls
        if isinstance(call.request, broker_heartbeat.BrokerHeartbeatRequest)
        and isinstance(call.response, broker_heartbeat.BrokerHeartbeatResponse)
    ]
    steps: list[tuple[str, str, bool]] = []
    for asked, answer in said:
        wants = "fenced" if asked.want_fence else "shut down" if asked.want_shut_down else "at work"
        state = "fenced" if answer.is_fenced else "at work"
        state = "shut down" if answer.should_shut_down else state
        if not steps or steps[-1] != (wants, state, answer.is_caught_up):
            steps.append((wants, state, answer.is_caught_up))
    # The first one may come before the broker has read its own registration, or after.
    assert steps[-4:] == [
        ("fenced", "fenced", True),
        ("at work", "at work", True),
        ("shut down", "at work", True),
        ("shut down", "shut down", True),
    ] or steps[-3:] == [
        ("fenced", "fenced", True),
        ("at work", "at work", True),
        ("shut down", "shut down", True),
    ]
    # Directories that take no new replicas are named only when the broker has read its configs.
    assert said[0][0].cordoned_log_dirs is None
    assert said[-1][0].cordoned_log_dirs == []


def test_what_a_client_asks_for_is_forwarded_with_its_principal_and_address(
    calls: list[Call],
) -> None:
    forwarded = [call for call in calls if isinstance(call.request, envelope.EnvelopeRequest)]
    inner = []
    for call in forwarded:
        assert isinstance(call.request, envelope.EnvelopeRequest)
        assert isinstance(call.response, envelope.EnvelopeResponse)
        request = open_request(memoryview(call.request.request_data))
        inner.append((request.api.name, request.client_id))
        assert call.request.request_principal is not None
        principal = decode_versioned(DefaultPrincipalData, call.request.request_principal)
        assert (principal.type, principal.name) == ("User", "ANONYMOUS")
        assert call.request.client_host_address == bytes([127, 0, 0, 1])
        assert call.response.response_data is not None
        answer = memoryview(call.response.response_data)
        correlation_id, body = open_response(answer, request.api, request.version)
        assert correlation_id == request.correlation_id  # the client's own
        request.api.response().decode(body, request.version)
    assert ("CreateTopics", "rdkafka") in inner


def test_voters_of_a_config_tell_each_new_leader_where_they_are(tmp_path: Path) -> None:
    """Before kraft.version 1 nothing of it is in the log."""
    with (
        Exchange() as exchange,
        KafkaQuorum(tmp_path, 2, static=True, relay=exchange.relay) as quorum,
    ):
        wait_for_calls(exchange, "UpdateRaftVoter", 1)
    assert exchange.problems == []
    call = next(call for call in exchange.calls() if call.api == "UpdateRaftVoter")
    assert isinstance(call.request, update_raft_voter.UpdateRaftVoterRequest)
    assert isinstance(call.response, update_raft_voter.UpdateRaftVoterResponse)
    ports = {each.node_id: each.advertised_port for each in quorum.voters}
    assert [each.port for each in call.request.listeners] == [ports[call.request.voter_id]]
    feature = call.request.k_raft_version_feature
    assert (feature.min_supported_version, feature.max_supported_version) == (0, 1)
    assert call.response.error_code == 0
