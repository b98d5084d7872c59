"""The voters that are first written down: ``id@host:port:directory``, as KIP-853 has it.

By ``storage format``, or when a quorum that was only in the configs goes to kraft.version 1.
"""

import re
from typing import Final, NamedTuple

from odradek.core.config import BrokerConfig
from odradek.core.config.listeners import Listener
from odradek.core.errors import CorruptionError, OdradekError
from odradek.core.ids import Uuid
from odradek.protocol.generated.control_records import (
    Endpoint,
    KRaftVersionFeature,
    VotersRecord,
    VotersRecordVoter,
)
from odradek.raft.voters import VOTERS_MAX

_VOTER: Final = re.compile(r"(\d{1,10})@(?:\[([^\]]*)\]|([^:\[]+)):(\d{1,5}):(.+)")
_PORT_MAX: Final = 65_535
_INT32_MAX: Final = 2**31 - 1
_KRAFT_VERSIONS: Final = (0, 1)


class VoterError(OdradekError):
    """The voters given on the command line cannot be understood."""


class InitialVoter(NamedTuple):
    node_id: int
    host: str
    port: int
    directory_id: Uuid

    @classmethod
    def at(cls, listener: Listener, node_id: int, directory_id: Uuid) -> "InitialVoter":
        return cls(node_id, listener.host or "localhost", listener.port, directory_id)


def find_controller_listener(config: BrokerConfig) -> Listener | None:
    """Return where this node's controller is to be found; None if it listens nowhere."""
    return next(iter(config.advertised_controller_listeners), None)


def parse_voters(text: str) -> list[InitialVoter]:
    """Read a list of voters, separated by commas; sorted by id.

    Raises:
        VoterError: One is malformed, or there is none, or two have one id.
    """
    voters = sorted(_parse_voter(part.strip()) for part in text.split(",") if part.strip())
    ids = {voter.node_id for voter in voters}
    if not voters or len(ids) != len(voters) or len(voters) > VOTERS_MAX:
        raise VoterError(f"{text!r}: expected from 1 to {VOTERS_MAX} voters, each id once")
    return voters


def _parse_voter(text: str) -> InitialVoter:
    match = _VOTER.fullmatch(text)
    if match is None or int(match[1]) > _INT32_MAX or int(match[4]) > _PORT_MAX:
        raise VoterError(f"{text!r} is not a voter: expected id@host:port:directory-id")
    try:
        directory_id = Uuid.from_text(match[5])
    except CorruptionError as error:
        raise VoterError(f"{text!r} is not a voter: {error}") from error
    return InitialVoter(int(match[1]), match[2] or match[3], int(match[4]), directory_id)


def voters_record(voters: list[InitialVoter], listener: str) -> VotersRecord:
    """Return the record; ``listener`` is the name of the controllers' listener, on all of them."""
    low, high = _KRAFT_VERSIONS
    return VotersRecord(
        voters=[
            VotersRecordVoter(
                voter_id=voter.node_id,
                voter_directory_id=voter.directory_id,
                endpoints=[Endpoint(name=listener, host=voter.host, port=voter.port)],
                k_raft_version_feature=KRaftVersionFeature(
                    min_supported_version=low, max_supported_version=high
                ),
            )
            for voter in voters
        ]
    )
