"""What a client raises. One tree, so that ``except KafkaError`` catches all of it.

Most of it comes from connections, which brokers use as well: see ``wire/errors.py``. Mistakes in
the use of the API are the usual ``TypeError``, ``ValueError`` and ``RuntimeError``.
"""

from odradek.wire.errors import (
    AuthenticationError,
    BrokerError,
    ConfigurationError,
    ConnectionLostError,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedError,
    check,
)

__all__ = [
    "AuthenticationError",
    "BrokerError",
    "ClosedError",
    "ConfigurationError",
    "ConnectionLostError",
    "KafkaError",
    "KafkaTimeoutError",
    "UnsupportedError",
    "check",
]


class ClosedError(KafkaError):
    """The client was closed."""


for _error in (
    AuthenticationError,
    BrokerError,
    ConfigurationError,
    ConnectionLostError,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedError,
):
    # Tracebacks and dead-letter headers name a class where users import it from.
    _error.__module__ = __name__
