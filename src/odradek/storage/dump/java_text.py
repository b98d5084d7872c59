"""Values as Java prints them."""

import json
import re
from base64 import b64encode
from decimal import Decimal
from typing import Any, Final

from odradek.core.ids import Uuid

# A surrogate, or the first two bytes of one: Java replaces it as a whole, Python byte by byte.
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
# A control character; or an escaped backslash, so that the second half of one starts no match.
_CONTROL: Final = re.compile(r"\\\\|\\u00[01][0-9a-f]")


def java_bool(value: bool) -> str:
    return "true" if value else "false"


def optional_long(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def text_of(data: bytes) -> str:
    """Decode UTF-8; what is none becomes U+FFFD, as often as in Java's ``String``."""
    return _SURROGATE.sub(b"\xff", data).decode("utf-8", "replace")


def text_of_header_key(key: str) -> str:
    return text_of(key.encode("utf-8", "surrogateescape"))


def java_double(value: float) -> str:
    """Format as ``Double.toString``: with an exponent below 10^-3 and from 10^7 on."""
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}.{''.join(rest) or '0'}E{exponent + len(digits) - 1}"


def json_text(value: Any) -> str:
    """Return a document as Jackson writes it: no spaces, bytes in base64, escapes in upper case."""
    match value:
        case None | bool():
            return json.dumps(value)
        case int():
            return str(value)
        case float():
            text = java_double(value)
            return text if text[-1].isdigit() else f'"{text}"'
        case str():
            escaped = json.dumps(value, ensure_ascii=False)
            return _CONTROL.sub(lambda match: match[0][:2] + match[0][2:].upper(), escaped)
        case Uuid():
            return f'"{value}"'
        case bytes() | bytearray() | memoryview():
            return f'"{b64encode(value).decode()}"'
        case list():
            return f"[{','.join(map(json_text, value))}]"
        case dict():
            members = (f"{json_text(name)}:{json_text(member)}" for name, member in value.items())
            return f"{{{','.join(members)}}}"
        case _:
            raise AssertionError(f"no JSON for {type(value).__name__}")
