"""How long searches and rows of kills are: short in `make test`, long where nothing waits for them.

With the same examples every time more of Hypothesis's soon find nothing new: many are for
`make explore`. Kills and long rows of seeds are for `make soak`, which sets ``ODRADEK_SOAK``;
`make test` has enough of them to see that each kind is survived.
"""

import os
from typing import TypeVar

from hypothesis import settings

T = TypeVar("T")

IS_SOAK = bool(os.environ.get("ODRADEK_SOAK"))


def in_soak(usual: T, *, soak: T) -> T:
    """Return what `make test` does, or what `make soak` does."""
    return soak if IS_SOAK else usual


def examples(steady: int, *, exploring: int) -> int:
    """Return the number for the profile that is loaded; see tests/conftest.py."""
    is_exploring = settings.get_current_profile_name() == "exploring"
    return exploring if is_exploring else steady
