"""Broker configs: identity, listeners, connections, requests, quotas and metrics.

The notation is explained in ``odradek.core.config.definition``.
"""

from typing import Final

TABLE: Final = """
process.roles LIST required broker|controller live
    What this node does: broker, controller, or both in one process.
node.id INT required 0.. live
    The number of this node, unique in the cluster, for every role it has.
broker.id INT -1 live
    The old name of node.id; if both are set they must be equal.
broker.rack STRING - live
    The rack or zone of this broker, told to clients and used to spread replicas.
listeners LIST PLAINTEXT://:9092 not-empty per-broker live
    Where the node listens, as NAME://host:port; no host means all interfaces.
advertised.listeners LIST - not-empty live
    What clients are told to connect to; the listeners themselves if not set.
listener.security.protocol.map STRING \
SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT per-broker live
    Which security protocol each listener name speaks, as NAME:PROTOCOL.
controller.listener.names LIST - live
    Which listeners serve the controller; a broker uses the first to reach it.
inter.broker.listener.name STRING - live
    The listener over which brokers talk to each other.
security.inter.broker.protocol STRING PLAINTEXT PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL
    The protocol between brokers, where no listener is named for them.
early.start.listeners LIST -
    Listeners that open before the authorizer is ready; controller listeners if not set.
num.network.threads INT 3 1.. cluster-wide
    Threads that read requests and write responses, for each listener.
num.io.threads INT 8 1.. cluster-wide
    Threads that handle requests.
background.threads INT 10 1.. cluster-wide
    Threads for chores such as deleting files.
queued.max.requests INT 500 1..
    How many requests may wait for a thread before the network stops reading.
queued.max.request.bytes LONG -1
    How many bytes of requests may wait; -1 is no limit.
socket.send.buffer.bytes INT 102400
    The send buffer asked of the operating system; -1 leaves its own.
socket.receive.buffer.bytes INT 102400
    The receive buffer asked of the operating system; -1 leaves its own.
socket.request.max.bytes INT 104857600 1.. live
    The largest request that is read; a larger one closes the connection.
socket.listen.backlog.size INT 50 1.. live
    How many connections may wait to be accepted.
max.connections INT 2147483647 0.. cluster-wide live
    How many connections a broker holds at most.
max.connections.per.ip INT 2147483647 0.. cluster-wide live
    How many connections one address may hold.
max.connections.per.ip.overrides STRING '' cluster-wide live
    Other limits for some addresses, as host:count, separated by commas.
max.connection.creation.rate INT 2147483647 0.. cluster-wide
    How many connections may be opened in a second.
connections.max.idle.ms LONG 600000 live
    After how long a silent connection is closed; negative is never.
connection.failed.authentication.delay.ms INT 100 0.. live
    How long to wait before closing a connection that failed to authenticate.
connections.max.reauth.ms LONG 0 live
    After how long a client must authenticate again; 0 is never.
socket.connection.setup.timeout.ms LONG 10000
    How long a connection to another node may take to open.
socket.connection.setup.timeout.max.ms LONG 30000
    The longest that timeout becomes when attempts fail in a row.
request.timeout.ms INT 30000
    How long this node waits for the answer to a request of its own.
fetch.max.bytes INT 57671680 1024.. live
    The most bytes one fetch returns, whatever the client asked for.
max.incremental.fetch.session.cache.slots INT 1000 0.. live
    How many incremental fetch sessions are kept.
max.request.partition.size.limit INT 2000 1.. live
    The most partitions one DescribeTopicPartitions answer lists.
fetch.purgatory.purge.interval.requests INT 1000
    After how many requests Kafka sweeps its waiting fetches.
producer.purgatory.purge.interval.requests INT 1000
    After how many requests Kafka sweeps its waiting produces.
delete.records.purgatory.purge.interval.requests INT 1
    After how many requests Kafka sweeps its waiting record deletions.
share.fetch.purgatory.purge.interval.requests INT 1000
    After how many requests Kafka sweeps its waiting share fetches.
telemetry.max.bytes INT 1048576 1.. live
    The largest batch of client metrics that is taken.
quota.window.num INT 11 1..
    How many samples client quotas are measured over.
quota.window.size.seconds INT 1 1..
    How long each sample of a client quota is.
controller.quota.window.num INT 11 1..
    How many samples quotas on topic changes are measured over.
controller.quota.window.size.seconds INT 1 1..
    How long each sample of a quota on topic changes is.
replication.quota.window.num INT 11 1.. live
    How many samples replication throttles are measured over.
replication.quota.window.size.seconds INT 1 1.. live
    How long each sample of a replication throttle is.
alter.log.dirs.replication.quota.window.num INT 11 1.. live
    How many samples throttles on moves between directories are measured over.
alter.log.dirs.replication.quota.window.size.seconds INT 1 1.. live
    How long each sample of such a throttle is.
client.quota.callback.class CLASS -
    A class that decides on client quotas; classes of Java cannot be loaded here.
metric.reporters LIST org.apache.kafka.common.metrics.JmxReporter cluster-wide
    Classes that report metrics; Odradek serves Prometheus instead.
metrics.num.samples INT 2 1..
    How many samples a metric is computed from.
metrics.sample.window.ms LONG 30000 1..
    How long each sample of a metric is.
metrics.recording.level STRING INFO
    How detailed the recorded metrics are: INFO, DEBUG or TRACE.
kafka.metrics.reporters LIST ''
    Classes that report the older family of metrics; not loaded here.
kafka.metrics.polling.interval.secs INT 10 1..
    How often those reporters ask for values.
config.providers LIST '' cluster-wide
    Names of plugins that fill in values from elsewhere; none can be loaded here.
server.max.startup.time.ms LONG 9223372036854775807 0.. internal
    How long a start may take before it is given up.
unstable.api.versions.enable BOOLEAN false internal live
    Speak versions of APIs that are not final yet.
unstable.feature.versions.enable BOOLEAN false internal
    Use versions of features that are not final yet.
"""
