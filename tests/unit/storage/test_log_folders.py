"""Folder names: what is written is read back, and nothing else is taken for a log."""

from random import Random

import pytest

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.core.topic_names import TOPIC_NAME_CHARS_MAX, check_topic_name
from odradek.storage.log_folders import (
    FOLDER_NAME_BYTES_MAX,
    FolderKind,
    LogFolder,
    folder_name,
    new_folder_name,
    parse_folder_name,
)

UUID = "0123456789abcdef0123456789abcdef"
LONGEST = "t" * TOPIC_NAME_CHARS_MAX
TOPICS = ["t", "a-b", "a.b", "a_b", "-", "a-1", "-0", "...", "a-0." + UUID + "-delete", LONGEST]


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("number", [0, 7, 99999])
def test_a_current_folder_is_read_back(topic: str, number: int) -> None:
    partition = TopicPartition(topic, number)
    assert folder_name(partition) == f"{topic}-{number}"
    assert parse_folder_name(folder_name(partition)) == LogFolder(partition, FolderKind.CURRENT)


@pytest.mark.parametrize("kind", [FolderKind.DELETE, FolderKind.FUTURE, FolderKind.STRAY])
def test_other_folders_have_a_uuid_and_their_kind(kind: FolderKind) -> None:
    partition = TopicPartition("a-b", 12)
    random = Random(1)
    name = new_folder_name(partition, kind, random)
    assert name == f"a-b-12.{Random(1).randbytes(16).hex()}-{kind.value}"
    assert parse_folder_name(name) == LogFolder(partition, kind)
    assert new_folder_name(partition, kind, random) != name


@pytest.mark.parametrize("kind", [FolderKind.DELETE, FolderKind.STRAY])
def test_a_long_topic_is_cut_short_on_its_way_out(kind: FolderKind) -> None:
    name = new_folder_name(TopicPartition(LONGEST, 2**31 - 1), kind, Random(0))
    assert len(name) == FOLDER_NAME_BYTES_MAX
    parsed = parse_folder_name(name)
    assert parsed is not None
    assert parsed.kind is kind
    assert LONGEST.startswith(parsed.partition.topic)


def test_what_a_file_system_cannot_take_is_refused_before_it_is_tried() -> None:
    with pytest.raises(ApiError) as refused:
        folder_name(TopicPartition(LONGEST, 100_000))
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    with pytest.raises(ApiError) as refused:
        new_folder_name(TopicPartition("t" * 240, 0), FolderKind.FUTURE, Random(0))
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("topic", TOPICS)
def test_these_topics_are_fine(topic: str) -> None:
    check_topic_name(topic)


@pytest.mark.parametrize(
    "topic",
    ["", ".", "..", "a/b", "../x", "a\0", "a\n", "a b", "ä", "a:b", LONGEST + "t", "a\ud800"],
)
def test_these_topics_are_refused(topic: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_topic_name(topic)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    with pytest.raises(ApiError):
        folder_name(TopicPartition(topic, 0))
    assert parse_folder_name(f"{topic}-0") is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        "t",
        "t-",
        "-0",
        "t-x",
        "t-07",
        "t--1x",
        "t-+1",
        "t-1 ",
        "t-1\n",
        "t-٣",  # a digit, but not one of ours
        "t-2147483648",
        "t-99999999999",
        "..-0",
        ".-0",
        "a/b-0",
        "lost+found",
        "remote-log-index-cache",
        ".lock",
        "t-0-delete",
        "t-0.-delete",
        f"t-0.{UUID}",
        f"t-0.{UUID}-",
        f"t-0.{UUID}-deleted",
        f"t-0.{UUID.upper()}-delete",
        f"t-0.{UUID[1:]}-delete",
        f"t-0.{UUID}0-future",
        f"t-0.{UUID}-delete\n",
        f".-0.{UUID}-stray",
        "t" * 250 + "-0",
        "t" * 249 + "-0.12345",
    ],
)
def test_these_are_no_folders_of_logs(name: str) -> None:
    assert parse_folder_name(name) is None
