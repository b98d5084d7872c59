"""Clients push what subscriptions ask for, and only that, within limits; it is shown and goes."""

import pytest

from odradek.broker.metrics import client_metrics
from odradek.core.errors import ErrorCode
from odradek.core.ids import ZERO_UUID, Uuid
from odradek.protocol.generated import incremental_alter_configs as alter
from odradek.protocol.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.generated.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from odradek.protocol.generated.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from odradek.records.compression import CompressionType, compress
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.unit.broker.metrics_scrape import scrape
from tests.unit.broker.otlp_payload import gauge, payload, total

CLIENT_METRICS, SET, DELETE = 16, 0, 1
ALICE, BOB = Uuid(b"a client's uuid!"), Uuid(b"another's uuid..")
PRODUCER = "org.apache.kafka.producer."


def subscribe(
    connection: BrokerConnection, name: str, **configs: str | None
) -> tuple[int, str | None]:
    resource = alter.AlterConfigsResource(
        resource_type=CLIENT_METRICS,
        resource_name=name,
        configs=[
            alter.AlterableConfig(
                name=key.replace("_", "."),
                config_operation=DELETE if value is None else SET,
                value=value,
            )
            for key, value in configs.items()
        ],
    )
    request = alter.IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = connection.ask(request, alter.IncrementalAlterConfigsResponse).responses
    return answer.error_code, answer.error_message


def asked(connection: BrokerConnection, client: Uuid = ALICE) -> GetTelemetrySubscriptionsResponse:
    request = GetTelemetrySubscriptionsRequest(client_instance_id=client)
    return connection.ask(request, GetTelemetrySubscriptionsResponse)


def push(
    connection: BrokerConnection,
    *metrics: bytes,
    client: Uuid = ALICE,
    subscription_id: int | None = None,
    terminating: bool = False,
    codec: CompressionType = CompressionType.NONE,
) -> int:
    if subscription_id is None:
        subscription_id = asked(connection, client).subscription_id
    request = PushTelemetryRequest(
        client_instance_id=client,
        subscription_id=subscription_id,
        terminating=terminating,
        compression_type=codec,
        metrics=compress(codec, payload(*metrics)),
    )
    return connection.ask(request, PushTelemetryResponse).error_code


def pushed(broker: Broker) -> dict[str, list[dict[str, str]]]:
    found = scrape(broker)
    names = {name for name in found.names() if name.startswith("kafka_client_")}
    return {name: found.labels(name) for name in names}


# Subscriptions.


def test_without_subscriptions_nothing_is_asked_for(connection: BrokerConnection) -> None:
    told = asked(connection)
    assert (told.requested_metrics, told.push_interval_ms) == ([], 300_000)


def test_a_client_gets_the_union_of_what_matches_it(connection: BrokerConnection) -> None:
    subscribe(connection, "a", metrics="x.,y.", interval_ms="60000", match="client_id=te.*")
    subscribe(connection, "b", metrics="y.,z.", interval_ms="2000")
    subscribe(connection, "c", metrics="other.", interval_ms="100", match="client_id=tes")
    told = asked(connection)
    assert (told.requested_metrics, told.push_interval_ms) == (["x.", "y.", "z."], 2000)
    assert not told.delta_temporality
    subscribe(connection, "d", metrics="*")
    assert asked(connection).requested_metrics == ["*"]
    subscribe(connection, "d", metrics=None)
    assert asked(connection).requested_metrics == ["x.", "y.", "z."]


def test_clients_match_by_what_they_say_about_themselves(broker: Broker) -> None:
    with BrokerConnection(broker.port, client_id="alice") as connection:
        hello = ApiVersionsRequest(client_software_name="lib", client_software_version="1.2.3")
        connection.ask(hello, ApiVersionsResponse)
        for number, match in enumerate(
            [
                "client_id=alice,client_software_name=lib",
                "client_software_version=1\\.2\\..*",
                "client_source_address=127\\.0\\.0\\.1",
                f"client_instance_id={ALICE}",
                "client_source_port=[0-9]+",
                "client_id=alice,client_software_name=other",
                "client_software_version=1\\.2",
            ]
        ):
            assert subscribe(connection, f"s{number}", metrics=f"m{number}.", match=match) == (
                0,
                None,
            )
        assert asked(connection).requested_metrics == [f"m{number}." for number in range(5)]


@pytest.mark.parametrize(
    "match",
    ["client_id", "client_id=", "colour=red", "client_id=(", "client_id=a=b", "client_id=(?=a)"],
)
def test_a_match_that_means_nothing_is_refused(connection: BrokerConnection, match: str) -> None:
    code, message = subscribe(connection, "a", match=match)
    assert code == ErrorCode.INVALID_CONFIG
    assert "Illegal client matching pattern" in (message or "")


def test_a_subscription_needs_a_name(connection: BrokerConnection) -> None:
    assert subscribe(connection, "", metrics="*")[0] == ErrorCode.INVALID_REQUEST


def test_the_id_of_a_subscription_changes_with_it_and_with_the_client(
    connection: BrokerConnection,
) -> None:
    before = asked(connection).subscription_id
    assert asked(connection).subscription_id == before
    assert asked(connection, BOB).subscription_id != before
    subscribe(connection, "a", metrics="*")
    assert asked(connection).subscription_id != before
    assert push(connection, subscription_id=before) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID


# Values.


@pytest.mark.parametrize("codec", CompressionType)
def test_what_is_asked_for_is_shown(
    broker: Broker, connection: BrokerConnection, codec: CompressionType
) -> None:
    subscribe(connection, "a", metrics=PRODUCER)
    metrics = [
        gauge(f"{PRODUCER}request-latency.avg", 2.5, {"node-id": "1"}),
        total(f"{PRODUCER}sent.total", 42),
        gauge("org.apache.kafka.consumer.lag", 9.0),
    ]
    assert push(connection, *metrics, codec=codec) == 0
    client = {
        "client_instance_id": str(ALICE),
        "client_id": "test",
        "client_software_name": "",
        "client_software_version": "",
    }
    shown = pushed(broker)
    assert shown == {
        "kafka_client_producer_request_latency_avg": [{**client, "node_id": "1"}],
        "kafka_client_producer_sent_total": [client],
    }
    found = scrape(broker)
    name = "kafka_client_producer_sent_total"
    assert found.value(name, **client) == 42


def test_a_push_takes_the_place_of_the_last_one(
    broker: Broker, connection: BrokerConnection
) -> None:
    subscribe(connection, "a", metrics="*")
    push(connection, gauge("gone", 1.0), gauge("stays", 1.0), total("adds", 5, is_delta=True))
    push(connection, gauge("stays", 2.0), total("adds", 6, is_delta=True))
    found = scrape(broker)
    assert set(pushed(broker)) == {"kafka_client_stays", "kafka_client_adds"}
    (labels,) = found.labels("kafka_client_adds")
    assert found.value("kafka_client_adds", **labels) == 11
    assert found.value("kafka_client_stays", **labels) == 2


def test_without_a_subscription_nothing_is_kept(
    broker: Broker, connection: BrokerConnection
) -> None:
    assert push(connection, gauge("a", 1.0)) == 0
    assert pushed(broker) == {}


def test_nonsense_is_refused_and_changes_nothing(
    broker: Broker, connection: BrokerConnection
) -> None:
    subscribe(connection, "a", metrics="*")
    push(connection, gauge("a", 1.0))
    request = PushTelemetryRequest(
        client_instance_id=ALICE,
        subscription_id=asked(connection).subscription_id,
        metrics=payload(gauge("b", 1.0)) + b"\x0a\x7f",
    )
    assert connection.ask(request, PushTelemetryResponse).error_code == ErrorCode.INVALID_RECORD
    assert set(pushed(broker)) == {"kafka_client_a"}


def test_clients_cannot_pass_as_others_or_break_a_scrape(
    broker: Broker, connection: BrokerConnection
) -> None:
    subscribe(connection, "a", metrics="*")
    forged = {"client_instance_id": str(BOB), "client.instance.id": "x", "__name__": "up", "9": "9"}
    assert (
        push(connection, gauge('a-b{c="d"}\n', 1.0, forged), gauge("a.b-c..d...", 2.0, forged)) == 0
    )
    assert push(connection, gauge("a.b", 1.0), client=BOB) == 0
    shown = pushed(broker)
    own = [labels for many in shown.values() for labels in many]
    assert {labels["client_instance_id"] for labels in own} == {str(ALICE), str(BOB)}
    assert all(not name.startswith("__") for labels in own for name in labels)


# Life.


def test_who_pushes_too_early_is_told_to_wait(connection: BrokerConnection) -> None:
    subscribe(connection, "a", metrics="*", interval_ms="3600000")
    number = asked(connection).subscription_id
    assert push(connection, gauge("a", 1.0), subscription_id=number) == 0
    again = push(connection, gauge("a", 1.0), subscription_id=number)
    assert again == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(connection, gauge("a", 1.0), client=BOB) == 0
    assert push(connection, gauge("a", 1.0), subscription_id=number, terminating=True) == 0


def test_who_says_goodbye_is_gone(broker: Broker, connection: BrokerConnection) -> None:
    subscribe(connection, "a", metrics="*")
    push(connection, gauge("a", 1.0))
    push(connection, gauge("a", 1.0), client=BOB)
    assert push(connection, gauge("a", 2.0), terminating=True) == 0
    (labels,) = pushed(broker)["kafka_client_a"]
    assert labels["client_instance_id"] == str(BOB)
    assert push(connection, gauge("a", 3.0)) == ErrorCode.INVALID_REQUEST


def test_who_is_silent_for_three_intervals_is_forgotten(
    broker: Broker, connection: BrokerConnection
) -> None:
    clients = broker.node.broker.metrics.clients
    subscribe(connection, "a", metrics="*", interval_ms="30000")
    push(connection, gauge("a", 1.0))
    client = clients.client(ALICE, {})
    now_ms = broker.node.clock.monotonic_ms()
    assert not client.is_silent(now_ms + 10_000)
    assert client.is_silent(now_ms + 91_000)
    client.on_asked(now_ms - 91_000)
    assert pushed(broker) == {}
    assert len(clients) == 0


def test_values_are_limited_for_each_client_and_for_all(
    broker: Broker, connection: BrokerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_metrics, "SERIES_PER_CLIENT_MAX", 10)
    monkeypatch.setattr(client_metrics, "SERIES_MAX", 15)
    subscribe(connection, "a", metrics="*")
    many = [gauge(f"m{number}", 1.0) for number in range(12)]
    push(connection, *many)
    assert len(pushed(broker)) == 10
    push(connection, *many, client=BOB)
    assert sum(map(len, pushed(broker).values())) == 15
    assert scrape(broker).value("odradek_client_metrics_dropped_total") == 2 + 7
    push(connection, *many)  # what it has itself does not stand in its way
    assert sum(map(len, pushed(broker).values())) == 15


def test_clients_are_limited(
    broker: Broker, connection: BrokerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_metrics, "CLIENTS_MAX", 3)
    subscribe(connection, "a", metrics="*")
    push(connection, gauge("a", 1.0))
    for _ in range(2):
        asked(connection, ZERO_UUID)
    assert "kafka_client_a" in pushed(broker)
    asked(connection)  # who is heard of stays
    asked(connection, ZERO_UUID)
    assert "kafka_client_a" in pushed(broker)
    for _ in range(3):
        asked(connection, ZERO_UUID)
    assert pushed(broker) == {}
    assert scrape(broker).value("kafka_server_client_metrics_instance_count") == 3


def test_names_and_labels_are_limited(broker: Broker, connection: BrokerConnection) -> None:
    subscribe(connection, "a", metrics="*")
    labels = {f"label{number}": "v" * 5000 for number in range(100)}
    push(connection, gauge("n" * 5000, 1.0, labels))
    ((name, (shown,)),) = pushed(broker).items()
    assert len(name) < 300
    assert len(shown) < 25
    assert max(map(len, shown.values())) <= 200
