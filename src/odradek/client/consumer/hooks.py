"""What the parts of a consumer tell it."""

from collections.abc import Callable
from typing import NamedTuple

from odradek.client.errors import KafkaError


class Hooks(NamedTuple):
    on_records: Callable[[], None]
    """Records came: whoever waits in ``poll`` shall look."""
    on_attention: Callable[[], None]
    """The group wants something of the application's task, as soon as that comes by."""
    on_failure: Callable[[KafkaError], None]
    """Something failed. What can be tried again is tried again anyway."""
    on_moved: Callable[[], None]
    """Some partition has a new position, or needs one."""
    want_metadata: Callable[[], None]
    """The cluster is not as it was: ask for metadata soon."""
