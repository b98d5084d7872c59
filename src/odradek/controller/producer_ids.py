"""AllocateProducerIds: each broker gets blocks of ids, so that it need not ask for every one."""

from typing import Final

from odradek.controller.result import Result
from odradek.controller.view import ClusterView
from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.generated.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from odradek.protocol.generated.metadata_records import ProducerIdsRecord

PRODUCER_IDS_PER_BLOCK: Final = 1000
_PRODUCER_ID_MAX: Final = 2**63 - 1


def allocate_producer_ids(
    view: ClusterView, request: AllocateProducerIdsRequest
) -> Result[AllocateProducerIdsResponse]:
    """Plan the next block. It is used up by being given away: a broker that dies loses the rest.

    Raises:
        ApiError: STALE_BROKER_EPOCH.
    """
    view.check_broker_epoch(request.broker_id, request.broker_epoch)
    first = view.image.next_producer_id
    if first > _PRODUCER_ID_MAX - PRODUCER_IDS_PER_BLOCK:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "no producer ids are left")
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=first + PRODUCER_IDS_PER_BLOCK,
    )
    reply = AllocateProducerIdsResponse(
        producer_id_start=first, producer_id_len=PRODUCER_IDS_PER_BLOCK
    )
    return Result((view.versioned(record),), reply)
