"""From PEM files to an SSL context: TLS 1.2 and later, client certificates if asked for."""

import ssl
from collections.abc import Mapping
from typing import Final

from odradek.net.settings import ClientAuth, TlsSettings

_VERIFY: Final[Mapping[ClientAuth, ssl.VerifyMode]] = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,  # one that is shown must be good
    "required": ssl.CERT_REQUIRED,
}


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context of a listener.

    Raises:
        ValueError: A file is missing or not what it should be, or client certificates are asked
            for and no CA to check them with is named.
    """
    if settings.client_auth != "none" and settings.ca_file is None:
        raise ValueError(f"client auth {settings.client_auth!r} needs the CA that signs clients")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client may ask for a new handshake as often as it likes, and each costs us much more.
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(
            settings.certificate_file, settings.key_file, _password(settings.key_password)
        )
    except OSError as error:  # ssl.SSLError is one
        files = f"{settings.certificate_file}, key {settings.key_file or 'in the same file'}"
        raise ValueError(f"cannot use the certificate {files}: {error}") from error
    if settings.ca_file is not None:
        try:
            context.load_verify_locations(settings.ca_file)
        except OSError as error:
            raise ValueError(f"cannot use the CA {settings.ca_file}: {error}") from error
    if settings.ciphers is not None:
        try:
            context.set_ciphers(settings.ciphers)
        except ssl.SSLError as error:
            raise ValueError(f"no such ciphers: {settings.ciphers}") from error
    context.verify_mode = _VERIFY[settings.client_auth]
    return context


def _password(given: str | None) -> str:
    # Never None: OpenSSL would ask on the terminal and the start would hang.
    return "" if given is None else given
