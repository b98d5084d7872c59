"""Produce (key 0), versions 3-13: append record batches to partitions. Hot path.

v8   which records are at fault, and a message (KIP-467).  v9  flexible.  v10  current leader and
     node endpoints (tagged) with NOT_LEADER_OR_FOLLOWER: left out, as there is no other leader to
     name.  v13  topics by id.

Versions 0-2 are advertised, because librdkafka stops compressing otherwise, and refused.

With acks=0 there is no response to put an error in: the connection is closed instead, from which
producers learn to ask for metadata again.

Not implemented: throttling.

The first batch of a transaction in a partition is appended only when the transaction's coordinator
says that the partition is part of it: from v12 on the broker has it added, before it is verified
that the producer did so (KIP-890). So a late batch can never begin a transaction that nobody ends.
"""

from typing import Final

from odradek.broker.context import NO_REPLY, PENDING, Answer, RequestContext
from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.records.batch import HEADER_BYTES, MAGIC, MAGIC_POSITION, parse_header
from odradek.storage.record_errors import RecordsRefusedError

VERSION_ABORTABLE: Final = 11
VERSION_ADDS_PARTITIONS: Final = 12
VERSION_TOPIC_IDS: Final = 13

# Where a batch says that it is part of a transaction: the low byte of its attributes.
_ATTRIBUTES: Final = 22
_TRANSACTIONAL: Final = 0x10

# Old producers would not try again after these; this one they do, and ask for no metadata.
_RETRIED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)

Errors = dict[TopicPartition, ErrorCode]
Unflushed = dict[TopicPartition, PartitionProduceResponse]
"""What may be acknowledged only after a flush (``flush.messages``)."""


def handle(context: RequestContext, request: ProduceRequest) -> Answer:
    if request.transactional_id is None and _has_transactional_batch(request):
        # The request as a whole: who may not name a transactional id is trusted with nothing.
        refused = ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return _refuse_all(context, request, refused)
    if request.acks not in (0, 1, -1):
        refused = ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}")
        return _refuse_all(context, request, refused)
    if request.transactional_id is not None:
        return _handle_transactional(context, request)
    return _append_all(context, request, None)


def _append_all(context: RequestContext, request: ProduceRequest, errors: Errors | None) -> Answer:
    """Append to all partitions; ``errors`` are those of the transaction, None if there is none."""
    unflushed: Unflushed = {}
    now_ms = context.node.clock.now_ms()
    responses = [_topic(context, topic, now_ms, unflushed, errors) for topic in request.topic_data]
    response = ProduceResponse(responses=responses)
    if request.acks == 0:
        return _without_reply(context, response)
    if unflushed:

        def flushed(failed: list[TopicPartition]) -> None:
            for partition in failed:
                _take_back(unflushed[partition])
            context.reply(response)

        context.node.call_when_flushed(list(unflushed), flushed)
        return PENDING
    return response


def _handle_transactional(context: RequestContext, request: ProduceRequest) -> Answer:
    """Ask the coordinator where the transaction is not open yet, then append."""
    node = context.node
    batches = _transactional_batches(context, request)
    if len({producer for _, producer in batches}) > 1:
        problem = ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "records of several producers")
        return _refuse_all(context, request, problem)
    producers = dict(batches)
    errors = dict.fromkeys(producers, ErrorCode.NONE)
    asked = []
    for partition, producer in producers.items():
        try:
            if not node.replicas.has_transaction(partition, *producer):
                asked.append(partition)
        except ApiError as error:
            errors[partition] = error.code
    is_add = context.version >= VERSION_ADDS_PARTITIONS
    if not asked or not (is_add or node.config.flag("transaction.partition.verification.enable")):
        return _append_all(context, request, errors)
    answers: list[Answer] = []

    def decided(told: Errors) -> None:
        errors.update({each: _told(context, code) for each, code in told.items()})
        answers.append(_append_all(context, request, errors))

    assert request.transactional_id is not None
    node.transactions.add_or_verify(
        request.transactional_id,
        *producers[asked[0]],
        asked,
        decided,
        is_add=is_add,
        version=_transaction_version(context),
    )
    # The records lie in a buffer that is good until this returns. The coordinator is in this
    # process and answers at once; when it may be elsewhere, they must be kept until it has.
    (answer,) = answers
    return answer


def _transactional_batches(
    context: RequestContext, request: ProduceRequest
) -> list[tuple[TopicPartition, tuple[int, int]]]:
    """Return where transactional batches go, and who wrote them: producer id and epoch."""
    batches = []
    for topic in request.topic_data:
        name = topic.name
        if context.version >= VERSION_TOPIC_IDS:
            try:
                name = context.node.replicas.topic_name(topic.topic_id)
            except ApiError:
                continue  # refused when it is its turn
        for data in topic.partition_data:
            records = data.records
            if isinstance(records, memoryview) and _is_transactional(records):
                try:
                    header = parse_header(records)
                except CorruptionError:
                    continue  # refused when it is its turn
                producer = (header.producer_id, header.producer_epoch)
                batches.append((TopicPartition(name, data.index), producer))
    return batches


def _has_transactional_batch(request: ProduceRequest) -> bool:
    return any(
        isinstance(data.records, memoryview) and _is_transactional(data.records)
        for topic in request.topic_data
        for data in topic.partition_data
    )


def _is_transactional(records: memoryview) -> bool:
    return (
        len(records) >= HEADER_BYTES
        and bool(records[_ATTRIBUTES] & _TRANSACTIONAL)
        and records[MAGIC_POSITION] == MAGIC
    )


def _transaction_version(context: RequestContext) -> int:
    return 2 if context.version >= VERSION_ADDS_PARTITIONS else 0


def _told(context: RequestContext, code: ErrorCode) -> ErrorCode:
    """Return a coordinator's code as a producer of this version knows it."""
    if code in _RETRIED:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and context.version < VERSION_ADDS_PARTITIONS:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.TRANSACTION_ABORTABLE and context.version < VERSION_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _take_back(answer: PartitionProduceResponse) -> None:
    """Acknowledge nothing that may not be on disk: a failed fsync is not tried again."""
    answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1


def _topic(
    context: RequestContext,
    topic: TopicProduceData,
    now_ms: int,
    unflushed: Unflushed,
    errors: Errors | None,
) -> TopicProduceResponse:
    name = topic.name
    problem: ApiError | None = None
    if context.version >= VERSION_TOPIC_IDS:
        try:
            name = context.node.replicas.topic_name(topic.topic_id)
        except ApiError as error:
            problem = error
    done = []
    for partition in topic.partition_data:
        try:
            if problem is not None:
                raise problem
            done.append(_partition(context, name, partition, now_ms, unflushed, errors))
        except ApiError as error:  # one bad partition must not fail its neighbours
            done.append(_refused(partition, error))
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=done)


def _partition(
    context: RequestContext,
    topic: str,
    data: PartitionProduceData,
    now_ms: int,
    unflushed: Unflushed,
    errors: Errors | None,
) -> PartitionProduceResponse:
    partition = TopicPartition(topic, data.index)
    replicas = context.node.replicas
    replica = replicas.leader(partition)
    if not isinstance(data.records, memoryview):
        raise ApiError(ErrorCode.INVALID_RECORD, "no records")
    version = 0
    if _is_transactional(data.records):
        assert errors is not None, "there is a transactional id"
        code = errors.get(partition, ErrorCode.CORRUPT_MESSAGE)
        if code:
            raise ApiError(code, "the partition is not part of the transaction")
        version = _transaction_version(context)
    try:
        result = replicas.append(replica, data.records, now_ms, transaction_version=version)
    except RecordsRefusedError as error:
        return _records_refused(data, error, replica.log.log_start_offset)
    answer = PartitionProduceResponse(
        index=data.index,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=replica.log.log_start_offset,
    )
    if result.is_flush_due:
        unflushed[partition] = answer
    return answer


def _records_refused(
    partition: PartitionProduceData, error: RecordsRefusedError, log_start_offset: int
) -> PartitionProduceResponse:
    """Name the records at fault, so that a producer may send the others again."""
    answer = _refused(partition, error)
    answer.log_start_offset = log_start_offset
    answer.record_errors = [
        BatchIndexAndErrorMessage(
            batch_index=each.batch_index, batch_index_error_message=each.message
        )
        for each in error.record_errors
    ]
    return answer


def _refused(partition: PartitionProduceData, error: ApiError) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=partition.index,
        error_code=error.code,
        base_offset=-1,
        error_message=error.message or None,
    )


def _refuse_all(context: RequestContext, request: ProduceRequest, error: ApiError) -> Answer:
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_refused(p, error) for p in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )
    return _without_reply(context, response) if request.acks == 0 else response


def _without_reply(context: RequestContext, response: ProduceResponse) -> Answer:
    """Answer acks=0: with nothing, or by hanging up if anything in it was refused."""
    for topic in response.responses:
        for each in topic.partition_responses:
            if each.error_code:
                name = ErrorCode(each.error_code).name
                detail = f"{name} for {topic.name or topic.topic_id}-{each.index} with acks=0"
                context.node.server.close_one(context.connection, detail)
                return NO_REPLY
    return NO_REPLY
