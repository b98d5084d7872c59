"""Envelope (key 58): a request that a broker forwards to the controller in its client's name.

It holds the request with its header as the client sent it, the client's principal (a version of two
bytes, then Kafka's ``DefaultPrincipalData``) and its address (4 or 16 bytes). The response holds
that to the inner request, header included, with the client's correlation id.

Refused are, as in Kafka and in its order: a principal that cannot be read
(PRINCIPAL_DESERIALIZATION_FAILURE), another address (INVALID_REQUEST), a request that cannot be
read (UNSUPPORTED_VERSION: the broker closes its client's connection), an API that is not forwarded,
an envelope among them (INVALID_REQUEST).

Not implemented: an authorizer. Everyone may send envelopes who can connect to the listener.
"""

from ipaddress import ip_address
from typing import Final, NamedTuple

from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.core.slices import Steps
from odradek.protocol.apis import Api
from odradek.protocol.forwarded import FORWARDED
from odradek.protocol.framing import frame_response, frame_response_in_steps, open_request
from odradek.protocol.generated.envelope import EnvelopeRequest
from odradek.protocol.generated.principal import DefaultPrincipalData
from odradek.protocol.message import Buffer, Message
from odradek.protocol.versioned import decode_versioned
from odradek.quorum.active_controller import Caller

ENVELOPED: Final = FORWARDED | {"AllocateProducerIds"}
"""What may be in an envelope, as in Kafka; this controller may not serve all of it."""

LARGE_ARRAYS: Final = {
    "AlterConfigs": "responses",
    "CreatePartitions": "results",
    "CreateTopics": "topics",
    "DeleteTopics": "responses",
    "DescribeConfigs": "results",
    "ElectLeaders": "replica_election_results",
    "IncrementalAlterConfigs": "responses",
}
"""Responses that grow with the request, and the array that does; encoded in slices if long."""
ELEMENTS_AT_ONCE_MAX: Final = 200

_ADDRESS_BYTES: Final = (4, 16)
_SIZE_BYTES: Final = 4


class Envelope(NamedTuple):
    request: Message
    caller: Caller
    """The client; its listener is that of the envelope."""
    correlation_id: int


def open_envelope(envelope: EnvelopeRequest, sender: Caller) -> Envelope:
    """Return what is inside.

    Raises:
        ApiError: What the response to the envelope has as its error.
    """
    principal = _principal(envelope.request_principal)
    host = _address(envelope.client_host_address)
    try:
        # Copied: the request outlives the buffer in which the envelope came.
        request = open_request(memoryview(bytes(envelope.request_data)))
        if request.api.name not in ENVELOPED:
            problem = f"{request.api.name} is not forwarded"
            raise ApiError(ErrorCode.INVALID_REQUEST, problem)
        message = request.decode()
    except CorruptionError as error:
        problem = f"the forwarded request cannot be read: {error}"
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, problem) from error
    caller = Caller(
        api=request.api,
        version=request.version,
        principal=principal,
        listener=sender.listener,
        peer_host=host,
        client_id=request.client_id,
    )
    return Envelope(message, caller, request.correlation_id)


def _principal(data: Buffer | None) -> str:
    try:
        principal = decode_versioned(DefaultPrincipalData, data or b"")
    except CorruptionError as error:
        problem = f"the principal of the client cannot be read: {error}"
        raise ApiError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, problem) from error
    return f"{principal.type}:{principal.name}"


def _address(data: Buffer) -> str:
    if len(data) not in _ADDRESS_BYTES:
        problem = f"an address of {len(data)} bytes: expected 4 or 16"
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)
    return str(ip_address(bytes(data)))


def wrap_response(envelope: Envelope, response: Message) -> Steps[Buffer]:
    """Encode the response to the inner request as its client expects it, without the size."""
    api, version = envelope.caller.api, envelope.caller.version
    frame = yield from frame_in_steps(response, api, version, envelope.correlation_id)
    return memoryview(b"".join(frame))[_SIZE_BYTES:]


def frame_in_steps(
    response: Message, api: Api, version: int, correlation_id: int
) -> Steps[list[Buffer]]:
    """Encode a response, in steps if it is a long one."""
    array = LARGE_ARRAYS.get(api.name)
    if array is None or len(getattr(response, array) or ()) <= ELEMENTS_AT_ONCE_MAX:
        return frame_response(response, api, version, correlation_id)
    return (yield from frame_response_in_steps(response, array, api, version, correlation_id))
