"""`odradek local status` names what is wrong with a cluster of processes, and the next step works.

Of four nodes the fourth is a broker only: it may be killed beside a controller.
"""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.client import BlockingProducer
from odradek.client.errors import KafkaTimeoutError
from tests.cluster.flavours import ODRADEK_COMMAND
from tests.cluster.local_cluster import COMMAND_SECONDS_MAX, LocalCluster, free_base_port
from tests.cluster.processes import wait_until
from tests.interop.ports import free_ports

pytestmark = pytest.mark.slow

NODES = 4
SECONDS_MAX = 120


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("status") / "cluster"
    options = ["--nodes", str(NODES), "--base-port", str(free_base_port(NODES))]
    with LocalCluster(folder, *options) as cluster:
        yield cluster


def servers_without(cluster: LocalCluster, *nodes: int) -> str:
    servers = cluster.bootstrap_servers.split(",")
    return ",".join(each for at, each in enumerate(servers, 1) if at not in nodes)


def create_topic(cluster: LocalCluster, topic: str, assignment: str, **configs: str) -> None:
    options = [word for name, value in configs.items() for word in ("--config", f"{name}={value}")]
    server = ["topics", "--bootstrap-server", cluster.bootstrap_servers]
    create = ["--create", "--topic", topic, "--replica-assignment", assignment]
    run = cluster.run(*server, *create, *options)
    assert run.returncode == 0, run


def produce(cluster: LocalCluster, topic: str, count: int) -> None:
    with BlockingProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number).result()


def why_not_delivered(cluster: LocalCluster, topic: str) -> str:
    """Return what a producer with acks=all is told in the end."""
    with (
        BlockingProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            acks="all",
            delivery_timeout_ms=3_000,
            request_timeout_ms=1_500,
        ) as producer,
        pytest.raises(KafkaTimeoutError) as late,
    ):
        producer.send(topic, b"in vain").result()
    return str(late.value)


def line_with(output: str, words: str) -> str:
    (line,) = (each for each in output.splitlines() if words in each)
    return line


def findings(cluster: LocalCluster, *server: str) -> dict[str, str]:
    """Return the sentences by state, of the local cluster or as any Kafka is asked."""
    if server:
        run = cluster.run("local", "status", "--json", "--bootstrap-server", *server)
    else:
        run = cluster.run("local", "status", "--json", "--dir", str(cluster.folder))
    assert run.returncode == 0, run
    return {each["state"]: each["sentence"] for each in json.loads(run.stdout)["findings"]}


def test_a_cluster_in_order_has_nothing_to_explain(cluster: LocalCluster) -> None:
    assert findings(cluster) == {}
    assert findings(cluster, cluster.bootstrap_servers) == {}


def test_a_partition_without_a_leader_names_who_may_lead_and_the_command_works(
    cluster: LocalCluster,
) -> None:
    create_topic(cluster, "orders", "4:1", **{"min.insync.replicas": "1"})
    produce(cluster, "orders", 5)
    cluster.local("kill", "1")
    produce(cluster, "orders", 7)  # which node 1 lacks
    cluster.local("kill", "4")
    restart = f"`odradek local restart 4 --dir {cluster.folder}` starts it"
    alone = line_with(cluster.local("status"), "orders-0 has no leader")
    assert alone == (
        "orders-0 has no leader: only node 4 has all committed records, and it does not run;"
        f" {restart}; no other replica runs that could be elected"
    )
    unclean = ["--election-type", "unclean", "--topic", "orders", "--partition", "0"]
    servers = ["--bootstrap-server", servers_without(cluster, 1, 4)]
    refused = cluster.run("leader-election", *servers, *unclean)
    assert "Eligible topic partition leaders are not available." in refused.stdout, refused
    assert "An unclean election chooses a replica that runs: start one" in refused.stderr
    assert why_not_delivered(cluster, "orders").endswith(
        "orders-0: LEADER_NOT_AVAILABLE (start a replica that may lead: `odradek local status"
        " --bootstrap-server HOST:PORT` names those)"
    )
    cluster.local("restart", "1")
    sentence = line_with(cluster.local("status"), "orders-0 has no leader")
    found = re.fullmatch(
        r"orders-0 has no leader: only node 4 has all committed records, and it does not run;"
        rf" {re.escape(restart)}, or `(odradek leader-election .*)` makes node 1 lead, and loses"
        r" what node 4 has from offset 5 on",
        sentence,
    )
    assert found is not None, sentence
    logged = "".join(cluster.local("logs", each, "--lines", "10000") for each in ("1", "2", "3"))
    assert logged.count("partitions have no leader: start a broker that has all committed") >= 1
    _odradek, *words = shlex.split(found[1])
    elected = cluster.run(*words)
    assert elected.returncode == 0, elected
    assert "orders-0: broker 1 leads; its log ends at offset 5" in elected.stdout
    assert "no leader" not in cluster.local("status")
    cluster.local("restart", "4")


def test_a_node_that_stands_still_is_told_from_one_that_is_down(cluster: LocalCluster) -> None:
    create_topic(cluster, "strict", "3:4", **{"min.insync.replicas": "2"})
    cluster.local("pause", "4")
    resume = f"`odradek local resume 4 --dir {cluster.folder}` lets it go on"
    here = findings(cluster)
    assert here["nodePaused"] == (
        f"node 4 is paused (SIGSTOP: connections stay open, and nothing answers): {resume}"
    )
    assert here["underMinIsr"].startswith("strict-0 refuses records with acks=all")
    assert here["underMinIsr"].endswith(
        f"1 replica is in sync, and min.insync.replicas is 2; node 4 is paused: {resume}"
    )
    assert "NOT_ENOUGH_REPLICAS (start the replicas" in why_not_delivered(cluster, "strict")
    from_afar = findings(cluster, servers_without(cluster, 4))
    assert re.fullmatch(
        r"node 4 is fenced and stands still \(no answer at \S+; the process is paused or stalled,"
        r" or its host is; it last fetched metadata \d+ \w+ ago\): let it go on \(`kill -CONT` and"
        r" its pid\), or look at its log and restart it",
        from_afar["nodeSilent"],
    ), from_afar
    cluster.local("resume", "4")
    log = cluster.local("logs", "4", "--lines", "10000")
    fenced = line_with(log, "likely fenced: heartbeats are not answered")
    assert re.search(r'reason="no controller has answered for \d+ ms', fenced), fenced
    log = cluster.local("logs", "3", "--lines", "10000")
    assert log.count("partitions are under min.insync.replicas") == 1

    cluster.local("kill", "4")
    from_afar = findings(cluster, servers_without(cluster, 4))
    assert re.fullmatch(
        r"node 4 does not run \(fenced; \S+ refuses connections; it last fetched metadata \d+ \w+"
        r" ago\): start it",
        from_afar["nodeDown"],
    ), from_afar
    cluster.local("restart", "4")


def test_a_second_process_with_the_same_id_is_told_what_to_do(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    lines = (cluster.folder / "node-4" / "server.properties").read_text().splitlines()
    changed = ("listeners=", "advertised.listeners=", "log.dirs=", "log.dir=", "metadata.log.dir=")
    kept = [each for each in lines if not each.startswith(changed)]
    (port,) = free_ports(1)
    twin = tmp_path / "twin.properties"
    registration = "initial.broker.registration.timeout.ms=3000"
    own = [f"listeners=PLAINTEXT://127.0.0.1:{port}", f"log.dirs={tmp_path / 'data'}", registration]
    twin.write_text("\n".join([*kept, *own]))
    server = ["--bootstrap-server", cluster.bootstrap_servers]
    cluster_id = cluster.run("cluster", "cluster-id", *server).stdout.split()[-1]
    formatted = cluster.run("storage", "format", "-t", cluster_id, "-c", str(twin))
    assert formatted.returncode == 0, formatted
    run = subprocess.run(
        [ODRADEK_COMMAND, "serve", str(twin)],
        capture_output=True,
        encoding="utf-8",
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )
    assert run.returncode == 1
    advice = "if another process with this id runs, stop it or give this node another node.id"
    assert run.stderr.count("not registered yet: trying again") == 1, run.stderr
    waits = line_with(run.stderr, "not registered yet")
    assert "the session of an earlier process with broker id 4 is not over" in waits
    assert advice in waits
    assert f"the last answer: DUPLICATE_BROKER_REGISTRATION, {advice}" in run.stderr


def test_a_replica_that_leaves_and_rejoins_is_told(cluster: LocalCluster) -> None:
    create_topic(cluster, "flapping", "3:4")
    for _ in range(3):
        cluster.local("kill", "4")
        cluster.local("restart", "4")
    sentence = findings(cluster)["flapping"]
    assert re.fullmatch(
        r"node 4 left the ISR of .*flapping-0.* 3 times in \d+ \w+ and rejoined: it is too slow,"
        r" or stands still now and then; look at its log \(`odradek local logs 4 --dir \S+`\) .*",
        sentence,
    ), sentence
    log = cluster.local("logs", "3", "--lines", "10000")
    flaps = line_with(log, "a replica leaves the ISR and rejoins it repeatedly")
    assert re.search(r" broker_id=4 times=3 in_ms=\d+ ", flaps), flaps


def test_a_quorum_without_a_majority_names_what_to_start(cluster: LocalCluster) -> None:
    cluster.local("kill", "2", "--no-wait")
    cluster.local("kill", "3", "--no-wait")
    wait_until(lambda: "noQuorum" in findings(cluster), "the last controller gives up", SECONDS_MAX)
    assert findings(cluster)["noQuorum"] == (
        "the metadata quorum has no majority (1 of 3 controllers runs, 2 must): `odradek local"
        f" restart 2 --dir {cluster.folder}` starts it; until then no topic, leader or ISR changes"
    )
    said = "no leader of the metadata quorum, so no topic, leader or ISR changes"
    wait_until(
        lambda: said in cluster.local("logs", "1", "--lines", "10000"),
        "node 1 logs it",
        SECONDS_MAX,
    )
    cluster.local("restart", "2")
    found = findings(cluster)
    assert "noQuorum" not in found
    assert found["voterLost"].startswith(
        "node 3 does not fetch metadata, 2 of 3 voters are left and 2 are needed, so one more loss"
        " stops all changes of the metadata: "
    )
    cluster.local("restart", "3")
