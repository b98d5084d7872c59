"""What was fetched and waits to be handed over, by partition, bounded in bytes. Pure.

A partition is fetched ahead until it has ``partition_bytes_max``, all together until they have
``bytes_max``. So one that is not read stalls alone; and if paused ones fill the room of all, what
they have is thrown away, to be fetched again when they go on.
"""

from collections import deque
from collections.abc import Iterator

from odradek.client.consumer.chunk import Chunk
from odradek.client.consumer.subscription import PartitionState, Position, Subscription
from odradek.core.ids import TopicPartition


class _Queue:
    """Chunks of one partition, as of one version of its position."""

    __slots__ = ("bytes", "chunks", "end", "version")

    def __init__(self, state: PartitionState) -> None:
        assert state.position is not None
        self.version = state.version
        self.chunks: deque[Chunk] = deque()
        self.bytes = 0
        self.end: Position = state.position


class FetchBuffer:
    def __init__(
        self, subscription: Subscription, *, bytes_max: int, partition_bytes_max: int
    ) -> None:
        self._subscription = subscription
        self._queues: dict[TopicPartition, _Queue] = {}
        self.bytes_max = bytes_max
        self.partition_bytes_max = partition_bytes_max
        self.bytes = 0

    def end(self, state: PartitionState) -> Position:
        """Return where to fetch on: after all that waits."""
        return self._queue(state).end

    def is_full(self, state: PartitionState) -> bool:
        return self._queue(state).bytes >= self.partition_bytes_max

    def has_room(self) -> bool:
        """Whether anything may be fetched; makes room at the expense of paused partitions."""
        if self.bytes >= self.bytes_max:
            for partition in list(self._queues):
                state = self._subscription.partitions.get(partition)
                if state is None or state.is_paused:
                    self.discard(partition)
        return self.bytes < self.bytes_max

    def add(self, state: PartitionState, chunk: Chunk) -> None:
        queue = self._queue(state)
        queue.chunks.append(chunk)
        queue.end = chunk.end
        queue.bytes += chunk.size
        self.bytes += chunk.size

    def ready(self) -> Iterator[tuple[PartitionState, Chunk]]:
        """Iterate over what may be handed over, the first chunk of each partition.

        Each is done with when the next is asked for: what is used up goes, and the partition's turn
        is over, so that the others come first next time.
        """
        for partition in list(self._queues):
            state = self._subscription.partitions.get(partition)
            if state is None or self._queues[partition].version != state.version:
                self.discard(partition)
                continue
            queue = self._queues[partition]
            if not state.is_fetchable or not queue.chunks:
                continue
            del self._queues[partition]
            self._queues[partition] = queue
            yield state, queue.chunks[0]

    def drop_first(self, state: PartitionState) -> None:
        """Forget a chunk that is used up."""
        queue = self._queue(state)
        size = queue.chunks.popleft().size
        queue.bytes -= size
        self.bytes -= size

    def discard(self, partition: TopicPartition) -> None:
        queue = self._queues.pop(partition, None)
        if queue is not None:
            self.bytes -= queue.bytes

    def discard_stale(self) -> None:
        """Let go of what belongs to partitions that are gone or have moved."""
        for partition, queue in list(self._queues.items()):
            state = self._subscription.partitions.get(partition)
            if state is None or state.version != queue.version:
                self.discard(partition)

    def _queue(self, state: PartitionState) -> _Queue:
        queue = self._queues.get(state.partition)
        if queue is None or queue.version != state.version:
            self.discard(state.partition)
            queue = self._queues[state.partition] = _Queue(state)
        return queue

    def check_invariants(self) -> None:
        assert self.bytes == sum(queue.bytes for queue in self._queues.values())
        for queue in self._queues.values():
            assert queue.bytes == sum(chunk.size for chunk in queue.chunks)
