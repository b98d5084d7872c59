"""GetTelemetrySubscriptions (key 71), version 0: which metrics a client shall send (KIP-714).

A client that has no instance id gets one, and keeps it: asked again, it is told the same. What it
shall send is what the ``client-metrics`` resources say that match it; where none does it sends
nothing and asks again after the push interval.

Counters are asked for as totals, not as differences (``delta_temporality``, which Kafka's broker
asks for): what is shown is then right whether or not an earlier push got lost.

Not implemented: refusing a client that asks too often.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.broker.telemetry import ACCEPTED_COMPRESSION_TYPES, client_attributes
from odradek.core.ids import ZERO_UUID, Uuid
from odradek.protocol.generated.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)


def handle(context: RequestContext, request: GetTelemetrySubscriptionsRequest) -> Answer:
    node = context.broker
    instance_id = request.client_instance_id
    if instance_id == ZERO_UUID:
        instance_id = Uuid.random(node.random)
    clients = node.metrics.clients
    client = clients.client(instance_id, client_attributes(context, instance_id))
    client.on_asked(node.clock.monotonic_ms())
    subscription = client.subscription(clients.current_subscriptions())
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=subscription.id,
        accepted_compression_types=list(ACCEPTED_COMPRESSION_TYPES),
        push_interval_ms=subscription.interval_ms,
        telemetry_max_bytes=node.config.telemetry_max_bytes,
        delta_temporality=False,
        requested_metrics=list(subscription.metrics),
    )
