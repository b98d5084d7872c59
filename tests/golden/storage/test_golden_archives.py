"""The golden archives unpack, and their manifests and dumps tell the same story."""

from pathlib import Path

import pytest

from tests.interop.kafka_peer.golden import (
    dump_flags,
    dump_names,
    read_dump,
    read_manifest,
    unpack,
)

WITH_MANIFEST = ("clean", "crashed", "recovered", "magic0", "magic1")
WITH_DATA_DUMP = ("clean", "magic0", "magic1")


@pytest.mark.parametrize("name", [*WITH_MANIFEST, "damaged"])
def test_every_dumped_file_is_in_the_archive(name: str, tmp_path: Path) -> None:
    data_dir = unpack(name, tmp_path)
    for dump in dump_names(name):
        for path, lines in read_dump(name, dump).items():
            assert (data_dir / path).is_file()
            assert lines[0] == f"Dumping {path}"


@pytest.mark.parametrize("name", WITH_DATA_DUMP)
def test_the_dump_holds_exactly_the_records_that_a_consumer_read(name: str) -> None:
    assert dump_flags(name, "log-data") == ["--print-data-log"]
    dumped: dict[str, list[int]] = {}
    for path, lines in read_dump(name, "log-data").items():
        offsets = dumped.setdefault(str(Path(path).parent), [])
        records = [line for line in lines if line.startswith("| offset: ")]
        offsets += [int(line.split()[2]) for line in records if " endTxnMarker: " not in line]
    for folder, partition in read_manifest(name).items():
        seen = [offset for offset in dumped[folder] if offset >= partition.log_start_offset]
        assert seen == [record.offset for record in partition.records], folder


@pytest.mark.parametrize("name", WITH_MANIFEST)
def test_offsets_of_a_manifest_are_in_order(name: str) -> None:
    for partition in read_manifest(name).values():
        offsets = [record.offset for record in partition.records]
        assert offsets == sorted(set(offsets))
        assert all(partition.log_start_offset <= o < partition.log_end_offset for o in offsets)
        pending = [r.offset for r in partition.records if r.state == "pending"]
        assert all(offset >= partition.last_stable_offset for offset in pending)


def test_the_crash_left_what_a_clean_stop_tidies_up(tmp_path: Path) -> None:
    clean, crashed = unpack("clean", tmp_path), unpack("crashed", tmp_path)
    assert (clean / ".kafka_cleanshutdown").exists()
    assert not (crashed / ".kafka_cleanshutdown").exists()
    index = Path("segments-0", "00000000000000000048.index")
    assert (crashed / index).stat().st_size == 10 * 1024 * 1024
    assert (crashed / index).stat().st_blocks * 512 < 1024 * 1024, "unpacked with its holes"
    assert any(r.state == "pending" for r in read_manifest("crashed")["txn-0"].records)
