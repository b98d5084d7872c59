"""With ``flush.messages`` a record is committed when every replica in sync has it on its disk."""

from tests.simulation.replicas.three_nodes import IDS, three_nodes

SLOW_DISK_SECONDS = 2.0


def test_a_leader_commits_only_what_its_own_disk_has() -> None:
    with three_nodes(log_flush_interval_messages="1") as nodes:
        logs = [nodes.replica(each).log for each in IDS]
        early: list[int] = []

        def look(_: str) -> None:
            if any(log.high_watermark > log.recovery_point for log in logs):
                early.append(logs[0].high_watermark)

        nodes.world.after_round = look
        nodes.machines[1].sim.loop.work_seconds_max = SLOW_DISK_SECONDS
        nodes.run(nodes.send(b"a", b"b", b"c", acks="all"))
        assert not early
        assert logs[0].high_watermark == logs[0].recovery_point == 3
