"""The certificates that TLS listeners show, and how others take their place while the broker runs.

Kafka's rules: the configs of a listener's stores, ``listener.name.<name>.ssl.keystore.location``
and its like, can be altered for one broker, and a store that has changed under its name is read
again whenever a config of the broker is set, to the same value too. New connections get the new
certificate, those that there are keep theirs. A certificate must speak for all for whom the old one
did, unless ``ssl.allow.dn.changes`` or ``ssl.allow.san.changes`` say otherwise: clients that know
the broker by its name would stay outside. What cannot be used is refused, or, if it was in a file
that nobody asked about, logged; the old certificate stays.
"""

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from odradek.broker.listeners import tls_settings, try_tls
from odradek.core.config import BrokerConfig, ConfigError
from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.core.event import Event
from odradek.net.server import Listener, Server, TlsSettings
from odradek.net.tls import CertificateIdentity, identity_of

_logger: Final = logging.getLogger("odradek.tls")

Stamps = tuple[tuple[int, int, int] | None, ...]


class _Shown(NamedTuple):
    settings: TlsSettings
    identity: CertificateIdentity
    stamps: Stamps


class ListenerCertificates:
    def __init__(self, listeners: Iterable[Listener]) -> None:
        """Take note of what ``listeners`` show at the start.

        Raises:
            ConfigError: A certificate cannot be read.
        """
        self._shown: dict[str, _Shown] = {}
        for listener in listeners:
            if listener.tls is not None:
                try:
                    self._shown[listener.name] = _read(listener.tls)
                except (OSError, CorruptionError) as error:
                    raise ConfigError(f"listener {listener.name}: {error}") from error

    def check(self, config: BrokerConfig) -> None:
        """Refuse a config by which a listener would get a certificate that it cannot have.

        Raises:
            ApiError: INVALID_REQUEST, as Kafka has it.
        """
        for listener, shown in self._shown.items():
            try:
                settings = _wanted(config, listener, shown)
                if settings != shown.settings:
                    try_tls(config, listener, settings)
                    _check_identity(config, shown.identity, identity_of(settings))
            except (ConfigError, OSError, CorruptionError) as error:
                problem = f"Validation of dynamic config update of SSLFactory failed: {error}"
                raise ApiError(ErrorCode.INVALID_REQUEST, problem) from error

    def load(self, config: BrokerConfig, server: Server, *, is_start: bool = False) -> None:
        """Show what a config names, where that is another store or one that has changed.

        At the start it need not speak for those whom the certificate of the file speaks for.
        """
        for listener, shown in self._shown.items():
            try:
                settings = _wanted(config, listener, shown)
                if settings == shown.settings and _stamps(settings) == shown.stamps:
                    continue
                read = _read(settings)
                if not is_start:
                    _check_identity(config, shown.identity, read.identity)
                context = try_tls(config, listener, settings)
            except (ConfigError, OSError, CorruptionError) as error:
                _logger.error(
                    Event("certificate not loaded; the old one stays", listener=listener, why=error)
                )
                continue
            self._shown[listener] = read
            server.replace_tls(listener, context)
            _logger.info(
                Event("certificate loaded", listener=listener, subject=read.identity.subject)
            )


def _wanted(config: BrokerConfig, listener: str, shown: _Shown) -> TlsSettings:
    """Return the settings by a config; only stores change while a listener is open."""
    old = shown.settings
    return replace(
        tls_settings(config, listener),
        client_auth=old.client_auth,
        versions=old.versions,
        cipher_suites=old.cipher_suites,
    )


def _read(settings: TlsSettings) -> _Shown:
    # The stamps first: what is written after them is read again at the next occasion.
    stamps = _stamps(settings)
    return _Shown(settings, identity_of(settings), stamps)


def _stamps(settings: TlsSettings) -> Stamps:
    """Return what tells that a file is another one than before; None where there is no file."""
    stamps: list[tuple[int, int, int] | None] = []
    for pem in (settings.certificate, settings.key, settings.ca):
        try:
            state = pem.stat() if isinstance(pem, Path) else None
        except OSError:
            state = None  # whoever reads it will say why
        stamps.append(None if state is None else (state.st_mtime_ns, state.st_size, state.st_ino))
    return tuple(stamps)


def _check_identity(
    config: BrokerConfig, old: CertificateIdentity, new: CertificateIdentity
) -> None:
    if old.subject.lower() != new.subject.lower() and not config.flag("ssl.allow.dn.changes"):
        raise ConfigError(
            f"Keystore DistinguishedName does not match: existing={{DN={old.subject}}}, "
            f"new={{DN={new.subject}}}; ssl.allow.dn.changes=true would allow it"
        )
    is_less = not new.alternative_names >= old.alternative_names
    if is_less and not config.flag("ssl.allow.san.changes"):
        raise ConfigError(
            "Keystore SubjectAltNames do not match: the new certificate speaks for fewer names; "
            "ssl.allow.san.changes=true would allow it"
        )
