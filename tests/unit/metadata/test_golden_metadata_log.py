"""The metadata log that a real Kafka 4.3 wrote gives the cluster that its data directory shows."""

from pathlib import Path

import pytest

from odradek.core.ids import Uuid
from odradek.metadata import (
    CLUSTER_DEFAULTS,
    ClusterImage,
    ConfigResource,
    MetadataLoader,
    default_features,
)
from odradek.protocol.versioned import decode_metadata
from tests.interop.kafka_peer.golden import read_manifest, unpack
from tests.unit.metadata.golden_log import batches


def load(folder: Path) -> ClusterImage:
    loader = MetadataLoader()
    for messages, provenance in batches(folder):
        loader.load(messages, provenance)
    return loader.image


@pytest.fixture(scope="module", params=["clean", "crashed", "recovered"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    name = str(request.param)
    return unpack(name, tmp_path_factory.mktemp(name))


@pytest.fixture(scope="module")
def image(folder: Path) -> ClusterImage:
    return load(folder)


def test_topics_of_the_manifest_are_there(folder: Path, image: ClusterImage) -> None:
    partitions: dict[str, set[int]] = {}
    for name in read_manifest(folder.name):
        topic, _, number = name.rpartition("-")
        partitions.setdefault(topic, set()).add(int(number))
    for topic, numbers in partitions.items():
        assert set(image.topics[topic].partitions) == numbers
    internal = {"__consumer_offsets", "__transaction_state"}
    assert set(image.topics) - internal == set(partitions)


def test_topic_ids_are_those_of_the_folders(folder: Path, image: ClusterImage) -> None:
    checked = 0
    for path in folder.glob("*/partition.metadata"):
        topic = path.parent.name.rpartition("-")[0]
        if topic not in image.topics:
            continue
        fields = dict(line.split(": ") for line in path.read_text().splitlines())
        assert image.topics[topic].topic_id == Uuid.from_text(fields["topic_id"])
        checked += 1
    assert checked >= 20


def test_the_rest_of_the_image(image: ClusterImage) -> None:
    image.check_invariants()
    assert dict(image.features) == default_features()
    assert dict(image.config_of(CLUSTER_DEFAULTS)) == {"min.insync.replicas": "1"}
    assert dict(image.config_of(ConfigResource.topic("append-time"))) == {
        "message.timestamp.type": "LogAppendTime"
    }
    assert set(image.brokers) == set(image.controllers) == {1}
    assert image.brokers[1].endpoints["PLAINTEXT"].host == "127.0.0.1"
    assert image.next_producer_id % 1000 == 0
    assert image.next_producer_id > 0
    assert image.provenance.last_offset > 100


def test_snapshot_gives_the_same_image(image: ClusterImage) -> None:
    records = [decode_metadata(record.to_bytes()) for record in image.to_records()]
    assert ClusterImage().apply(records) == image


def test_bootstrap_transaction_shows_only_when_it_has_ended(folder: Path) -> None:
    loader = MetadataLoader()
    bootstrap, where = next(each for each in batches(folder) if each[0])
    shown = [loader.load([message], where) for message in bootstrap]
    assert shown[:-1] == [None] * (len(bootstrap) - 1)
    assert shown[-1] is not None
    assert shown[-1].delta.features_changed == frozenset(default_features())
