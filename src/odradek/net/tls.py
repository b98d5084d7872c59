"""From PEM to an SSL context: TLS 1.2 and later, client certificates if asked for; and from a
connection to the name in the certificate that its peer has shown.

Cipher suites have the names of the standard, as in Java. Python cannot choose among those of
TLS 1.3, so they are taken all together or not at all; without them TLS 1.3 is not spoken, without
others TLS 1.2 is not.
"""

import asyncio
import re
import ssl
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from odradek.core.errors import CorruptionError
from odradek.net.distinguished_name import alternative_names_of, subject_of
from odradek.net.settings import (
    ANONYMOUS,
    ClientAuth,
    Pem,
    TlsSettings,
    TlsSettingsError,
    TlsVersion,
)

_VERIFY: Final[Mapping[ClientAuth, ssl.VerifyMode]] = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,  # one that is shown must be good
    "required": ssl.CERT_REQUIRED,
}
_VERSIONS: Final[Mapping[TlsVersion, ssl.TLSVersion]] = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_SUITES_OF_1_3: Final = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)
_OLDER_SUITE: Final = re.compile(r"TLS_([A-Z0-9_]+)_WITH_([A-Z0-9_]+)")
_PEM_BLOCK: Final = re.compile(
    r"(-----BEGIN ([A-Z0-9 ]+)-----)([A-Za-z0-9+/=\s]*)(-----END \2-----)"
)
_PEM_LINE_CHARACTERS: Final = 64


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context of a listener.

    Raises:
        TlsSettingsError: A file is missing or not what it should be, or client certificates are
            asked for and no CA to check them with is named, or no version and suite is left.
    """
    if settings.client_auth != "none" and settings.ca is None:
        message = f"client auth {settings.client_auth!r} needs the CA that signs clients"
        raise TlsSettingsError("client_auth", message)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A client may ask for a new handshake as often as it likes, and each costs us much more.
    context.options |= ssl.OP_NO_RENEGOTIATION
    _restrict(context, settings)
    _load_certificate(context, settings)
    if settings.ca is not None:
        _load_ca(context, settings.ca)
    context.verify_mode = _VERIFY[settings.client_auth]
    return context


class CertificateIdentity(NamedTuple):
    """For whom a certificate speaks: clients must find the same in the one that replaces it."""

    subject: str
    alternative_names: frozenset[bytes]


def identity_of(settings: TlsSettings) -> CertificateIdentity:
    """Return whom the certificate names that a listener shows.

    Raises:
        OSError: Its file cannot be read.
        CorruptionError: There is none in it.
    """
    pem = settings.certificate
    text = pem.read_text("latin-1") if isinstance(pem, Path) else pem
    for begin, kind, body, _ in _PEM_BLOCK.findall(text):
        if kind == "CERTIFICATE":
            try:
                der = b64decode("".join(body.split()), validate=True)
            except ValueError:
                raise CorruptionError(f"{begin}: no base64 behind it") from None
            return CertificateIdentity(subject_of(der), alternative_names_of(der))
    raise CorruptionError(f"no certificate {_shown(pem)}")


def principal_of(
    transport: asyncio.BaseTransport, name_of: Callable[[str], str] | None = None
) -> str:
    """Return who is at the other end, by the subject of the certificate that was shown, if any.

    Raises:
        CorruptionError: The certificate cannot be read, or ``name_of`` knows no name for it.
    """
    peer = transport.get_extra_info("ssl_object")
    certificate = None if peer is None else peer.getpeercert(binary_form=True)
    if certificate is None:
        return ANONYMOUS
    subject = subject_of(certificate)
    return f"User:{subject if name_of is None else name_of(subject)}"


# Certificates.


def _load_certificate(context: ssl.SSLContext, settings: TlsSettings) -> None:
    # Never None: OpenSSL would ask on the terminal and the start would hang.
    password = settings.key_password or ""
    try:
        with _as_file(settings.certificate) as certificate:
            if settings.key is None:
                context.load_cert_chain(certificate, None, password)
            else:
                with _as_file(settings.key) as key:
                    context.load_cert_chain(certificate, key, password)
    except OSError as error:  # ssl.SSLError is one
        key_text = "in the same file" if settings.key is None else _shown(settings.key)
        where = f"{_shown(settings.certificate)}, key {key_text}"
        raise TlsSettingsError(
            "certificate", f"cannot use the certificate {where}: {_reason(error)}"
        ) from error


def _load_ca(context: ssl.SSLContext, ca: Pem) -> None:
    try:
        if isinstance(ca, Path):
            context.load_verify_locations(ca)
        else:
            context.load_verify_locations(cadata=_in_lines(ca))
    except (OSError, ValueError) as error:
        raise TlsSettingsError("ca", f"cannot use the CA {_shown(ca)}: {error}") from error


@contextmanager
def _as_file(pem: Pem) -> Iterator[Path]:
    """Give a file: OpenSSL, as Python has it, reads keys from nothing else.

    What was no file is in one for a moment, which only this user can read.
    """
    if isinstance(pem, Path):
        yield pem
        return
    from tempfile import NamedTemporaryFile  # with shutil and what it needs: not for every start

    with NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(_in_lines(pem))
        file.flush()
        yield Path(file.name)


def _in_lines(pem: str) -> str:
    """Return PEM with its lines as OpenSSL wants them: in configs they are lost, or indented."""
    blocks = _PEM_BLOCK.findall(pem)
    if len(blocks) != pem.count("-----BEGIN"):
        return pem  # one has headers, or is none: OpenSSL will know
    lines = []
    for begin, _, body, end in blocks:
        packed = "".join(body.split())
        starts = range(0, len(packed), _PEM_LINE_CHARACTERS)
        lines += [begin, *(packed[at : at + _PEM_LINE_CHARACTERS] for at in starts), end]
    return "".join(f"{line}\n" for line in lines)


def _shown(pem: Pem) -> str:
    return str(pem) if isinstance(pem, Path) else "given as text"  # which may be a secret


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError) and error.reason in (None, "PEM_LIB", "BAD_DECRYPT"):
        return "there is no certificate or no private key in it, or its password is another"
    return error.strerror or str(error)


# Versions and cipher suites.


def _restrict(context: ssl.SSLContext, settings: TlsSettings) -> None:
    versions = [_VERSIONS[each] for each in settings.versions]
    if settings.cipher_suites:
        possible = _set_suites(context, settings.cipher_suites)
        versions = [each for each in versions if each in possible]
    if not versions:
        message = f"no cipher suite of {', '.join(settings.versions)} is among those named"
        raise TlsSettingsError("cipher_suites", message)
    context.minimum_version = min(versions)
    context.maximum_version = max(versions)


def _set_suites(context: ssl.SSLContext, suites: Sequence[str]) -> set[ssl.TLSVersion]:
    """Allow these suites; return the versions they belong to."""
    versions = set()
    newer = [each for each in _SUITES_OF_1_3 if each in suites]
    if newer:
        versions.add(ssl.TLSVersion.TLSv1_3)
        if len(newer) < len(_SUITES_OF_1_3):
            message = (
                "the suites of TLSv1.3 can only be named all together "
                f"({', '.join(_SUITES_OF_1_3)}), or none of them"
            )
            raise TlsSettingsError("cipher_suites", message)
    older = [_openssl_name(each) for each in suites if each not in _SUITES_OF_1_3]
    if older:
        versions.add(ssl.TLSVersion.TLSv1_2)
        context.set_ciphers(":".join(older))
    return versions


def _openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite: ECDHE-RSA-AES128-GCM-SHA256 has AES_128 and more blanks."""
    match = _OLDER_SUITE.fullmatch(suite)
    if match is not None:
        exchange, cipher = match[1].replace("_", "-"), match[2].replace("_CBC", "")
        cipher = re.sub(r"(AES|CAMELLIA|ARIA)_(\d)", r"\1\2", cipher).replace("_", "-")
        cipher = cipher.replace("POLY1305-SHA256", "POLY1305")
        name = cipher if exchange == "RSA" else f"{exchange}-{cipher}"
        try:
            # By itself: in a list OpenSSL skips what it does not know.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(name)
        except ssl.SSLError:
            pass
        else:
            return name
    raise TlsSettingsError("cipher_suites", f"no such cipher suite here: {suite}")
