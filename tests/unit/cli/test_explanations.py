"""One sentence with cause and next step for each state that users report most."""

from collections.abc import Mapping
from typing import Final

import pytest

from odradek.cli.broker_reach import Reach
from odradek.cli.cluster_facts import ClusterStatus, LocalProcess
from odradek.cli.explanations import explain
from odradek.cli.findings import Commands, State
from odradek.client.admin.partitions import Reassignment
from odradek.client.admin.topics import PartitionDescription
from odradek.core.ids import TopicPartition
from odradek.replication.isr_flaps import Flapping
from tests.unit.cli.cluster_states import NOW_MS, T0, cluster, partition, processes, replica

SERVERS: Final = Commands("host:9092")
LOCAL: Final = Commands("host:9092", "")
ELECTION: Final = "`odradek leader-election --bootstrap-server host:9092 --election-type unclean"
NODE_2_IS_DOWN: Final = (
    "node 2 does not run (fenced; 127.0.0.1:9093 refuses connections; it last fetched metadata 41 s"
    " ago): start it"
)
VOTER_2_IS_LOST: Final = (
    "node 2 does not fetch metadata, 2 of 3 voters are left and 2 are needed, so one more loss"
    " stops all changes of the metadata: start it"
)


def without_node_2(
    *partitions: PartitionDescription, ends: Mapping[int, int] | None = None
) -> ClusterStatus:
    reach = {2: Reach.REFUSED}
    return cluster(*partitions, fenced=(2,), silent_s={2: 41}, reach=reach, ends=ends)


def said(
    status: ClusterStatus,
    nodes: list[LocalProcess] | None = None,
    commands: Commands = SERVERS,
    *,
    has_cuts: bool = False,
) -> dict[State, list[str]]:
    found: dict[State, list[str]] = {}
    for each in explain(status, nodes or (), commands, has_cuts=has_cuts):
        found.setdefault(each.state, []).append(each.sentence)
    return found


def test_nothing_is_said_of_a_cluster_in_order() -> None:
    assert said(cluster(partition())) == {}
    assert said(cluster(partition()), processes(), LOCAL) == {}


# No leader.


def test_a_partition_without_a_leader_names_who_may_lead_and_what_an_election_loses() -> None:
    status = without_node_2(partition(-1, (), elr=(2,), last=(2,)), ends={1: 40, 3: 90})
    assert said(status) == {
        State.VOTER_LOST: [VOTER_2_IS_LOST],
        State.NO_LEADER: [
            "t-0 has no leader: only node 2 has all committed records, and it does not run; start"
            f" it, or {ELECTION} --topic t --partition 0` makes node 1 lead, and loses 50 records"
            " that another replica has and what node 2 has from offset 90 on"
        ],
        State.NODE_DOWN: [NODE_2_IS_DOWN],
    }


def test_in_a_local_cluster_the_next_step_is_its_command() -> None:
    status = cluster(partition(-1, (2,)), fenced=(2,), silent_s={2: 3}, ends={1: 40, 3: 40})
    assert said(status, processes(n2="died"), LOCAL)[State.NO_LEADER] == [
        "t-0 has no leader: only node 2 has all committed records, and it does not run;"
        f" `odradek local restart 2` starts it, or {ELECTION} --topic t --partition 0` makes node 1"
        " lead, and loses what node 2 has from offset 40 on"
    ]


def test_partitions_that_wait_for_the_same_nodes_are_one_sentence() -> None:
    found = [partition(-1, (2, 3), number=number) for number in range(5)]
    nodes = processes(n2="died", n3="paused")
    status = cluster(*found, fenced=(2, 3), ends={1: 40})
    assert said(status, nodes, LOCAL)[State.NO_LEADER] == [
        "t-0, t-1, t-2 and 2 more have no leader: only nodes 2 and 3 have all committed records,"
        " and none of them serves; `odradek local restart 2` starts it or `odradek local resume 3`"
        f" lets it go on, or {ELECTION} --all-topic-partitions` makes node 1 lead, and loses what"
        " nodes 2, 3 have alone"
    ]


def test_without_any_replica_that_runs_there_is_nobody_to_elect() -> None:
    status = cluster(
        partition(-1, (3,)), fenced=(1, 2, 3), reach=dict.fromkeys((1, 2, 3), Reach.REFUSED)
    )
    assert said(status)[State.NO_LEADER] == [
        "t-0 has no leader: only node 3 has all committed records, and it does not run; start it;"
        " no other replica runs that could be elected"
    ]


def test_after_unclean_stops_nobody_is_known_to_have_all() -> None:
    status = cluster(partition(-1, (), last=(2, 3)), ends={1: 10, 2: 70, 3: 90})
    assert said(status)[State.NO_LEADER] == [
        "t-0 has no leader: no replica is known to have all committed records, because nodes 2 and"
        " 3, which were the last in sync, stopped uncleanly, or"
        f" {ELECTION} --topic t --partition 0` makes node 1 lead, and loses 80 records that another"
        " replica has"
    ]


def test_the_last_in_sync_must_come_back_first() -> None:
    status = without_node_2(partition(-1, (), last=(2,)))
    assert said(status)[State.NO_LEADER] == [
        "t-0 has no leader: no replica is known to have all committed records; node 2 had, and must"
        f" come back: start it, or {ELECTION} --topic t --partition 0` makes node 1 lead, and loses"
        " what node 1 lacks: it did not report where its log ends"
    ]


def test_a_log_directory_that_is_offline_is_named() -> None:
    status = cluster(partition(-1, (2,), offline=(2,)), ends={1: 40, 3: 40})
    assert said(status)[State.NO_LEADER] == [
        "t-0 has no leader: only node 2 has all committed records, and its log directory there is"
        " offline; `odradek log-dirs --bootstrap-server host:9092 --describe --broker-list 2` says"
        " why, and the node must be restarted when the disk is well, or"
        f" {ELECTION} --topic t --partition 0` makes node 1 lead, and loses what node 2 has from"
        " offset 40 on"
    ]


# Too few in sync.


def test_under_min_isr_names_what_each_missing_replica_does() -> None:
    status = without_node_2(partition(1, (1,)), ends={1: 1400, 3: 1000})
    assert said(status)[State.UNDER_MIN_ISR] == [
        "t-0 refuses records with acks=all (NOT_ENOUGH_REPLICAS): 1 replica is in sync, and"
        " min.insync.replicas is 2; node 2 does not run: start it; node 3 catches up and lacks 400"
        " records: wait for it"
    ]


def test_a_replica_that_catches_up_after_a_restart_is_waited_for() -> None:
    status = cluster(partition(1, (1, 2)), partition(1, (1, 2), number=1), ends={1: 90, 3: 90})
    assert said(status) == {
        State.CATCHING_UP: [
            "t-0, t-1 have a replica that is not in sync: node 3 has all records: wait a moment"
            " until it is in sync"
        ]
    }
    unknown = status._replace(log_ends={})
    assert said(unknown, processes(), LOCAL)[State.CATCHING_UP] == [
        "t-0, t-1 have a replica that is not in sync: node 3 runs and is not in sync yet: look at"
        " its log (`odradek local logs 3`)"
    ]


# Nodes.


@pytest.mark.parametrize(
    ("reach", "silent_s", "state", "sentence"),
    [
        (Reach.REFUSED, 41, State.NODE_DOWN, NODE_2_IS_DOWN),
        (
            Reach.SILENT,
            300,
            State.NODE_SILENT,
            "node 2 is fenced and stands still (no answer at 127.0.0.1:9093; the process is paused"
            " or stalled, or its host is; it last fetched metadata 5 min ago): let it go on (`kill"
            " -CONT` and its pid), or look at its log and restart it",
        ),
        (
            Reach.ANSWERS,
            41,
            State.NODE_FENCED,
            "node 2 is fenced (it runs; the controller has no heartbeat of it; it last fetched"
            " metadata 41 s ago): check the network from it to controller 1; its log names the"
            " address (`peer lost`)",
        ),
        (
            Reach.ANSWERS,
            0,
            State.NODE_FENCED,
            "node 2 is fenced (it fetches metadata: it starts, or is about to stop): wait; its log"
            " says what it does",
        ),
    ],
)
def test_why_a_broker_is_fenced(reach: Reach, silent_s: int, state: State, sentence: str) -> None:
    status = cluster(fenced=(2,), silent_s={2: silent_s}, reach={2: reach})
    assert said(status)[state] == [sentence]


def test_a_node_of_a_local_cluster_is_known_better() -> None:
    status = cluster(fenced=(1, 2, 3), reach={1: Reach.ANSWERS}, silent_s={1: 7, 2: 7, 3: 7})
    nodes = processes(n2="died", n3="paused")
    found = said(status._replace(quorum=None), nodes, LOCAL, has_cuts=True)
    assert found[State.NODE_FENCED] == [
        "node 1 is fenced (it runs; the controller has no heartbeat of it): `odradek local heal`"
        " undoes the cut"
    ]
    assert found[State.NODE_DOWN] == [
        "node 2 does not run (it died): `odradek local restart 2` starts it"
    ]
    assert found[State.NODE_PAUSED] == [
        "node 3 is paused (SIGSTOP: connections stay open, and nothing answers): `odradek local"
        " resume 3` lets it go on"
    ]


def test_the_folder_is_part_of_the_command() -> None:
    commands = Commands("host:9092", " --dir d")
    found = said(cluster(), processes(n2="stopped"), commands)
    assert found[State.NODE_DOWN] == [
        "node 2 does not run (it was stopped; it last fetched metadata 0 s ago): `odradek local"
        " restart 2 --dir d` starts it"
    ]


OLD_SESSION: Final = (
    "while the old session lasts (broker.session.timeout.ms) the new process is refused with"
    " DUPLICATE_BROKER_REGISTRATION, and tries again by itself"
)


def test_a_restart_that_is_refused_waits_for_the_old_session() -> None:
    status = cluster(reach={2: Reach.REFUSED})
    assert said(status)[State.OLD_SESSION] == [
        "node 2 is not fenced and refuses connections (its process ended, or 127.0.0.1:9093 is not"
        f" its address): start it; {OLD_SESSION}"
    ]
    assert said(cluster(), processes(n2="starting"), LOCAL)[State.OLD_SESSION] == [
        f"node 2 starts (the session of its earlier process is not over: {OLD_SESSION}): wait; its"
        " log (`odradek local logs 2`) says what for"
    ]
    assert said(cluster(fenced=(2,)), processes(n2="starting"), LOCAL)[State.NODE_FENCED] == [
        "node 2 starts: wait; its log (`odradek local logs 2`) says what for"
    ]


def test_a_broker_that_stands_still_is_told_before_it_is_fenced() -> None:
    assert said(cluster(reach={2: Reach.SILENT}))[State.NODE_SILENT] == [
        "node 2 does not answer (nothing comes back from 127.0.0.1:9093; it is fenced when its"
        " session is over): look at its log for `the event loop stalled`, or restart it"
    ]


# The quorum.


def test_a_quorum_without_a_majority_names_what_to_start() -> None:
    status = cluster()._replace(quorum=None)
    nodes = processes(n2="died", n3="paused")
    assert said(status, nodes, LOCAL)[State.NO_QUORUM] == [
        "the metadata quorum has no majority (1 of 3 controllers runs, 2 must): `odradek local"
        " restart 2` starts it; until then no topic, leader or ISR changes"
    ]
    assert said(status)[State.NO_QUORUM] == [
        "the metadata quorum does not answer: start controllers until a majority of the voters"
        " runs; until then no topic, leader or ISR changes"
    ]
    assert said(status, processes(), LOCAL)[State.NO_QUORUM] == [
        "the metadata quorum does not answer although a majority of its controllers runs (it elects"
        " a leader, or they do not reach each other): ask again in some seconds, or look at its log"
        " (`odradek local logs 1`) of node 1"
    ]


def test_a_quorum_that_can_bear_no_more_says_so() -> None:
    assert said(without_node_2())[State.VOTER_LOST] == [VOTER_2_IS_LOST]


def test_a_majority_that_was_lost_a_moment_ago_is_told_as_such() -> None:
    status = cluster(silent_s={2: 6, 3: 6})
    assert said(status, processes(n2="died", n3="died"), LOCAL)[State.VOTER_LOST] == [
        "nodes 2 and 3 do not fetch metadata, 1 of 3 voters is left and 2 are needed, so no topic,"
        " leader or ISR changes: `odradek local restart 2` starts it; `odradek local restart 3`"
        " starts it"
    ]


def test_times_that_are_not_told_are_not_taken_for_silence() -> None:
    status = cluster()
    assert status.quorum is not None
    voters = tuple(each._replace(last_fetch_timestamp=-1) for each in status.quorum.voters)
    assert said(status._replace(quorum=status.quorum._replace(voters=voters))) == {}


def test_a_node_that_lags_behind_the_metadata_serves_by_an_old_view() -> None:
    status = cluster()
    assert status.quorum is not None
    late = (
        replica(4, 395, NOW_MS - 400, NOW_MS - 12_000),
        replica(5, 0, NOW_MS, -1),
        replica(6, 895, NOW_MS, NOW_MS - 12_000),  # less than a moment's records
        replica(7, 0, NOW_MS, NOW_MS - 900),  # catches up at once
    )
    lagging = status._replace(quorum=status.quorum._replace(observers=late))
    assert said(lagging)[State.METADATA_LAG] == [
        "node 4 is 505 metadata records behind (up to date 12 s ago), so it serves by an old view:"
        " look at its log for stalls or a slow disk, or restart it",
        "node 5 is 900 metadata records behind (it is catching up since its start), so it serves by"
        " an old view: look at its log for stalls or a slow disk, or restart it",
    ]


# On the way.


def test_what_a_move_waits_for_is_passed_on() -> None:
    why = "t-0 waits for broker 3, which lacks 9 records (900 B); nothing arrived in 1 s"
    status = cluster(partition(1, (1, 2)))._replace(
        moves={T0: Reassignment((1, 2, 3), (3,), ())}, move_reasons={T0: [why]}
    )
    assert said(status) == {State.MOVING: [why]}


def test_replicas_that_leave_and_rejoin_are_told() -> None:
    keys = tuple(TopicPartition("t", number) for number in range(4))
    status = cluster(partition())._replace(flapping=[Flapping(3, keys, 3, 480_000)])
    assert said(status, processes(), LOCAL) == {
        State.FLAPPING: [
            "node 3 left the ISR of t-0, t-1, t-2 and 1 more 3 times in 8 min and rejoined: it is"
            " too slow, or stands still now and then; look at its log (`odradek local logs 3`) for"
            " `the event loop stalled` and `peer lost`, and raise replica.lag.time.max.ms of the"
            " leaders only if it is neither"
        ]
    }
