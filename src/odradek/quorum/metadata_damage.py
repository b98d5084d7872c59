"""Whether a node may start with a metadata log of which recovery has to give something up.

A crash can tear what was not synced yet, and nobody was told of that: it is cut off with a warning.
Anything else is damage. Topics would be gone, with records that were acknowledged, so the node does
not start (Kafka cuts the log, and takes the logs of the topics aside as strays). It is damage

- after a clean stop, which leaves nothing torn;
- where a topic whose logs are on disk was created behind it: logs are made after the metadata that
  speaks of them was synced, and so was all before that;
- if there are logs and no metadata log at all.

The second holds for the only voter of a quorum, which syncs before anything is committed. Others
may know that something is committed, and act on it, before their own copy is on disk: the other
voters have it, and what a crash tore off is fetched again. The third is for voters: a broker that
is none fetches all of the log again.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import Final

from odradek.core.errors import CorruptionError
from odradek.core.ids import Uuid
from odradek.metadata.snapshots import BOOTSTRAP_SNAPSHOT, snapshot_name
from odradek.protocol.generated.metadata_records import TopicRecord
from odradek.protocol.versioned import decode_metadata
from odradek.quorum import metadata_events
from odradek.records import BatchHeader, read_records
from odradek.storage.disk import Buffer, Disk
from odradek.storage.log_dir_files import read_clean_shutdown, read_partition_metadata
from odradek.storage.log_directory import DirectoryRefusedError, logs_in
from odradek.storage.log_folders import parse_folder_name
from odradek.storage.recovery_loss import Loss
from odradek.storage.scan import peek_batch

TOPICS_NAMED_MAX: Final = 100
_BOOTSTRAP: Final = snapshot_name(BOOTSTRAP_SNAPSHOT)


class MetadataDamage:
    """Looks at a loss before it is made good; made after the directories are locked."""

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[PurePath],
        folder: PurePath,
        *,
        is_only_voter: bool = True,
    ) -> None:
        self._disk = disk
        self._directories = directories
        self._folder = folder
        self._is_only_voter = is_only_voter

    def check_exists(self) -> None:
        """Refuse to begin a metadata log where there are logs of topics.

        Raises:
            DirectoryRefusedError: The metadata log was lost.
        """
        is_there = self._disk.is_folder(self._folder)
        names = self._disk.names(self._folder) if is_there else []
        if any(name.endswith((".log", ".checkpoint")) and name != _BOOTSTRAP for name in names):
            return
        logs = [name for path in self._existing() for name in logs_in(self._disk, path)]
        if logs:
            named = ", ".join(logs[:TOPICS_NAMED_MAX])
            raise DirectoryRefusedError(
                f"{self._folder} holds no metadata log, but there are logs of topics: {named}. "
                "Restore it from a backup or from another controller; to start over, move the "
                "logs away first"
            )

    def on_loss(self, loss: Loss, batches: Iterator[tuple[Buffer, BatchHeader]]) -> None:
        """Let recovery cut off what a crash left.

        Raises:
            DirectoryRefusedError: It was no crash that left it.
        """
        ids = self._topics_on_disk()
        created = [*self._created_in(self._damaged_batch(loss)), *self._created_in(batches)]
        topics = [ids.get(topic.topic_id, topic.name) for topic in created]
        if self._was_clean():
            why = "the last stop was a clean one"
        elif self._is_only_voter and any(topic.topic_id in ids for topic in created):
            why = "topics that were created later have logs here"
        else:
            metadata_events.metadata_lost(loss, topics)
            return
        gone = ", ".join(topics[:TOPICS_NAMED_MAX]) or "(none that could be read)"
        raise DirectoryRefusedError(
            f"{loss.path}, byte {loss.position}: {loss.reason}. The metadata log is damaged from "
            f"offset {loss.offset} on, {loss.records} records, and not by a crash: {why}. "
            f"Topics that would be gone: {gone}. Restore {self._folder} from a backup or from "
            f"another controller; to go on without what is lost, cut the file: "
            f"truncate -s {loss.position} {loss.path}"
        )

    def _was_clean(self) -> bool:
        with suppress(CorruptionError):
            return read_clean_shutdown(self._disk, self._folder.parent) is not None
        return False

    def _existing(self) -> list[PurePath]:
        return [path for path in self._directories if self._disk.is_folder(path)]

    def _topics_on_disk(self) -> dict[Uuid, str]:
        found: dict[Uuid, str] = {}
        for path in self._existing():
            for name in logs_in(self._disk, path):
                parsed = parse_folder_name(name)
                with suppress(CorruptionError, OSError):
                    topic_id = read_partition_metadata(self._disk, path / name)
                    if topic_id is not None and parsed is not None:
                        found[topic_id] = parsed.partition.topic
        return found

    def _damaged_batch(self, loss: Loss) -> Iterator[tuple[Buffer, BatchHeader]]:
        """Give the batch that fails, too: mostly all but a bit of it is as it was."""
        file = self._disk.open(loss.path)
        try:
            buffer = file.read(loss.position, loss.bytes)
            yield buffer, peek_batch(buffer)
        except CorruptionError:
            return
        finally:
            file.close()

    def _created_in(self, batches: Iterable[tuple[Buffer, BatchHeader]]) -> Iterator[TopicRecord]:
        for buffer, header in batches:
            if header.is_control:
                continue
            # What does not parse any more tells no name, whatever it trips over.
            with suppress(CorruptionError, ValueError, IndexError, KeyError):
                for record in read_records(buffer, header):
                    message = decode_metadata(record.value or b"")
                    if isinstance(message, TopicRecord):
                        yield message
