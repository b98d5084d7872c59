"""What a node listens on and what it tells the controller about it, from its configs.

``listener.security.protocol.map`` says what each listener speaks: PLAINTEXT or SSL, or either of
them with SASL before the first request (``listener_authentication``). A config of TLS or SASL may
be set for one listener alone, by ``listener.name.<name in lower case>.`` before its name.

Certificates and keys are PEM (``ssl.keystore.type=PEM``): the default, JKS, and PKCS12 are formats
of Java's. The rules about what goes together are Kafka's. Everything is tried out here, so that a
wrong file is refused with the name of the config that has it. Of what is set while the broker runs
stores and their passwords have an effect (``listener_certificates``), other configs of listeners
have none yet.
"""

import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from odradek.core.config import BrokerConfig
from odradek.core.config.listener_configs import ListenerConfigs
from odradek.core.config.listeners import Listener as ConfiguredListener
from odradek.net.gate import MakeGate
from odradek.net.server import Listener, ServerLimits, TlsSettings
from odradek.net.settings import ClientAuth, Pem, TlsSettingsError, TlsVersion
from odradek.net.tls import server_context
from odradek.protocol.generated import broker_registration

GatesOf = Callable[[BrokerConfig, str], MakeGate]
"""Makes the gates of a listener that speaks SASL; ``listener_authentication`` has one."""

_MAPPING_RULES: Final = "ssl.principal.mapping.rules"
_NEVER_MS: Final = 1 << 53
_CLIENT_AUTH: Final[Mapping[str, ClientAuth]] = {
    "none": "none",
    "requested": "requested",
    "required": "required",
}
_VERSIONS: Final[Mapping[str, TlsVersion]] = {"TLSv1.2": "TLSv1.2", "TLSv1.3": "TLSv1.3"}


def client_listeners(config: BrokerConfig, gates_of: GatesOf | None = None) -> list[Listener]:
    """Return the listeners that the broker's role opens.

    Raises:
        ConfigError: One of them cannot be had; ``name`` is the config to change.
    """
    controllers = config.controller_listener_names
    return [
        _listener(config, each, gates_of)
        for each in config.listeners
        if each.name not in controllers
    ]


def controller_listeners(config: BrokerConfig, gates_of: GatesOf | None = None) -> list[Listener]:
    """Return the listeners that the controller's role opens; none if the node is alone.

    Raises:
        ConfigError: One of them cannot be had; ``name`` is the config to change.
    """
    controllers = config.controller_listener_names
    return [
        _listener(config, each, gates_of) for each in config.listeners if each.name in controllers
    ]


def _listener(
    config: BrokerConfig, configured: ConfiguredListener, gates_of: GatesOf | None
) -> Listener:
    name, protocol = configured.name, config.security_protocols[configured.name]
    tls, make_gate = None, None
    if protocol.has_tls:
        tls = tls_settings(config, name)
        try_tls(config, name, tls)
    if protocol.has_sasl:
        assert gates_of is not None, f"{name} would let everybody in"
        make_gate = gates_of(config, name)
    host, port = configured.host, configured.port
    name_of = _name_of(ListenerConfigs(config, name)) if protocol.has_tls else None
    return Listener(name, host, port, protocol.value, tls, name_of, make_gate)


def _name_of(configs: ListenerConfigs) -> Callable[[str], str] | None:
    rules = configs.text(_MAPPING_RULES)
    if rules in (None, "DEFAULT"):
        return None
    from odradek.net.principal_mapping import MappingRulesError, PrincipalMapper

    try:
        return PrincipalMapper(rules).name_of
    except MappingRulesError as error:
        raise configs.refuse(_MAPPING_RULES, str(error)) from error


def server_limits(config: BrokerConfig) -> ServerLimits:
    idle_ms = config.connections_max_idle_ms
    return ServerLimits(
        frame_bytes_max=config.socket_request_max_bytes,
        connections_max=config.max_connections,
        connections_per_ip_max=config.max_connections_per_ip,
        connections_per_ip_overrides=config.max_connections_per_ip_overrides,
        backlog_max=config.socket_listen_backlog_size,
        idle_ms_max=_NEVER_MS if idle_ms < 0 else idle_ms,
    )


def registered_listeners(
    config: BrokerConfig, endpoints: Mapping[str, tuple[str, int]]
) -> list[broker_registration.Listener]:
    """Return what clients are told, by listener; ``endpoints`` knows ports that were picked."""
    return [
        broker_registration.Listener(
            name=each.name,
            # Without a host the node listens on every address: its own name is one of them.
            host=each.host or socket.gethostname(),
            port=each.port or endpoints[each.name][1],
            security_protocol=config.security_protocols[each.name].number,
        )
        for each in config.advertised_listeners
        if each.name in endpoints  # a dynamic config may name others, which are not open
    ]


def tls_settings(config: BrokerConfig, listener: str) -> TlsSettings:
    """Return what a TLS listener is to show and to ask for, as its configs say; no file is read.

    Raises:
        ConfigError: They do not go together; ``name`` is the config to change.
    """
    configs = ListenerConfigs(config, listener)
    certificate, key = _key_store(configs)
    return TlsSettings(
        certificate=certificate,
        key=key,
        key_password=configs.text("ssl.key.password"),
        ca=_trust_store(configs),
        client_auth=_CLIENT_AUTH[configs.text("ssl.client.auth") or "none"],
        versions=_versions(configs),
        cipher_suites=configs.elements("ssl.cipher.suites"),
    )


def try_tls(config: BrokerConfig, listener: str, settings: TlsSettings) -> ssl.SSLContext:
    """Return the context of a listener with ``settings``.

    Raises:
        ConfigError: They cannot be used; ``name`` is the config to change.
    """
    try:
        return server_context(settings)
    except TlsSettingsError as error:
        at_fault = {
            "certificate": "ssl.keystore.location" if settings.key is None else "ssl.keystore.key",
            "ca": "ssl.truststore.location"
            if isinstance(settings.ca, Path)
            else "ssl.truststore.certificates",
            "client_auth": "ssl.client.auth",
            "cipher_suites": "ssl.cipher.suites",
        }
        configs = ListenerConfigs(config, listener)
        raise configs.refuse(at_fault[error.setting], str(error)) from error


def _key_store(configs: ListenerConfigs) -> tuple[Pem, Pem | None]:
    """Return certificate and key; the key is None where both are in one file."""
    location = configs.text("ssl.keystore.location")
    chain = configs.text("ssl.keystore.certificate.chain")
    key = configs.text("ssl.keystore.key")
    if location is None and chain is None and key is None:
        raise configs.refuse("ssl.keystore.location", "is needed for the certificate and its key")
    _refuse_other_formats(configs, "ssl.keystore.type")
    if configs.text("ssl.keystore.password") is not None:
        message = "goes with other formats than PEM; the key's own is ssl.key.password"
        raise configs.refuse("ssl.keystore.password", message)
    if location is not None:
        for base in ("ssl.keystore.key", "ssl.keystore.certificate.chain"):
            if configs.text(base) is not None:
                raise configs.refuse(base, "cannot be set together with ssl.keystore.location")
        return Path(location), None
    if chain is None:
        raise configs.refuse("ssl.keystore.key", "needs ssl.keystore.certificate.chain beside it")
    if key is None:
        raise configs.refuse("ssl.keystore.certificate.chain", "needs ssl.keystore.key beside it")
    return chain, key


def _trust_store(configs: ListenerConfigs) -> Pem | None:
    location = configs.text("ssl.truststore.location")
    certificates = configs.text("ssl.truststore.certificates")
    if location is None and certificates is None:
        return None
    _refuse_other_formats(configs, "ssl.truststore.type")
    if configs.text("ssl.truststore.password") is not None:
        raise configs.refuse("ssl.truststore.password", "goes with other formats than PEM")
    if location is None:
        return certificates
    if certificates is not None:
        message = "cannot be set together with ssl.truststore.location"
        raise configs.refuse("ssl.truststore.certificates", message)
    return Path(location)


def _refuse_other_formats(configs: ListenerConfigs, base: str) -> None:
    kind = configs.text(base)
    if kind != "PEM":
        message = (
            f"{kind} is not supported: convert the store to PEM (openssl pkcs12 -in store.p12 "
            f"-out store.pem; keytool makes PKCS12 of JKS) and set {base}=PEM"
        )
        raise configs.refuse(base, message)


def _versions(configs: ListenerConfigs) -> tuple[TlsVersion, ...]:
    base = "ssl.enabled.protocols"
    names = configs.elements(base) or tuple(_VERSIONS)
    unknown = [name for name in names if name not in _VERSIONS]
    if unknown:
        known = ", ".join(_VERSIONS)
        raise configs.refuse(base, f"{', '.join(unknown)} is not supported, only {known}")
    return tuple(_VERSIONS[name] for name in names)
