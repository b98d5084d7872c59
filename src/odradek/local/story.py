"""What comes of a fault, told from views of the cluster that are taken one after the other. Pure.

A view is what a broker knows: who is unfenced, who leads the quorum, who leads which partition. The
story tells how each differs from the one before, with the time since the last fault. Changes of
leaders are added up until a view brings no more of them, since a controller writes many in several
steps.

It also keeps which partitions have new leaders and have not acknowledged a record since, and
whether all that a fault leads to has been seen (``is_settled``).
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from odradek.core.ids import TopicPartition
from odradek.replication.isr_flaps import IsrFlaps

NO_LEADER: Final = -1
NO_CONTROLLER: Final = -1
ACKS_AWAITED_MAX: Final = 100
"""Of the partitions that changed leaders: enough to see the first record acknowledged."""
STORY_MS_MAX: Final = 120_000
"""What happens later than this after a fault is not put down to it."""
NAMED_MAX: Final = 3


class PartitionView(NamedTuple):
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class ClusterView(NamedTuple):
    controller: int
    unfenced: frozenset[int]
    partitions: Mapping[TopicPartition, PartitionView]

    @property
    def lagging(self) -> list[TopicPartition]:
        """Return the partitions with replicas that are not in sync."""
        return [key for key, each in self.partitions.items() if len(each.isr) < len(each.replicas)]


class Effect(NamedTuple):
    after_ms: int | None
    """Since the fault; None if there was none that it could come from."""
    text: str


class Story:
    def __init__(self) -> None:
        self.view: ClusterView | None = None
        self.awaited_acks: dict[TopicPartition, PartitionView] = {}
        """Partitions with new leaders, until one of them has acknowledged a record."""
        self.flaps = IsrFlaps()
        self._began_ms: int | None = None
        self._down: set[int] = set()
        """Nodes that were taken away and are not gone for the cluster yet."""
        self._coming: set[int] = set()
        """Nodes that came back, and have not caught up yet."""
        self._moved: set[TopicPartition] = set()
        self._moved_ms = 0
        self._was_lagging = False
        self._served: set[int] = set()

    def on_down(self, nodes: Iterable[int], now_ms: int) -> None:
        """Note that brokers died, stopped or can reach nobody any more."""
        self._begin(now_ms)
        self._down.update(nodes)
        self._coming -= self._down

    def on_back(self, nodes: Iterable[int], now_ms: int) -> None:
        """Note that brokers were started, or may go on."""
        self._begin(now_ms)
        self._coming.update(nodes)
        self._down -= self._coming

    def _begin(self, now_ms: int) -> None:
        self._began_ms = now_ms
        self.awaited_acks = {}

    def is_settled(self) -> bool:
        """Whether the cluster has got over what happened to it, as far as it can."""
        return not (self._down or self._coming or self._moved)

    def on_view(self, view: ClusterView, now_ms: int) -> list[Effect]:
        """Take the next view; return what is new in it."""
        before, self.view = self.view, view
        if before is None:
            self._served |= view.unfenced
            self._was_lagging = bool(view.lagging)
            return []
        self._note_isrs(before, view, now_ms)
        texts = []
        if view.controller not in (before.controller, NO_CONTROLLER):
            texts.append(f"node {view.controller} is the active controller")
        texts += [f"node {node} fenced" for node in sorted(before.unfenced - view.unfenced)]
        for node in sorted(view.unfenced - before.unfenced):
            texts.append(f"node {node} serves{' again' if node in self._served else ''}")
        self._served |= view.unfenced
        effects = [Effect(self._since(now_ms), text) for text in texts]
        effects += self._note_leaders(before, view, now_ms)
        is_lagging = bool(view.lagging)
        if self._was_lagging and not is_lagging:
            effects.append(Effect(self._since(now_ms), "all replicas are in sync again"))
        self._was_lagging = is_lagging
        leaders = {each.leader for each in view.partitions.values()}
        self._down = {node for node in self._down if node in view.unfenced or node in leaders}
        self._coming = {node for node in self._coming if not _is_back(node, view)}
        return effects

    def on_ack(self, now_ms: int) -> Effect:
        """Note that one of the new leaders has acknowledged a record."""
        self.awaited_acks = {}
        after_ms = self._since(now_ms)
        seconds = "" if after_ms is None else f" after {after_ms / 1000:.2f} s"
        return Effect(after_ms, f"first ack of a new leader{seconds}")

    def _note_isrs(self, before: ClusterView, view: ClusterView, now_ms: int) -> None:
        for key, each in view.partitions.items():
            known = before.partitions.get(key)
            if known is not None and known.isr != each.isr:
                self.flaps.on_isr(key, known.isr, each.isr, now_ms)

    def _note_leaders(self, before: ClusterView, view: ClusterView, now_ms: int) -> list[Effect]:
        changed = [
            key
            for key, each in view.partitions.items()
            if key in before.partitions and before.partitions[key].leader != each.leader
        ]
        if changed:
            self._moved.update(changed)
            self._moved_ms = now_ms
            return []
        if not self._moved:
            return []
        found = {key: view.partitions[key] for key in self._moved if key in view.partitions}
        self._moved = set()
        led = {key: each for key, each in found.items() if each.leader != NO_LEADER}
        effects, since = [], self._since(self._moved_ms)
        if led:
            effects.append(Effect(since, _count(len(led), "has a new leader", "have new leaders")))
            self.awaited_acks = dict(sorted(led.items())[:ACKS_AWAITED_MAX])
        if leaderless := sorted(found.keys() - led.keys()):
            names = ", ".join(map(str, leaderless[:NAMED_MAX]))
            more = "…" if len(leaderless) > NAMED_MAX else ""
            lost = _count(len(leaderless), "has no leader", "have no leader")
            effects.append(Effect(since, f"{lost}: {names}{more}"))
        return effects

    def _since(self, now_ms: int) -> int | None:
        if self._began_ms is None or now_ms - self._began_ms > STORY_MS_MAX:
            return None
        return max(now_ms - self._began_ms, 0)


def _is_back(node: int, view: ClusterView) -> bool:
    """Whether a broker serves, and has all that it missed."""
    return node in view.unfenced and not any(
        node in each.replicas and node not in each.isr for each in view.partitions.values()
    )


def _count(partitions: int, one: str, many: str) -> str:
    return f"1 partition {one}" if partitions == 1 else f"{partitions} partitions {many}"
