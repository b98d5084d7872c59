"""Configs of groups and of client metrics.

The notation is explained in ``odradek.core.config.definition``.
"""

from typing import Final

GROUP_TABLE: Final = """
consumer.assignment.interval.ms INT 1000 0.. live
    The least time between two assignments of this consumer group.
consumer.heartbeat.interval.ms INT 5000 1.. live
    How often members of this consumer group send heartbeats.
consumer.session.timeout.ms INT 45000 1.. live
    How long this consumer group waits for a member's heartbeat.
share.assignment.interval.ms INT 1000 0..
    The least time between two assignments of this share group.
share.auto.offset.reset STRING latest offset-reset
    Where a new share group begins: earliest, latest, or by_duration:PnDTnHnMnS ago.
share.delivery.count.limit INT 5 2..
    How often a record is delivered before it is given up.
share.heartbeat.interval.ms INT 5000 1..
    How often members of this share group send heartbeats.
share.isolation.level STRING read_uncommitted read_committed|read_uncommitted
    Whether this share group sees records of transactions not yet committed.
share.partition.max.record.locks INT 2000 100..
    How many records of a partition may be held at a time.
share.record.lock.duration.ms INT 30000 1000..
    How long a share consumer holds a record.
share.renew.acknowledge.enable BOOLEAN true
    Whether members may prolong their hold on a record.
share.session.timeout.ms INT 45000 1..
    How long this share group waits for a member's heartbeat.
streams.assignment.interval.ms INT 1000 0..
    The least time between two assignments of this streams group.
streams.assignor.name STRING - new
    The assignor of this streams group; the broker's first if not set.
streams.heartbeat.interval.ms INT 5000 1..
    How often members of this streams group send heartbeats.
streams.initial.rebalance.delay.ms INT 3000 0..
    How long the first members of this streams group wait for more.
streams.num.standby.replicas INT 0 0..
    Standby copies of each stateful task.
streams.rack.aware.assignment.tags LIST '' new
    Client tags over which standby copies are spread.
streams.session.timeout.ms INT 45000 1..
    How long this streams group waits for a member's heartbeat.
errors.deadletterqueue.topic.name STRING '' new
    The topic for dead letters of this share group; none if empty.
errors.deadletterqueue.copy.record.enable BOOLEAN false new
    Whether a dead letter holds the whole record or only its place.
"""

CLIENT_METRICS_TABLE: Final = """
interval.ms INT 300000 100..3600000 live
    How often clients push the metrics of this subscription.
match LIST '' live
    Which clients are meant, as selector=pattern, separated by commas.
metrics LIST '' live
    The prefixes of the metrics that are pushed; * is all of them.
"""
