"""Requests that change the voters, and their responses, on the wire (KIP-853).

They name no topic. An operator sends AddRaftVoter and RemoveRaftVoter, through a broker or to a
controller; so does a controller that joins by itself. A voter sends UpdateRaftVoter. Before a
leader adds a voter it asks it for its ApiVersions, at the endpoint that the request names: the log
does not know it yet.
"""

from collections.abc import Iterable
from typing import Final

from odradek.core.errors import ErrorCode
from odradek.core.ids import ZERO_UUID, Uuid
from odradek.protocol.generated import (
    add_raft_voter,
    api_versions,
    remove_raft_voter,
    update_raft_voter,
)
from odradek.protocol.message import Message
from odradek.raft.messages import (
    AddVoterRequest,
    AddVoterResponse,
    ProbeVoterResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    ReplicaKey,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoterDetails,
    VoterEndpoint,
)
from odradek.wire.connection import SOFTWARE_NAME, SOFTWARE_VERSION

KRAFT_VERSION: Final = "kraft.version"
_EPOCH_UNKNOWN: Final = -1
_TIMEOUT_MS: Final = 30_000  # of AddRaftVoter, which no leader looks at
_INT16: Final = range(1 << 15)


# Requests out.


def add_to_wire(request: AddVoterRequest, cluster_id: str) -> Message:
    return add_raft_voter.AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=_TIMEOUT_MS,
        voter_id=request.voter.id,
        voter_directory_id=request.voter.directory_id or ZERO_UUID,
        listeners=[
            add_raft_voter.Listener(name=each.name, host=each.host, port=each.port)
            for each in request.endpoints
        ],
        ack_when_committed=request.ack_when_committed,
    )


def remove_to_wire(request: RemoveVoterRequest, cluster_id: str) -> Message:
    return remove_raft_voter.RemoveRaftVoterRequest(
        cluster_id=cluster_id,
        voter_id=request.voter.id,
        voter_directory_id=request.voter.directory_id or ZERO_UUID,
    )


def update_to_wire(request: UpdateVoterRequest, cluster_id: str) -> Message:
    details = request.details
    return update_raft_voter.UpdateRaftVoterRequest(
        cluster_id=cluster_id,
        current_leader_epoch=request.current_leader_epoch,
        voter_id=request.voter.id,
        voter_directory_id=request.voter.directory_id or ZERO_UUID,
        listeners=[
            update_raft_voter.Listener(name=each.name, host=each.host, port=each.port)
            for each in details.endpoints
        ],
        k_raft_version_feature=update_raft_voter.KRaftVersionFeature(
            min_supported_version=details.kraft_version_min,
            max_supported_version=details.kraft_version_max,
        ),
    )


def probe_to_wire() -> Message:
    return api_versions.ApiVersionsRequest(
        client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
    )


# Requests in.


def add_from_wire(
    request: add_raft_voter.AddRaftVoterRequest, token: int, listener: str
) -> AddVoterRequest:
    endpoints = tuple(VoterEndpoint(each.name, each.host, each.port) for each in request.listeners)
    problem = None
    if all(each.name != listener for each in endpoints):
        problem = "Add voter request didn't include the endpoint"
        problem = f"{problem} ({_shown(endpoints)}) for the default listener {_listener(listener)}"
    return AddVoterRequest(
        token,
        _key(request.voter_id, request.voter_directory_id),
        endpoints,
        request.ack_when_committed,
        problem,
    )


def remove_from_wire(
    request: remove_raft_voter.RemoveRaftVoterRequest, token: int
) -> RemoveVoterRequest:
    return RemoveVoterRequest(token, _key(request.voter_id, request.voter_directory_id))


def update_from_wire(
    request: update_raft_voter.UpdateRaftVoterRequest, token: int, listener: str
) -> UpdateVoterRequest:
    versions = request.k_raft_version_feature
    low, high = versions.min_supported_version, versions.max_supported_version
    endpoints = tuple(VoterEndpoint(each.name, each.host, each.port) for each in request.listeners)
    is_sound = any(each.name == listener for each in endpoints) and 0 <= low <= high
    return UpdateVoterRequest(
        token,
        _key(request.voter_id, request.voter_directory_id),
        request.current_leader_epoch,
        VoterDetails(endpoints, low, high),
        is_sound,
    )


# Responses in.


def add_response_from_wire(
    response: add_raft_voter.AddRaftVoterResponse, correlation_id: int, sender: int
) -> AddVoterResponse:
    error = known_error(response.error_code)
    return AddVoterResponse(correlation_id, sender, error, response.error_message)


def remove_response_from_wire(
    response: remove_raft_voter.RemoveRaftVoterResponse, correlation_id: int, sender: int
) -> RemoveVoterResponse:
    error = known_error(response.error_code)
    return RemoveVoterResponse(correlation_id, sender, error, response.error_message)


def update_response_from_wire(
    response: update_raft_voter.UpdateRaftVoterResponse, correlation_id: int, sender: int
) -> UpdateVoterResponse:
    leader = response.current_leader or update_raft_voter.CurrentLeader()
    return UpdateVoterResponse(
        correlation_id,
        sender,
        known_error(response.error_code),
        None if leader.leader_id < 0 else leader.leader_id,
        leader.leader_epoch,
    )


def unsupported_update(correlation_id: int, sender: int) -> UpdateVoterResponse:
    """Return what a peer from before KIP-853 would answer if it knew the request."""
    error = ErrorCode.UNSUPPORTED_VERSION
    return UpdateVoterResponse(correlation_id, sender, error, None, _EPOCH_UNKNOWN)


def probe_response_from_wire(
    response: Message, correlation_id: int, sender: int
) -> ProbeVoterResponse:
    assert isinstance(response, api_versions.ApiVersionsResponse)
    versions = next(
        (
            (each.min_version, each.max_version)
            for each in response.supported_features
            if each.name == KRAFT_VERSION and each.min_version in _INT16
        ),
        None,
    )
    error = known_error(response.error_code)
    return ProbeVoterResponse(correlation_id, sender, error, versions)


def known_error(code: int) -> ErrorCode:
    """Return the code; one that is not known here counts as the error without a name."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


# Parts.


def _key(replica_id: int, directory_id: Uuid) -> ReplicaKey:
    return ReplicaKey(replica_id, None if directory_id == ZERO_UUID else directory_id)


def _shown(endpoints: Iterable[VoterEndpoint]) -> str:
    """Return endpoints as Kafka's messages show them: addresses that nobody has resolved."""
    shown = [f"{_listener(each.name)}={each.host}/<unresolved>:{each.port}" for each in endpoints]
    return f"Endpoints(endpoints={{{', '.join(shown)}}})"


def _listener(name: str) -> str:
    return f"ListenerName({name})"
