"""`odradek up`, `odradek local …` and `odradek down`, each as a process. One cluster for most."""

import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from odradek.client import BlockingConsumer, BlockingProducer
from odradek.local.folder import ClusterFolder
from tests.cluster.flavours import ODRADEK_COMMAND
from tests.cluster.local_cluster import LocalCluster, free_base_port
from tests.cluster.processes import wait_until

pytestmark = pytest.mark.slow

NODES = 3
FIRST_ACK = re.compile(r"first ack of a new leader after \d+\.\d\d s")
FIRST_ACK_SECONDS_MAX = 60


@pytest.fixture(scope="module")
def port() -> int:
    return free_base_port(NODES)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("local") / "cluster"
    with LocalCluster(folder, "--base-port", str(port), "--racks", "a,b,c") as cluster:
        yield cluster


def test_up_prints_its_nodes_and_how_to_reach_them(cluster: LocalCluster, port: int) -> None:
    servers = ",".join(f"127.0.0.1:{port + n}" for n in range(NODES))
    assert f"\nbootstrap {servers}\n" in cluster.output
    rows = re.findall(r"^(\d) +(\S+) +127.0.0.1:(\d+) +\S+ +(\w) +\d+$", cluster.output, re.M)
    both = "broker,controller"
    assert rows == [
        (str(n + 1), both, str(port + n), rack) for n, rack in enumerate(("a", "b", "c"))
    ]


def test_status_is_that_of_the_cluster(cluster: LocalCluster) -> None:
    with BlockingProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("orders", b"first").result()
    shown = cluster.local("status")
    assert re.search(r"active controller [123] \(epoch \d+, voters 1, 2, 3,", shown), shown
    assert len(re.findall(r"^[123] +broker,controller +running ", shown, re.M)) == NODES, shown
    assert re.search(r"^\d+ partitions? of \d+ topics?: all replicas in sync$", shown, re.M), shown
    elsewhere = cluster.run("local", "status", "--bootstrap-server", cluster.bootstrap_servers)
    assert elsewhere.returncode == 0, elsewhere
    assert len(re.findall(r"^[123] +broker,controller +up ", elsewhere.stdout, re.M)) == NODES


def test_a_cluster_that_runs_is_not_started_twice(cluster: LocalCluster) -> None:
    run = cluster.run("up", "--dir", str(cluster.folder))
    assert run.returncode == 1
    assert re.fullmatch(r"Error: a cluster is running in .* already: .*\n", run.stderr), run


def test_a_busy_port_is_named_and_nothing_is_left(tmp_path: Path, cluster: LocalCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = taken.getsockname()[1]
        run = cluster.run("up", "--dir", str(tmp_path / "new"), "--base-port", str(busy))
    assert run.returncode == 1
    assert re.fullmatch(rf"Error: port {busy}, for node 1, is in use: .*\n", run.stderr), run
    assert not (tmp_path / "new").exists()


def test_no_nodes_is_one_clear_line(tmp_path: Path, cluster: LocalCluster) -> None:
    run = cluster.run("up", "--dir", str(tmp_path / "new"), "--nodes", "0")
    assert (run.returncode, run.stderr) == (1, "Error: --nodes 0: choose from 1 to 50\n")
    assert not (tmp_path / "new").exists()


def test_a_half_written_folder_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "half"
    folder.mkdir()
    (folder / "node-1").mkdir()
    assert refused(folder).startswith(f"{folder} is half written: an `odradek up` was interrupted")
    assert [each.name for each in folder.rglob("*") if each.name != "lock"] == ["node-1"]


def test_a_folder_of_another_version_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    layout = json.dumps({"format": 9, "odradek": "7.7"})
    (folder / "cluster.json").write_text(layout)
    problem = refused(folder)
    assert problem.startswith(f"{folder}/cluster.json was written by Odradek 7.7 in format 9, and ")
    assert (folder / "cluster.json").read_text() == layout


def refused(folder: Path) -> str:
    """Run `odradek up`; return its one line, when no process with the folder is left."""
    command = [ODRADEK_COMMAND, "up", "--dir", str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stdout) == (1, "")
    found = re.fullmatch(r"Error: (.+)\n", run.stderr)
    assert found is not None, run.stderr
    assert processes_with(str(folder)) == []
    return found[1]


def processes_with(word: str) -> list[str]:
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            if word.encode() in (text := command.read_bytes()):
                found.append(text.decode(errors="replace"))
    return found


def test_down_without_a_cluster_is_one_clear_line(tmp_path: Path, cluster: LocalCluster) -> None:
    run = cluster.run("down", "--dir", str(tmp_path / "none"))
    assert run.returncode == 1
    assert re.fullmatch(r"Error: there is no cluster in .*none: .*\n", run.stderr), run


def leader_of(cluster: LocalCluster, topic: str) -> int:
    shown = cluster.run(
        "topics", "--bootstrap-server", cluster.bootstrap_servers, "--describe", "--topic", topic
    )
    found = re.search(r"Partition: 0\s+Leader: (\d+)", shown.stdout)
    assert found is not None, shown
    return int(found[1])


def make_topic(cluster: LocalCluster, topic: str) -> str:
    """Make a topic whose partition has a replica on every node, all in sync."""
    create = ["--create", "--if-not-exists", "--topic", topic, "--partitions", "1"]
    run = cluster.run("topics", "--bootstrap-server", cluster.bootstrap_servers, *create)
    assert run.returncode == 0, run
    return topic


@pytest.fixture
def payments(cluster: LocalCluster) -> str:
    return make_topic(cluster, "payments")


@pytest.mark.seed_row("0.7")
def test_a_leader_that_is_killed_under_load_loses_nothing(cluster: LocalCluster) -> None:
    topic = make_topic(cluster, "ledger")
    leader = leader_of(cluster, topic)
    acknowledged = 0
    with (
        BlockingProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer,
        ThreadPoolExecutor(1) as aside,
    ):
        killing = aside.submit(cluster.local, "kill", str(leader))
        # The command may be over before anything was written to the new leader.
        deadline = time.monotonic() + FIRST_ACK_SECONDS_MAX
        while not (killing.done() and FIRST_ACK.search(cluster.output)):
            assert time.monotonic() < deadline, cluster.output
            producer.send(topic, b"%d" % acknowledged).result()
            acknowledged += 1
        told = killing.result()
    assert re.search(rf"^\d\d:\d\d:\d\d\.\d\d\d node {leader} died \(SIGKILL\)$", told, re.M), told
    assert re.search(rf"^ +\+\d+\.\d s node {leader} fenced$", told, re.M), told
    assert re.search(r"^ +\+\d+\.\d s \d+ partitions? ha\w+ (a )?new leaders?$", told, re.M), told
    assert told in cluster.output
    shown = cluster.local("status")
    assert re.search(rf"^{leader} .* died ", shown, re.M), shown
    assert f"`odradek local restart {leader} --dir {cluster.folder}` starts it" in shown
    again = cluster.run("local", "kill", str(leader), "--dir", str(cluster.folder))
    assert again.returncode == 1
    assert again.stderr.startswith(f"Error: node {leader} does not run (died): ")
    assert "all replicas are in sync again" in cluster.local("restart", str(leader))
    read: list[bytes | None] = []
    with BlockingConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="auditors",
        auto_offset_reset="earliest",
    ) as consumer:
        while len(read) < acknowledged:
            polled = consumer.poll(30.0)
            assert polled, f"{len(read)} of {acknowledged} records"
            read += [record.value for records in polled.values() for record in records]
    assert read == [b"%d" % number for number in range(acknowledged)]


def test_a_paused_node_is_fenced_and_comes_back(cluster: LocalCluster, payments: str) -> None:
    leader = leader_of(cluster, payments)
    told = cluster.local("pause", str(leader))
    assert f"node {leader} paused (SIGSTOP)" in told
    assert f"s node {leader} fenced" in told
    assert leader_of(cluster, payments) != leader
    assert re.search(rf"^{leader} .* paused ", cluster.local("status"), re.M)
    told = cluster.local("resume", str(leader))
    assert f"node {leader} serves again" in told
    assert "all replicas are in sync again" in told
    again = cluster.run("local", "resume", str(leader), "--dir", str(cluster.folder))
    assert (again.returncode, "not paused" in again.stderr) == (1, True), again


def test_a_node_that_is_cut_off_is_replaced_and_catches_up(
    cluster: LocalCluster, payments: str
) -> None:
    leader = leader_of(cluster, payments)
    told = cluster.local("cut", str(leader))
    others = sorted({"1", "2", "3"} - {str(leader)})
    shown = {" and ".join(sorted([str(leader), other])) for other in others}
    assert set(re.findall(r"\d and \d", told)) == shown
    assert f"s node {leader} fenced" in told
    assert cluster.local("status").count("cut: ") == 1
    servers = ",".join(
        f"127.0.0.1:{number}"
        for number in re.findall(r":(\d+)", cluster.bootstrap_servers)
        if not cluster.bootstrap_servers.split(",")[leader - 1].endswith(number)
    )
    with BlockingProducer(bootstrap_servers=servers, acks="all") as producer:
        producer.send(payments, b"meanwhile").result()
    told = cluster.local("heal")
    assert f"node {leader} serves again" in told
    assert "all replicas are in sync again" in told
    again = cluster.run("local", "heal", "--dir", str(cluster.folder))
    assert (again.returncode, again.stderr) == (1, "Error: nothing is cut\n")


def test_a_broker_joins_and_leaves_with_its_partitions_moved(
    cluster: LocalCluster, payments: str
) -> None:
    refused = cluster.run("local", "remove", "3", "--dir", str(cluster.folder))
    assert refused.returncode == 1
    assert refused.stderr.startswith("Error: node 3 cannot go: no other broker"), refused
    told = cluster.local("add", "--rack", "d")
    assert "node 4 added, on 127.0.0.1:" in told
    assert "node 4 serves\n" in told
    servers = cluster.bootstrap_servers
    topics = ["topics", "--bootstrap-server", servers, "--topic", "wide"]
    assert cluster.run(*topics, "--create", "--partitions", "8").returncode == 0
    with BlockingProducer(bootstrap_servers=servers, acks="all") as producer:
        for number in range(80):
            producer.send("wide", b"%d" % number, partition=number % 8)
    row = re.search(
        r"^4 +broker +running +\S+ +d +\d+ +(\d+) +(\d+)", cluster.local("status"), re.M
    )
    assert row is not None
    assert int(row[2]) > 0, "new topics use it"
    told = cluster.local("remove", "4")
    assert f"{row[2]} partitions move from node 4" in told
    assert "node 4 removed, and its folder" in told
    assert not (cluster.folder / "node-4").exists()
    shown = cluster.local("status")
    assert not re.search(r"^4 ", shown, re.M), shown
    assert "all replicas in sync" in shown
    offsets = ["get-offsets", "--bootstrap-server", servers, "--topic", "wide"]
    ends = cluster.run(*offsets).stdout.split()
    assert ends == [f"wide:{partition}:10" for partition in range(8)]


def end_of(cluster: LocalCluster, topic: str) -> int:
    offsets = ["get-offsets", "--bootstrap-server", cluster.bootstrap_servers, "--topic", topic]
    return int(cluster.run(*offsets).stdout.rpartition(":")[2])


def test_a_snapshot_brings_back_what_there_was(cluster: LocalCluster, payments: str) -> None:
    before = end_of(cluster, payments)
    told = cluster.local("snapshot", "before")
    assert re.search(r"snapshot before: \d+\.\d MB, the nodes were paused for", told), told
    with BlockingProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        producer.send(payments, b"to be forgotten").result()
    assert end_of(cluster, payments) == before + 1
    for words, problem in (
        (["snapshot", "before"], "there is a snapshot 'before' already: choose another name"),
        (["snapshot", "../x"], "'../x': a snapshot has a name of up to 64 letters"),
        (["restore", "after"], "there is no snapshot 'after'; there are before"),
    ):
        run = cluster.run("local", *words, "--dir", str(cluster.folder))
        assert run.returncode == 1
        assert run.stderr.startswith(f"Error: {problem}"), run
    assert "snapshot before is restored: 3 nodes serve" in cluster.local("restore", "before")
    assert end_of(cluster, payments) == before


def test_a_rolling_restart_takes_each_node_when_all_are_in_sync(
    cluster: LocalCluster, payments: str
) -> None:
    before = cluster.local("status")
    (active,) = re.findall(r"active controller (\d)", before)
    with ThreadPoolExecutor(1) as aside:
        said = len(cluster.output)
        restarting = aside.submit(cluster.local, "restart", "--rolling")
        wait_until(lambda: "is to stop" in cluster.output[said:], "the first one stops")
        also = cluster.run("local", "add", "--dir", str(cluster.folder))
        told = restarting.result()
    assert (also.returncode, also.stderr) == (
        1,
        "Error: restart is under way: wait until it is over\n",
    )
    order = re.findall(r"node (\d) is to stop|(all replicas are in sync) again", told)
    stops = [node for node, _ in order if node]
    assert sorted(stops) == ["1", "2", "3"]
    assert stops[-1] == active
    assert "died" not in told
    assert "all replicas in sync" in cluster.local("status")
    assert set(re.findall(r" (\d+)  +\d+  +\d+  +\d+  +\d+ ", before)).isdisjoint(
        re.findall(r" (\d+)  +\d+  +\d+  +\d+  +\d+ ", cluster.local("status"))
    ), "the same processes"


def test_logs_are_those_of_the_nodes(cluster: LocalCluster) -> None:
    whole = cluster.local("logs", "2", "--lines", "10000")
    assert re.search(r"odradek\.node: started .*node_id=2 ", whole)
    assert "node_id=1" not in whole
    heads = {line[:2] for line in cluster.local("logs").splitlines()}
    assert heads == {"1|", "2|", "3|"}


def test_watch_prints_what_up_prints(cluster: LocalCluster) -> None:
    watch = subprocess.Popen(
        [ODRADEK_COMMAND, "local", "watch", "--dir", str(cluster.folder)],
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    with watch:
        assert watch.stdout is not None
        first = watch.stdout.readline()
        assert first in cluster.output
        cluster.local("pause", "1", "--no-wait")
        cluster.local("resume", "1", "--no-wait")
        for line in watch.stdout:
            if "node 1 resumed" in line:
                break
        watch.send_signal(signal.SIGINT)
        assert watch.wait(60) == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["kill", "7"], "there is no node 7; the nodes are 1, 2, 3"),
        (["logs", "7"], "there is no node 7; the nodes are 1, 2, 3"),
        (["cut", "1:7"], "there is no node 7; the nodes are 1, 2, 3"),
        (["restart"], "give either the id of a node or --rolling"),
        (["restart", "1", "--rolling"], "give either the id of a node or --rolling"),
    ],
)
def test_a_wrong_word_is_one_clear_line(
    cluster: LocalCluster, words: list[str], problem: str
) -> None:
    run = cluster.run("local", *words, "--dir", str(cluster.folder))
    assert run.returncode == 1
    assert run.stderr.removeprefix("Error: ").startswith(problem), run


def test_down_ends_all_nodes_and_the_next_up_goes_on(cluster: LocalCluster) -> None:
    with BlockingProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        producer.send(make_topic(cluster, "kept"), b"first").result()
    nodes = cluster.identities()
    assert len(nodes) == NODES
    assert all(each.is_alive() for each in nodes)
    cluster.down()
    assert not any(each.is_alive() for each in nodes)
    again = cluster.run("down", "--dir", str(cluster.folder))
    assert (again.returncode, again.stderr.endswith("is not up\n")) == (1, True), again
    cluster.start()
    with BlockingConsumer(
        "kept",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="readers",
        auto_offset_reset="earliest",
    ) as consumer:
        read = [record.value for records in consumer.poll(30.0).values() for record in records]
    assert read == [b"first"]


def test_nodes_end_with_a_supervisor_that_is_killed_and_paused_ones_with_down(
    cluster: LocalCluster,
) -> None:
    cluster.local("pause", "1", "--no-wait")
    record = ClusterFolder(cluster.folder).read_run()
    assert record is not None
    paused, *others = (record.nodes[number] for number in (1, 2, 3))
    cluster.process.send_signal(signal.SIGKILL)
    cluster.process.wait()
    wait_until(lambda: not any(each.is_alive() for each in others), "the others end by themselves")
    assert paused.is_alive()
    run = cluster.run("local", "status", "--dir", str(cluster.folder))
    assert (run.returncode, "is not up" in run.stderr) == (1, True), run
    run = cluster.run("down", "--dir", str(cluster.folder))
    assert run.returncode == 0, run
    assert "the supervisor had been killed" in run.stdout
    assert not paused.is_alive()
    cluster.start()  # for tests that another worker leaves to this one


def test_an_ephemeral_cluster_leaves_nothing(tmp_path: Path) -> None:
    options = ["--nodes", "1", "--base-port", str(free_base_port(1)), "--ephemeral"]
    with LocalCluster(tmp_path / "short", *options) as cluster:
        (node,) = cluster.identities()
        cluster.down()
        assert not node.is_alive()
        assert not cluster.folder.exists()


def test_separate_controllers_are_nodes_and_ctrl_c_stops_all(tmp_path: Path) -> None:
    options = ["--nodes", "1", "--base-port", str(free_base_port(1)), "--controllers", "separate"]
    with LocalCluster(tmp_path / "apart", *options) as cluster:
        assert re.search(r"^1 +broker +127\.\S+ +- ", cluster.output, re.M)
        assert re.search(r"^101 +controller +- +127\.", cluster.output, re.M)
        nodes = cluster.identities()
        assert len(nodes) == 2
        cluster.process.send_signal(signal.SIGINT)
        assert cluster.process.wait(120) == 0
        assert not any(each.is_alive() for each in nodes)
