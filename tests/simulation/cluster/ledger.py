"""What clients were promised: acknowledged changes of the metadata, ids, records.

Clients repeat requests whose answer was lost, and a request may take effect long after its client
gave up. So names are not used twice, and each config of a topic is set once; what remains is exact:
a topic is known by its id.
"""

from dataclasses import dataclass, field

from odradek.core.ids import Uuid
from odradek.metadata.config_resource import ConfigResource
from odradek.metadata.image import ClusterImage


class BrokenPromiseError(AssertionError):
    """The cluster does not have what it acknowledged, or gave one thing twice."""


@dataclass
class Ledger:
    cluster_id: str = ""
    topics_named: int = 0
    created: dict[str, Uuid] = field(default_factory=dict)
    doomed: set[str] = field(default_factory=set)
    """Topics whose deletion was asked for, whatever came of it."""
    deleted: dict[str, Uuid] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    configs: dict[tuple[str, str], str] = field(default_factory=dict)
    producer_ids: dict[int, str] = field(default_factory=dict)
    sent: dict[str, list[bytes]] = field(default_factory=dict)
    acknowledged: set[bytes] = field(default_factory=set)
    failures: dict[str, int] = field(default_factory=dict)
    successes: dict[str, int] = field(default_factory=dict)

    def on_created(self, name: str, topic_id: Uuid, partitions: int = 1) -> None:
        self.created[name] = topic_id
        self.partitions[name] = partitions

    def on_producer_id(self, producer_id: int, client: str) -> None:
        other = self.producer_ids.setdefault(producer_id, client)
        if other != client or producer_id < 0:
            raise BrokenPromiseError(f"producer id {producer_id} was given to {other} and {client}")

    def count(self, what: str, error: Exception | None) -> None:
        if error is None:
            self.successes[what] = self.successes.get(what, 0) + 1
        else:
            name = f"{what}: {getattr(error, 'code', type(error).__name__)}"
            self.failures[name] = self.failures.get(name, 0) + 1

    def check(self, image: ClusterImage, *, only: str | None = None) -> None:
        """Check that an image has all that was acknowledged; ``only`` one topic's, if given."""
        for name in [only] if only is not None else list(self.created):
            self._check_topic(image, name)
        for name, topic_id in self.deleted.items():
            if topic_id in image.topics_by_id:
                raise BrokenPromiseError(f"{name} ({topic_id}) was deleted and is still there")

    def _check_topic(self, image: ClusterImage, name: str) -> None:
        topic_id = self.created[name]
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            if name in self.doomed:
                return
            raise BrokenPromiseError(f"{name} ({topic_id}) was created and is not there")
        wanted = self.partitions.get(name, 1)
        if len(topic.partitions) < wanted:
            raise BrokenPromiseError(
                f"{name} got {wanted} partitions and has {len(topic.partitions)}"
            )
        configs = image.config_of(ConfigResource.topic(name))
        for (topic_name, key), value in self.configs.items():
            if topic_name == name and configs.get(key) != value:
                raise BrokenPromiseError(f"{name}: {key} was set to {value}, is {configs.get(key)}")

    def check_records(self, read: list[bytes]) -> None:
        """Check what a reader of the whole data topic got."""
        found = set(read)
        if len(found) != len(read):
            raise BrokenPromiseError("records were read twice")
        lost = self.acknowledged - found
        if lost:
            raise BrokenPromiseError(f"records were acknowledged and lost: {sorted(lost)[:5]}")
        for name, sent in self.sent.items():
            own = [value for value in read if value.split()[0] == name.encode()]
            if own != [value for value in sent if value in found]:
                raise BrokenPromiseError(f"records of {name} are out of order")
