"""GetTelemetrySubscriptions (key 71), version 0: which metrics a client shall send (KIP-714).

A client that has no instance id gets one, and keeps it: asked again, it is told the same. No
metrics are subscribed to, so clients send none and ask again after the push interval.

Not implemented: subscriptions (``client-metrics`` resources are stored and have no effect), and
refusing a client that asks too often.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.broker.telemetry import (
    ACCEPTED_COMPRESSION_TYPES,
    PUSH_INTERVAL_MS,
    SUBSCRIPTION_ID,
)
from odradek.core.ids import ZERO_UUID, Uuid
from odradek.protocol.generated.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)


def handle(context: RequestContext, request: GetTelemetrySubscriptionsRequest) -> Answer:
    instance_id = request.client_instance_id
    if instance_id == ZERO_UUID:
        instance_id = Uuid.random(context.node.random)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=SUBSCRIPTION_ID,
        accepted_compression_types=list(ACCEPTED_COMPRESSION_TYPES),
        push_interval_ms=PUSH_INTERVAL_MS,
        telemetry_max_bytes=context.node.config.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=[],
    )
