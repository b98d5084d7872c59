"""The topics that brokers write for themselves; clients are told so and leave them alone."""

from typing import Final

INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)
