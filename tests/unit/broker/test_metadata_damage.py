"""A metadata log that is damaged: what a crash can leave is cut with a warning, else no start."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.core.event import Event
from odradek.storage.log_directory import DirectoryRefusedError
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.unit.broker.test_produce_flush import produce

METADATA = "__cluster_metadata-0"
TOPICS = [f"topic{number}" for number in range(10)]
LOG = "00000000000000000000.log"


def make_topics(folder: Path, then: Callable[[Broker], object] = lambda _: None) -> None:
    with Broker(data_dir=str(folder)) as broker:
        for name in TOPICS:
            broker.create_topic(name)
        then(broker)


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def warnings(caplog: pytest.LogCaptureFixture) -> list[Event]:
    return [
        record.msg
        for record in caplog.records
        if isinstance(record.msg, Event)
        and record.levelno >= logging.WARNING
        and record.name != "odradek.loop"  # of a busy machine
    ]


def name_at(log: Path, topic: str) -> int:
    return log.read_bytes().index(topic.encode())


@pytest.mark.parametrize("was_clean", [True, False])
def test_a_node_does_not_start_without_topics_that_it_had(tmp_path: Path, was_clean: bool) -> None:
    folder, copy = tmp_path / "data", tmp_path / "killed"
    make_topics(folder, lambda _: shutil.copytree(folder, copy))
    data_dir = folder if was_clean else copy  # the copy is what a kill would leave
    log = data_dir / METADATA / LOG
    position = name_at(log, "topic3")
    size = log.stat().st_size
    flip(log, position)
    for _ in range(2):  # nor the second time
        with pytest.raises(DirectoryRefusedError) as refused:
            Broker(data_dir=str(data_dir)).start()
        said = str(refused.value)
        assert said.startswith(f"{log}, byte ")
        assert "has checksum" in said
        assert f"Topics that would be gone: {', '.join(TOPICS[3:])}. " in said
        assert ("clean" if was_clean else "have logs here") in said
    assert log.stat().st_size == size
    flip(log, position)
    with Broker(data_dir=str(data_dir)) as broker:
        assert sorted(broker.node.broker.image.topics) == TOPICS


def test_what_the_message_says_lets_it_start_without_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_topics(tmp_path)
    log = tmp_path / METADATA / LOG
    flip(log, name_at(log, "topic3"))
    with pytest.raises(DirectoryRefusedError) as refused:
        Broker(data_dir=str(tmp_path)).start()
    *_, position, path = str(refused.value).split()
    with Path(path).open("r+b") as file:
        file.truncate(int(position))
    with Broker(data_dir=str(tmp_path)) as broker:
        assert sorted(broker.node.broker.image.topics) == TOPICS[:3]
        broker.create_topic("topic3")  # what is there under this name is not in its way
    problems = [str(event) for event in warnings(caplog)]
    for topic in TOPICS[3:]:
        assert any(f"{tmp_path}/{topic}-0: no log of topic id" in line for line in problems)
        assert len(list(tmp_path.glob(f"{topic}-0.*-stray"))) == 1


def test_a_torn_end_of_the_metadata_log_is_cut_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, copy = tmp_path / "data", tmp_path / "killed"
    make_topics(folder, lambda _: shutil.copytree(folder, copy))
    log = copy / METADATA / LOG
    whole = log.read_bytes()
    log.write_bytes(whole + whole[:100])  # a batch that was being written
    with Broker(data_dir=str(copy)) as broker:
        assert sorted(broker.node.broker.image.topics) == TOPICS
    (told,) = [event for event in warnings(caplog) if event.name == "metadata lost in recovery"]
    assert told.fields["file"] == str(log)
    assert told.fields["byte"] == len(whole)
    assert told.fields["bytes"] == 100
    assert told.fields["topics"] == []


def test_logs_without_a_metadata_log_are_refused_and_named(tmp_path: Path) -> None:
    make_topics(tmp_path)
    (tmp_path / METADATA).rename(tmp_path.parent / "lost")
    with pytest.raises(DirectoryRefusedError, match=r"holds no metadata log.*topic0-0, topic1-0"):
        Broker(data_dir=str(tmp_path)).start()
    (tmp_path.parent / "lost").rename(tmp_path / METADATA)
    with Broker(data_dir=str(tmp_path)) as broker:
        assert sorted(broker.node.broker.image.topics) == TOPICS


def test_records_that_recovery_gives_up_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, copy = tmp_path / "data", tmp_path / "killed"
    with Broker(data_dir=str(folder)) as broker:
        broker.create_topic("t")
        with BrokerConnection(broker.port) as connection:
            for _ in range(3):
                assert produce(connection).error_code == 0
        shutil.copytree(folder, copy)
    log = copy / "t-0" / LOG
    size = log.stat().st_size
    flip(log, size // 3 + 65)
    with Broker(data_dir=str(copy)):
        pass
    (told,) = [event for event in warnings(caplog) if event.name == "records lost in recovery"]
    assert told.fields["file"] == str(log)
    assert told.fields["byte"] == size // 3
    assert told.fields["offset"] == 1
    assert told.fields["records"] == 2
    assert "has checksum" in str(told.fields["reason"])
