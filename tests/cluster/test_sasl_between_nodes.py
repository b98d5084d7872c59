"""Three nodes that prove to each other who they are, on every listener; clients with SCRAM."""

import socket
from pathlib import Path

import pytest
from confluent_kafka import Producer

from odradek.client import BlockingAdmin, NewTopic
from odradek.client.admin.users import SetScramCredential
from odradek.core.scram import ScramMechanism
from odradek.protocol.apis import api_for_key
from odradek.protocol.framing import frame_request
from odradek.protocol.generated.metadata import MetadataRequest
from tests.cluster.processes import COMBINED, Cluster
from tests.interop.ports import HOST

pytestmark = pytest.mark.slow

SECONDS_MAX = 60
PASSWORD = "one of the nodes"
SCRAM_PASSWORD = "of a client"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    f' username="node" password="{PASSWORD}" user_node="{PASSWORD}";'
)
SCRAM_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
CONFIGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": SCRAM_JAAS,
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": JAAS,
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


def send_unproven(port: int) -> bytes:
    """Ask for Metadata as if there were no SASL; return what comes back."""
    request = MetadataRequest()
    frame = b"".join(frame_request(request, api_for_key(request.ID), 12, 1, "stranger"))
    with socket.create_connection((HOST, port), SECONDS_MAX) as peer:
        peer.sendall(frame)
        return peer.recv(1)


def test_nodes_and_clients_prove_who_they_are_and_a_node_dies(tmp_path: Path) -> None:
    with Cluster(tmp_path, COMBINED, configs=CONFIGS, is_relayed=False) as cluster:
        cluster.start()
        change = SetScramCredential(mechanism=ScramMechanism.SCRAM_SHA_256, password=SCRAM_PASSWORD)
        topic = NewTopic("t", 3, 3, configs={"min.insync.replicas": "2"})
        with BlockingAdmin(
            bootstrap_servers=cluster.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="node",
            sasl_password=PASSWORD,
        ) as admin:
            admin.alter_user_scram_credentials({"ann": change}).unwrap()
            admin.create_topics([topic]).unwrap()

        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "ann",
                "sasl.password": SCRAM_PASSWORD,
                "acks": "all",
            }
        )
        for number in range(30):
            producer.produce("t", b"%d" % number, partition=number % 3)
        assert producer.flush(SECONDS_MAX) == 0

        for node in cluster.nodes.values():
            assert send_unproven(node.port) == b""
            assert send_unproven(node.controller_port) == b""

        cluster.brokers[0].kill()
        for number in range(30):
            producer.produce("t", b"%d" % number, partition=number % 3)
        assert producer.flush(SECONDS_MAX) == 0
