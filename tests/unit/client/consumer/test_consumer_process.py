"""A consumer belongs to the process that started it."""

import asyncio
import os
import warnings

from odradek.client.consumer import Consumer
from tests.scripted_cluster import ScriptedCluster


def test_a_forked_child_is_told_to_make_its_own() -> None:
    async def scenario() -> int:
        async with (
            ScriptedCluster() as cluster,
            Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer,
        ):
            consumer.group_metadata()
            with warnings.catch_warnings(action="ignore"):  # of newer Pythons: there are threads
                child = os.fork()
            if child == 0:
                try:
                    consumer.group_metadata()
                except RuntimeError as error:
                    os._exit(0 if "fork" in str(error) else 2)
                os._exit(1)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert asyncio.run(scenario()) == 0
