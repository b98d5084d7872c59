"""How a node connects to a listener of other nodes: TLS and login, from the node's own configs.

A listener of one name is the same for all nodes of a cluster, so ``listener.name.<name>.ssl.…``
says what to show and whom to trust, also where this node does not listen itself. SASL has its
mechanism from ``sasl.mechanism.controller.protocol`` or ``sasl.mechanism.inter.broker.protocol``
and the login from ``sasl.jaas.config``, with the prefixes of listener and mechanism. Stores are
PEM files.
"""

import ssl
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

from odradek.core.config import BrokerConfig
from odradek.core.config.listener_configs import ListenerConfigs
from odradek.wire.errors import ConfigurationError
from odradek.wire.sasl.login import Login, login_from
from odradek.wire.tls import context_from

_CLIENTS_ONLY: Final = ("sasl.username", "sasl.password", "sasl.oauthbearer.token")
_STORES: Final = (
    ("ssl.keystore.type", ("ssl.keystore.location", "ssl.keystore.certificate.chain")),
    ("ssl.truststore.type", ("ssl.truststore.location", "ssl.truststore.certificates")),
)


class PeerSecurity(NamedTuple):
    tls: ssl.SSLContext | None
    login: Login | None


def peer_security(config: BrokerConfig, listener: str) -> PeerSecurity:
    """Return how to connect to a listener of another node.

    Raises:
        ConfigError: What the configs say cannot be used; ``name`` is one to change.
    """
    settings = _PeerSettings(config, listener)
    settings.check_stores()
    try:
        tls = context_from(settings)
    except ConfigurationError as error:
        raise settings.configs.refuse("ssl.truststore.location", str(error)) from error
    try:
        login = login_from(settings)
    except ConfigurationError as error:
        raise settings.configs.refuse("sasl.jaas.config", str(error)) from error
    return PeerSecurity(tls, login)


class _PeerSettings:
    """Implements ``ConnectionSettings``."""

    given: AbstractSet[str] = frozenset()

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        self.configs = ListenerConfigs(config, listener)
        self._protocol = config.security_protocols[listener].value
        is_controllers = listener in config.controller_listener_names
        purpose = "controller" if is_controllers else "inter.broker"
        self._mechanism = config.text(f"sasl.mechanism.{purpose}.protocol") or ""

    def text(self, name: str) -> str:
        if name == "security.protocol":
            return self._protocol
        if name == "sasl.mechanism":
            return self._mechanism
        if name == "sasl.jaas.config":
            return self.configs.jaas(self._mechanism) or ""
        return "" if name in _CLIENTS_ONLY else self.configs.text(name) or ""

    def value(self, name: str) -> Any:
        """Return None: a file of configs names no function."""

    def check_stores(self) -> None:
        if not self._protocol.endswith("SSL"):
            return
        for kind, sources in _STORES:
            if any(map(self.configs.text, sources)) and self.configs.text(kind) != "PEM":
                raise self.configs.refuse(
                    kind, f"{self.configs.text(kind)} is not supported: convert the store to PEM"
                )
