"""What a consumer that assigns its own partitions leaves in ``__consumer_offsets``, and where."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from odradek.broker.internal_topics import GROUP_TOPIC
from odradek.cli.main import main
from odradek.client import BlockingConsumer, BlockingProducer
from odradek.client.consumer import OffsetAndMetadata
from odradek.core.ids import TopicPartition
from odradek.metadata.config_resource import ConfigResource
from odradek.testing.broker import Broker

PARTITION = TopicPartition("orders", 0)
GROUP = "my-group"  # Java's hash of it is -1,906,497,762
PARTITIONS = 50
HOME = 1_906_497_762 % PARTITIONS
CONFIG = {"offsets.topic.num.partitions": str(PARTITIONS)}


def commit_by_hand(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    with BlockingProducer(bootstrap_servers=servers) as producer:
        for _ in range(5):
            producer.send("orders", b"x", partition=0).result(60)
    with BlockingConsumer(
        bootstrap_servers=servers, group_id=GROUP, enable_auto_commit=False
    ) as consumer:
        consumer.assign([PARTITION])
        consumer.seek_to_beginning()
        assert len(consumer.poll(60)[PARTITION]) == 5
        consumer.commit({PARTITION: OffsetAndMetadata(3, "by hand")})


def shown(broker: Broker, formatter: str) -> list[Any]:
    """Return what the console consumer prints of the partition that keeps the group."""
    server = ["--bootstrap-server", broker.bootstrap_servers]
    place = ["--topic", GROUP_TOPIC, "--partition", str(HOME), "--offset", "earliest"]
    asked = ["console-consumer", *server, *place, "--max-messages", "1", "--formatter", formatter]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def records_by_partition(broker: Broker) -> dict[int, int]:
    counts = {}
    for number in range(PARTITIONS):
        log = broker.node.broker.store.get(TopicPartition(GROUP_TOPIC, number))
        if log is not None and log.log_end_offset:
            counts[number] = log.log_end_offset
    return counts


@pytest.mark.seed_row("0.11", "0.13", "0.15", "0.16", "4.8")
def test_a_commit_by_hand_is_one_record_in_the_partition_that_the_hash_names() -> None:
    with Broker(topics=["orders"], memory=True, config=CONFIG) as broker:
        commit_by_hand(broker)
        image = broker.node.broker.image
        assert len(image.topics[GROUP_TOPIC].partitions) == PARTITIONS
        assert image.config_of(ConfigResource.topic(GROUP_TOPIC))["cleanup.policy"] == "compact"
        assert records_by_partition(broker) == {HOME: 1}
        (commit,) = shown(broker, "offsets")
        assert commit["key"]["data"] == {"group": GROUP, "topic": "orders", "partition": 0}
        assert (commit["value"]["data"]["offset"], commit["value"]["data"]["metadata"]) == (
            3,
            "by hand",
        )
        assert shown(broker, "group-metadata") == []
