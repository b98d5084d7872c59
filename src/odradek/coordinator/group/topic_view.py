"""What group coordination knows of the cluster's topics, and a view of the cluster image as that.

A consumer group asks few things: which topics there are, how many partitions they have, on which
racks their replicas live. ``version`` lets it notice cheaply that an answer may have changed: a
heartbeat compares one integer.
"""

from collections.abc import Iterable
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple, Protocol

from odradek.core.ids import Uuid
from odradek.metadata.image import ClusterImage
from odradek.metadata.topics import TopicImage

_INT64: Final = Struct(">q")
_INT32: Final = Struct(">i")

Racks = tuple[tuple[str, ...], ...]
"""Per partition the racks of its replicas, sorted."""


class Topic(NamedTuple):
    topic_id: Uuid
    name: str
    partition_count: int
    fingerprint: bytes
    """Differs when anything differs that may matter for an assignment, racks included."""

    @classmethod
    def of(
        cls, topic_id: Uuid, name: str, partition_count: int, racks: Racks | None = None
    ) -> "Topic":
        digest = blake2b(topic_id, digest_size=8)
        for part in (name.encode(), _INT32.pack(partition_count)):
            digest.update(_INT32.pack(len(part)) + part)
        # Lengths first: a rack may be named anything, so no separator would be safe.
        for partition, names in enumerate(racks or ()):
            for rack in map(str.encode, names):
                digest.update(_INT32.pack(partition) + _INT32.pack(len(rack)) + rack)
        return cls(topic_id, name, partition_count, digest.digest())


class TopicView(Protocol):
    @property
    def version(self) -> int:
        """Grows whenever another answer of this view may have become different."""

    @property
    def names_version(self) -> int:
        """The version with which a topic was last created: what regular expressions wait for."""

    def find(self, name: str) -> Topic | None: ...

    def find_by_id(self, topic_id: Uuid) -> Topic | None: ...

    def names(self) -> Iterable[str]: ...


def metadata_hash(topics: TopicView, names: Iterable[str]) -> int:
    """Return one number for all that is known of these topics; 0 when none of them exists.

    Kafka uses XXH3 here. Only a coordinator ever compares the number with its own, so ours is
    another hash: a group that moves between the two sees one rebalance that changes nothing.
    """
    digest = blake2b(digest_size=_INT64.size)
    known = 0
    for name in sorted(names):
        topic = topics.find(name)
        if topic is not None:
            digest.update(topic.fingerprint)
            known += 1
    return int(_INT64.unpack(digest.digest())[0]) if known else 0


class ImageTopics:
    """A :class:`TopicView` of one cluster image; :meth:`advance` goes on to the next.

    Images share what did not change, so identity of a section tells whether anything did, and
    what was computed for a topic stays good for as long as its image and the brokers do.
    """

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._known: dict[str, tuple[TopicImage, Topic]] = {}
        self._version = image.provenance.last_offset
        self._names_version = self._version

    @property
    def version(self) -> int:
        return self._version

    @property
    def names_version(self) -> int:
        return self._names_version

    def advance(self, image: ClusterImage) -> None:
        """Show ``image`` from now on."""
        old, self._image = self._image, image
        if image.topics is old.topics and image.brokers is old.brokers:
            return
        # An offset where possible: regular expressions record the version they were resolved
        # with, and the coordinator that reads it may be another one.
        self._version = max(self._version + 1, image.provenance.last_offset)
        if _racks(image) != _racks(old):
            self._known.clear()
        if image.topics is not old.topics:
            self._known = {
                name: known
                for name, known in self._known.items()
                if image.topics.get(name) is known[0]
            }
            if not image.topics.keys() <= old.topics.keys():
                self._names_version = self._version

    def find(self, name: str) -> Topic | None:
        known = self._known.get(name)
        if known is not None:
            return known[1]
        image = self._image.topics.get(name)
        if image is None:
            return None
        topic = self._topic(image)
        self._known[name] = (image, topic)
        return topic

    def find_by_id(self, topic_id: Uuid) -> Topic | None:
        image = self._image.topics_by_id.get(topic_id)
        return None if image is None else self.find(image.name)

    def names(self) -> Iterable[str]:
        return self._image.topics

    def _topic(self, image: TopicImage) -> Topic:
        racks = _racks(self._image)
        per_partition = tuple(
            tuple(sorted({racks[broker] for broker in partition.replicas if broker in racks}))
            for _, partition in sorted(image.partitions.items())
        )
        return Topic.of(image.topic_id, image.name, len(image.partitions), per_partition)


def _racks(image: ClusterImage) -> dict[int, str]:
    return {
        broker_id: broker.rack
        for broker_id, broker in image.brokers.items()
        if broker.rack is not None
    }
