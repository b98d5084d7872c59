"""Waiting for something to read, with a limit, whatever number a descriptor has.

``select.select`` ends at 1,024, and a process with an embedded broker in it gets there.
"""

import select


def is_readable(descriptor: int, seconds: float) -> bool:
    """Tell whether there is something to read, or an end, within so many seconds."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1000))
