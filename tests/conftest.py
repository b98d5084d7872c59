"""How Hypothesis works here: the same examples every time, and no verdict on how long one took.

What a machine with other things to do needs for an example says nothing about the code. A run that
others wait for tries what it tried before; `make explore` tries something else every time.
"""

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.interop.kafka_peer.absence"]

settings.register_profile(
    "steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "exploring", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")
