"""What the notes that Odradek was written from describe, row by row.

A test that shows a row names it: ``@pytest.mark.seed_row("3.2")``. ``tests/tidy/test_seed_rows.py``
wants a test for every row, and one on several nodes where a row is about a cluster;
``docs/seed-rows.md`` is made from the rows and the marks (``make docs``).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

NOTES: Final[Mapping[str, str]] = {
    "0": "Guarantees, and where groups keep their offsets",
    "1": "Topics, their placement, and the format of a log",
    "2": "Consumers, and the tools around them",
    "3": "Offsets of a partition, and the files behind them",
    "4": "Assignors, segments, producers and coordinators",
    "U": "What was asked for in so many words",
}
"""What each note is about. The first part of a row's number is that of its note."""


class SeedRow(NamedTuple):
    number: str
    part: str
    description: str
    needs_cluster: bool = False
    """Whether one node alone cannot show it."""


_NOTE_0: Final = (
    SeedRow(
        "0.1",
        "storage",
        "The log is only appended to, costs the same however long it is, and knows no consumer; "
        "old segments are deleted.",
    ),
    SeedRow(
        "0.2",
        "broker",
        "Consumers pull: a fetch waits for its least number of bytes, for its longest wait, and "
        "brings no more per partition than it asked for.",
    ),
    SeedRow(
        "0.3",
        "transactions",
        "From topic to topic exactly once: readers of committed records see no open or aborted "
        "transaction, and a kill between reading and writing changes nothing.",
    ),
    SeedRow(
        "0.4",
        "pipeline",
        "Into another system exactly once: the offset is written together with the output, so "
        "that a batch that comes again changes nothing.",
    ),
    SeedRow(
        "0.5",
        "client",
        "A consumer that commits before it processes loses records when it dies; one that commits "
        "afterwards repeats them.",
    ),
    SeedRow(
        "0.6",
        "transactions",
        "A producer without retries delivers at most once, with retries at least once, and with "
        "idempotence exactly once and in order.",
    ),
    SeedRow(
        "0.7",
        "replication",
        "With n+1 replicas in sync n may fail: a record is committed when all of them have it, "
        "and outlives its leader.",
        needs_cluster=True,
    ),
    SeedRow(
        "0.8",
        "replication",
        "The controller elects leaders out of the ISR, epochs fence old ones, and unclean "
        "elections happen only where they are allowed.",
        needs_cluster=True,
    ),
    SeedRow(
        "0.9",
        "storage",
        "Compaction keeps the newest value of each key at its offset, in order, and tombstones "
        "for `delete.retention.ms`.",
    ),
    SeedRow(
        "0.10",
        "groups",
        "`__consumer_offsets` holds groups, commits and tombstones in Kafka's bytes: Kafka's "
        "formatters read ours, and ours read Kafka's.",
    ),
    SeedRow(
        "0.11",
        "groups",
        "A consumer that assigns its partitions by itself leaves commits and no group record.",
    ),
    SeedRow(
        "0.12",
        "groups",
        "Offsets expire a while after their group is empty, and the group goes with them.",
    ),
    SeedRow(
        "0.13",
        "groups",
        "`__consumer_offsets` is compacted, has its own number of partitions and replicas, and is "
        "made when there are enough brokers for it, not before.",
        needs_cluster=True,
    ),
    SeedRow(
        "0.14",
        "replication, command line",
        "`__consumer_offsets` gets more replicas by a reassignment from a JSON file.",
        needs_cluster=True,
    ),
    SeedRow("0.15", "command line", "The console consumer shows `__consumer_offsets` as JSON."),
    SeedRow("0.16", "client", "A commit may carry a text of its own, which comes back."),
)

_NOTE_1: Final = (
    SeedRow(
        "1.1",
        "storage",
        "A replica is a log of segments, each with its indexes: names and bytes are Kafka's.",
    ),
    SeedRow(
        "1.2",
        "broker",
        "Topics are created on demand unless `auto.create.topics.enable` is off, which help and "
        "documentation advise.",
    ),
    SeedRow(
        "1.3",
        "replication",
        "Replicas are spread over brokers, and over racks where brokers have them.",
        needs_cluster=True,
    ),
    SeedRow("1.4", "client", "A client for administrators."),
    SeedRow(
        "1.5",
        "replication",
        "Leaders are balanced, a broker has one replica of a partition at most, and the first "
        "replica is the preferred leader.",
        needs_cluster=True,
    ),
    SeedRow(
        "1.6",
        "replication, command line",
        "Preferred leaders are elected by hand from a JSON file, or by themselves if wanted.",
        needs_cluster=True,
    ),
    SeedRow(
        "1.7",
        "replication, command line",
        "A reassignment is generated, executed and verified under load, and loses nothing.",
        needs_cluster=True,
    ),
    SeedRow(
        "1.8",
        "replication, command line",
        "A throttled move keeps to its rate, and verifying it takes the throttle away.",
        needs_cluster=True,
    ),
    SeedRow(
        "1.9",
        "command line",
        "Tools measure producers and consumers, also by the number of partitions; descriptors "
        "stay under their limit.",
    ),
    SeedRow(
        "1.10",
        "storage",
        "Record formats v0, v1 and v2 are read, wrapper messages too, and v2 is written.",
    ),
    SeedRow(
        "1.11",
        "storage",
        "Batches are compressed by gzip, snappy, lz4 or zstd: by the producer, or anew by the "
        "broker if the topic wants another codec.",
    ),
    SeedRow(
        "1.12",
        "storage",
        "Indexes are sparse, preallocated, searched by halves, trimmed at a roll, and rebuilt "
        "when they are damaged.",
    ),
    SeedRow(
        "1.13",
        "storage",
        "A segment ends by its size, its age, a full index, or an offset too far from its first.",
    ),
    SeedRow(
        "1.14",
        "storage",
        "Retention goes by the time of a segment's newest record, by size, or by a log start that "
        "an administrator moves.",
    ),
    SeedRow(
        "1.15",
        "storage",
        "The cleaner remembers in `cleaner-offset-checkpoint` up to where a log is clean.",
    ),
    SeedRow(
        "1.16",
        "storage",
        "Records are written in sequence and served from the page cache without a copy; nothing "
        "is flushed by force.",
    ),
)

_NOTE_2: Final = (
    SeedRow("2.1", "broker", "Records of a partition have one order, and each an offset."),
    SeedRow(
        "2.2",
        "groups",
        "A partition has one reader in a group; members without a partition wait, and tools show "
        "them.",
    ),
    SeedRow(
        "2.3",
        "command line",
        "Tools for topics, groups, offsets, sending and reading take Kafka's options and print "
        "Kafka's lines; `--zookeeper` is answered with what replaced it.",
    ),
    SeedRow(
        "2.4",
        "client",
        "A consumer has one connection and one fetch loop per broker; a slow partition does not "
        "hold up others, and a leader that moves is followed.",
    ),
    SeedRow("2.5", "client", "Errors that pass are tried again in silence, or told if wanted."),
    SeedRow(
        "2.6", "broker", "Records have headers, and a key that murmur2 turns into a partition."
    ),
    SeedRow(
        "2.7",
        "storage",
        "A partition with little traffic keeps old records beyond their retention until "
        "`segment.ms` ends its segment.",
    ),
)

_NOTE_3: Final = (
    SeedRow(
        "3.1",
        "groups, replication",
        "Committed offset, position, high watermark and log end of a partition can be seen.",
        needs_cluster=True,
    ),
    SeedRow("3.2", "replication", "No consumer reads past the high watermark.", needs_cluster=True),
    SeedRow("3.3", "storage", "The folder of a partition has Kafka's files."),
    SeedRow("3.4", "command line", "`odradek dump-log` prints each kind of file as Kafka's tool."),
    SeedRow(
        "3.5",
        "replication",
        "After an election leader epochs decide where a follower cuts its log.",
        needs_cluster=True,
    ),
    SeedRow(
        "3.6",
        "storage, transactions",
        "Snapshots of producer state keep duplicates out across a restart.",
    ),
    SeedRow(
        "3.7",
        "replication",
        "A follower that has not caught up for `replica.lag.time.max.ms` leaves the ISR.",
        needs_cluster=True,
    ),
    SeedRow(
        "3.8",
        "client",
        "A producer's memory is bounded: senders wait for up to `max.block.ms`, then are told.",
    ),
)

_NOTE_4: Final = (
    SeedRow(
        "4.1",
        "groups",
        "Range and round robin give each partition to one member that subscribes to its topic.",
    ),
    SeedRow(
        "4.2",
        "groups",
        "Sticky assignors move what a lost member had, and leave the others what they have.",
    ),
    SeedRow(
        "4.3",
        "storage",
        "Segments are named by their first offset, end at 1 GiB, and have indexes of 10 MiB until "
        "they are closed.",
    ),
    SeedRow(
        "4.4",
        "storage",
        "A segment appends, searches, reads and truncates; its index appends and looks up.",
    ),
    SeedRow("4.5", "command line", "`odradek dump-log --print-data-log` prints Kafka's lines."),
    SeedRow(
        "4.6",
        "storage",
        "Index entries have 8 and 12 bytes, and come every `log.index.interval.bytes`.",
    ),
    SeedRow(
        "4.7",
        "client",
        "A producer gathers records in batches, sends them when they are full or have lingered, "
        "and holds senders up when its memory is full.",
    ),
    SeedRow(
        "4.8",
        "groups",
        "The hash of a group's id chooses its partition of `__consumer_offsets`, whose leader "
        "coordinates it.",
    ),
    SeedRow(
        "4.9",
        "groups",
        "Members join, sync and send heartbeats; joins, leaves, crashes, new partitions and new "
        "topics that match rebalance a group.",
    ),
    SeedRow(
        "4.10",
        "client, groups",
        "`auto.offset.reset` counts only where there is no valid commit.",
    ),
    SeedRow(
        "4.11",
        "command line",
        "Servers are started and stopped, topics created, listed, described and deleted; internal "
        "topics cannot be deleted.",
    ),
    SeedRow(
        "4.12",
        "replication",
        "With three replicas of `__consumer_offsets` groups outlive their coordinator.",
        needs_cluster=True,
    ),
)

_ASKED: Final = (
    SeedRow("U.1", "all", "It is a Python package."),
    SeedRow(
        "U.2",
        "pipeline",
        "The data pipeline runs on Spark through PySpark, on threads or on a cluster.",
    ),
)

SEED_ROWS: Final = (*_NOTE_0, *_NOTE_1, *_NOTE_2, *_NOTE_3, *_NOTE_4, *_ASKED)
