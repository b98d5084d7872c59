"""meta.properties, .kafka_cleanshutdown and partition.metadata, as Kafka writes and reads them."""

from pathlib import Path, PurePosixPath
from random import Random

import pytest

from odradek.core.errors import CorruptionError
from odradek.core.ids import ZERO_UUID, Uuid
from odradek.storage.disk import OsDisk
from odradek.storage.log_dir_files import (
    CleanShutdown,
    MetaProperties,
    read_clean_shutdown,
    read_meta_properties,
    read_partition_metadata,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
    write_partition_metadata,
)
from odradek.testing.disk import SimulatedDisk

ID = Uuid.from_text("MkU3OEVBNTcwNTJENDM2Qg")
META = MetaProperties(cluster_id="qr7BeZt5Q0e-abcdefghij", node_id=3, directory_id=ID)
DISK = OsDisk()


def test_missing_files_are_none(tmp_path: Path) -> None:
    assert read_meta_properties(DISK, tmp_path) is None
    assert read_clean_shutdown(DISK, tmp_path) is None
    assert read_partition_metadata(DISK, tmp_path) is None


def test_meta_properties_are_written_and_read_back(tmp_path: Path) -> None:
    write_meta_properties(DISK, tmp_path, META)
    assert (tmp_path / "meta.properties").read_text() == (
        "#\n"
        "cluster.id=qr7BeZt5Q0e-abcdefghij\n"
        "directory.id=MkU3OEVBNTcwNTJENDM2Qg\n"
        "node.id=3\n"
        "version=1\n"
    )
    assert read_meta_properties(DISK, tmp_path) == META


def test_meta_properties_that_kafka_wrote(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(
        "#\n#Sun Nov 15 11:00:00 UTC 2026\ndirectory.id=MkU3OEVBNTcwNTJENDM2Qg\nnode.id=3\n"
        "version=1\ncluster.id=qr7BeZt5Q0e-abcdefghij\nmore=is ignored\n"
    )
    assert read_meta_properties(DISK, tmp_path) == META


def test_meta_properties_of_version_0(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("broker.id=3\ncluster.id=c\n")
    old = MetaProperties(version=0, cluster_id="c", node_id=3)
    assert read_meta_properties(DISK, tmp_path) == old
    write_meta_properties(DISK, tmp_path, old)
    assert (tmp_path / "meta.properties").read_text() == (
        "#\nbroker.id=3\ncluster.id=c\nversion=0\n"
    )
    assert read_meta_properties(DISK, tmp_path) == old


def test_an_empty_file_is_version_0_that_knows_nothing(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("")
    found = read_meta_properties(DISK, tmp_path)
    assert found == MetaProperties(version=0, cluster_id=None, node_id=None)


@pytest.mark.parametrize(
    "content",
    [
        "version=2\ncluster.id=c\nnode.id=1\n",
        "version=x\ncluster.id=c\nnode.id=1\n",
        "version=1\nnode.id=1\n",
        "version=1\ncluster.id=c\n",
        "version=1\ncluster.id=c\nbroker.id=1\n",
        "version=1\ncluster.id=c\nnode.id=-1\n",
        "version=1\ncluster.id=c\nnode.id=2147483648\n",
        "version=1\ncluster.id=c\nnode.id=one\n",
        "version=1\ncluster.id=c\nnode.id=1\ndirectory.id=short\n",
        "version=1\ncluster.id=c\nnode.id=1\ndirectory.id=\n",
        "version=1\ncluster.id=c\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA\n",
        "version=1\ncluster.id=c\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAYw\n",
        "version=1\ncluster.id=\\u12\nnode.id=1\n",
    ],
)
def test_bad_meta_properties_are_corruption_that_names_the_file(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "meta.properties").write_text(content)
    with pytest.raises(CorruptionError, match=r"meta\.properties"):
        read_meta_properties(DISK, tmp_path)


def test_the_first_id_that_is_not_reserved_is_fine(tmp_path: Path) -> None:
    directory_id = Uuid((100).to_bytes(16, "big"))
    write_meta_properties(DISK, tmp_path, MetaProperties(
        cluster_id="c", node_id=0, directory_id=directory_id
    ))  # fmt: skip
    found = read_meta_properties(DISK, tmp_path)
    assert found is not None
    assert found.directory_id == directory_id


def test_the_clean_shutdown_file_is_kafkas_json(tmp_path: Path) -> None:
    write_clean_shutdown(DISK, tmp_path, 42)
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":42}'
    assert read_clean_shutdown(DISK, tmp_path) == CleanShutdown(42)
    remove_clean_shutdown(DISK, tmp_path)
    assert read_clean_shutdown(DISK, tmp_path) is None
    remove_clean_shutdown(DISK, tmp_path)


@pytest.mark.parametrize(
    ("content", "broker_epoch"),
    [
        ("", None),
        ('{"version":0}', None),
        ('{"version":0,"brokerEpoch":null}', None),
        ('{"brokerEpoch":-1,"new":[1]}', -1),
    ],
)
def test_other_clean_shutdown_files(tmp_path: Path, content: str, broker_epoch: int | None) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_text(content)
    assert read_clean_shutdown(DISK, tmp_path) == CleanShutdown(broker_epoch)


@pytest.mark.parametrize(
    "content",
    [
        b"\0\0\0",
        b"[]",
        b"7",
        b"{",
        b"[" * 100_000,
        b"\xff",
        b'{"brokerEpoch":"7"}',
        b'{"brokerEpoch":true}',
        b'{"brokerEpoch":1.5}',
        b'{"brokerEpoch":9223372036854775808}',
        b'{"brokerEpoch":-2}',
    ],
)
def test_a_bad_clean_shutdown_file_is_corruption(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_bytes(content)
    with pytest.raises(CorruptionError, match="kafka_cleanshutdown"):
        read_clean_shutdown(DISK, tmp_path)


def test_a_removed_clean_shutdown_file_does_not_come_back() -> None:
    folder = PurePosixPath("/d")
    for seed in range(20):
        disk = SimulatedDisk(Random(seed))
        disk.make_folder(folder)
        disk.sync_folder(folder.parent)
        write_clean_shutdown(disk, folder, 1)
        remove_clean_shutdown(disk, folder)
        disk.crash()
        assert read_clean_shutdown(disk, folder) is None, f"seed {seed}"


@pytest.mark.seed_row("3.3")
def test_partition_metadata_is_kafkas(tmp_path: Path) -> None:
    write_partition_metadata(DISK, tmp_path, ID)
    assert (tmp_path / "partition.metadata").read_text() == (
        "version: 0\ntopic_id: MkU3OEVBNTcwNTJENDM2Qg"
    )
    assert read_partition_metadata(DISK, tmp_path) == ID


def test_partition_metadata_of_a_newer_version_is_read(tmp_path: Path) -> None:
    (tmp_path / "partition.metadata").write_text("version: 1\ntopic_id: MkU3OEVBNTcwNTJENDM2Qg\n")
    assert read_partition_metadata(DISK, tmp_path) == ID


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version: 0",
        b"version: 0\ntopic_id: ",
        b"version: -1\ntopic_id: MkU3OEVBNTcwNTJENDM2Qg",
        b"version: x\ntopic_id: MkU3OEVBNTcwNTJENDM2Qg",
        b"version: 0\ntopic_id: MkU3OEVBNTcwNTJENDM2",
        b"version: 0\ntopic_id: \xff\xff",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"topic_id: MkU3OEVBNTcwNTJENDM2Qg\nversion: 0",
        b"\0" * 43,
    ],
)
def test_bad_partition_metadata_is_corruption(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "partition.metadata").write_bytes(content)
    with pytest.raises(CorruptionError, match=r"partition\.metadata"):
        read_partition_metadata(DISK, tmp_path)


def test_a_topic_without_id_has_no_partition_metadata(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        write_partition_metadata(DISK, tmp_path, ZERO_UUID)
