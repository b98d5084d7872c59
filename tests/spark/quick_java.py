"""How the JVMs of Spark's tests are started: often, for seconds or minutes only."""

from typing import Final

QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The time that optimizing takes never comes back."""
