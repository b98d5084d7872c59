"""Whether a broker answers at its address: tells a dead process from one that stands still."""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from odradek.client.admin.admin import SETTINGS
from odradek.client.admin.brokers import BrokerDescription
from odradek.client.errors import ConnectionLostError, KafkaError
from odradek.client.settings import Settings
from odradek.wire.connection import Connection
from odradek.wire.sasl.login import login_from
from odradek.wire.tls import context_from

ANSWER_MS_MAX: Final = 2_000


class Reach(Enum):
    ANSWERS = "answers"
    SILENT = "silent"
    """No answer in time; the kernel may have accepted the connection."""
    REFUSED = "refused"
    """Nobody listens there."""


async def ask_reach(settings: Mapping[str, object], broker: BrokerDescription) -> Reach:
    """Try the address that a broker is registered with; ``settings`` are those of the client."""
    known = Settings(SETTINGS, settings)
    try:
        connection = await Connection.open(
            broker.host,
            broker.port,
            client_id=known.text("client.id"),
            tls=context_from(known),
            login=login_from(known),
            timeout_ms=ANSWER_MS_MAX,
        )
    except ConnectionLostError as error:
        return Reach.SILENT if isinstance(error.__cause__, TimeoutError) else Reach.REFUSED
    except KafkaError:  # it answered, and does not let us in
        return Reach.ANSWERS
    connection.close()
    return Reach.ANSWERS
