"""PushTelemetry (key 72), version 0: metrics of a client (KIP-714).

The values are kept and shown by ``metrics.client_metrics``, if a subscription asks for them. Data
larger than ``telemetry.max.bytes`` is refused, packed (TELEMETRY_TOO_LARGE) or unpacked
(INVALID_RECORD), and so is what is no OpenTelemetry payload. A client that pushes before its
interval is over is refused (THROTTLING_QUOTA_EXCEEDED), and so is one that said goodbye.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.broker.metrics.client_subscriptions import Subscription
from odradek.broker.metrics.otlp import read_points
from odradek.broker.telemetry import ACCEPTED_COMPRESSION_TYPES, client_attributes
from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.core.ids import RESERVED_UUIDS
from odradek.protocol.generated.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from odradek.records.compression import CompressionType, decompress


def handle(context: RequestContext, request: PushTelemetryRequest) -> Answer:
    try:
        _take(context, request)
    except ApiError as error:
        return PushTelemetryResponse(error_code=error.code)
    return PushTelemetryResponse()


def _take(context: RequestContext, request: PushTelemetryRequest) -> None:
    node, instance_id = context.broker, request.client_instance_id
    if instance_id in RESERVED_UUIDS:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{instance_id} is no client instance id")
    clients = node.metrics.clients
    client = clients.client(instance_id, client_attributes(context, instance_id))
    wanted = client.subscription(clients.current_subscriptions())
    is_last = request.terminating
    client.check_may_push(wanted.interval_ms, node.clock.monotonic_ms(), is_last=is_last)
    if is_last:
        client.is_gone = True
        clients.forget_series(client)
    _check(request, wanted, node.config.telemetry_max_bytes)
    data = _unpacked(request, node.config.telemetry_max_bytes)
    if is_last or not wanted.metrics:
        return
    try:
        clients.take(client, wanted, read_points(data))
    except CorruptionError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, f"client {instance_id}: {error}") from error


def _check(request: PushTelemetryRequest, wanted: Subscription, bytes_max: int) -> None:
    client, codec = request.client_instance_id, request.compression_type
    if request.subscription_id != wanted.id:
        problem = f"client {client} pushes for subscription {request.subscription_id}"
        raise ApiError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, problem)
    if codec not in (CompressionType.NONE, *ACCEPTED_COMPRESSION_TYPES):
        problem = f"client {client} pushes with compression type {codec}"
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, problem)
    if len(request.metrics) > bytes_max:
        problem = f"{len(request.metrics)} bytes from client {client}, at most {bytes_max}"
        raise ApiError(ErrorCode.TELEMETRY_TOO_LARGE, problem)


def _unpacked(request: PushTelemetryRequest, bytes_max: int) -> bytes | bytearray | memoryview:
    if not request.metrics:
        return b""
    try:
        return decompress(request.compression_type, request.metrics, output_bytes_max=bytes_max)
    except CorruptionError as error:
        problem = f"client {request.client_instance_id}: {error}"
        raise ApiError(ErrorCode.INVALID_RECORD, problem) from error
