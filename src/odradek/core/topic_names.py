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
    """Refuse a name that could not be a folder's or would confuse tools.

    Raises:
        ApiError: INVALID_TOPIC_EXCEPTION.
    """
    if not name:
        problem = "a topic needs a name"
    elif name in (".", ".."):
        problem = f"a topic cannot be called {name!r}"
    elif len(name) > TOPIC_NAME_CHARS_MAX:
        problem = f"{len(name)} characters, at most {TOPIC_NAME_CHARS_MAX} are allowed"
    elif not _LEGAL.fullmatch(name):
        problem = f"{name!r}: use only ASCII letters and digits, '.', '_' and '-'"
    else:
        return
    raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def has_collision_chars(name: str) -> bool:
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    return name.replace(".", "_")
