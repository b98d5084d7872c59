"""Which topics are meant: a name, or a regular expression for whole names.

A comma stands for "or", so a list of names is a pattern too.
"""

import re
from collections.abc import Callable

from odradek.cli.tool_options import ToolError


def topic_filter(text: str) -> Callable[[str], bool]:
    """Return whether a topic is meant by the text.

    Raises:
        ToolError: It is no regular expression.
    """
    pattern = text.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ToolError(f"{pattern} is an invalid regex.") from error
    return lambda name: compiled.fullmatch(name) is not None
