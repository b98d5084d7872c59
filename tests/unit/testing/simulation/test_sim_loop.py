"""A simulated loop does what asyncio's does: the same programs on both, the same log of each."""

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from odradek.testing.simulation import SimulationError, World

Log = list[str]
Program = Callable[[Log], Awaitable[None]]


async def callbacks(log: Log) -> None:
    loop = asyncio.get_running_loop()

    def first() -> None:
        log.append("first")
        loop.call_soon(log.append, "from first")

    loop.call_later(0, log.append, "timer that is due")
    loop.call_soon(first)
    loop.call_soon(log.append, "second")
    loop.call_soon(log.append, "never").cancel()
    loop.call_soon_threadsafe(log.append, "third")
    await asyncio.sleep(0.01)


async def timers(log: Log) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    loop.call_later(0.03, log.append, "late")
    loop.call_at(begun + 0.01, log.append, "early")
    cancelled = loop.call_later(0.02, log.append, "cancelled")
    loop.call_later(0.015, cancelled.cancel)
    many = [loop.call_later(60, log.append, "one of many") for _ in range(300)]
    for timer in many:
        timer.cancel()
    await asyncio.sleep(0.04)
    log.append(f"{loop.time() >= begun + 0.04} {cancelled.cancelled()}")


async def cancellation(log: Log) -> None:
    async def sleeper() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            log.append(f"cancelled {error.args}")
            raise
        finally:
            await asyncio.sleep(0)
            log.append("cleaned up")

    task = asyncio.create_task(sleeper())
    await asyncio.sleep(0)
    task.cancel("enough")
    log.append(repr(await asyncio.gather(task, return_exceptions=True)))
    log.append(str(task.cancelled()))
    never_begun = asyncio.create_task(sleeper())
    never_begun.cancel()
    await asyncio.wait([never_begun])
    log.append(str(never_begun.cancelled()))


async def timeouts(log: Log) -> None:
    try:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()
    except TimeoutError:
        log.append("timeout")
    async with asyncio.timeout(60) as limit:
        await asyncio.sleep(0)
    log.append(str(limit.expired()))
    try:
        await asyncio.wait_for(asyncio.Event().wait(), 0.01)
    except TimeoutError:
        log.append("wait_for")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.sleep(1)


async def failures(log: Log) -> None:
    async def fail(what: str) -> None:
        await asyncio.sleep(0)
        raise ValueError(what)

    task = asyncio.create_task(fail("awaited"))
    try:
        await task
    except ValueError as error:
        log.append(str(error))
    results = await asyncio.gather(fail("a"), asyncio.sleep(0, "b"), return_exceptions=True)
    log.append(str(results))

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            log.append("sibling ended")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(wait())
            group.create_task(fail("of a group"))
    except* ValueError as several:
        log.append(str(several.exceptions))


async def meeting(log: Log) -> None:
    event, lock, queue = asyncio.Event(), asyncio.Lock(), asyncio.Queue[int](1)

    async def wait(name: str) -> None:
        await event.wait()
        log.append(f"{name} awake")
        async with lock:
            log.append(f"{name} in")
            await asyncio.sleep(0)
            log.append(f"{name} out")

    async def produce() -> None:
        for number in range(3):
            await queue.put(number)
            log.append(f"put {number}")

    waiting = [asyncio.create_task(wait(name)) for name in "abc"]
    producing = asyncio.create_task(produce())
    await asyncio.sleep(0)
    event.set()
    for _ in range(3):
        log.append(f"got {await queue.get()}")
    await asyncio.gather(producing, *waiting)
    done, pending = await asyncio.wait(
        [asyncio.create_task(asyncio.sleep(delay, delay)) for delay in (0.01, 30)],
        return_when=asyncio.FIRST_COMPLETED,
    )
    log.append(f"{[task.result() for task in done]} {len(pending)}")
    for task in pending:
        task.cancel()
    await asyncio.wait(pending)


VARIABLE = contextvars.ContextVar("VARIABLE", default="outside")


async def surroundings(log: Log) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    log.append(f"{task.get_loop() is loop} {loop.is_running()} {loop.is_closed()}")
    VARIABLE.set("inside")

    async def child() -> None:
        log.append(VARIABLE.get())
        VARIABLE.set("child")
        await asyncio.sleep(0)

    await asyncio.create_task(child(), name="a name")
    log.append(VARIABLE.get())
    named = asyncio.create_task(child(), name="a name")
    log.append(named.get_name())
    log.append(str(named in asyncio.all_tasks()))
    await named


async def generators(log: Log) -> None:
    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(5):
                yield number
                await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0)
            log.append("generator closed")

    async for number in numbers():
        log.append(str(number))
        if number == 1:
            break
    for _ in range(5):
        await asyncio.sleep(0)
    log.append("end")


async def threads(log: Log) -> None:
    def work(what: str) -> str:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        if what == "bad":
            raise ValueError(what)
        return what

    log.append(await asyncio.to_thread(work, "good"))
    try:
        await asyncio.get_running_loop().run_in_executor(None, work, "bad")
    except ValueError as error:
        log.append(str(error))
    with ThreadPoolExecutor(1) as one:
        loop = asyncio.get_running_loop()
        results = [loop.run_in_executor(one, log.append, f"{n}") for n in range(5)]
        await asyncio.gather(*results)


PROGRAMS = [
    callbacks, timers, cancellation, timeouts, failures, meeting, surroundings, generators, threads,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_a_program_does_the_same_on_asyncio_and_on_virtual_time(program: Program) -> None:
    real: Log = []
    asyncio.run(asyncio.wait_for(program(real), 90))
    simulated: Log = []
    with World(1) as world:
        task = world.add_node("a").spawn(asyncio.wait_for(program(simulated), 90))
        world.run_until_done(task, 90)
    assert simulated == real
    assert real


def test_an_hour_of_sleep_takes_no_time_and_no_threads() -> None:
    before = threading.active_count()
    with World(1) as world:
        node = world.add_node("a")
        world.run_until_done(node.spawn(asyncio.sleep(3600)), 3600)
        assert world.now == 3600
        world.run_until_done(node.spawn(asyncio.to_thread(int)), 1)
        assert threading.active_count() == before


def test_a_callback_that_fails_ends_the_run_and_names_the_seed() -> None:
    with World(4711) as world:
        loop = world.add_node("a").loop
        loop.call_later(2, lambda: [][0])
        with pytest.raises(SimulationError, match=r"seed 4711, 2\.0.* a: .*IndexError") as failed:
            world.run_for(5)
        assert isinstance(failed.value.__cause__, IndexError)


def test_a_task_whose_failure_nobody_sees_ends_the_run() -> None:
    async def fail() -> None:
        raise ValueError("unseen")

    async def main() -> None:
        task = asyncio.create_task(fail())
        await asyncio.sleep(1)
        del task

    with World(1) as world:
        node = world.add_node("a")
        node.spawn(main())
        world.run_for(2)
        for _ in range(200):  # those that are done are let go from time to time
            node.spawn(asyncio.sleep(0))
        with pytest.raises(SimulationError, match=r"never retrieved.*unseen"):
            world.run_for(2)


def test_a_program_that_never_lets_time_pass_is_found_out() -> None:
    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    with World(1) as world:
        world.events_at_one_time_max = 1000
        world.add_node("a").spawn(spin())
        with pytest.raises(SimulationError, match="1001 events and no end"):
            world.run_for(1)


def test_what_is_not_reached_in_time_says_so() -> None:
    with World(1) as world:
        task = world.add_node("a").spawn(asyncio.sleep(10))
        with pytest.raises(SimulationError, match="not reached in 5 seconds"):
            world.run_until_done(task, 5)


def test_nothing_of_a_node_that_crashed_runs_any_more() -> None:
    log: Log = []

    async def main() -> None:
        asyncio.get_running_loop().call_later(5, log.append, "timer")
        asyncio.get_running_loop().run_in_executor(None, log.append, "work")
        try:
            await asyncio.sleep(10)
        finally:
            log.append("finally")

    with World(1) as world:
        node, other = world.add_node("a"), world.add_node("b")
        node.spawn(main())
        bystander = other.spawn(asyncio.sleep(20, "well"))
        world.run_until(lambda: bool(node.loop._timers), 1)
        node.crash()
        node.loop.call_soon(log.append, "zombie")
        assert world.run_until_done(bystander, 20) == "well"
        assert log == []
        node.start()
        assert world.run_until_done(node.spawn(asyncio.sleep(1, "again")), 1) == "again"
        assert log == []


def test_coroutines_of_a_dead_node_are_closed_when_it_is_buried() -> None:
    log: Log = []

    async def main() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            asyncio.get_running_loop().call_soon(log.append, "an effect")
            log.append("finally")
            await asyncio.sleep(1)

    with World(1) as world:
        node = world.add_node("a")
        node.spawn(main())
        world.run_for(1)
        node.crash()
        world.bury_dead()
        assert log == ["finally"]
        world.run_for(10)
    assert log == ["finally"]


def test_a_node_that_is_paused_runs_late_and_loses_nothing() -> None:
    with World(1) as world:
        node = world.add_node("a")
        at: list[float] = []
        for delay in (1, 2, 3):
            node.loop.call_later(delay, lambda: at.append(world.now))
        world.call_later(1.5, node.pause)
        world.call_later(2.5, node.resume)
        world.run_for(5)
        assert at == [1, 2.5, 3]


def test_work_of_one_key_is_in_order_and_other_work_is_not() -> None:
    ordered: list[int] = []
    free: list[int] = []

    with World(1) as world:
        loop = world.add_node("a").loop
        for number in range(30):
            loop.run_work(partial(ordered.append, number), "a key")
            loop.run_work(partial(free.append, number))
        world.run_for(5)
    assert ordered == list(range(30))
    assert free != list(range(30))
    assert sorted(free) == list(range(30))


def test_streams_of_random_numbers_depend_on_seed_and_purpose_alone() -> None:
    def draw(world: World, purpose: str) -> float:
        return world.random(purpose).random()

    one, same, other = World(1), World(1), World(2)
    draw(same, "something else")
    assert draw(one, "links") == draw(same, "links")
    assert draw(one, "links") != draw(one, "disks")
    assert draw(one, "links") != draw(other, "links")


def test_what_a_loop_holds_is_counted_and_each_round_is_seen() -> None:
    async def wait() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(7):
            loop.call_soon(str)
        await asyncio.sleep(60)

    with World(1) as world:
        node = world.add_node("a")
        seen: list[tuple[str, int]] = []
        world.after_round = lambda name: seen.append((name, node.loop.tasks_pending))
        node.spawn(wait())
        world.run_for(1)
        assert (node.loop.tasks_pending, node.loop.timers_pending) == (1, 1)
        assert node.loop.calls_in_a_round_max == 7
        assert seen == [("a", 1)] * 2
        world.run_for(60)
        assert (node.loop.tasks_pending, node.loop.timers_pending) == (0, 0)


def test_rounds_of_a_busy_machine_take_time() -> None:
    async def work(times: list[float]) -> None:
        for _ in range(3):
            times.append(asyncio.get_running_loop().time())
            await asyncio.sleep(0)

    with World(1) as world:
        node = world.add_node("a")
        node.loop.round_seconds = 0.5
        times: list[float] = []
        world.run_until_done(node.spawn(work(times)), 10)
        assert times == [0.0, 0.5, 1.0]
        node.clock.step_us = 100
        looks = [node.clock.monotonic_us() for _ in range(3)]
        assert [look - looks[0] for look in looks] == [0, 100, 200]
        node.clock.step_us = 0
        assert node.clock.monotonic_us() >= looks[-1]
