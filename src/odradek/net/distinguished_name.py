r"""Whom a certificate names: its subject, in the words of Java's ``X500Principal.getName()``.

And for which hosts it speaks, as far as it takes to compare two of them.

That is RFC 2253 (``CN=alice,OU=dev,O=Example\, Inc.``), and what Kafka calls the user of a
connection with a client certificate, so that permissions written for Kafka fit here too.

Java knows nine attribute types by name. A value of any other is shown as ``oid=#hex`` of its DER.
So are here, unlike in Java, values that are not UTF-8: Java puts the same replacement character for
all of them, and two people could get one name.

The bytes come from a certificate that OpenSSL has parsed and verified already.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from odradek.core.errors import CorruptionError

_KEYWORDS: Final[Mapping[str, str]] = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_VERSION: Final = 0xA0
_TEXT: Final = frozenset({0x0C, 0x13, 0x14, 0x16})
"""UTF8String, PrintableString, T61String (old tools use it for ASCII too), IA5String."""
_EXTENSIONS: Final = 0xA3
_SUBJECT_ALTERNATIVE_NAME: Final = "2.5.29.17"
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_LENGTH_BYTES_MAX: Final = 4


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate in DER.

    Raises:
        CorruptionError: It is no certificate.
    """
    subject = _fields(certificate)[4]  # after serial number, algorithm, issuer and validity
    parts = [_relative_name(each.content) for each in _elements(subject.content)]
    return ",".join(reversed(parts))


def alternative_names_of(certificate: bytes) -> frozenset[bytes]:
    """Return the subject alternative names of a certificate in DER, each in DER.

    Raises:
        CorruptionError: It is no certificate.
    """
    for field in _fields(certificate):
        if field.tag == _EXTENSIONS:
            (extensions, *_) = _several(field.content, 1)
            for extension in _elements(extensions.content):
                kind, *_, value = _several(extension.content, 2)
                if _dotted(kind.content) == _SUBJECT_ALTERNATIVE_NAME:
                    (names, *_) = _several(value.content, 1)
                    return frozenset(each.encoded for each in _elements(names.content))
    return frozenset()


def _fields(certificate: bytes) -> list["_Element"]:
    whole, *_ = _several(certificate, 1)
    to_be_signed, *_ = _several(whole.content, 1)
    return [each for each in _several(to_be_signed.content, 6) if each.tag != _VERSION]


def _relative_name(content: bytes) -> str:
    return "+".join(_attribute(each.content) for each in _elements(content))


def _attribute(content: bytes) -> str:
    kind, value, *_ = _several(content, 2)
    oid = _dotted(kind.content)
    keyword = _KEYWORDS.get(oid)
    text = value.text() if keyword else None
    if text is None:
        return f"{keyword or oid}=#{value.encoded.hex()}"
    return f"{keyword}={_escape(text)}"


def _escape(text: str) -> str:
    escaped = "".join(f"\\{c}" if c in _ESCAPED else "\\00" if c == "\0" else c for c in text)
    stripped = escaped.lstrip(" \r")
    lead = escaped[: len(escaped) - len(stripped)]
    middle = stripped.rstrip(" \r")
    trail = stripped[len(middle) :]
    return f"{_each_escaped(lead)}{middle}{_each_escaped(trail)}"


def _each_escaped(blanks: str) -> str:
    return "".join(f"\\{blank}" for blank in blanks)


def _dotted(content: bytes) -> str:
    """Return an object identifier as people write it."""
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise CorruptionError("an object identifier without numbers")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


class _Element:
    """One value of DER: what it is, what is in it, and all of its bytes."""

    __slots__ = ("content", "encoded", "tag")

    def __init__(self, tag: int, content: bytes, encoded: bytes) -> None:
        self.tag = tag
        self.content = content
        self.encoded = encoded

    def text(self) -> str | None:
        if self.tag not in _TEXT:
            return None
        try:
            return self.content.decode()
        except UnicodeDecodeError:
            return None


def _several(data: bytes, least: int) -> list[_Element]:
    found = list(_elements(data))
    if len(found) < least:
        raise CorruptionError(f"{len(found)} values of DER where {least} should be")
    return found


def _elements(data: bytes) -> Iterator[_Element]:
    position = 0
    while position < len(data):
        start = position
        if start + 2 > len(data):
            raise CorruptionError("DER ends within a value")
        tag, length = data[start], data[start + 1]
        position += 2
        if length & 0x80:
            count = length & 0x7F
            if not 0 < count <= _LENGTH_BYTES_MAX:
                raise CorruptionError(f"a DER length of {count} bytes")
            length = int.from_bytes(data[position : position + count], "big")
            position += count
        end = position + length
        if end > len(data):
            raise CorruptionError("DER ends within a value")
        yield _Element(tag, data[position:end], data[start:end])
        position = end
