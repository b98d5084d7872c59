"""A metadata log on a simulated disk, with a clock that stands still and work that waits."""

from collections.abc import Callable
from pathlib import PurePosixPath
from random import Random

from odradek.controller.feature_changes import bootstrap_records
from odradek.core.ids import Uuid
from odradek.metadata import ClusterImage, VersionedRecord
from odradek.metadata.image import MetadataUpdate
from odradek.metadata.snapshots import parse_snapshot_name
from odradek.protocol.generated.metadata_records import ConfigRecord, PartitionRecord, TopicRecord
from odradek.quorum.metadata_quorum import MetadataQuorum
from odradek.quorum.metadata_upkeep import MetadataLogConfig
from odradek.quorum.quorum_listener import QuorumListener
from odradek.quorum.quorum_settings import QuorumSettings
from odradek.raft import OffsetAndEpoch, ReplicaKey
from odradek.testing.disk import SimulatedDisk

FOLDER = PurePosixPath("/data/__cluster_metadata-0")
DIRECTORY_ID = Uuid(b"directory id 123")
START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


class SetClock:
    def __init__(self) -> None:
        self.passed_ms = 0

    def now_ms(self) -> int:
        return START_MS + self.passed_ms

    def monotonic_ms(self) -> int:
        return self.passed_ms

    def monotonic_us(self) -> int:
        return self.passed_ms * 1000


class Threads:
    """Keeps work until it is told to do it."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self.waiting.append((work, done))

    def work_off(self) -> int:
        """Do all that waits and what comes of it; return how many pieces that were."""
        count = 0
        while self.waiting:
            work, done = self.waiting.pop(0)
            error: BaseException | None = None
            try:
                work()
            except OSError as failed:
                error = failed
            done(error)
            count += 1
        return count


class Metadata(QuorumListener):
    """One life of a metadata log after the other, on one disk."""

    def __init__(self, disk: SimulatedDisk | None = None, **config: int) -> None:
        self.disk = disk or SimulatedDisk(Random(1))
        self.clock = SetClock()
        self.config = MetadataLogConfig(segment_index_bytes=960, **config)
        self.threads = Threads()
        self.updates = 0
        self.disk.make_folder(FOLDER)

    def open(self, node_id: int = 1) -> MetadataQuorum:
        self.threads = Threads()
        self.log = MetadataQuorum(
            self.disk,
            FOLDER,
            key=ReplicaKey(node_id, DIRECTORY_ID),
            cluster_id="cluster",
            clock=self.clock,
            random=Random(1),
            settings=QuorumSettings(log=self.config),
        )
        self.log.add_listener(self)
        self.log.start()
        if self.image.metadata_version is None:
            self.append(bootstrap_records())
        self.log.work_with(self.threads.run)
        return self.log

    def on_update(self, _update: MetadataUpdate) -> None:
        self.updates += 1

    @property
    def image(self) -> ClusterImage:
        return self.log.image

    def append(self, records: list[VersionedRecord]) -> None:
        end_offset = self.log.append(self.log.new_batch(records), self.log.epoch)
        assert self.log.loaded_offset == end_offset

    def create_topic(self, name: str) -> None:
        self.append(topic_records(name))

    @property
    def snapshots(self) -> list[OffsetAndEpoch]:
        return sorted(filter(None, map(parse_snapshot_name, self.disk.names(FOLDER))))

    @property
    def segments(self) -> list[int]:
        return [int(name[:20]) for name in self.disk.names(FOLDER) if name.endswith(".log")]


def topic_records(name: str) -> list[VersionedRecord]:
    topic_id = Uuid(name.encode().ljust(16, b"."))
    partition = PartitionRecord(
        topic_id=topic_id,
        partition_id=0,
        replicas=[1],
        isr=[1],
        leader=1,
        directories=[DIRECTORY_ID],
    )
    config = ConfigRecord(
        resource_type=2, resource_name=name, name="retention.ms", value=str(len(name))
    )
    return [
        VersionedRecord(TopicRecord(name=name, topic_id=topic_id), 0),
        VersionedRecord(partition, 2),
        VersionedRecord(config, 0),
    ]
