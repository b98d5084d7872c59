"""Broker configs: the group and share coordinators and committed offsets.

The notation is explained in ``odradek.core.config.definition``.
"""

from typing import Final

TABLE: Final = """
group.coordinator.rebalance.protocols LIST classic,consumer,streams \
consumer|classic|share|streams live
    The group protocols that are on, where group.version allows them, too.
group.coordinator.threads INT 4 1..
    Threads of the group coordinator.
group.coordinator.background.threads INT 2 1..
    Threads for the coordinator's slower work.
group.coordinator.append.linger.ms INT -1 -1..
    How long the coordinator gathers records before it writes; -1 decides by load.
group.coordinator.cached.buffer.max.bytes INT 1048588 524288.. cluster-wide
    The largest write buffer the group coordinator keeps for reuse.
group.initial.rebalance.delay.ms INT 3000 live
    How long the first members of a classic group wait for more.
group.max.size INT 2147483647 1.. live
    The most members of a classic group.
group.min.session.timeout.ms INT 6000 live
    The least session timeout a classic member may ask for.
group.max.session.timeout.ms INT 1800000 live
    The greatest session timeout a classic member may ask for.
group.consumer.assignors LIST uniform,range not-empty live
    Assignors for consumer groups, the default first.
group.consumer.migration.policy STRING bidirectional ~DISABLED|DOWNGRADE|UPGRADE|BIDIRECTIONAL live
    Which way groups may change between the classic and the consumer protocol.
group.consumer.regex.refresh.interval.ms INT 600000 10000.. internal live
    How often subscriptions by pattern are matched again.
group.share.assignors LIST simple not-empty
    Assignors for share groups.
group.share.initialize.retry.interval.ms INT 30000 1.. internal
    How often a failed start of share state is tried again.
group.share.persister.class.name STRING \
org.apache.kafka.server.share.persister.DefaultStatePersister internal
    The class that keeps share state; not loaded here.
group.share.dlq.manager.class.name STRING \
org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager internal
    The class that writes dead letters; not loaded here.
group.share.max.share.sessions INT 2000 1..
    How many share sessions are kept.
group.share.delivery.count.limit INT 5 2..10
    How often a record is delivered before it is given up.
group.share.min.delivery.count.limit INT 2 2..5
    The least delivery limit a group may set.
group.share.max.delivery.count.limit INT 10 5..25
    The greatest delivery limit a group may set.
group.share.record.lock.duration.ms INT 30000 1000..3600000
    How long a share consumer holds a record.
group.share.min.record.lock.duration.ms INT 15000 1000..30000
    The least lock duration a group may set.
group.share.max.record.lock.duration.ms INT 60000 30000..3600000
    The greatest lock duration a group may set.
group.share.partition.max.record.locks INT 2000 100..10000
    How many records of a partition may be held at a time.
group.share.min.partition.max.record.locks INT 100 100..2000
    The least such limit a group may set.
group.share.max.partition.max.record.locks INT 4000 2000..10000
    The greatest such limit a group may set.
group.streams.assignors LIST sticky not-empty new
    Assignors for streams groups, the default first.
group.streams.initial.rebalance.delay.ms INT 3000 0..
    How long the first members of a streams group wait for more.
group.streams.num.standby.replicas INT 0 0..
    Standby copies of each stateful task.
group.streams.max.standby.replicas INT 2 0..
    The most standby copies a group may set.
group.streams.num.warmup.replicas INT 2 0.. internal
    Extra copies of tasks that catch up at a time.
group.streams.max.warmup.replicas INT 20 0.. internal
    The most warm-up copies a group may set.
group.streams.acceptable.recovery.lag LONG 10000 0.. internal
    How many records behind a task still counts as caught up.
group.streams.task.offset.interval.ms INT 60000 1.. internal
    How often members report the offsets of their tasks.
group.streams.min.task.offset.interval.ms INT 15000 1.. internal
    The least such interval a group may set.
group.streams.rack.aware.assignment.tags LIST '' new
    Client tags over which standby copies are spread.
group.streams.topology.description.plugin.class CLASS - new
    A class that stores topologies; not loaded here.
errors.deadletterqueue.auto.create.topics.enable BOOLEAN false cluster-wide new
    Whether topics for dead letters are created by themselves.
errors.deadletterqueue.topic.name.prefix STRING dlq. cluster-wide new
    How the name of a topic for dead letters must begin.
offset.metadata.max.bytes INT 4096 live
    The most text a consumer may store with a committed offset.
offsets.commit.timeout.ms INT 5000 1.. live
    How long a commit waits for its replicas.
offsets.load.buffer.size INT 5242880 1..
    Bytes read at a time when committed offsets are loaded.
offsets.retention.minutes INT 10080 1.. live
    How long an empty group's offsets are kept.
offsets.retention.check.interval.ms LONG 600000 1.. live
    How often offsets that ran out are looked for.
offsets.topic.compression.codec INT 0 live
    The codec of __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
offsets.topic.num.partitions INT 50 1.. live
    Partitions of __consumer_offsets.
offsets.topic.replication.factor SHORT 3 1.. live
    Replicas of __consumer_offsets.
offsets.topic.segment.bytes INT 104857600 1.. live
    The segment size of __consumer_offsets.
share.coordinator.append.linger.ms INT -1 -1..
    How long the share coordinator gathers records; -1 decides by load.
share.coordinator.cached.buffer.max.bytes INT 1048588 524288.. cluster-wide
    The largest write buffer the share coordinator keeps for reuse.
share.coordinator.cold.partition.snapshot.interval.ms INT 300000 1.. internal
    How often quiet share state is written out whole.
share.coordinator.load.buffer.size INT 5242880 1..
    Bytes read at a time when share state is loaded.
share.coordinator.snapshot.update.records.per.snapshot INT 500 0..500
    Changes of share state between two whole copies.
share.coordinator.state.topic.compression.codec INT 0
    The codec of __share_group_state.
share.coordinator.state.topic.min.isr SHORT 2 1..
    The min.insync.replicas of __share_group_state.
share.coordinator.state.topic.num.partitions INT 50 1..
    Partitions of __share_group_state.
share.coordinator.state.topic.prune.interval.ms INT 300000 1.. internal
    How often __share_group_state is cut to what is needed.
share.coordinator.state.topic.replication.factor SHORT 3 1..
    Replicas of __share_group_state.
share.coordinator.state.topic.segment.bytes INT 104857600 1..
    The segment size of __share_group_state.
share.coordinator.threads INT 1 1..
    Threads of the share coordinator.
share.coordinator.write.timeout.ms INT 5000 1..
    How long the share coordinator waits for a write.
group.consumer.session.timeout.ms INT 45000 1.. live
    How long a consumer group waits for a member's heartbeat.
group.consumer.min.session.timeout.ms INT 45000 1.. live
    The least session timeout a consumer group may set.
group.consumer.max.session.timeout.ms INT 60000 1.. live
    The greatest session timeout a consumer group may set.
group.consumer.heartbeat.interval.ms INT 5000 1.. live
    How often members of a consumer group send heartbeats.
group.consumer.min.heartbeat.interval.ms INT 5000 1.. live
    The least heartbeat interval a consumer group may set.
group.consumer.max.heartbeat.interval.ms INT 15000 1.. live
    The greatest heartbeat interval a consumer group may set.
group.consumer.assignment.interval.ms INT 1000 0.. cluster-wide live
    The least time between two assignments of a consumer group.
group.consumer.min.assignment.interval.ms INT 0 0.. live
    The least such time a consumer group may set.
group.consumer.max.assignment.interval.ms INT 15000 0.. live
    The greatest such time a consumer group may set.
group.consumer.assignor.offload.enable BOOLEAN true cluster-wide internal
    Whether assignments of consumer groups run on a background thread.
group.consumer.max.size INT 2147483647 1.. live
    The most members of a consumer group.
group.share.session.timeout.ms INT 45000 1..
    How long a share group waits for a member's heartbeat.
group.share.min.session.timeout.ms INT 45000 1..
    The least session timeout a share group may set.
group.share.max.session.timeout.ms INT 60000 1..
    The greatest session timeout a share group may set.
group.share.heartbeat.interval.ms INT 5000 1..
    How often members of a share group send heartbeats.
group.share.min.heartbeat.interval.ms INT 5000 1..
    The least heartbeat interval a share group may set.
group.share.max.heartbeat.interval.ms INT 15000 1..
    The greatest heartbeat interval a share group may set.
group.share.assignment.interval.ms INT 1000 0.. cluster-wide
    The least time between two assignments of a share group.
group.share.min.assignment.interval.ms INT 0 0..
    The least such time a share group may set.
group.share.max.assignment.interval.ms INT 15000 0..
    The greatest such time a share group may set.
group.share.assignor.offload.enable BOOLEAN true cluster-wide internal
    Whether assignments of share groups run on a background thread.
group.share.max.size INT 200 1..1000
    The most members of a share group.
group.streams.session.timeout.ms INT 45000 1..
    How long a streams group waits for a member's heartbeat.
group.streams.min.session.timeout.ms INT 45000 1..
    The least session timeout a streams group may set.
group.streams.max.session.timeout.ms INT 60000 1..
    The greatest session timeout a streams group may set.
group.streams.heartbeat.interval.ms INT 5000 1..
    How often members of a streams group send heartbeats.
group.streams.min.heartbeat.interval.ms INT 5000 1..
    The least heartbeat interval a streams group may set.
group.streams.max.heartbeat.interval.ms INT 15000 1..
    The greatest heartbeat interval a streams group may set.
group.streams.assignment.interval.ms INT 1000 0.. cluster-wide
    The least time between two assignments of a streams group.
group.streams.min.assignment.interval.ms INT 0 0..
    The least such time a streams group may set.
group.streams.max.assignment.interval.ms INT 15000 0..
    The greatest such time a streams group may set.
group.streams.assignor.offload.enable BOOLEAN true cluster-wide internal
    Whether assignments of streams groups run on a background thread.
group.streams.max.size INT 2147483647 1..
    The most members of a streams group.
"""
