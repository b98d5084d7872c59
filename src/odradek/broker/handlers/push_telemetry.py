"""PushTelemetry (key 72), version 0: metrics of a client (KIP-714).

They are checked as far as their size and their compression go, and dropped. Data larger than
``telemetry.max.bytes`` is refused, packed (TELEMETRY_TOO_LARGE) or unpacked (INVALID_RECORD).

Not implemented: showing them, refusing a client that pushes too often or after it said goodbye.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.broker.telemetry import ACCEPTED_COMPRESSION_TYPES, SUBSCRIPTION_ID
from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.core.ids import RESERVED_UUIDS
from odradek.protocol.generated.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from odradek.records.compression import CompressionType, decompress


def handle(context: RequestContext, request: PushTelemetryRequest) -> Answer:
    try:
        _check(request, context.node.config.telemetry_max_bytes)
    except ApiError as error:
        return PushTelemetryResponse(error_code=error.code)
    return PushTelemetryResponse()


def _check(request: PushTelemetryRequest, bytes_max: int) -> None:
    client, codec = str(request.client_instance_id), request.compression_type
    if request.client_instance_id in RESERVED_UUIDS:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{client} is no client instance id")
    if request.subscription_id != SUBSCRIPTION_ID:
        problem = f"client {client} pushes for subscription {request.subscription_id}"
        raise ApiError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, problem)
    if codec not in (CompressionType.NONE, *ACCEPTED_COMPRESSION_TYPES):
        problem = f"client {client} pushes with compression type {codec}"
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, problem)
    if len(request.metrics) > bytes_max:
        problem = f"{len(request.metrics)} bytes from client {client}, at most {bytes_max}"
        raise ApiError(ErrorCode.TELEMETRY_TOO_LARGE, problem)
    if not request.metrics:
        return
    try:
        decompress(codec, request.metrics, output_bytes_max=bytes_max)
    except CorruptionError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, f"client {client}: {error}") from error
