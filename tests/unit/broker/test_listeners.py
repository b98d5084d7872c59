"""From listeners and ssl configs to what a node opens and registers, or to a refusal that helps."""

import shutil
from pathlib import Path

import pytest

from odradek.broker.listeners import (
    client_listeners,
    controller_listeners,
    registered_listeners,
    server_limits,
)
from odradek.core.config import (
    STANDALONE,
    BrokerConfig,
    ConfigError,
    LoadedConfig,
    load_broker_config,
    parse_overrides,
    parse_server_properties,
)
from odradek.net.tls import server_context
from tests.certificates import make_pki

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")

BOTH = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"}


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pki(tmp_path_factory.mktemp("listeners-pki"))


def load(texts: dict[str, str]) -> LoadedConfig:
    overrides = parse_overrides(f"{name}={value}" for name, value in texts.items())
    return load_broker_config(overrides, base=STANDALONE)


def config_of(texts: dict[str, str]) -> BrokerConfig:
    return load(texts).config


def files(pki: Path) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pki / "server.both.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(pki / "ca.pem"),
    }


def test_each_listener_speaks_what_the_map_says(pki: Path) -> None:
    config = config_of(
        {
            **files(pki),
            "listeners": "IN://127.0.0.1:0,OUT://127.0.0.1:9093,CONTROL://127.0.0.1:9094",
            "advertised.listeners": "IN://inside:7,OUT://outside:0",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:SSL,CONTROL:PLAINTEXT",
            "inter.broker.listener.name": "IN",
            "controller.listener.names": "CONTROL",
        }
    )
    opened = client_listeners(config)
    assert [(each.name, each.security_protocol) for each in opened] == [
        ("IN", "PLAINTEXT"),
        ("OUT", "SSL"),
    ]
    assert [each.tls is None for each in opened] == [True, False]
    assert [each.name for each in controller_listeners(config)] == ["CONTROL"]
    told = registered_listeners(config, {"IN": ("127.0.0.1", 1), "OUT": ("127.0.0.1", 9093)})
    assert [(each.name, each.host, each.port, each.security_protocol) for each in told] == [
        ("IN", "inside", 7, 0),
        ("OUT", "outside", 9093, 1),
    ]


def test_a_listener_has_its_own_ssl_configs_before_those_of_the_node(pki: Path) -> None:
    own = {
        "listeners": "PLAINTEXT://127.0.0.1:0,Strict://127.0.0.1:0,SSL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,STRICT:SSL,SSL:SSL",
        "listener.name.strict.ssl.client.auth": "required",
        "listener.name.strict.ssl.enabled.protocols": "TLSv1.3",
        "listener.name.STRICT.ssl.client.auth": "requested",  # names are lower case: no effect
    }
    _, strict, ssl = client_listeners(config_of({**files(pki), **own}))
    assert strict.tls is not None
    assert ssl.tls is not None
    assert (strict.tls.client_auth, strict.tls.versions) == ("required", ("TLSv1.3",))
    assert (ssl.tls.client_auth, ssl.tls.versions) == ("none", ("TLSv1.2", "TLSv1.3"))


def test_certificates_may_stand_in_the_config_itself(pki: Path, tmp_path: Path) -> None:
    def text(name: str) -> str:
        return (pki / name).read_text().replace("\n", "\\n")

    properties = f"""
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0
ssl.keystore.type=PEM
ssl.keystore.certificate.chain={text("server.pem")}
ssl.keystore.key={text("locked.key")}
ssl.key.password=secret
ssl.truststore.type=PEM
ssl.truststore.certificates={text("ca.pem")}
ssl.client.auth=required
"""
    config = load_broker_config(parse_server_properties(properties, "f")).config
    _, ssl = client_listeners(config)
    assert ssl.tls is not None
    assert server_context(ssl.tls).cert_store_stats()["x509_ca"] == 1


PEM = {"ssl.keystore.type": "PEM"}


@pytest.mark.parametrize(
    ("texts", "name", "message"),
    [
        ({}, "ssl.keystore.location", "is needed for the certificate"),
        ({"ssl.keystore.location": "f"}, "ssl.keystore.type", "JKS is not supported: .* PEM"),
        (
            {"ssl.keystore.location": "f", "ssl.keystore.type": "PKCS12"},
            "ssl.keystore.type",
            "PKCS12 is not supported",
        ),
        ({**PEM, "ssl.keystore.location": "absent"}, "ssl.keystore.location", "No such file"),
        ({**PEM, "ssl.keystore.location": "{ca}"}, "ssl.keystore.location", "no private key"),
        (
            {**PEM, "ssl.keystore.location": "{both}", "ssl.keystore.password": "p"},
            "ssl.keystore.password",
            "other formats than PEM",
        ),
        (
            {**PEM, "ssl.keystore.location": "{both}", "ssl.keystore.key": "k"},
            "ssl.keystore.key",
            "together with ssl.keystore.location",
        ),
        ({**PEM, "ssl.keystore.key": "k"}, "ssl.keystore.key", "certificate.chain beside it"),
        (
            {**PEM, "ssl.keystore.certificate.chain": "c"},
            "ssl.keystore.certificate.chain",
            "needs ssl.keystore.key",
        ),
        (
            {**PEM, "ssl.keystore.certificate.chain": "c", "ssl.keystore.key": "k"},
            "ssl.keystore.key",
            "cannot use the certificate given as text",
        ),
        ({"ssl.truststore.location": "f"}, "ssl.truststore.type", "JKS is not supported"),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "absent"},
            "ssl.truststore.location",
            "No such file",
        ),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "nonsense"},
            "ssl.truststore.certificates",
            "cannot use the CA given as text",
        ),
        ({"ssl.client.auth": "required"}, "ssl.client.auth", "needs the CA"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols", "TLSv1.1 is not supp"),
        ({"ssl.cipher.suites": "TLS_NONE"}, "ssl.cipher.suites", "no such cipher suite"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "listener.name.ssl."])
def test_what_cannot_work_is_refused_with_the_name_to_change(
    pki: Path, texts: dict[str, str], name: str, message: str, prefix: str
) -> None:
    paths = {"{both}": str(pki / "server.both.pem"), "{ca}": str(pki / "ca.pem")}
    given = {prefix + key: paths.get(value, value) for key, value in texts.items()}
    if not any(".keystore." in key for key in texts) and texts:
        given |= {**PEM, "ssl.keystore.location": paths["{both}"]}
    loaded = load({**BOTH, **given})
    with pytest.raises(ConfigError, match=message) as refused:
        client_listeners(loaded.config)
    expected = prefix + name if prefix + name in given else name
    assert refused.value.name == expected
    located = loaded.locate(refused.value)
    assert located.origin == ("--override" if expected in given else "")
    assert expected in str(located)


def test_limits_come_from_the_config() -> None:
    limits = server_limits(
        config_of(
            {
                "connections.max.idle.ms": "-1",
                "socket.listen.backlog.size": "7",
                "max.connections.per.ip": "3",
                "max.connections.per.ip.overrides": "127.0.0.1:9",
            }
        )
    )
    assert limits.idle_ms_max > 10**12, "negative is never"
    assert (limits.backlog_max, limits.connections_per_ip_max) == (7, 3)
    assert limits.connections_per_ip_overrides == {"127.0.0.1": 9}


def test_a_listener_that_is_not_open_is_not_registered() -> None:
    """A dynamic change of listeners is loaded after those of the file were opened."""
    config = config_of(
        {"listeners": "PLAINTEXT://127.0.0.1:0,B://127.0.0.1:0"}
        | {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT"}
    )
    told = registered_listeners(config, {"PLAINTEXT": ("127.0.0.1", 5)})
    assert [each.name for each in told] == ["PLAINTEXT"]


def test_rules_make_the_user_of_a_client_certificate(pki: Path) -> None:
    rules = "RULE:^CN=([^,]*).*$/$1/L"
    name = "listener.name.ssl.ssl.principal.mapping.rules"
    plain, tls = client_listeners(config_of({**BOTH, **files(pki), name: rules}))
    assert plain.name_of is None
    assert tls.name_of is not None
    assert tls.name_of("CN=Ann,O=Example") == "ann"
    (_, without) = client_listeners(config_of({**BOTH, **files(pki)}))
    assert without.name_of is None
    with pytest.raises(ConfigError, match=f"{name}: 'RULE' is no rule"):
        client_listeners(config_of({**BOTH, **files(pki), name: "RULE"}))
