"""`odradek up`, `odradek local …` and `odradek down`, each as a process. One cluster for most."""

import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.client import BlockingConsumer, BlockingProducer
from tests.cluster.local_cluster import LocalCluster, free_base_port

pytestmark = pytest.mark.slow

NODES = 3


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
    assert "1 partition of 1 topic: all replicas in sync" in shown
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


def test_down_without_a_cluster_is_one_clear_line(tmp_path: Path, cluster: LocalCluster) -> None:
    run = cluster.run("down", "--dir", str(tmp_path / "none"))
    assert run.returncode == 1
    assert re.fullmatch(r"Error: there is no cluster in .*none: .*\n", run.stderr), run


def test_down_ends_all_nodes_and_the_next_up_goes_on(cluster: LocalCluster) -> None:
    nodes = cluster.identities()
    assert len(nodes) == NODES
    cluster.down()
    assert not any(each.is_alive() for each in nodes)
    assert not re.search(r"died|SIGKILL", cluster.output)
    again = cluster.run("down", "--dir", str(cluster.folder))
    assert (again.returncode, again.stderr.endswith("is not up\n")) == (1, True), again
    cluster.start()
    with BlockingConsumer(
        "orders",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="readers",
        auto_offset_reset="earliest",
    ) as consumer:
        read = [record.value for records in consumer.poll(30.0).values() for record in records]
    assert read == [b"first"]


def test_nodes_do_not_outlive_a_supervisor_that_was_killed(cluster: LocalCluster) -> None:
    nodes = cluster.identities()
    cluster.process.send_signal(signal.SIGKILL)
    cluster.process.wait()
    run = cluster.run("down", "--dir", str(cluster.folder))
    assert run.returncode == 0, run
    assert "the supervisor had been killed" in run.stdout
    assert len(nodes) == NODES
    assert not any(each.is_alive() for each in nodes)
