"""From settings to a login: what goes together, what Java's file says, and that nothing leaks."""

import asyncio
from typing import Any

import pytest

from odradek.client.admin.admin import Admin
from odradek.client.consumer import Consumer
from odradek.client.errors import AuthenticationError, ConfigurationError
from odradek.client.producer import Producer
from odradek.client.settings import COMMON, Settings
from odradek.core.jaas import JaasError, parse_jaas
from odradek.spark.options import parse_options
from odradek.spark.sink_options import parse_sink_options
from odradek.wire.sasl.login import Login, login_from
from odradek.wire.sasl.mechanisms import OauthBearer
from odradek.wire.tls import context_from

SECRET = "tell-nobody"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def login(mechanism: str, **others: Any) -> Login:
    made = login_from(settings(sasl_mechanism=mechanism, **others))
    assert made is not None
    return made


def settings(protocol: str = "SASL_PLAINTEXT", **others: Any) -> Settings:
    return Settings(COMMON, bootstrap_servers="a:1", security_protocol=protocol, **others)


def first(made: Login) -> bytes:
    async def begin() -> bytes:
        return (await made.begin()).first()

    return asyncio.run(begin())


def test_without_sasl_nobody_logs_in() -> None:
    assert login_from(settings("PLAINTEXT")) is None
    assert login_from(settings("SSL")) is None
    assert context_from(settings("SASL_PLAINTEXT")) is None
    assert context_from(settings("SASL_SSL")) is not None


def test_a_name_and_a_password_are_enough() -> None:
    made = login("PLAIN", sasl_username="ann", sasl_password=SECRET)
    assert first(made) == b"\0ann\0tell-nobody"
    scram = login("SCRAM-SHA-512", sasl_username="ann", sasl_password=SECRET)
    assert first(scram).startswith(b"n,,n=ann,r=")
    assert first(scram) != first(scram)


def test_javas_way_of_writing_it_is_read() -> None:
    text = f'  {PLAIN_MODULE} required\n  username="a b"\n password="x\\"y\\\\z;=\'";'
    assert first(login("PLAIN", sasl_jaas_config=text)) == b"\0a b\0x\"y\\z;='"
    shaded = f"kafkashaded.{SCRAM_MODULE} REQUIRED username=ann password='t k' tokenauth=true ;"
    made = login("SCRAM-SHA-256", sasl_jaas_config=shaded)
    assert first(made).endswith(b",tokenauth=true")


@pytest.mark.parametrize(
    "text",
    [
        "",
        PLAIN_MODULE,
        f'{PLAIN_MODULE} required username="a" password="{SECRET}"',
        f'{PLAIN_MODULE} perhaps username="a" password="{SECRET}";',
        f'{PLAIN_MODULE} required username="a" password="{SECRET};',
        f'{PLAIN_MODULE} required username="a" password="{SECRET}"; more',
        f'{PLAIN_MODULE} required "{SECRET}";',
        "x" * 100_000,
    ],
)
def test_what_is_no_jaas_is_refused_without_a_quote(text: str) -> None:
    with pytest.raises(JaasError) as told:
        parse_jaas(text)
    assert SECRET not in str(told.value)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "sasl.mechanism"),
        ({"sasl_mechanism": "GSSAPI"}, "GSSAPI"),
        ({"sasl_mechanism": "PLAIN"}, "sasl.username"),
        ({"sasl_mechanism": "PLAIN", "sasl_username": "a"}, "sasl.password"),
        ({"sasl_mechanism": "PLAIN", "sasl_username": "a\0", "sasl_password": SECRET}, "zero"),
        (
            {
                "sasl_mechanism": "PLAIN",
                "sasl_username": "a",
                "sasl_jaas_config": f"{PLAIN_MODULE} required username=a password={SECRET};",
            },
            "not both",
        ),
        (
            {
                "sasl_mechanism": "PLAIN",
                "sasl_jaas_config": f"{SCRAM_MODULE} required username=a password={SECRET};",
            },
            "PlainLoginModule",
        ),
        ({"sasl_mechanism": "OAUTHBEARER"}, "provider"),
        ({"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token_provider": "x"}, "function"),
        ({"protocol": "PLAINTEXT", "sasl_username": "a"}, "without effect"),
    ],
)
def test_what_does_not_go_together_is_told_without_secrets(
    given: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem) as told:
        login_from(settings(**given))
    assert SECRET not in str(told.value)


@pytest.mark.parametrize("client", [Producer, Consumer, Admin])
def test_it_is_told_when_a_client_is_made(client: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"sasl\.mechanism"):
        client(bootstrap_servers="a:1", security_protocol="SASL_SSL")


def test_tokens_come_from_functions_of_both_kinds_and_from_a_text() -> None:
    async def later() -> str:
        return "later"

    assert b"Bearer now" in first(login("OAUTHBEARER", sasl_oauthbearer_token="now"))
    for provider, token in (
        (later, b"later"),
        (lambda: "plain", b"plain"),
        (lambda: later(), b"later"),
    ):
        made = login("OAUTHBEARER", sasl_oauthbearer_token_provider=provider)
        assert b"Bearer " + token in first(made)


def test_a_function_that_gives_no_token_is_a_failed_login() -> None:
    def broken() -> str:
        raise OSError("no network")

    for provider, problem in ((broken, "no network"), (lambda: None, "NoneType")):
        made = login("OAUTHBEARER", sasl_oauthbearer_token_provider=provider)
        with pytest.raises(AuthenticationError, match=problem):
            first(made)


def test_nothing_shows_a_secret() -> None:
    made = login("PLAIN", sasl_username="ann", sasl_password=SECRET)
    text = f'{PLAIN_MODULE} required username="ann" password="{SECRET}";'
    parsed = parse_jaas(text)
    given = settings(sasl_mechanism="PLAIN", sasl_jaas_config=text)
    shown = [repr(each) for each in (made, parsed, given, OauthBearer(SECRET))]
    assert "ann" in shown[0]
    assert not any(SECRET in each for each in shown)


def test_sparks_options_bring_it_to_the_client() -> None:
    given = {
        "kafka.bootstrap.servers": "a:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": f'{SCRAM_MODULE} required username="ann" password="{SECRET}";',
    }
    source = parse_options({**given, "subscribe": "t"}).client
    sink = parse_sink_options({**given, "topic": "t"}).client
    for client in (source, sink):
        made = login_from(Settings(COMMON, client))
        assert made is not None
        assert made.username == "ann"
