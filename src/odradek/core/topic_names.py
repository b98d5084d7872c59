"""Which names a topic may have.

Metrics replace ``.`` by ``_`` in names, so two topics that differ only there would share theirs:
the second one is refused.
"""

import re
from typing import Final

from odradek.core.errors import ApiError, ErrorCode

TOPIC_NAME_CHARS_MAX: Final = 249
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Refuse a name that could not be a folder's or would confuse tools, in Kafka's words.

    Raises:
        ApiError: INVALID_TOPIC_EXCEPTION.
    """
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = f"'{name}' is not allowed"
    elif len(name) > TOPIC_NAME_CHARS_MAX:
        problem = f"the length of '{name}' is longer than the max allowed length"
        problem += f" {TOPIC_NAME_CHARS_MAX}"
    elif not _LEGAL.fullmatch(name):
        problem = f"'{name}' contains one or more characters other than ASCII alphanumerics,"
        problem += " '.', '_' and '-'"
    else:
        return
    raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def has_collision_chars(name: str) -> bool:
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    return name.replace(".", "_")
