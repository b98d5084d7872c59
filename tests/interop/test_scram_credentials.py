"""SCRAM credentials: set here by everybody's tools, believed by a real Kafka, and back again.

And what those tools make of a node without an authorizer.
"""

from pathlib import Path
from typing import Any

import confluent_kafka.admin
import kafka.admin
import kafka.errors
import pytest
from click.testing import CliRunner

from odradek.cli.main import main
from odradek.client import (
    AuthenticationError,
    BlockingAdmin,
    RemoveScramCredential,
    ScramCredentialInfo,
    ScramMechanism,
    SetScramCredential,
)
from odradek.client.admin.users import ScramChange
from odradek.testing.broker import Broker
from tests.interop.kafka_peer import KafkaNode, kafka_tool
from tests.interop.odradek_tool import odradek_tool

confluent: Any = confluent_kafka.admin  # their types do not name all they export
kafka_python: Any = kafka.admin

SHA_256, SHA_512 = ScramMechanism
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
CLUSTER_ID = "b2RyYWRlay1zbmFwc2hvdA"
USERS = ("--entity-type", "users", "--entity-name")
SNAPSHOTS_ALL_THE_TIME = {
    "metadata.log.max.record.bytes.between.snapshots": "1",
    "metadata.log.segment.ms": "1",
    "metadata.max.retention.bytes": "1",
}
MECHANISMS = [each.mechanism_name for each in ScramMechanism]
SASL_LISTENER = {
    "listener.name.sasl.sasl.enabled.mechanisms": ",".join(MECHANISMS),
    **{
        f"listener.name.sasl.{each.lower()}.sasl.jaas.config": f"{SCRAM_MODULE} required;"
        for each in MECHANISMS
    },
}
SET_HERE = {
    "ann": (ScramCredentialInfo(SHA_256, 8192),),
    "bob": (ScramCredentialInfo(SHA_512, 10_000),),
    "cy": (ScramCredentialInfo(SHA_256, 4096),),
    "dan": (ScramCredentialInfo(SHA_512, 4096),),
    "eve": (ScramCredentialInfo(SHA_256, 4096), ScramCredentialInfo(SHA_512, 16_384)),
}


def set_by_confluent(servers: str) -> None:
    admin = confluent.AdminClient({"bootstrap.servers": servers})
    mechanism = confluent.ScramMechanism.SCRAM_SHA_512
    info = confluent.ScramCredentialInfo(mechanism, 10_000)
    change = confluent.UserScramCredentialUpsertion("bob", info, b"bob-secret")
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(120)
    described = admin.describe_user_scram_credentials(["bob"])["bob"].result(120)
    (found,) = described.scram_credential_infos
    assert (found.mechanism, found.iterations) == (mechanism, 10_000)


def set_by_kafka_python(servers: str) -> None:
    admin = kafka_python.KafkaAdminClient(bootstrap_servers=servers)
    try:
        change = kafka_python.UserScramCredentialUpsertion(
            "cy", kafka_python.ScramMechanism.SCRAM_SHA_256, "cy-secret"
        )
        change_of_a_stranger = kafka_python.UserScramCredentialDeletion(
            "ghost", kafka_python.ScramMechanism.SCRAM_SHA_256
        )
        told = admin.alter_user_scram_credentials([change, change_of_a_stranger])
        assert told["cy"] is None
        assert "does not exist" in told["ghost"]
        infos = admin.describe_user_scram_credentials(["cy"])["cy"]["credential_infos"]
        assert [int(each["iterations"]) for each in infos] == [4096]
    finally:
        admin.close()


def logs_in(node: KafkaNode, mechanism: ScramMechanism, user: str, password: str) -> bool:
    settings: dict[str, Any] = {
        "bootstrap_servers": node.address("SASL"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism.mechanism_name,
        "sasl_username": user,
        "sasl_password": password,
    }
    try:
        with BlockingAdmin(**settings) as admin:
            assert admin.describe_cluster().brokers
    except AuthenticationError:
        return False
    return True


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A directory that odradek formatted, which Kafka takes as well."""
    path, properties = tmp_path / "data", tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\n"
        "node.id=1\n"
        "listeners=PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093\n"
        "controller.listener.names=CONTROLLER\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:19093\n"
        f"log.dirs={path}\n"
    )
    arguments = ["storage", "format", "-t", CLUSTER_ID, "-c", str(properties), "--standalone"]
    formatted = CliRunner().invoke(main, arguments)
    assert formatted.exit_code == 0, formatted.output
    return path


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.usefixtures("kafka_libs")
def test_a_kafka_lets_in_whom_others_added_here(data_dir: Path) -> None:
    with Broker(data_dir=str(data_dir), config=SNAPSHOTS_ALL_THE_TIME) as broker:
        server = ("--bootstrap-server", broker.bootstrap_servers)
        ann = "SCRAM-SHA-256=[iterations=8192,password=ann-secret]"
        added = kafka_tool("configs", *server, "--alter", *USERS, "ann", "--add-config", ann)
        assert added.stdout == "Completed updating config for user ann.\n"
        set_by_confluent(broker.bootstrap_servers)
        set_by_kafka_python(broker.bootstrap_servers)
        dan = "SCRAM-SHA-512=[password=dan,secret]"
        ours = odradek_tool("configs", *server, "--alter", *USERS, "dan", "--add-config", dan)
        assert ours.stdout == "Completed updating config for user dan.\n"
        with BlockingAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
            for mechanism, iterations in ((SHA_256, 4096), (SHA_512, 16_384)):
                change = SetScramCredential(
                    mechanism=mechanism, password="eve-secret", iterations=iterations
                )
                admin.alter_user_scram_credentials({"eve": change}).unwrap()
            assert admin.describe_user_scram_credentials().unwrap() == SET_HERE
        theirs = kafka_tool("configs", *server, "--describe", "--entity-type", "users").stdout
        ours = odradek_tool("configs", *server, "--describe", "--entity-type", "users")
        assert sorted(theirs.splitlines()) == ours.stdout.splitlines()
        assert len(ours.stdout.splitlines()) == len(SET_HERE)
        broker.create_topic("more")  # so that a snapshot comes after them
    with KafkaNode(data_dir, SASL_LISTENER, listeners={"SASL": "SASL_PLAINTEXT"}) as node:
        assert logs_in(node, SHA_256, "ann", "ann-secret")
        assert not logs_in(node, SHA_256, "ann", "bob-secret")
        assert logs_in(node, SHA_512, "bob", "bob-secret")
        assert logs_in(node, SHA_256, "cy", "cy-secret")
        assert logs_in(node, SHA_512, "dan", "dan,secret")
        assert logs_in(node, SHA_256, "eve", "eve-secret")
        assert logs_in(node, SHA_512, "eve", "eve-secret")
        with BlockingAdmin(bootstrap_servers=node.bootstrap_servers) as admin:
            assert admin.describe_user_scram_credentials().unwrap() == SET_HERE
            changes: dict[str, ScramChange] = {
                "eve": RemoveScramCredential(mechanism=SHA_256),
                "fay": SetScramCredential(mechanism=SHA_512, password="fay-secret"),
            }
            admin.alter_user_scram_credentials(changes).unwrap()
    with (
        Broker(data_dir=str(data_dir)) as broker,
        BlockingAdmin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        assert admin.describe_user_scram_credentials().unwrap() == {
            **SET_HERE,
            "eve": (ScramCredentialInfo(SHA_512, 16_384),),
            "fay": (ScramCredentialInfo(SHA_512, 4096),),
        }


def test_clients_are_told_that_there_is_no_authorizer() -> None:
    binding = confluent.AclBinding(
        confluent.ResourceType.TOPIC,
        "orders",
        confluent.ResourcePatternType.LITERAL,
        "User:ann",
        "*",
        confluent.AclOperation.READ,
        confluent.AclPermissionType.ALLOW,
    )
    every = kafka_python.ResourcePatternFilter(
        kafka_python.ResourceType.ANY, None, kafka_python.ACLResourcePatternType.ANY
    )
    wanted = kafka_python.ACLFilter(
        None, None, kafka_python.ACLOperation.ANY, kafka_python.ACLPermissionType.ANY, every
    )
    with Broker(memory=True) as broker:
        admin = confluent.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        (created,) = admin.create_acls([binding]).values()
        refusal = created.exception(120)
        assert isinstance(refusal, confluent_kafka.KafkaException)
        assert refusal.args[0].code() == confluent_kafka.KafkaError.SECURITY_DISABLED
        described = admin.describe_cluster(include_authorized_operations=True).result(120)
        assert sum(1 << each.value for each in described.authorized_operations) == 8096
        older = kafka_python.KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        try:
            with pytest.raises(kafka.errors.SecurityDisabledError, match="No Authorizer"):
                older.describe_acls(wanted)
        finally:
            older.close()
