"""Members of consumer groups, of both protocols, that write down what they read and commit."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import confluent_kafka

from odradek.client.errors import KafkaError
from odradek.core.ids import TopicPartition
from odradek.testing.anomalies import CommitOffset, Event, Isolation, Operation, Outcome, Poll
from tests.cluster.group_members import ConfluentClient, GroupClient, OdradekClient, Record
from tests.interop.histories.load import INPUTS, Client, Load

TOPIC: Final = INPUTS[0].topic
ASKING: Final = 0.1
"""How often a member asks what its group has committed, per poll."""
REFUSALS: Final = (KafkaError, TimeoutError, confluent_kafka.KafkaException)
"""What a coordinator that moves leads to; the next commit has all that a failed one had."""
Make = Callable[[str, str, str, str], GroupClient]


class GroupReader(Client):
    def __init__(self, load: Load, name: str, group: str, make: Make, protocol: str) -> None:
        super().__init__(load, name)
        self.group = group
        self._make = make
        self._protocol = protocol
        self._owned: set[int] = set()

    def work(self) -> None:
        client = self._make(self.load.servers, self.group, self._protocol, TOPIC)
        while not self.load.stopped.is_set():
            records = self._poll(client)
            if records:
                with suppress(*REFUSALS):
                    self._commit(client, {number: offset + 1 for number, offset, _ in records})
            if self._owned and self.chance.random() < ASKING:
                with suppress(*REFUSALS):
                    self._ask(client)
        client.close()

    def _poll(self, client: GroupClient) -> Sequence[Record]:
        with self.recorder.operation(self.process) as polled:
            records = client.poll()
            owned = client.assignment()
            # Partitions may have gone and come back within one poll, which nobody notices.
            polled.rebalances(places(owned | self._owned | {number for number, *_ in records}))
            for number in {number for number, *_ in records}:
                found = [(offset, value.decode()) for n, offset, value in records if n == number]
                polled.polled(TopicPartition(TOPIC, number), found, Isolation.READ_COMMITTED)
        if owned != self._owned:
            self.recorder.assigned(self.process, places(owned), is_subscription=True)
            self._owned = owned
        return records

    def _commit(self, client: GroupClient, offsets: Mapping[int, int]) -> None:
        with self.recorder.operation(self.process) as committed:
            for number, offset in offsets.items():
                committed.commits_offset(self.group, TopicPartition(TOPIC, number), offset)
            client.commit(offsets)

    def _ask(self, client: GroupClient) -> None:
        with self.recorder.operation(self.process) as asked:
            for number, offset in client.committed(self._owned).items():
                asked.fetched_offset(self.group, TopicPartition(TOPIC, number), offset)


def places(numbers: Iterable[int]) -> list[TopicPartition]:
    return [TopicPartition(TOPIC, number) for number in numbers]


def group_readers(load: Load) -> list[GroupReader]:
    """Return two members of each client in a group of each protocol."""
    return [
        GroupReader(load, f"{protocol}-{client}-{number}", f"{protocol}-{client}", make, protocol)
        for protocol in ("classic", "consumer")
        for client, make in (("odradek", OdradekClient), ("confluent", ConfluentClient))
        for number in (1, 2)
    ]


def unread(history: Iterable[Event], readers: Iterable[GroupReader]) -> list[str]:
    """Say which committed records a group is past that none of its members was given."""
    group_of = {each.process: each.group for each in readers}
    read: dict[str, set[tuple[TopicPartition, int]]] = {each: set() for each in group_of.values()}
    ends: dict[tuple[str, TopicPartition], int] = {}
    there: set[tuple[TopicPartition, int]] = set()
    for event in history:
        if not isinstance(event, Operation):
            continue
        for action in event.actions:
            if isinstance(action, Poll) and action.isolation is Isolation.READ_COMMITTED:
                found = {(action.key, each.offset) for each in action.records}
                there |= found
                if event.process in group_of:
                    read[group_of[event.process]] |= found
            elif isinstance(action, CommitOffset) and event.outcome is Outcome.OK:
                place = (action.group, action.key)
                ends[place] = max(ends.get(place, 0), action.offset)
    return [
        f"{group} is past {key} {offset} and never got it"
        for group, got in read.items()
        for key, offset in sorted(there - got)
        if offset < ends.get((group, key), 0)
    ]
