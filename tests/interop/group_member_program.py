"""Members of consumer groups, of Python's clients, in a process that tests may kill.

The one argument is the client. Each line of input is a command, each line of output an event:

    {"do": "join", "name": …, "servers": …, "group": …, "topics": […] or "pattern": …,
     "protocol": "classic", "session_ms": 6000, "instance": …, "assignor": …}
    {"do": "leave", "name": …}
    {"do": "commit", "name": …}         of all that it has read

    {"name": …, "event": "assigned" | "revoked" | "lost", "partitions": [[topic, partition]]}
    {"name": …, "event": "read", "topic": …, "partition": …, "offset": …}
    {"name": …, "event": "committed", "offsets": [[topic, partition, offset]]}
    {"name": …, "event": "left"}
    {"name": …, "event": "restarted"}   of a client that hangs and was begun anew
    {"name": …, "event": "error", "message": …}

``GroupMembers.java`` speaks the same. Nothing here imports odradek.
"""

import asyncio
import json
import sys
import threading
from collections.abc import Iterable
from queue import Empty, SimpleQueue
from typing import Any

POLL_MS = 50
HEARTBEAT_MS = 200
SILENT_POLLS_MAX = 120
METADATA_AGE_MS = 500
LEAVE, COMMIT = "leave", "commit"
_printing = threading.Lock()


class Member:
    """What a member has been told to do, and what it has to say."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked
        self.commands: SimpleQueue[str] = SimpleQueue()

    def say(self, event: str, **fields: Any) -> None:
        line = json.dumps({"name": self.asked["name"], "event": event, **fields})
        with _printing:
            print(line, flush=True)

    def say_partitions(self, event: str, partitions: Iterable[Any]) -> None:
        self.say(event, partitions=[[each.topic, each.partition] for each in partitions])

    def take_command(self) -> str | None:
        try:
            return self.commands.get_nowait()
        except Empty:
            return None


def run_confluent(member: Member) -> None:
    import confluent_kafka

    asked = member.asked
    is_classic = asked["protocol"] == "classic"
    config: dict[str, Any] = {
        "bootstrap.servers": asked["servers"],
        "group.id": asked["group"],
        "group.protocol": asked["protocol"],
        "client.id": asked["name"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "topic.metadata.refresh.interval.ms": METADATA_AGE_MS,
        "log_level": 0,
    }
    if is_classic:
        config["session.timeout.ms"] = asked["session_ms"]
        config["heartbeat.interval.ms"] = HEARTBEAT_MS
    if asked["instance"]:
        config["group.instance.id"] = asked["instance"]
    if asked["assignor"]:
        name = "partition.assignment.strategy" if is_classic else "group.remote.assignor"
        config[name] = asked["assignor"]
    consumer = confluent_kafka.Consumer(config)
    consumer.subscribe(
        [asked["pattern"]] if asked["pattern"] else asked["topics"],
        on_assign=lambda _, given: member.say_partitions("assigned", given),
        on_revoke=lambda _, taken: member.say_partitions("revoked", taken),
        on_lost=lambda _, taken: member.say_partitions("lost", taken),
    )
    while (command := member.take_command()) != LEAVE:
        if command == COMMIT:
            done = consumer.commit(asynchronous=False) or ()
            member.say("committed", offsets=[[e.topic, e.partition, e.offset] for e in done])
        message = consumer.poll(POLL_MS / 1000)
        if message is None:
            continue
        if error := message.error():
            member.say("error", message=str(error))
            if error.fatal():
                break
            continue
        where = {"topic": message.topic(), "partition": message.partition()}
        member.say("read", **where, offset=message.offset())
    consumer.close()


def run_kafka_python(member: Member) -> None:
    """Run a member that is begun anew when it has gone silent.

    Now and then kafka-python 3 asks nothing more after the answer to its SyncGroup or before its
    first JoinGroup, on a real Kafka too (2 of 20 times when partitions are added). Whoever uses it
    watches over it; so does this. It counts polls, not seconds: a process that stood still did not
    hear anything either, and is not to blame.
    """
    while not _run_kafka_python(member):
        member.say("restarted")


def _run_kafka_python(member: Member) -> bool:
    """Run until the member is to leave, or is silent: False."""
    import kafka
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

    held: set[Any] = set()

    def say_what_changed(now: set[Any]) -> None:
        # Its listener is not told of every rebalance when two follow closely, on a real Kafka
        # neither; what it works with is always right.
        for event, partitions in (("revoked", held - now), ("assigned", now - held)):
            if partitions:
                member.say_partitions(event, partitions)
        held.clear()
        held.update(now)

    asked, options = member.asked, {}
    if asked["assignor"] == "cooperative-sticky":
        options["partition_assignment_strategy"] = [CooperativeStickyAssignor]
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=asked["servers"],
        client_id=asked["name"],
        group_id=asked["group"],
        group_instance_id=asked["instance"],
        session_timeout_ms=asked["session_ms"],
        heartbeat_interval_ms=HEARTBEAT_MS,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        metadata_max_age_ms=METADATA_AGE_MS,
        **options,
    )
    topics = asked["topics"] or ()
    consumer.subscribe(topics, pattern=asked["pattern"])
    heartbeat = consumer._coordinator.heartbeat
    last_send, silent_polls = heartbeat.last_send, 0
    while (command := member.take_command()) != LEAVE:
        say_what_changed(set(consumer.assignment()))
        silent_polls = silent_polls + 1 if heartbeat.last_send == last_send else 0
        last_send = heartbeat.last_send
        if silent_polls > SILENT_POLLS_MAX:
            say_what_changed(set())
            consumer.close(autocommit=False)
            return False
        if command == COMMIT:
            at = [[*each, consumer.position(each)] for each in consumer.assignment()]
            consumer.commit()
            member.say("committed", offsets=at)
        for records in consumer.poll(timeout_ms=POLL_MS).values():
            for each in records:
                where = {"topic": each.topic, "partition": each.partition}
                member.say("read", **where, offset=each.offset)
    consumer.close()
    return True


def run_aiokafka(member: Member) -> None:
    asyncio.run(_run_aiokafka(member))


async def _run_aiokafka(member: Member) -> None:
    import aiokafka

    class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # untyped
        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            member.say_partitions("assigned", assigned)

        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            member.say_partitions("revoked", revoked)

    asked = member.asked
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=asked["servers"],
        client_id=asked["name"],
        group_id=asked["group"],
        group_instance_id=asked["instance"],
        session_timeout_ms=asked["session_ms"],
        heartbeat_interval_ms=HEARTBEAT_MS,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        metadata_max_age_ms=METADATA_AGE_MS,
    )
    topics = asked["topics"] or ()
    consumer.subscribe(topics, pattern=asked["pattern"], listener=Listener())
    await consumer.start()
    while (command := member.take_command()) != LEAVE:
        if command == COMMIT:
            at = [[*each, await consumer.position(each)] for each in consumer.assignment()]
            await consumer.commit()
            member.say("committed", offsets=at)
        for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
            for each in records:
                where = {"topic": each.topic, "partition": each.partition}
                member.say("read", **where, offset=each.offset)
    await consumer.stop()


RUNNERS = {
    "confluent": run_confluent,
    "kafka-python": run_kafka_python,
    "aiokafka": run_aiokafka,
}


def run(client: str, member: Member) -> None:
    try:
        RUNNERS[client](member)
    except Exception as error:  # the test shall hear of it, whatever it is
        member.say("error", message=f"{type(error).__name__}: {error}")
    member.say("left")


def main() -> None:
    client, members = sys.argv[1], dict[str, Member]()
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["do"] == "join":
            member = members[asked["name"]] = Member(asked)
            threading.Thread(target=run, args=(client, member), daemon=True).start()
        else:
            members[asked["name"]].commands.put(asked["do"])


if __name__ == "__main__":
    main()
