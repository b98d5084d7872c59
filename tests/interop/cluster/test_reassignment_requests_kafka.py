"""Reassignments step by step: what a real Kafka's controller makes of a partition, and what ours.

Brokers only register: the steps of their replicas are proposals of the leader. In the steps they
have the numbers 1, 2, 3 in the order in which they registered.
"""

from typing import Final

import pytest

from odradek.core.errors import ErrorCode
from odradek.metadata import PartitionImage, TopicImage
from odradek.protocol.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.generated.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from odradek.protocol.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from tests.interop.cluster.our_controller import OurController
from tests.interop.cluster.registrations import Asked, Registered
from tests.interop.cluster.working_broker import alter, create_topic, unfenced
from tests.interop.kafka_peer.node import CLUSTER_ID

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

Ids = tuple[int, ...]
Step = tuple[str, Ids | None, str]
"""What is done, with which brokers, and the partition after it."""
REFUSED: Final = "refused: "


class Story:
    """A partition on the first brokers, and what becomes of it."""

    def __init__(self, controller: Asked, brokers: int, replicas: int, **configs: str) -> None:
        self.controller = controller
        self.brokers = [unfenced(controller) for _ in range(brokers)]
        self.topic: TopicImage = create_topic(controller, *self.brokers[:replicas], **configs)

    @property
    def partition(self) -> PartitionImage:
        return self.controller.catch_up().topics_by_id[self.topic.topic_id].partitions[0]

    def broker(self, number: int) -> Registered:
        return self.brokers[number - 1]

    def id_of(self, number: int) -> int:
        return self.broker(number).request.broker_id if number <= len(self.brokers) else number

    def numbers(self, ids: Ids) -> str:
        known = [each.request.broker_id for each in self.brokers]
        return ",".join(str(known.index(each) + 1) for each in ids)

    def state(self) -> str:
        now = self.partition
        parts = [f"replicas {self.numbers(now.replicas)}"]
        if now.adding:
            parts.append(f"adding {self.numbers(now.adding)}")
        if now.removing:
            parts.append(f"removing {self.numbers(now.removing)}")
        parts.append(f"isr {self.numbers(now.isr)}")
        if now.elr:
            parts.append(f"elr {self.numbers(tuple(sorted(now.elr)))}")
        leader = self.numbers((now.leader,)) if now.leader >= 0 else "none"
        parts.append(f"leader {leader} epoch {now.leader_epoch}/{now.partition_epoch}")
        wanted = [
            each.request.log_dirs[0]
            for id_ in now.replicas
            for each in self.brokers
            if each.request.broker_id == id_
        ]
        assert list(now.directories) == wanted
        return "; ".join(parts)

    def do(self, what: str, brokers: Ids | None) -> str:
        match what:
            case "move":
                assert brokers is not None
                said = self.reassign([self.id_of(each) for each in brokers])
            case "move, keep factor":
                assert brokers is not None
                said = self.reassign([self.id_of(each) for each in brokers], keep_factor=True)
            case "cancel":
                said = self.reassign(None)
            case "in sync":
                assert brokers is not None
                said = self.propose([self.id_of(each) for each in brokers])
            case "elect":
                said = self.elect()
            case "fence" | "unfence":
                said = ""
                for each in brokers or ():
                    broker = self.broker(each)
                    broker.beat(broker.epoch, fence=what == "fence")
        return f"{said}{self.state()}"

    def reassign(self, target: list[int] | None, *, keep_factor: bool = False) -> str:
        partition = ReassignablePartition(partition_index=0, replicas=target)
        topic = ReassignableTopic(name=self.topic.name, partitions=[partition])
        request = AlterPartitionReassignmentsRequest(
            topics=[topic], allow_replication_factor_change=not keep_factor
        )
        answer = self.controller.ask(request, AlterPartitionReassignmentsResponse)
        found = answer.responses[0].partitions[0]
        if found.error_code == 0:
            assert found.error_message is None
            return ""
        return f"{REFUSED}{ErrorCode(found.error_code).name}; "

    def elect(self) -> str:
        """Have the preferred leader elected."""
        wanted = [TopicPartitions(topic=self.topic.name, partitions=[0])]
        request = ElectLeadersRequest(election_type=0, topic_partitions=wanted)
        answer = self.controller.ask(request, ElectLeadersResponse)
        code = ErrorCode(answer.replica_election_results[0].partition_result[0].error_code)
        return "" if code is ErrorCode.NONE else f"{REFUSED}{code.name}; "

    def propose(self, isr: list[int]) -> str:
        now = self.partition
        (leader,) = (each for each in self.brokers if each.request.broker_id == now.leader)
        epochs = {"leader_epoch": now.leader_epoch, "partition_epoch": now.partition_epoch}
        said = alter(leader, self.topic, isr, **epochs)
        return "" if said == "NONE" else f"{said}; "


STORIES: Final[dict[str, list[Step]]] = {
    "three for three": [
        (
            "move",
            (4, 5, 6),
            "replicas 4,5,6,1,2,3; adding 4,5,6; removing 1,2,3; isr 1,2,3; leader 1 epoch 0/1",
        ),
        (
            "in sync",
            (1, 2, 3, 4, 5),
            "replicas 4,5,6,1,2,3; adding 4,5,6; removing 1,2,3; isr 1,2,3,4,5; leader 1 epoch 0/2",
        ),
        (
            "in sync",
            (1, 2, 3, 4, 5, 6),
            "NEW_LEADER_ELECTED; replicas 4,5,6; isr 4,5,6; leader 4 epoch 1/3",
        ),
        (
            "cancel",
            None,
            f"{REFUSED}NO_REASSIGNMENT_IN_PROGRESS; replicas 4,5,6; isr 4,5,6; leader 4 epoch 1/3",
        ),
    ],
    "the leader stays": [
        (
            "move",
            (6, 1, 2),
            "replicas 6,1,2,3; adding 6; removing 3; isr 1,2,3; leader 1 epoch 0/1",
        ),
        ("in sync", (1, 6, 2), "replicas 6,1,2; isr 1,6,2; leader 1 epoch 1/2"),
    ],
    "another order": [
        ("move", (3, 1, 2), "replicas 3,1,2; isr 1,2,3; leader 1 epoch 0/1"),
        ("move", (3, 1, 2), "replicas 3,1,2; isr 1,2,3; leader 1 epoch 0/1"),
    ],
    "fewer at once": [
        ("move", (2,), "replicas 2; isr 2; leader 2 epoch 1/1"),
    ],
    "fewer, but one that remains is out of sync": [
        ("in sync", (1, 2), "replicas 1,2,3; isr 1,2; leader 1 epoch 0/1"),
        ("move", (1, 3), "replicas 1,3,2; removing 2; isr 1,2; leader 1 epoch 0/2"),
        ("in sync", (1, 2, 3), "replicas 1,3; isr 1,3; leader 1 epoch 1/3"),
    ],
    "a dead replica that stays holds nothing up (KAFKA-19975)": [
        ("fence", (3,), "replicas 1,2,3; isr 1,2; leader 1 epoch 0/1"),
        (
            "move",
            (1, 4, 3),
            "replicas 1,4,3,2; adding 4; removing 2; isr 1,2; leader 1 epoch 0/2",
        ),
        ("in sync", (1, 2, 4), "replicas 1,4,3; isr 1,4; leader 1 epoch 1/3"),
    ],
    "more": [
        ("move", (1, 2, 3, 4), "replicas 1,2,3,4; adding 4; isr 1,2,3; leader 1 epoch 0/1"),
        ("in sync", (1, 2, 3, 4), "replicas 1,2,3,4; isr 1,2,3,4; leader 1 epoch 0/2"),
    ],
    "cancelled": [
        (
            "move",
            (4, 5, 2),
            "replicas 4,5,2,1,3; adding 4,5; removing 1,3; isr 1,2,3; leader 1 epoch 0/1",
        ),
        (
            "in sync",
            (1, 4, 2),
            "replicas 4,5,2,1,3; adding 4,5; removing 1,3; isr 1,4,2; leader 1 epoch 0/2",
        ),
        ("cancel", None, "replicas 2,1,3; isr 1,2; leader 1 epoch 1/3"),
    ],
    "cancelled while a new one leads": [
        (
            "move",
            (4, 5, 2),
            "replicas 4,5,2,1,3; adding 4,5; removing 1,3; isr 1,2,3; leader 1 epoch 0/1",
        ),
        (
            "in sync",
            (1, 4, 2),
            "replicas 4,5,2,1,3; adding 4,5; removing 1,3; isr 1,4,2; leader 1 epoch 0/2",
        ),
        (
            "fence",
            (1,),
            "replicas 4,5,2,1,3; adding 4,5; removing 1,3; isr 4,2; leader 4 epoch 1/3",
        ),
        ("cancel", None, "replicas 2,1,3; isr 2; leader 2 epoch 2/4"),
    ],
    "cancelling would lose records": [
        (
            "move",
            (4, 5, 2),
            "replicas 4,5,2,1,3; adding 4,5; removing 1,3; isr 1,2,3; leader 1 epoch 0/1",
        ),
        (
            "in sync",
            (1, 4),
            "replicas 4,5,2,1,3; adding 4,5; removing 1,3; isr 1,4; leader 1 epoch 0/2",
        ),
        (
            "fence",
            (1,),
            "replicas 4,5,2,1,3; adding 4,5; removing 1,3; isr 4; leader 4 epoch 1/3",
        ),
        (
            "cancel",
            None,
            f"{REFUSED}INVALID_REPLICA_ASSIGNMENT; replicas 4,5,2,1,3; adding 4,5; removing 1,3;"
            " isr 4; leader 4 epoch 1/3",
        ),
    ],
    "replaced by another": [
        (
            "move",
            (4, 2, 3),
            "replicas 4,2,3,1; adding 4; removing 1; isr 1,2,3; leader 1 epoch 0/1",
        ),
        (
            "move",
            (5, 2, 3),
            "replicas 5,2,3,1,4; adding 5; removing 1,4; isr 1,2,3; leader 1 epoch 0/2",
        ),
        ("cancel", None, "replicas 2,3,1,4; isr 1,2,3; leader 1 epoch 1/3"),
    ],
    "replaced, and what the first added is kept": [
        (
            "move",
            (4, 5, 3),
            "replicas 4,5,3,1,2; adding 4,5; removing 1,2; isr 1,2,3; leader 1 epoch 0/1",
        ),
        (
            "move",
            (4, 3),
            "replicas 4,3,1,2,5; adding 4,5; removing 1,2,5; isr 1,2,3; leader 1 epoch 0/2",
        ),
        ("cancel", None, "replicas 3,1,2; isr 1,2,3; leader 1 epoch 1/3"),
    ],
    "a new leader that a second move takes out": [
        (
            "move",
            (4, 5, 3),
            "replicas 4,5,3,1,2; adding 4,5; removing 1,2; isr 1,2,3; leader 1 epoch 0/1",
        ),
        (
            "elect",
            None,
            f"{REFUSED}PREFERRED_LEADER_NOT_AVAILABLE; replicas 4,5,3,1,2; adding 4,5;"
            " removing 1,2; isr 1,2,3; leader 1 epoch 0/1",
        ),
        (
            "in sync",
            (1, 2, 3, 4),
            "replicas 4,5,3,1,2; adding 4,5; removing 1,2; isr 1,2,3,4; leader 1 epoch 0/2",
        ),
        (
            "elect",
            None,
            "replicas 4,5,3,1,2; adding 4,5; removing 1,2; isr 1,2,3,4; leader 4 epoch 1/3",
        ),
        (
            "move",
            (6, 1, 3),
            "replicas 6,1,3,2,4,5; adding 6; removing 2,4,5; isr 1,2,3,4; leader 4 epoch 1/4",
        ),
        (
            "in sync",
            (1, 2, 3, 4, 6),
            "NEW_LEADER_ELECTED; replicas 6,1,3; isr 1,3,6; leader 6 epoch 2/5",
        ),
    ],
    "a broker that is dead": [
        ("fence", (4,), "replicas 1,2,3; isr 1,2,3; leader 1 epoch 0/0"),
        (
            "move",
            (1, 2, 4),
            "replicas 1,2,4,3; adding 4; removing 3; isr 1,2,3; leader 1 epoch 0/1",
        ),
        ("cancel", None, "replicas 1,2,3; isr 1,2,3; leader 1 epoch 1/2"),
    ],
    "the replication factor": [
        (
            "move, keep factor",
            (1, 2),
            f"{REFUSED}INVALID_REPLICATION_FACTOR; replicas 1,2,3; isr 1,2,3; leader 1 epoch 0/0",
        ),
        (
            "move, keep factor",
            (1, 4, 5),
            "replicas 1,4,5,2,3; adding 4,5; removing 2,3; isr 1,2,3; leader 1 epoch 0/1",
        ),
        (
            "move, keep factor",
            (1, 4, 5, 2, 3),
            f"{REFUSED}INVALID_REPLICATION_FACTOR; replicas 1,4,5,2,3; adding 4,5; removing 2,3;"
            " isr 1,2,3; leader 1 epoch 0/1",
        ),
    ],
    "what is refused": [
        (
            "move",
            (),
            f"{REFUSED}INVALID_REPLICA_ASSIGNMENT; replicas 1,2,3; isr 1,2,3; leader 1 epoch 0/0",
        ),
        (
            "move",
            (1, 1),
            f"{REFUSED}INVALID_REPLICA_ASSIGNMENT; replicas 1,2,3; isr 1,2,3; leader 1 epoch 0/0",
        ),
        (
            "move",
            (1, 77),
            f"{REFUSED}INVALID_REPLICA_ASSIGNMENT; replicas 1,2,3; isr 1,2,3; leader 1 epoch 0/0",
        ),
        (
            "cancel",
            None,
            f"{REFUSED}NO_REASSIGNMENT_IN_PROGRESS; replicas 1,2,3; isr 1,2,3; leader 1 epoch 0/0",
        ),
    ],
}


@pytest.mark.parametrize("name", STORIES)
def test_what_becomes_of_a_partition(planner: Asked, name: str) -> None:
    story = Story(planner, 6, 3, min_insync_replicas="1")
    seen = [(what, brokers, story.do(what, brokers)) for what, brokers, _ in STORIES[name]]
    assert seen == STORIES[name]


OTHERWISE: Final[dict[str, list[tuple[str, Ids | None, str, str]]]] = {
    # Kafka waits until 4 is in sync, and does not count what it removes: it never ends. So it is
    # from 4.3 on (KAFKA-19975).
    "taken back": [
        (
            "move",
            (4, 2, 3),
            "replicas 4,2,3,1; adding 4; removing 1; isr 1,2,3; leader 1 epoch 0/1",
            "replicas 4,2,3,1; adding 4; removing 1; isr 1,2,3; leader 1 epoch 0/1",
        ),
        (
            "move",
            (1, 2, 3),
            "replicas 1,2,3,4; adding 4; removing 4; isr 1,2,3; leader 1 epoch 0/2",
            "replicas 1,2,3; isr 1,2,3; leader 1 epoch 1/2",
        ),
        (
            "in sync",
            (1, 2, 3, 4),
            "replicas 1,2,3,4; adding 4; removing 4; isr 1,2,3,4; leader 1 epoch 0/3",
            "INVALID_REQUEST; replicas 1,2,3; isr 1,2,3; leader 1 epoch 1/2",
        ),
    ],
    # Nothing was committed without 1: it may lead, and nothing is lost.
    "cancelled while one that stays is eligible": [
        (
            "in sync",
            (1,),
            "replicas 1,2,3; isr 1; elr 2,3; leader 1 epoch 0/1",
            "replicas 1,2,3; isr 1; elr 2,3; leader 1 epoch 0/1",
        ),
        (
            "move",
            (4, 5, 2),
            "replicas 4,5,2,1,3; adding 4,5; removing 1,3; isr 1; elr 2,3; leader 1 epoch 0/2",
            "replicas 4,5,2,1,3; adding 4,5; removing 1,3; isr 1; elr 2,3; leader 1 epoch 0/2",
        ),
        (
            "in sync",
            (1, 4),
            "replicas 4,5,2,1,3; adding 4,5; removing 1,3; isr 1,4; leader 1 epoch 0/3",
            "replicas 4,5,2,1,3; adding 4,5; removing 1,3; isr 1,4; leader 1 epoch 0/3",
        ),
        (
            "fence",
            (1,),
            "replicas 4,5,2,1,3; adding 4,5; removing 1,3; isr 4; elr 1; leader 4 epoch 1/4",
            "replicas 4,5,2,1,3; adding 4,5; removing 1,3; isr 4; elr 1; leader 4 epoch 1/4",
        ),
        (
            "unfence",
            (1,),
            "replicas 4,5,2,1,3; adding 4,5; removing 1,3; isr 4; elr 1; leader 4 epoch 1/4",
            "replicas 4,5,2,1,3; adding 4,5; removing 1,3; isr 4; elr 1; leader 4 epoch 1/4",
        ),
        (
            "cancel",
            None,
            f"{REFUSED}INVALID_REPLICA_ASSIGNMENT; replicas 4,5,2,1,3; adding 4,5; removing 1,3;"
            " isr 4; elr 1; leader 4 epoch 1/4",
            "replicas 2,1,3; isr 1; leader 1 epoch 2/5",
        ),
    ],
}
"""The partition after each step: Kafka's, and ours.

One more is not asked, as no later reader of the log could be told that it is sound: when replicas
leave and fewer than min.insync.replicas remain, Kafka leaves them among the eligible ones (ELR).
"""


@pytest.mark.parametrize("name", OTHERWISE)
def test_where_ours_decides_otherwise(planner: Asked, name: str) -> None:
    story = Story(planner, 6, 3, min_insync_replicas="2")
    seen = [story.do(what, brokers) for what, brokers, _, _ in OTHERWISE[name]]
    is_ours = isinstance(planner, OurController)
    assert seen == [ours if is_ours else kafkas for _, _, kafkas, ours in OTHERWISE[name]]


def test_lists_of_moves(planner: Asked) -> None:
    story = Story(planner, 4, 2)
    first, second, third, _ = (each.request.broker_id for each in story.brokers)
    idle = create_topic(planner, story.broker(1))
    assert story.reassign([third, first]) == ""

    def listed(*names: tuple[str, list[int]]) -> list[tuple[str, int, list[int], list[int]]]:
        topics = [ListPartitionReassignmentsTopics(name=n, partition_indexes=p) for n, p in names]
        request = ListPartitionReassignmentsRequest(topics=topics)
        answer = planner.ask(request, ListPartitionReassignmentsResponse)
        assert (answer.error_code, answer.error_message) == (0, None)
        return [
            (topic.name, each.partition_index, each.replicas, each.adding_replicas)
            for topic in answer.topics
            for each in topic.partitions
        ]

    own = (story.topic.name, 0, [third, first, second], [third])
    assert listed((story.topic.name, [0, 1]), (idle.name, [0]), ("nowhere", [0])) == [own]
    assert listed((idle.name, [0])) == listed() == []
    everything = planner.ask(
        ListPartitionReassignmentsRequest(topics=None), ListPartitionReassignmentsResponse
    )
    assert story.topic.name in [each.name for each in everything.topics]
    assert story.reassign(None) == ""
    assert listed((story.topic.name, [0])) == []


MESSAGES: Final[dict[str, tuple[str, list[int] | None, bool]]] = {
    "no replicas": ("t", [], True),
    "one twice": ("t", [1, 1], True),
    "a stranger": ("t", [1, 77], True),
    "no such partition": ("t-1", [1], True),
    "no such topic": ("nowhere", [1], True),
    "nothing to cancel": ("t", None, True),
    "another factor": ("t", [2, 3], False),
}


def test_refusals_have_the_same_words(observer: Asked) -> None:
    """One after the other, asked of both."""
    ours = OurController(CLUSTER_ID)
    stories = [Story(observer, 3, 1), Story(ours, 3, 1)]
    for name, (place, target, may_change) in MESSAGES.items():
        said = []
        for story in stories:
            topic = story.topic.name if place.startswith("t") else place
            partition = ReassignablePartition(
                partition_index=1 if place == "t-1" else 0,
                replicas=None if target is None else [story.id_of(each) for each in target],
            )
            request = AlterPartitionReassignmentsRequest(
                topics=[ReassignableTopic(name=topic, partitions=[partition])],
                allow_replication_factor_change=may_change,
            )
            answer = story.controller.ask(request, AlterPartitionReassignmentsResponse)
            found = answer.responses[0].partitions[0]
            message = (found.error_message or "").replace(topic, "TOPIC")
            message = message.replace(str(story.id_of(1)), "FIRST")
            said.append((answer.allow_replication_factor_change, found.error_code, message))
        assert said[0] == said[1], name
