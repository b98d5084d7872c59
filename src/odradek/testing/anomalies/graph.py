"""Circles in a directed graph: strongly connected components, and a short circle in each."""

from collections import deque

Graph = dict[int, set[int]]


def find_circles(graph: Graph) -> list[list[int]]:
    """Give one circle for each component that has any, as the nodes one comes by."""
    return [_circle(graph, component) for component in _components(graph)]


def _components(graph: Graph) -> list[set[int]]:
    """Tarjan's algorithm without recursion; components of one node are left out."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[set[int]] = []

    for root in sorted(graph):
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        walk = [(root, iter(sorted(graph[root])))]
        while walk:
            node, successors = walk[-1]
            for after in successors:
                if after not in index:
                    index[after] = low[after] = len(index)
                    stack.append(after)
                    on_stack.add(after)
                    walk.append((after, iter(sorted(graph.get(after, ())))))
                    break
                if after in on_stack:
                    low[node] = min(low[node], index[after])
            else:
                walk.pop()
                if walk:
                    parent = walk[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    component = _pop_component(stack, on_stack, node)
                    if len(component) > 1:
                        found.append(component)
    return found


def _pop_component(stack: list[int], on_stack: set[int], root: int) -> set[int]:
    component = set()
    while True:
        node = stack.pop()
        on_stack.discard(node)
        component.add(node)
        if node == root:
            return component


def _circle(graph: Graph, component: set[int]) -> list[int]:
    """Breadth first from one node of the component until it is reached again."""
    # An operation (not a completion, which is negative): every circle has one.
    start = max(component)
    came_from: dict[int, int] = {}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        for after in sorted(graph.get(node, set()) & component):
            if after == start:
                circle = [node]
                while circle[-1] != start:
                    circle.append(came_from[circle[-1]])
                return circle[::-1]
            if after not in came_from:
                came_from[after] = node
                waiting.append(after)
    raise AssertionError("a component without a circle")
