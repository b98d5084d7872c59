"""The text of the ``quorum-state`` file: Kafka's, one line of JSON.

::

    {"leaderId":-1,"leaderEpoch":2,"votedId":1,"votedDirectoryId":"J8aAPcfLQt2bqs1JT_rMgQ","data_version":1}

An id of -1 means none. Version 0 is written while ``kraft.version`` is 0, so that a Kafka from
before KIP-853 can read it: it has no directory ids, and a cluster id, applied offset and voters
that nothing reads.

The file is to be replaced by writing a second one, fsync, rename, and fsync of the folder.
"""

import json
from collections.abc import Iterable
from typing import Final

from odradek.core.errors import CorruptionError
from odradek.core.ids import ZERO_UUID, Uuid
from odradek.raft.hard_state import HardState
from odradek.raft.messages import ReplicaKey

QUORUM_STATE_FILE: Final = "quorum-state"
TEXT_LENGTH_MAX: Final = 1 << 16
_INT32_MAX: Final = (1 << 31) - 1


def write_quorum_state(
    state: HardState, *, kraft_version: int = 1, voter_ids: Iterable[int] = ()
) -> str:
    voted = state.voted or ReplicaKey(-1)
    if kraft_version < 1:
        before: dict[str, object] = {
            "clusterId": "",
            "leaderId": -1 if state.leader_id is None else state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted.id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": each} for each in voter_ids],
            "data_version": 0,
        }
        return json.dumps(before, separators=(",", ":"))
    fields = {
        "leaderId": -1 if state.leader_id is None else state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": voted.id,
        "votedDirectoryId": str(voted.directory_id or ZERO_UUID),
        "data_version": 1,
    }
    return json.dumps(fields, separators=(",", ":"))


def read_quorum_state(text: str) -> HardState:
    """Parse the file.

    Raises:
        CorruptionError: The text is not a quorum state of version 0 or 1.
    """
    fields = _parse(text)
    version = _number(fields, "data_version", least=0)
    if version > 1:
        raise CorruptionError(f"{QUORUM_STATE_FILE}: data_version {version} is not 0 or 1")
    leader_id = _number(fields, "leaderId", least=-1)
    voted_id = _number(fields, "votedId", least=-1)
    directory_id = _directory_id(fields) if version == 1 else None
    return HardState(
        _number(fields, "leaderEpoch", least=0),
        None if leader_id < 0 else leader_id,
        None if voted_id < 0 else ReplicaKey(voted_id, directory_id),
    )


def _parse(text: str) -> dict[str, object]:
    if len(text) > TEXT_LENGTH_MAX:
        raise CorruptionError(f"{QUORUM_STATE_FILE}: {len(text)} characters")
    try:
        fields = json.loads(text.partition("\n")[0])
    except (ValueError, RecursionError) as error:
        raise CorruptionError(f"{QUORUM_STATE_FILE}: not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise CorruptionError(f"{QUORUM_STATE_FILE}: not a JSON object")
    return fields


def _number(fields: dict[str, object], name: str, *, least: int) -> int:
    value = fields.get(name)
    if type(value) is not int or not least <= value <= _INT32_MAX:
        raise CorruptionError(f"{QUORUM_STATE_FILE}: {name} is {value!r}")
    return value


def _directory_id(fields: dict[str, object]) -> Uuid | None:
    value = fields.get("votedDirectoryId")
    if not isinstance(value, str):
        raise CorruptionError(f"{QUORUM_STATE_FILE}: votedDirectoryId is {value!r}")
    directory_id = Uuid.from_text(value)
    return None if directory_id == ZERO_UUID else directory_id
