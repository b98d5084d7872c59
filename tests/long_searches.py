"""How many examples a long search of Hypothesis tries.

With the same examples every time more of them soon find nothing new: many are for `make explore`.
"""

from hypothesis import settings


def examples(steady: int, *, exploring: int) -> int:
    """Return the number for the profile that is loaded; see tests/conftest.py."""
    is_exploring = settings.get_current_profile_name() == "exploring"
    return exploring if is_exploring else steady
