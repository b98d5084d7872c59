"""A consumer that commits before or after it processes, and may die of SIGKILL in between.

Its argument is {"servers", "topic", "protocol", "session_ms", "commit": "before" | "after",
"crash_at", "end"}; to process a record is to print its value. The group has the topic's name.
"""

import json
import os
import signal
import sys

import confluent_kafka


def process(message: confluent_kafka.Message) -> None:
    print((message.value() or b"").decode(), flush=True)


def main() -> None:
    asked = json.loads(sys.argv[1])
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": asked["servers"],
            "group.id": asked["topic"],
            "group.protocol": asked["protocol"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **(
                {"session.timeout.ms": asked["session_ms"]}
                if asked["protocol"] == "classic"
                else {}
            ),
        }
    )
    consumer.subscribe([asked["topic"]])
    offset = -1
    while offset < asked["end"] - 1:
        message = consumer.poll(1)
        if message is None:
            continue
        assert not message.error(), message.error()
        offset = message.offset() or 0
        if asked["commit"] == "before":
            consumer.commit(message=message, asynchronous=False)
        else:
            process(message)
        if offset == asked["crash_at"]:
            os.kill(os.getpid(), signal.SIGKILL)
        if asked["commit"] == "before":
            process(message)
        else:
            consumer.commit(message=message, asynchronous=False)
    consumer.close()


if __name__ == "__main__":
    main()
