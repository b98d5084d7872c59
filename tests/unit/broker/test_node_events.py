"""What a node tells its operator while it runs, and that no secret is in it."""

import logging
from pathlib import Path

import pytest

from odradek.core.errors import ErrorCode
from odradek.core.event import Event
from odradek.metadata.dynamic_config import with_dynamic_configs
from odradek.metadata.image import ClusterImage
from odradek.protocol.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.generated.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.storage.disk import OsDisk
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.unit.broker.test_produce_flush import failing_in, produce


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "odradek")
    return caplog


def events(caplog: pytest.LogCaptureFixture) -> dict[str, Event]:
    found = [record.msg for record in caplog.records if isinstance(record.msg, Event)]
    return {event.name: event for event in found}


def test_a_life_is_told(lines: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    secret = {"ssl.key.password": "hush", "listener.name.plaintext.ssl.keystore.key": "hush"}
    with Broker(data_dir=str(tmp_path), config=secret) as broker:
        port, cluster_id = broker.port, broker.node.cluster_id
        broker.create_topic("t", 3)
        with BrokerConnection(broker.port) as connection:
            gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
            connection.ask(gone, DeleteTopicsResponse)
    told = events(lines)
    started = told["started"].fields
    assert started.pop("took_ms") is not None
    assert started.pop("version") is not None
    assert started == {
        "node_id": 1,
        "roles": ["broker", "controller"],
        "cluster_id": cluster_id,
        "listeners": [f"PLAINTEXT://127.0.0.1:{port} (PLAINTEXT)"],
        "log_dirs": [str(tmp_path)],
        "topics": 0,
    }
    assert told["topic created"].fields["topic"] == "t"
    assert told["topic created"].fields["partitions"] == 3
    assert told["topic deleted"].fields["topic"] == "t"
    assert told["stopped"].fields["clean"] is True
    assert "hush" not in lines.text


def test_recovery_and_strange_folders_are_told(
    lines: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with Broker(data_dir=str(tmp_path), topics=["t", "u"]):
        pass
    assert "logs recovered after an unclean stop" not in events(lines)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "strange").mkdir()
    with Broker(data_dir=str(tmp_path)):
        pass
    recovered = events(lines)["logs recovered after an unclean stop"].fields
    assert (recovered["logs"], recovered["recovered"]) == (2, 2)
    assert "strange" in str(events(lines)["problem in a log directory"].fields["problem"])


def test_a_log_directory_that_fails_is_told(
    lines: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(data_dir=str(tmp_path)) as broker, BrokerConnection(broker.port) as connection:
        broker.create_topic("t", flush_messages="1")
        with monkeypatch.context() as patched:
            patched.setattr(OsDisk, "sync_file", failing_in(tmp_path))
            assert produce(connection).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        (record,) = [each for each in lines.records if each.levelno == logging.ERROR]
        assert isinstance(record.msg, Event)
        assert record.msg.name == "log directory offline"
        assert record.msg.fields["log_dir"] == str(tmp_path)
        assert "Input/output error" in str(record.msg.fields["error"])


def test_dynamic_configs_that_do_not_fit_any_more_are_told(
    lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(config: object, image: ClusterImage) -> object:
        found, _ = with_dynamic_configs(config, image)  # type: ignore[arg-type]
        return found, ("listener.name.x.ssl.key.password", "num.io.threads")

    monkeypatch.setattr("odradek.broker.broker_server.with_dynamic_configs", refuse)
    with Broker():
        pass
    told = events(lines)["dynamic configs cannot be used and are left out"]
    assert told.fields == {"configs": ["listener.name.x.ssl.key.password", "num.io.threads"]}


def test_a_handler_that_raises_is_an_error_with_its_traceback(
    lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_context: object, _request: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("odradek.broker.handlers.api_versions.handle", fail)
    with (
        Broker() as broker,
        BrokerConnection(broker.port) as connection,
        pytest.raises(ConnectionError),
    ):
        connection.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
    (record,) = [each for each in lines.records if each.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], RuntimeError)
