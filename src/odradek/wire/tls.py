"""From the ``ssl.…`` settings to an SSL context: whom to trust, and who we are. PEM only.

Java's key stores (JKS, PKCS12) are not read: ``keytool`` and ``openssl`` turn them into PEM.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from odradek.wire.connection_settings import ConnectionSettings
from odradek.wire.errors import ConfigurationError


def context_from(settings: ConnectionSettings) -> ssl.SSLContext | None:
    """Return the context that the settings ask for; None if they ask for no TLS.

    Without a truststore the machine's own certificate authorities are trusted.

    Raises:
        ConfigurationError: A file is missing or not PEM.
    """
    if not settings.text("security.protocol").endswith("SSL"):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = bool(settings.text("ssl.endpoint.identification.algorithm"))
    try:
        _load_trusted(context, settings)
        _load_own(context, settings)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigurationError(
            f"ssl: cannot use what the settings name as PEM: {error}"
        ) from error
    return context


def _load_trusted(context: ssl.SSLContext, settings: ConnectionSettings) -> None:
    inline = settings.text("ssl.truststore.certificates")
    location = settings.text("ssl.truststore.location")
    if inline:
        context.load_verify_locations(cadata=inline)
    elif location:
        context.load_verify_locations(location)
    else:
        context.load_default_certs()


def _load_own(context: ssl.SSLContext, settings: ConnectionSettings) -> None:
    # Never None: OpenSSL would ask on the terminal and the start would hang.
    password = settings.text("ssl.key.password")
    chain = settings.text("ssl.keystore.certificate.chain")
    location = settings.text("ssl.keystore.location")
    if chain:
        with _as_file(f"{settings.text('ssl.keystore.key')}\n{chain}") as path:
            context.load_cert_chain(path, None, password)
    elif location:
        context.load_cert_chain(location, None, password)


@contextmanager
def _as_file(pem: str) -> Iterator[str]:
    """Give a file, which only this user can read: OpenSSL, as Python has it, reads nothing else."""
    with NamedTemporaryFile("w", suffix=".pem", delete=False) as file:
        file.write(pem)
    try:
        yield file.name
    finally:
        Path(file.name).unlink()
