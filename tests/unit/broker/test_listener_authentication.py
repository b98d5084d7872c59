"""Which configs make a listener with SASL, and which are refused when the node starts."""

from collections.abc import Mapping

import pytest

from odradek.broker.listener_authentication import Authentication
from odradek.broker.listeners import client_listeners, controller_listeners
from odradek.core.config import ConfigError, load_broker_config, parse_server_properties
from odradek.core.config.broker_config import BrokerConfig
from odradek.core.scram import ScramKeys, ScramMechanism
from odradek.metadata.kept_records import ScramCredentials
from odradek.metadata.touched import ScramKey
from odradek.net.sasl.exchange import SaslExchange
from odradek.net.sasl.mechanisms import Plain
from odradek.net.sasl.scram import Scram
from odradek.net.settings import ConnectionInfo
from odradek.protocol.generated.metadata_records import UserScramCredentialRecord

SECRET = "tell-no-one"
JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
PLAIN_JAAS = f'o.a.PlainLoginModule required username="x" password="y" user_ann="{SECRET}";'
BASE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "log.dirs": "/data",
}
RECORD = UserScramCredentialRecord(
    name="ann", mechanism=1, salt=b"s", stored_key=b"a", server_key=b"b", iterations=5000
)


def config_of(texts: Mapping[str, str]) -> BrokerConfig:
    text = "\n".join(f"{name}={value}" for name, value in {**BASE, **texts}.items())
    return load_broker_config(parse_server_properties(text, "server.properties")).config


def authentication(credentials: ScramCredentials | None = None) -> Authentication:
    return Authentication(
        lambda: credentials or {}, now_ms=lambda: 0, secret_bytes=lambda count: bytes(count)
    )


def gate_of(texts: Mapping[str, str], credentials: ScramCredentials | None = None) -> SaslExchange:
    (listener,) = client_listeners(config_of(texts), authentication(credentials).gates_of)
    assert listener.security_protocol == "SASL_PLAINTEXT"
    assert listener.make_gate is not None
    gate = listener.make_gate(ConnectionInfo(listener.name, "SASL_PLAINTEXT", "h", 1, "id"))
    assert isinstance(gate, SaslExchange)
    return gate


def test_mechanisms_users_and_limits_come_from_the_listeners_configs() -> None:
    gate = gate_of(
        {
            "sasl.enabled.mechanisms": "GSSAPI",
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
            JAAS: PLAIN_JAAS,
            "sasl.server.max.receive.size": "1000",
            "connection.failed.authentication.delay.ms": "7",
            "connections.max.reauth.ms": "3",
            "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "5",
        },
        {ScramKey(1, "ann"): RECORD},
    )
    settings = gate._settings
    assert list(settings.mechanisms) == ["SCRAM-SHA-256", "PLAIN"]
    assert (settings.frame_bytes_max, settings.failure_delay_ms) == (1000, 7)
    assert settings.session_ms_max["PLAIN"] == 5
    assert settings.session_ms_max["SCRAM-SHA-256"] == 3
    plain, scram = settings.mechanisms["PLAIN"](), settings.mechanisms["SCRAM-SHA-256"]()
    assert isinstance(plain, Plain)
    assert plain.respond(f"\0ann\0{SECRET}".encode()).username == "ann"
    assert isinstance(scram, Scram)
    found = scram._find(ScramMechanism.SCRAM_SHA_256, "ann")
    assert found == (b"s", 5000, ScramKeys(b"a", b"b"))
    assert scram._find(ScramMechanism.SCRAM_SHA_512, "ann") is None


def test_every_exchange_has_a_nonce_of_its_own() -> None:
    numbers = iter(range(100))
    gates = Authentication(
        dict, now_ms=lambda: 0, secret_bytes=lambda count: next(numbers).to_bytes(count, "big")
    )
    config = config_of({"sasl.enabled.mechanisms": "SCRAM-SHA-512"})
    (listener,) = client_listeners(config, gates.gates_of)
    assert listener.make_gate is not None
    gate = listener.make_gate(ConnectionInfo(listener.name, "SASL_PLAINTEXT", "h", 1, "id"))
    assert isinstance(gate, SaslExchange)
    make = gate._settings.mechanisms["SCRAM-SHA-512"]
    first = [make().respond(b"n,,n=ann,r=x").message for _ in range(2)]
    assert first[0] != first[1]


@pytest.mark.parametrize(
    ("texts", "name", "problem"),
    [
        ({}, "listeners", "SASL_PLAINTEXT speaks SASL_PLAINTEXT: set sasl.enabled.mechanisms to"),
        (
            {"sasl.enabled.mechanisms": "GSSAPI"},
            "sasl.enabled.mechanisms",
            "GSSAPI is not supported here, only PLAIN, SCRAM-SHA-256",
        ),
        ({"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms", "is empty"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "sasl.enabled.mechanisms", f"PLAIN needs {JAAS}"),
        (
            {"sasl.enabled.mechanisms": "PLAIN", JAAS: f"{SECRET} {SECRET}"},
            "sasl.jaas.config",
            "is not: LoginModule required",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", JAAS: f'ScramLoginModule required a="{SECRET}";'},
            "sasl.jaas.config",
            "ScramLoginModule is not for PLAIN",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_without_its_secrets(
    texts: Mapping[str, str], name: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        gate_of(texts)
    assert caught.value.name == name
    assert SECRET not in str(caught.value)


def test_nodes_do_not_prove_themselves_to_controllers_with_what_controllers_keep() -> None:
    config = config_of(
        {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@127.0.0.1:9093",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        }
    )
    with pytest.raises(ConfigError, match="SCRAM-SHA-256 cannot authenticate nodes to a contr"):
        controller_listeners(config, authentication().gates_of)
