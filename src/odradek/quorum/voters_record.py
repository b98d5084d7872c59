"""VotersRecord: the voters as the metadata log names them (KIP-853)."""

from odradek.core.ids import ZERO_UUID
from odradek.protocol.generated.control_records import (
    Endpoint,
    KRaftVersionFeature,
    VotersRecord,
    VotersRecordVoter,
)
from odradek.raft.messages import ReplicaKey, VoterDetails, VoterEndpoint
from odradek.raft.voters import VoterSet


def details_of(voter: VotersRecordVoter) -> VoterDetails:
    versions = voter.k_raft_version_feature
    return VoterDetails(
        tuple(VoterEndpoint(each.name, each.host, each.port) for each in voter.endpoints),
        versions.min_supported_version,
        versions.max_supported_version,
    )


def voters_to_record(voters: VoterSet) -> VotersRecord:
    return VotersRecord(
        voters=[
            _voter_to_record(each, voters.details.get(each.id, VoterDetails()))
            for each in voters.voters
        ]
    )


def _voter_to_record(key: ReplicaKey, details: VoterDetails) -> VotersRecordVoter:
    return VotersRecordVoter(
        voter_id=key.id,
        voter_directory_id=key.directory_id or ZERO_UUID,
        endpoints=[
            Endpoint(name=each.name, host=each.host, port=each.port) for each in details.endpoints
        ],
        k_raft_version_feature=KRaftVersionFeature(
            min_supported_version=details.kraft_version_min,
            max_supported_version=details.kraft_version_max,
        ),
    )
