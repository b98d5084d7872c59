"""From a node's configs to connections with others: TLS with certificates, logins, bad stores."""

import asyncio
import shutil
from pathlib import Path
from random import Random
from typing import cast

import pytest

from odradek.broker.listeners import tls_settings
from odradek.core.config import BrokerConfig, ConfigError, load_broker_config, parse_overrides
from odradek.net.server import ConnectionInfo, Listener, Reply
from odradek.protocol.framing import Request, frame_response
from odradek.protocol.generated.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from odradek.protocol.message import Message
from odradek.wire.lane import Lane, LaneError, LaneSettings
from odradek.wire.peer_security import peer_security
from tests.certificates import CLIENT_PRINCIPAL, make_pki
from tests.unit.net.net_harness import on_loop, serving

BROKER = {
    "process.roles": "broker",
    "node.id": "4",
    "log.dirs": "/d",
    "listeners": "PLAINTEXT://:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@c1:9093",
}
JAAS = "org.apache.kafka.common.security.{}LoginModule required username={} password=p;"


def broker(protocol: str, **others: str) -> BrokerConfig:
    """Return the configs of a broker; ``_`` stands for the dots of others."""
    given = {name.replace("_", "."): value for name, value in others.items()}
    protocols = {"listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:{protocol}"}
    texts = {**BROKER, **protocols, **given}
    return load_broker_config(parse_overrides(f"{k}={v}" for k, v in texts.items())).config


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    folder = make_pki(tmp_path_factory.mktemp("peer-pki"))
    for name in ("server", "client", "stranger"):
        both = (folder / f"{name}.key").read_text() + (folder / f"{name}.pem").read_text()
        (folder / f"{name}.both.pem").write_text(both)
    return folder


def stores(pki: Path, name: str) -> dict[str, str]:
    return {
        "listener_name_controller_ssl_keystore_location": str(pki / f"{name}.both.pem"),
        "listener_name_controller_ssl_keystore_type": "PEM",
        "ssl_truststore_location": str(pki / "ca.pem"),
        "ssl_truststore_type": "PEM",
    }


def test_plaintext_needs_nothing() -> None:
    assert peer_security(broker("PLAINTEXT"), "CONTROLLER") == (None, None)


@pytest.mark.parametrize(("name", "is_served"), [("client", True), ("stranger", False)])
def test_nodes_show_each_other_certificates(pki: Path, name: str, is_served: bool) -> None:
    principals: list[str] = []

    def handle(request: Request, info: ConnectionInfo, reply: Reply) -> None:
        principals.append(info.principal)
        keys = [ApiVersion(api_key=18, max_version=4)]
        response = ApiVersionsResponse(api_keys=keys)
        reply(frame_response(response, request.api, request.version, request.correlation_id))

    @on_loop
    async def story() -> None:
        server = broker("SSL", **stores(pki, "server"), ssl_client_auth="required")
        tls = tls_settings(server, "CONTROLLER")
        async with serving(handle, listeners=[Listener("TLS", "127.0.0.1", 0, "SSL", tls)]) as up:
            tls_context, login = peer_security(broker("SSL", **stores(pki, name)), "CONTROLLER")
            settings = LaneSettings("4", 80_000, 80_000, tls=tls_context, login=login)
            port = up.server.endpoints["TLS"][1]
            lane = Lane("tls", lambda: ("localhost", port), settings, Random(1))
            answered: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
            request = ApiVersionsRequest(
                client_software_name="odradek", client_software_version="1"
            )
            lane.send(request, answered.set_result, answered.set_exception)
            if is_served:
                assert cast("ApiVersionsResponse", await answered).error_code == 0
                assert set(principals) == {CLIENT_PRINCIPAL}
            else:
                with pytest.raises(LaneError):
                    await answered
                assert principals == []
            lane.close()

    story()


def test_a_login_has_the_mechanism_towards_controllers() -> None:
    config = broker(
        "SASL_PLAINTEXT",
        sasl_mechanism_controller_protocol="SCRAM-SHA-512",
        sasl_jaas_config=JAAS.format("plain.Plain", "ann"),
        **{
            "listener.name.controller.scram-sha-512.sasl.jaas.config": JAAS.format(
                "scram.Scram", "node-4"
            )
        },
    )
    tls, login = peer_security(config, "CONTROLLER")
    assert tls is None
    assert repr(login) == "<login by SCRAM-SHA-512 as node-4>"


@pytest.mark.parametrize(
    ("protocol", "others", "name"),
    [
        (
            "SSL",
            {"ssl_truststore_location": "/none", "ssl_truststore_type": "JKS"},
            "truststore.type",
        ),
        ("SSL", {"ssl_truststore_location": "/none", "ssl_truststore_type": "PEM"}, "truststore"),
        ("SASL_PLAINTEXT", {"sasl_mechanism_controller_protocol": "PLAIN"}, "sasl.jaas.config"),
        ("SASL_PLAINTEXT", {}, "GSSAPI"),
    ],
)
def test_what_cannot_be_used_is_named(protocol: str, others: dict[str, str], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        peer_security(broker(protocol, **others), "CONTROLLER")
