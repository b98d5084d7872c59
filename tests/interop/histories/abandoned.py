"""Calls of librdkafka that may never come back, made so that their client can go on without them.

``send_offsets_to_transaction`` does not keep to its timeout (librdkafka #5456, open in 2.16): a
request to a group's coordinator waits until some broker's connection changes its state. A broker
that leaves the metadata while it is the coordinator that is known is dropped, and changes no state
any more (#5511). No request is under way then, whatever the server: with Kafka's own nodes the same
happens.
"""

import threading
from collections.abc import Callable
from typing import Final

from tests.interop.histories.reading import CALL_SECONDS, PATIENCE_SECONDS

GRACE_SECONDS: Final = PATIENCE_SECONDS - CALL_SECONDS
"""A busy machine may let a call be late, but not six times its time."""


class AbandonedError(Exception):
    """The call did not come back long after its timeout; its thread is left behind."""


def call_in_thread(call: Callable[[], object], seconds: float) -> None:
    """Make a call that is to end within ``seconds``, and give it up ``GRACE_SECONDS`` later.

    Raises:
        AbandonedError: It did not end. The client must not be used any more.
        Exception: What the call raises.
    """
    errors: list[Exception] = []

    def run() -> None:
        try:
            call()
        except Exception as error:  # is raised in the thread that waits
            errors.append(error)

    thread = threading.Thread(target=run, name="call", daemon=True)
    thread.start()
    thread.join(seconds + GRACE_SECONDS)
    if thread.is_alive():
        raise AbandonedError
    if errors:
        raise errors[0]
