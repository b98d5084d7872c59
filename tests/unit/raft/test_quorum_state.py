"""The quorum-state file, as Kafka writes it."""

import pytest

from odradek.core.errors import CorruptionError
from odradek.core.ids import Uuid
from odradek.raft import HardState, ReplicaKey, read_quorum_state, write_quorum_state

DIRECTORY_ID = Uuid.from_text("J8aAPcfLQt2bqs1JT_rMgQ")
TEXT = (
    '{"leaderId":-1,"leaderEpoch":2,"votedId":1,'
    '"votedDirectoryId":"J8aAPcfLQt2bqs1JT_rMgQ","data_version":1}'
)


def test_text_is_kafkas_to_the_letter() -> None:
    assert write_quorum_state(HardState(2, None, ReplicaKey(1, DIRECTORY_ID))) == TEXT


@pytest.mark.parametrize(
    "state",
    [
        HardState(),
        HardState(7, 3),
        HardState(7, 3, ReplicaKey(3, DIRECTORY_ID)),
        HardState(7, None, ReplicaKey(4)),
    ],
)
def test_what_is_written_is_read(state: HardState) -> None:
    assert read_quorum_state(write_quorum_state(state)) == state


def test_version_0_is_read() -> None:
    text = (
        '{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1}],"data_version":0}\n'
    )
    assert read_quorum_state(text) == HardState(2, 1)


def test_version_0_is_written_while_the_log_names_no_voters() -> None:
    state = HardState(2, None, ReplicaKey(1, DIRECTORY_ID))
    text = write_quorum_state(state, kraft_version=0, voter_ids=(1, 2))
    assert text == (
        '{"clusterId":"","leaderId":-1,"leaderEpoch":2,"votedId":1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}'
    )
    assert read_quorum_state(text) == HardState(2, None, ReplicaKey(1))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 50_000,
        " " * 100_000,
        TEXT[:-10],
        TEXT.replace('"data_version":1', '"data_version":2'),
        TEXT.replace('"data_version":1', '"version":1'),
        TEXT.replace('"leaderEpoch":2', '"leaderEpoch":-1'),
        TEXT.replace('"leaderEpoch":2', '"leaderEpoch":2.5'),
        TEXT.replace('"leaderEpoch":2', '"leaderEpoch":true'),
        TEXT.replace('"votedId":1', '"votedId":99999999999'),
        TEXT.replace("J8aAPcfLQt2bqs1JT_rMgQ", "short"),
        TEXT.replace('"J8aAPcfLQt2bqs1JT_rMgQ"', "1"),
    ],
)
def test_damage_is_reported(text: str) -> None:
    with pytest.raises(CorruptionError):
        read_quorum_state(text)
