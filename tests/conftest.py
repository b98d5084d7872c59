"""How Hypothesis works here: the same examples every time, and no verdict on how long one took.

What a machine with other things to do needs for an example says nothing about the code. A run that
others wait for tries what it tried before; `make explore` tries something else every time.
"""

import os
import sys

from hypothesis import HealthCheck, settings

from tests import collected

pytest_plugins = ["tests.interop.kafka_peer.absence"]

# Hundreds of brokers, tools and clients are started. Without bytecode each compiles all that it
# imports: a broker takes three times the CPU to start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

settings.register_profile(
    "steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "exploring", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")


def pytest_collection_finish() -> None:
    collected.freeze()
