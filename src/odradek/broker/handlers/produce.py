"""Produce (key 0), versions 3-13: append record batches to partitions. Hot path.

v8   which records are at fault, and a message (KIP-467).  v9  flexible.  v10  current leader and
     its endpoint with NOT_LEADER_OR_FOLLOWER (KIP-951).  v13  topics by id.

Versions 0-2 are advertised, because librdkafka stops compressing otherwise, and refused.

With acks=all an answer waits until the records are committed, at most as long as the request says:
then it is REQUEST_TIMED_OUT, and the records stay. Other acks do not wait.

What a connection sends behind such a request is appended meanwhile, in its order. Kafka appends it
when the first has been answered. Clients cannot tell: no request can be called back, and answers
are in order. But followers fetch once for all that has gathered.

With acks=0 there is no response to put an error in: the connection is closed instead, from which
producers learn to ask for metadata again.

A batch whose records take too long to unpack is put aside, the others of its request are appended.
When it has been opened on a thread it is produced once more, alone (``broker/opening.py``): its
topic may be gone by then, its transaction ended.

Not implemented: throttling.

The first batch of a transaction in a partition is appended only when the transaction's coordinator
says that the partition is part of it: from v12 on the broker has it added, before it is verified
that the producer did so (KIP-890). So a late batch can never begin a transaction that nobody ends.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from odradek.broker.commit_wait import Appended, CommitWait
from odradek.broker.context import APPENDED, NO_REPLY, PENDING, Answer, RequestContext
from odradek.broker.current_leader import find_current_leader
from odradek.broker.opening import ClosedBatch, Opened
from odradek.broker.partition import Partition
from odradek.broker.transaction_verification import Errors, add_patiently, verify
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.records.batch import HEADER_BYTES, MAGIC, MAGIC_POSITION, producer_of
from odradek.storage.opening import OpeningDeferredError
from odradek.storage.record_errors import RecordsRefusedError

ACKS_ALL: Final = -1
VERSION_CURRENT_LEADER: Final = 10
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
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
    }
)


class _PutAside(NamedTuple):
    """A batch that waits to be opened, and where its answer belongs."""

    topic: TopicProduceData
    batch: ClosedBatch
    answers: list[PartitionProduceResponse]
    slot: int

    def again(self) -> TopicProduceData:
        """Return a topic of a request that has nothing but this batch."""
        index = self.answers[self.slot].index
        data = PartitionProduceData(index=index, records=memoryview(self.batch.records))
        return TopicProduceData(
            name=self.topic.name, topic_id=self.topic.topic_id, partition_data=[data]
        )


class _Round:
    """What appending the batches of a request brings to light."""

    is_led_elsewhere = False
    """Whether a partition was refused because another node leads it, or none."""
    opened: Opened | None = None
    """What became of the one batch that there is, if it was put aside before."""
    uncommitted: list[tuple[PartitionProduceResponse, Appended]] | None = None
    """What may be acknowledged only when it is committed (acks=all); None if all is."""

    def __init__(self, now_ms: int, acks: int, errors: Errors | None) -> None:
        self.now_ms = now_ms
        self.acks = acks
        self.errors = errors
        """Those of the transaction, None if there is none."""
        self.put_aside: list[_PutAside] = []
        self.unflushed: dict[TopicPartition, PartitionProduceResponse] = {}
        """What may be acknowledged only after a flush (``flush.messages``)."""

    def wait_for(self, answer: PartitionProduceResponse, led: Partition, end_offset: int) -> None:
        if self.uncommitted is None:
            self.uncommitted = []
        self.uncommitted.append((answer, (led, end_offset)))


def handle(context: RequestContext, request: ProduceRequest) -> Answer:
    if request.transactional_id is None and _has_transactional_batch(request):
        # The request as a whole: who may not name a transactional id is trusted with nothing.
        refused = ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return _refuse_all(context, request, refused)
    if request.acks not in (0, 1, -1):
        refused = ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}")
        return _refuse_all(context, request, refused)
    if request.transactional_id is None:
        return _append(context, request, None)
    return _append_when_verified(context, request)


def _append_when_verified(context: RequestContext, request: ProduceRequest) -> Answer:
    """Append when the transaction's coordinator has answered: now, or later."""
    answers: list[Answer] = []
    is_later = False

    def verified(errors: Errors | None) -> None:
        answer = _append(context, request, errors)
        if is_later:
            _reply(context, answer)
        else:
            answers.append(answer)

    try:
        _verify(context, request, request.topic_data, verified)
    except ApiError as refused:
        return _refuse_all(context, request, refused)
    if answers:
        return answers[0]
    is_later = True
    # The records lie in the receive buffer, which is good until the handler returns.
    for topic in request.topic_data:
        for data in topic.partition_data:
            if isinstance(data.records, memoryview):
                data.records = memoryview(bytearray(data.records))
    return PENDING


def _append(context: RequestContext, request: ProduceRequest, errors: Errors | None) -> Answer:
    appended = _Round(context.broker.clock.now_ms(), request.acks, errors)
    responses = [_topic(context, topic, appended) for topic in request.topic_data]
    response = ProduceResponse(responses=responses)
    if appended.put_aside:
        return _open_put_aside(context, request, response, appended)
    return _answer(context, request, response, appended)


def _answer(
    context: RequestContext, request: ProduceRequest, response: ProduceResponse, appended: _Round
) -> Answer:
    if request.acks == 0:
        return _without_reply(context, response)
    if appended.is_led_elsewhere:
        _name_leaders(context, response)
    if not appended.unflushed and appended.uncommitted is None:
        return response
    _answer_later(context, request.timeout_ms, response, appended)
    return APPENDED


def _answer_later(
    context: RequestContext, timeout_ms: int, response: ProduceResponse, appended: _Round
) -> None:
    """Answer when all is flushed that must be, and committed; for all partitions at once.

    The wait for commits begins at once. Were it to begin after a flush, leadership might have been
    lost in between, and the offset be committed with the records of another leader.
    """
    broker, unflushed, uncommitted = context.broker, appended.unflushed, appended.uncommitted or ()
    deadline_ms = broker.clock.monotonic_ms() + timeout_ms
    left = bool(unflushed) + bool(uncommitted)

    def done() -> None:
        nonlocal left
        left -= 1
        if not left:
            context.reply(response)

    def committed(codes: list[ErrorCode]) -> None:
        for (answer, _), code in zip(uncommitted, codes, strict=True):
            if not answer.error_code:
                answer.error_code = code  # the offset stays in the answer, as the records do
        if ErrorCode.NOT_LEADER_OR_FOLLOWER in codes:
            _name_leaders(context, response)
        done()

    def flushed(failed: list[TopicPartition]) -> None:
        for partition in failed:
            _take_back(unflushed[partition])
        done()

    if uncommitted:
        wanted = [each for _, each in uncommitted]
        CommitWait(broker.delayed, deadline_ms, wanted, committed)
    if unflushed:
        broker.call_when_flushed(list(unflushed), flushed)


def _reply(context: RequestContext, answer: Answer) -> None:
    """Send what a handler would return, after it has returned."""
    if answer is not PENDING and answer is not APPENDED:
        context.reply(answer if isinstance(answer, ProduceResponse) else None)


def _open_put_aside(
    context: RequestContext, request: ProduceRequest, response: ProduceResponse, appended: _Round
) -> Answer:
    """Answer when what was put aside has been opened and appended."""
    put_aside = appended.put_aside

    def opened() -> None:
        topics = [each.again() for each in put_aside]
        appended.now_ms = context.broker.clock.now_ms()

        def verified(errors: Errors | None) -> None:
            for each, topic in zip(put_aside, topics, strict=True):
                appended.errors, appended.opened = errors, each.batch.opened
                (each.answers[each.slot],) = _topic(context, topic, appended).partition_responses
            _reply(context, _answer(context, request, response, appended))

        try:
            _verify(context, request, topics, verified)
        except ApiError as refused:
            for each, topic in zip(put_aside, topics, strict=True):
                each.answers[each.slot] = _refused(topic.partition_data[0], refused)
            _reply(context, _answer(context, request, response, appended))

    context.broker.opening.open_all([each.batch for each in put_aside], opened)
    return PENDING


def _verify(
    context: RequestContext,
    request: ProduceRequest,
    topics: list[TopicProduceData],
    then: Callable[[Errors | None], None],
) -> None:
    """Have the coordinator asked where the transaction is not open yet; without one, go on.

    Raises:
        ApiError: The whole request is refused.
    """
    if request.transactional_id is None:
        then(None)
        return
    batches = _transactional_batches(context, topics)
    producers = {producer for _, producer in batches}
    if len(producers) > 1:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "records of several producers")
    if not producers:
        then({})
        return

    def verified(errors: Errors) -> None:
        if any(errors.values()):
            errors = {each: _told(context, code) for each, code in errors.items()}
        then(errors)

    partitions = dict.fromkeys(partition for partition, _ in batches)
    asked = context.broker, request.transactional_id, producers.pop(), partitions, verified
    version = _transaction_version(context)
    if context.version >= VERSION_ADDS_PARTITIONS:
        add_patiently(*asked, version=version)
    else:
        verify(*asked, is_add=False, version=version)


def _transactional_batches(
    context: RequestContext, topics: list[TopicProduceData]
) -> list[tuple[TopicPartition, tuple[int, int]]]:
    """Return where transactional batches go, and who wrote them: producer id and epoch."""
    batches = []
    for topic in topics:
        name = topic.name
        if context.version >= VERSION_TOPIC_IDS:
            try:
                name = context.broker.replicas.topic_name(topic.topic_id)
            except ApiError:
                continue  # refused when it is its turn
        for data in topic.partition_data:
            records = data.records
            if isinstance(records, memoryview) and _is_transactional(records):
                # Whether the batch is sound is looked at when it is its turn.
                batches.append((TopicPartition(name, data.index), producer_of(records)))
    return batches


def _has_transactional_batch(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            if isinstance(data.records, memoryview) and _is_transactional(data.records):
                return True
    return False


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
    context: RequestContext, topic: TopicProduceData, appended: _Round
) -> TopicProduceResponse:
    name = topic.name
    problem: ApiError | None = None
    if context.version >= VERSION_TOPIC_IDS:
        try:
            name = context.broker.replicas.topic_name(topic.topic_id)
        except ApiError as error:
            problem = error
    done: list[PartitionProduceResponse] = []
    for partition in topic.partition_data:
        try:
            if problem is not None:
                raise problem
            done.append(_partition(context, name, partition, appended))
        except ApiError as error:  # one bad partition must not fail its neighbours
            done.append(_refused(partition, error))
            appended.is_led_elsewhere |= error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        except OpeningDeferredError:
            batch = _closed_batch(context, TopicPartition(name, partition.index), partition)
            appended.put_aside.append(_PutAside(topic, batch, done, len(done)))
            done.append(PartitionProduceResponse(index=partition.index))
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=done)


def _closed_batch(
    context: RequestContext, partition: TopicPartition, data: PartitionProduceData
) -> ClosedBatch:
    """Return a batch in memory of its own: the receive buffer is not kept."""
    assert isinstance(data.records, memoryview)
    config = context.broker.replicas.leader(partition).log.config
    return ClosedBatch(bytearray(data.records), config, context.broker.clock.now_ms())


def _partition(
    context: RequestContext, topic: str, data: PartitionProduceData, appended: _Round
) -> PartitionProduceResponse:
    partition = TopicPartition(topic, data.index)
    node = context.broker
    led = node.replicas.leader(partition)
    records = data.records
    if not isinstance(records, memoryview):
        raise ApiError(ErrorCode.INVALID_RECORD, "no records")
    version = 0
    # Without a transactional id no batch is one of a transaction, as ``handle`` has seen.
    if appended.errors is not None and _is_transactional(records):
        code = appended.errors.get(partition, ErrorCode.CORRUPT_MESSAGE)
        if code:
            raise ApiError(code, "the partition is not part of the transaction")
        version = _transaction_version(context)
    try:
        result = led.append(
            records,
            appended.now_ms,
            transaction_version=version,
            budget=node.opening.budget,
            opened=appended.opened,
            needs_all=appended.acks == ACKS_ALL,
        )
    except RecordsRefusedError as error:
        return _records_refused(data, error, led.log.log_start_offset)
    answer = PartitionProduceResponse(
        index=data.index,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=led.log.log_start_offset,
    )
    if result.is_flush_due:
        appended.unflushed[partition] = answer
    if appended.acks == ACKS_ALL and led.log.high_watermark <= result.last_offset:
        appended.wait_for(answer, led, result.last_offset + 1)
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


def _name_leaders(context: RequestContext, response: ProduceResponse) -> None:
    """Say who leads the partitions that this node does not, and where that node is."""
    if context.version < VERSION_CURRENT_LEADER:
        return
    image, endpoints = context.broker.image, {}
    for topic in response.responses:
        found = image.topics_by_id.get(topic.topic_id)
        name = topic.name if found is None else found.name
        for answer in topic.partition_responses:
            if answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            at = TopicPartition(name, answer.index)
            leader = find_current_leader(image, at, context.listener)
            if leader is None:
                continue
            answer.current_leader = LeaderIdAndEpoch(
                leader_id=leader.leader_id, leader_epoch=leader.leader_epoch
            )
            if leader.endpoint is not None:
                endpoints[leader.leader_id] = NodeEndpoint(**leader.endpoint._asdict())
    response.node_endpoints = list(endpoints.values())


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
                context.broker.server.close_one(context.connection, detail)
                return NO_REPLY
    return NO_REPLY
