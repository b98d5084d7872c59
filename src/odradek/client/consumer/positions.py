"""Finds out where to read: committed offsets, resets, and whether a new leader has what was read.

One loop looks after all partitions that have no good position. What fails is tried again after a
while, partition by partition; what only the application can decide is for its next ``poll``.
"""

import asyncio
from collections.abc import Callable, Sequence

from odradek.client.cluster import Cluster
from odradek.client.consumer.errors import LogTruncationError, NoOffsetError
from odradek.client.consumer.group_offsets import GroupOffsets
from odradek.client.consumer.hooks import Hooks
from odradek.client.consumer.offsets import (
    EpochEnd,
    FoundOffset,
    epoch_ends,
    list_offsets,
)
from odradek.client.consumer.records import OffsetAndMetadata
from odradek.client.consumer.settings import LATEST, reset_policy
from odradek.client.consumer.subscription import (
    PartitionState,
    Phase,
    Position,
    Subscription,
)
from odradek.client.errors import KafkaError, UnsupportedError
from odradek.client.metadata import NO_EPOCH
from odradek.core.ids import TopicPartition

_NO_OFFSET = -1


class Positions:
    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        group_offsets: GroupOffsets | None,
        hooks: Hooks,
        wall_ms: Callable[[], int],
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._group_offsets = group_offsets
        self._hooks = hooks
        self._wall_ms = wall_ms
        self._policy = reset_policy(cluster.settings)
        self._wake = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Look again; the loop begins with the first call."""
        self._wake.set()
        if self._loop is None:
            self._loop = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self.look()
            except Exception as error:  # a fault of ours must not end in silence
                self._hooks.on_failure(KafkaError(f"finding positions: {error!r}"))
                raise
            now_ms = self._now_ms()
            retry_ms = self._subscription.next_retry_ms(now_ms)
            wait = None if retry_ms is None else (retry_ms - now_ms) / 1000
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def look(self) -> None:
        """Try, once, to find every position that is due."""
        moved = await self._look_up_committed()
        moved |= await self._reset()
        self._notice_leaders()
        moved |= await self._validate()
        if moved:
            self._hooks.on_moved()

    # Without a position.

    async def _look_up_committed(self) -> bool:
        states = self._due(Phase.UNKNOWN)
        if not states:
            return False
        committed: dict[TopicPartition, OffsetAndMetadata | KafkaError] = {}
        if self._group_offsets is not None:
            try:
                committed = await self._group_offsets.fetch([each.partition for each in states])
            except KafkaError as error:
                self._on_failure(states, error)
                return False
        for state in states:
            if state.phase is not Phase.UNKNOWN:
                continue  # the application was faster
            found = committed.get(state.partition)
            if isinstance(found, KafkaError):
                self._on_failure([state], found)
            elif found is not None:
                state.seek(Position(found.offset, found.leader_epoch))
            elif not self._policy.is_none:
                state.reset_to(self._policy)
            else:
                state.on_failure(self._retry_at(state))
                self._hooks.on_failure(NoOffsetError({state.partition: "nothing is committed"}))
        return True

    async def _reset(self) -> bool:
        states = self._with_metadata(self._due(Phase.RESETTING))
        policies = {each.partition: each.reset for each in states if each.reset is not None}
        if not policies:
            return False
        now_ms = self._wall_ms()
        leaders = {each: self._leader_epoch(each) for each in states}
        asked = {each: policy.timestamp_at(now_ms) for each, policy in policies.items()}
        found = await list_offsets(self._cluster, asked)
        for state in states:
            answer, policy = found.get(state.partition), policies.get(state.partition)
            if policy is None or state.reset != policy:
                continue
            if not isinstance(answer, FoundOffset):
                self._on_failure([state], answer)
            elif answer.offset == _NO_OFFSET:
                state.reset_to(LATEST)  # nothing is as young as that yet
            else:
                position = Position(answer.offset, answer.leader_epoch)
                state.on_reset(policy, position, leaders[state])
        return True

    # With a position that a new leader may not have.

    def _notice_leaders(self) -> None:
        for partition, state in self._subscription.partitions.items():
            known = self._cluster.metadata.find(partition)
            if known is not None and known.leader_epoch != NO_EPOCH:
                state.on_leader_epoch(known.leader_epoch)

    async def _validate(self) -> bool:
        states = self._with_metadata(self._due(Phase.VALIDATING))
        positions = {each.partition: each.position for each in states if each.position is not None}
        if not positions:
            return False
        leaders = {each: self._leader_epoch(each) for each in states}
        epochs = {partition: position.epoch for partition, position in positions.items()}
        found = await epoch_ends(self._cluster, epochs)
        for state in states:
            if state.phase is not Phase.VALIDATING or state.position != positions[state.partition]:
                continue
            answer = found.get(state.partition)
            if isinstance(answer, EpochEnd):
                self._on_epoch_end(state, answer, leaders[state])
            elif isinstance(answer, UnsupportedError):
                state.on_validated(leaders[state])
            else:
                self._on_failure([state], answer)
        return True

    def _leader_epoch(self, state: PartitionState) -> int:
        known = self._cluster.metadata.find(state.partition)
        return NO_EPOCH if known is None else known.leader_epoch

    def _on_epoch_end(self, state: PartitionState, end: EpochEnd, leader_epoch: int) -> None:
        assert state.position is not None
        is_unknown = end.end_offset == _NO_OFFSET or end.leader_epoch == NO_EPOCH
        if not is_unknown and end.end_offset >= state.position.offset:
            state.on_validated(leader_epoch)
        elif self._policy.is_none:
            state.on_failure(self._retry_at(state))
            diverging = {state.partition: (state.position.offset, end.end_offset)}
            self._hooks.on_failure(LogTruncationError(diverging))
        elif is_unknown:
            state.reset_to(self._policy)
        else:
            state.seek(Position(end.end_offset, end.leader_epoch))
            state.validated_epoch = leader_epoch

    # Failures.

    def _with_metadata(self, states: Sequence[PartitionState]) -> list[PartitionState]:
        """Leave those for later whose topics were not heard of yet: news of them wakes us."""
        metadata = self._cluster.metadata
        known = [
            state
            for state in states
            if state.partition.topic in metadata.topics
            or state.partition.topic in metadata.topic_errors
        ]
        if len(known) < len(states):
            self._hooks.want_metadata()
        return known

    def _due(self, phase: Phase) -> list[PartitionState]:
        return list(self._subscription.in_phase(phase, self._now_ms()))

    def _on_failure(self, states: Sequence[PartitionState], error: KafkaError | None) -> None:
        for state in states:
            state.on_failure(self._retry_at(state))
        if error is not None:
            self._hooks.on_failure(error)
        self._hooks.want_metadata()

    def _retry_at(self, state: PartitionState) -> float:
        backoff = self._cluster.backoff()
        backoff.failures = state.failures
        return self._now_ms() + backoff.next_ms()

    def _now_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1000
