"""Racks on their way from members and brokers to the assignor."""

import asyncio

from odradek.client.cluster import Cluster
from odradek.client.consumer.assignors import ASSIGNORS
from odradek.client.consumer.hooks import Hooks
from odradek.client.consumer.membership.classic import ClassicMember, State, members_of
from odradek.client.consumer.membership.classic_group import ClassicGroup, member_options
from odradek.client.consumer.membership.rebalance import Rebalance
from odradek.client.consumer.settings import consumer_settings
from odradek.client.consumer.subscription import Subscription
from odradek.client.settings import Settings
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.join_group import JoinGroupResponse, JoinGroupResponseMember
from odradek.protocol.generated.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def settings(rack: str) -> Settings:
    given = {"bootstrap.servers": "a:1", "group.id": "g", "client.rack": rack}
    return consumer_settings(given, {})


def joined(**racks: str) -> JoinGroupResponse:
    """The answer to a leader: members as they said they are."""
    members = []
    for name, rack in racks.items():
        member = ClassicMember(member_options(settings(rack)))
        said = member.join_request(["t"], [], "", 9).protocols[0].metadata
        members.append(JoinGroupResponseMember(member_id=name, metadata=said))
    return JoinGroupResponse(members=members)


def metadata(*racks: str) -> MetadataResponse:
    """A topic with a partition on each of the brokers, which are in these racks."""
    brokers = [
        MetadataResponseBroker(node_id=number, host="h", port=1, rack=rack or None)
        for number, rack in enumerate(racks)
    ]
    partitions = [
        MetadataResponsePartition(partition_index=number, leader_id=number, replica_nodes=[number])
        for number in range(len(racks))
    ]
    topic = MetadataResponseTopic(name="t", partitions=partitions)
    return MetadataResponse(brokers=brokers, topics=[topic])


def test_members_tell_where_they_are_and_get_what_is_near() -> None:
    members = members_of(joined(ann="b", bob="a"))
    assert [each.rack_id for each in members.values()] == ["b", "a"]
    near = {TopicPartition("t", 0): frozenset("a"), TopicPartition("t", 1): frozenset("b")}
    for name in ("range", "sticky", "cooperative-sticky"):
        shares = ASSIGNORS[name].assign({"t": 2}, members, near)
        assert shares == {"ann": [("t", 1)], "bob": [("t", 0)]}, name
        without = ASSIGNORS[name].assign({"t": 2}, members)
        assert without == {"ann": [("t", 0)], "bob": [("t", 1)]}, name


def test_the_leader_learns_of_racks_from_metadata() -> None:
    async def scenario() -> None:
        cluster, subscription = Cluster(settings("a")), Subscription()

        async def nothing() -> None:
            return None

        rebalance = Rebalance("g", subscription, before_revocation=nothing, on_change=lambda: None)
        hooks = Hooks(*([lambda *_: None] * len(Hooks._fields)))
        group = ClassicGroup(cluster, subscription, rebalance, hooks)
        cluster.metadata.update(metadata("", ""), is_complete=True)
        assert group._find_racks(["t"]) == {}
        cluster.metadata.update(metadata("a", "b"), is_complete=True)
        assert group._find_racks(["t", "unknown"]) == {
            TopicPartition("t", 0): frozenset("a"),
            TopicPartition("t", 1): frozenset("b"),
        }
        # As the leader of a group that has settled: replicas in other racks are news.
        group._led_topics, group._led_racks = {"t": 2}, group._find_racks(["t"])
        group._member.state, group._member.rejoin_reason = State.STABLE, None
        group.on_metadata()
        assert group._member.rejoin_reason is None
        cluster.metadata.update(metadata("a", "c"), is_complete=True)
        group.on_metadata()
        assert group._member.rejoin_reason is not None

    asyncio.run(scenario())
