"""Where markers are kept (``task_markers``): offsets of groups, read and cleaned up.

A task first becomes the producer of its transactional id and then asks for its marker, in this
order: until it is the producer, an earlier attempt may still commit.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from odradek.client.admin.driver import Driver, refusal
from odradek.client.admin.group_offsets import CommittedOffset
from odradek.client.admin.groups import GroupOperations
from odradek.client.admin.routing import ToCoordinators
from odradek.client.cluster import Cluster
from odradek.client.errors import KafkaError
from odradek.core.ids import TopicPartition
from odradek.protocol.apis import api_for_key
from odradek.protocol.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from odradek.spark.task_markers import NO_MARKER, Marker, MarkerPlace, Task, parse_marker

_NAMED_MAX: Final = 9
_MANY_GROUPS_FROM: Final = 8
_NUMBER: Final = re.compile(r"\d{1,9}")

IsWanted = Callable[[MarkerPlace], bool]


class Survey(NamedTuple):
    """The markers of a query, looked at when the first batch of a run is through."""

    beyond: dict[int, MarkerPlace]
    """Tasks that wrote this batch though there are not so many now."""
    stale_groups: list[str]
    """Groups of single tasks that nobody will ask for any more."""


class Markers(GroupOperations):
    def __init__(self, cluster: Cluster) -> None:
        self._driver = Driver(cluster)

    async def find(self, task: Task) -> Marker:
        """Return the newest marker of a task; NO_MARKER if there is none.

        Raises:
            KafkaError: The coordinator of a group did not say.
        """

        def is_mine(place: MarkerPlace) -> bool:
            return place.group != task.shared_group or place.partition.partition == task.partition

        found = await self._markers([task.shared_group, task.own_group], is_mine)
        return _newest(marker for place, marker in found if is_mine(place))

    async def survey(self, task: Task, tasks: int, *, is_stream: bool) -> Survey:
        """Look at all markers of the query that a task is of, which has ``tasks`` of them now.

        A stream repeats its last batch only, so what is of earlier ones can go. A batch write may
        come again in any version: its markers go when there is a newer one of the same task.

        Raises:
            KafkaError: A coordinator did not say.
        """
        own_groups = await self._own_groups(task)

        def number_of(place: MarkerPlace) -> int:
            return own_groups.get(place.group, place.partition.partition)

        # What tasks of now have under way is not waited for.
        found = await self._markers(
            [task.shared_group, *own_groups], lambda place: number_of(place) >= tasks
        )
        beyond = {
            number_of(place): place
            for place, marker in found
            if number_of(place) >= tasks and marker.next_batch == task.batch + 1
        }
        shared = {
            number_of(place): marker.next_batch
            for place, marker in found
            if place.group == task.shared_group
        }
        stale = []
        for group, number in own_groups.items():
            own = _newest(marker for place, marker in found if place.group == group)
            is_superseded = own.next_batch < shared.get(number, 0)
            if is_superseded or (is_stream and own.next_batch <= task.batch):
                stale.append(group)
        return Survey(dict(sorted(beyond.items())), stale)

    async def groups_of(self, task: Task) -> list[str]:
        """Return all groups with markers of the query that a task is of."""
        listed = {group.group_id for group in await self.list_groups()}
        return [*(await self._own_groups(task)), *({task.shared_group} & listed)]

    async def _own_groups(self, task: Task) -> dict[str, int]:
        """Return groups of single tasks, with the numbers of these."""
        prefix = task.group_prefix
        return {
            group.group_id: int(number)
            for group in await self.list_groups()
            if group.group_id.startswith(prefix)
            and _NUMBER.fullmatch(number := group.group_id.removeprefix(prefix))
        }

    async def _markers(
        self, groups: Sequence[str], is_waited_for: IsWanted
    ) -> list[tuple[MarkerPlace, Marker]]:
        """Return markers of groups; one that is about to change is waited for or left out.

        ``list_group_offsets`` would not do: it knows no offset of -1, and waits for all. In the
        shared group a task that died may have left a transaction open, until it is run again.
        """
        driver = self._driver

        async def ask(node_id: int, ids: Sequence[str]) -> Mapping[str, _Found | KafkaError]:
            versions = (await driver.cluster.connection(node_id)).versions
            version = versions.newest(api_for_key(OffsetFetchRequest.ID), _NAMED_MAX)
            at_once = [ids] if version >= _MANY_GROUPS_FROM else [[each] for each in ids]
            answers: dict[str, _Found | KafkaError] = {}
            for some in at_once:
                response = await driver.cluster.ask(
                    node_id, _request(some, version), OffsetFetchResponse, version_max=_NAMED_MAX
                )
                for group, code, topics in _answers(response, some):
                    error = refusal(code, about=group)
                    answers[group] = error or _parsed(group, topics, is_waited_for)
            return answers

        results = await driver.bulk(groups, ToCoordinators(driver), ask, timeout_ms=None)
        return [each for found in results.unwrap().values() for each in found]


_Found = list[tuple[MarkerPlace, Marker]]
_Topics = Sequence[OffsetFetchResponseTopic] | Sequence[OffsetFetchResponseTopics]


def _request(groups: Sequence[str], version: int) -> OffsetFetchRequest:
    # Stable: an offset of a transaction that is being committed must not be overlooked.
    if version < _MANY_GROUPS_FROM:
        return OffsetFetchRequest(group_id=groups[0], topics=None, require_stable=True)
    asked = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    return OffsetFetchRequest(groups=asked, require_stable=True)


def _answers(
    response: OffsetFetchResponse, groups: Sequence[str]
) -> Iterator[tuple[str, int, _Topics]]:
    for group in response.groups:
        yield group.group_id, group.error_code, group.topics
    if not response.groups:
        yield groups[0], response.error_code, response.topics


def _parsed(group: str, topics: _Topics, is_waited_for: IsWanted) -> _Found | KafkaError:
    found: _Found = []
    for topic in topics:
        for each in topic.partitions:
            place = MarkerPlace(group, TopicPartition(topic.name, each.partition_index))
            error = refusal(each.error_code, about=place.partition)
            if error is None:
                committed = CommittedOffset(each.committed_offset, each.metadata or "")
                found.append((place, parse_marker(committed, place)))
            elif is_waited_for(place):
                return error
    return found


def _newest(markers: Iterable[Marker]) -> Marker:
    return max(markers, key=lambda each: each.next_batch, default=NO_MARKER)
