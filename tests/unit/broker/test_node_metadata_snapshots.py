"""A node writes snapshots of its metadata while it runs, and starts from them, ours and Kafka's."""

from pathlib import Path

from odradek.metadata import ConfigResource
from odradek.testing.broker import Broker
from tests.interop.kafka_peer.golden import read_manifest, unpack

SNAPSHOTS_ALL_THE_TIME = {
    "metadata.log.max.record.bytes.between.snapshots": "1",
    "metadata.log.segment.ms": "1",
    "metadata.max.retention.bytes": "1",
}


def test_a_node_starts_from_the_snapshot_it_wrote(tmp_path: Path) -> None:
    with Broker(data_dir=str(tmp_path), config=SNAPSHOTS_ALL_THE_TIME) as broker:
        broker.create_topic("a", 3, retention_ms="1000")
        broker.create_topic("b")
        image = broker.node.broker.image
    folder = tmp_path / "__cluster_metadata-0"
    assert not (folder / f"{0:020}.log").exists()
    assert list(folder.glob("*.checkpoint"))
    with Broker(data_dir=str(tmp_path)) as broker:
        after = broker.node.broker.image
        assert {name: topic.topic_id for name, topic in after.topics.items()} == {
            name: topic.topic_id for name, topic in image.topics.items()
        }
        assert after.config_of(ConfigResource.topic("a")) == {"retention.ms": "1000"}
        assert after.features == image.features


def test_a_node_starts_from_a_directory_that_kafka_left(tmp_path: Path) -> None:
    data_dir = unpack("clean", tmp_path)
    with Broker(data_dir=str(data_dir), config=SNAPSHOTS_ALL_THE_TIME) as broker:
        for name, partition in read_manifest("clean").items():
            topic, _, number = name.rpartition("-")
            found = [log for log in broker.node.broker.store.logs if str(log.partition) == name]
            assert [log.log_end_offset for log in found] == [partition.log_end_offset], name
            assert int(number) in broker.node.broker.image.topics[topic].partitions
    with Broker(data_dir=str(data_dir)) as broker:
        assert "compacted-txn" in broker.node.broker.image.topics
