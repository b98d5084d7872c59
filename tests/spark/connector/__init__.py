"""The jars of Spark's own Kafka connector (``format("kafka")``), for tests and benchmarks."""

from pathlib import Path

from tests.interop.kafka_peer.jars import resolve_jars

POM = Path(__file__).with_name("pom.xml")


def connector_jars() -> list[Path]:
    """Return them; the first call on a machine lets Maven download them.

    Raises:
        PeerUnavailableError: There is no Java, or no Maven.
        RuntimeError: Maven could not fetch them.
    """
    return sorted(resolve_jars(POM).glob("*.jar"))
