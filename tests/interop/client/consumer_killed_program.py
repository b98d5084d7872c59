"""Processes records of topic t, and kills itself between the two steps that make an offset's fate.

Arguments: bootstrap servers, at-most-once (commit, then process) or at-least-once (process, then
commit), and the offset at which to die between the steps, or -1. Processing is printing the offset.
"""

import asyncio
import os
import signal
import sys

from odradek.client.consumer import Consumer

LAST = 9


async def main(servers: str, mode: str, kill_at: int) -> None:
    async with Consumer(
        "t",
        bootstrap_servers=servers,
        group_id="killed",
        group_instance_id="always-the-same",  # so that the next one need not wait for its end
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        async for record in consumer:
            if mode == "at-most-once":
                await consumer.commit()
            else:
                print(record.offset, flush=True)
            if record.offset == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if mode == "at-most-once":
                print(record.offset, flush=True)
            else:
                await consumer.commit()
            if record.offset == LAST:
                break


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
