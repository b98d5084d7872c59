"""Frames survive any chunking; headers are read as Kafka reads them; hostile sizes cost nothing."""

import io
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.core.errors import ApiError, CorruptionError
from odradek.protocol.apis import api_named
from odradek.protocol.framing import (
    FIRST_BUFFER_BYTES,
    HEADER_TAGS_MAX,
    KEPT_BUFFER_BYTES_MAX,
    RECEIVE_BUFFER_BYTES,
    FrameReader,
    frame_request,
    frame_response,
    open_request,
    open_response,
)
from odradek.protocol.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.generated.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from odradek.protocol.generated.headers import RequestHeader, ResponseHeader
from odradek.protocol.generated.heartbeat import HeartbeatRequest

LIMIT = 100 * 1024 * 1024


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def drain(reader: FrameReader) -> list[bytes]:
    frames = []
    while (frame := reader.next_frame()) is not None:
        frames.append(bytes(frame))
    return frames


def test_one_byte_at_a_time_gives_the_same_frames() -> None:
    payloads = [b"", b"a", b"bc" * 300]
    reader = FrameReader(LIMIT)
    seen = []
    for byte in b"".join(map(framed, payloads)):
        reader.receive(bytes([byte]))
        seen += drain(reader)
    assert seen == payloads


@given(
    payloads=st.lists(st.integers(0, 3 * RECEIVE_BUFFER_BYTES), max_size=5),
    chunk=st.integers(1, 2 * RECEIVE_BUFFER_BYTES),
)
def test_any_chunking_gives_the_same_frames(payloads: list[int], chunk: int) -> None:
    chunk = max(chunk, sum(payloads) // 200)
    wanted = [bytes([i + 1]) * size for i, size in enumerate(payloads)]
    stream = b"".join(map(framed, wanted))
    reader = FrameReader(LIMIT)
    seen = []
    for start in range(0, len(stream), chunk):
        reader.receive(stream[start : start + chunk])
        seen += drain(reader)
    assert seen == wanted


def test_frames_of_one_read_are_views_that_do_not_disturb_each_other() -> None:
    reader = FrameReader(LIMIT)
    reader.receive(framed(b"first") + framed(b"second"))
    first, second = reader.next_frame(), reader.next_frame()
    assert first is not None
    assert second is not None
    assert (bytes(first), bytes(second)) == (b"first", b"second")


def test_a_frame_of_the_largest_size_passes_and_one_more_byte_does_not() -> None:
    reader = FrameReader(10)
    reader.receive(framed(b"x" * 10))
    assert drain(reader) == [b"x" * 10]
    reader.receive(framed(b"x" * 11))
    with pytest.raises(CorruptionError, match="frame of 11 bytes, limit is 10"):
        reader.next_frame()


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1])
def test_absurd_sizes_are_refused_before_the_body(size: int) -> None:
    reader = FrameReader(LIMIT)
    reader.receive(struct.pack(">i", size))
    with pytest.raises(CorruptionError):
        reader.next_frame()


def test_a_claimed_size_allocates_nothing() -> None:
    """A peer that announces 100 MB and sends 4 bytes gets no 100 MB buffer."""
    reader = FrameReader(LIMIT)
    tracemalloc.start()
    try:
        reader.receive(struct.pack(">i", LIMIT))
        assert reader.next_frame() is None
        reader.writable()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024


def test_the_buffer_shrinks_again_after_a_large_frame() -> None:
    reader = FrameReader(LIMIT)
    reader.receive(framed(bytes(KEPT_BUFFER_BYTES_MAX + 1)))
    frame = reader.next_frame()
    assert frame is not None
    del frame
    assert len(reader.writable()) == RECEIVE_BUFFER_BYTES


def test_small_requests_need_a_small_buffer_and_a_stream_of_bytes_a_large_one() -> None:
    reader = FrameReader(LIMIT)
    for _ in range(1000):
        reader.receive(framed(b"a heartbeat"))
        assert reader.next_frame() is not None
    assert reader.buffer_bytes == FIRST_BUFFER_BYTES
    for _ in range(10):  # a socket that is never empty: small frames, and reads that fill up
        space = reader.writable()
        space[:] = (framed(b"x" * 12) * (len(space) // 16 + 1))[: len(space)]
        reader.wrote(len(space))
        while reader.next_frame() is not None:
            pass
    assert reader.buffer_bytes == RECEIVE_BUFFER_BYTES


@pytest.mark.parametrize("size", [16_000, 70_000, 200_000, 262_200, 1_048_700])
def test_a_stream_of_frames_stays_in_the_same_memory(size: int) -> None:
    """A socket that is never empty. Fresh memory for every buffer costs as much as reading does."""
    reader = FrameReader(LIMIT)
    stream = io.BytesIO(framed(b"x" * size) * 60)
    buffers: list[object] = []
    frames = 0
    while (space := reader.writable()) and (count := stream.readinto(space)):
        reader.wrote(count)
        frames += len(drain(reader))
        if not buffers or space.obj is not buffers[-1]:
            buffers.append(space.obj)
    assert frames == 60
    assert len(buffers) <= 7, "it grew to its size, and stayed"


def test_a_large_frame_is_read_to_its_end_and_no_further() -> None:
    reader = FrameReader(LIMIT)
    large = framed(b"x" * (2 * RECEIVE_BUFFER_BYTES))
    for _ in range(3):
        reader.receive(large)
        assert drain(reader) == [large[4:]]
    reader.receive(large[:100])
    assert len(reader.writable()) == len(large) - 100


def test_what_is_unread_moves_to_the_front_as_it_is() -> None:
    reader = FrameReader(LIMIT)
    reader.receive(framed(b"x" * RECEIVE_BUFFER_BYTES))  # from now on the buffer is as large
    assert len(drain(reader)) == 1
    first, second = b"1" * (RECEIVE_BUFFER_BYTES - 1_000), bytes(range(250)) * 800
    reader.receive(framed(first) + framed(second)[:-1])
    assert drain(reader) == [first]
    space = reader.writable()
    reader.receive(framed(second)[-1:])
    assert drain(reader) == [second]
    assert reader.writable().obj is space.obj


@pytest.mark.parametrize("size", [-1, 0, 2 * RECEIVE_BUFFER_BYTES, 2**31 - 1])
def test_there_is_space_whatever_waits_to_be_taken(size: int) -> None:
    """The connection has no use for a next frame yet, and reads ahead."""
    reader = FrameReader(LIMIT)
    reader.receive(framed(b"asks") + struct.pack(">i", size))
    assert bytes(reader.next_frame() or b"") == b"asks"
    received = 0
    while received < 4 * RECEIVE_BUFFER_BYTES:
        space = reader.writable()
        assert space
        reader.wrote(len(space))
        received += len(space)
        assert reader.buffer_bytes <= max(RECEIVE_BUFFER_BYTES, 3 * received)


def test_a_buffer_is_fitted_to_what_was_used_and_keeps_what_is_unread() -> None:
    reader = FrameReader(LIMIT)
    reader.receive(framed(bytes(1 << 20)))
    assert reader.next_frame() is not None
    reader.writable()
    reader.fit()
    assert reader.buffer_bytes >= 1 << 20, "used since the last time"
    reader.receive(framed(b"first") + framed(b"second")[:5])
    assert bytes(reader.next_frame() or b"") == b"first"
    reader.fit()
    assert reader.buffer_bytes >= 1 << 20, "half a frame is in it"
    reader.receive(framed(b"second")[5:])
    assert bytes(reader.next_frame() or b"") == b"second"
    reader.writable()
    reader.fit()
    assert reader.buffer_bytes == FIRST_BUFFER_BYTES
    reader.receive(framed(b"third"))
    assert bytes(reader.next_frame() or b"") == b"third"


@pytest.mark.parametrize("version", [0, 2, 4])
@pytest.mark.parametrize("client_id", [None, "", "tester", "ключ"])
def test_request_round_trip(version: int, client_id: str | None) -> None:
    api = api_named("Heartbeat")
    sent = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    frame = b"".join(frame_request(sent, api, version, 77, client_id))
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    request = open_request(memoryview(frame)[4:])
    assert (request.api, request.version, request.correlation_id) == (api, version, 77)
    assert request.client_id == client_id
    assert request.decode() == sent


def test_hand_read_header_agrees_with_the_generated_one() -> None:
    for version, header_version in ((3, 1), (4, 2)):
        header = RequestHeader(
            request_api_key=12, request_api_version=version, correlation_id=5, client_id="c"
        )
        request = open_request(memoryview(header.to_bytes(header_version) + b"body"))
        assert request.client_id == "c"
        assert bytes(request.body) == b"body"


def test_header_tags_are_skipped() -> None:
    header = RequestHeader(
        request_api_key=12, request_api_version=4, client_id="c", unknown_tags=((9, b"xyz"),)
    )
    assert bytes(open_request(memoryview(header.to_bytes(2) + b"body")).body) == b"body"


def test_too_many_header_tags_are_refused() -> None:
    """The peer has not logged in yet and can send millions of two-byte tags."""
    tags = tuple((i, b"") for i in range(HEADER_TAGS_MAX + 1))
    header = RequestHeader(request_api_key=12, request_api_version=4, unknown_tags=tags)
    with pytest.raises(CorruptionError, match="tagged fields of a header"):
        open_request(memoryview(header.to_bytes(2)))


def test_a_request_header_cut_anywhere_is_corrupt() -> None:
    whole = RequestHeader(
        request_api_key=12, request_api_version=4, client_id="c", unknown_tags=((1, b"ab"),)
    ).to_bytes(2)
    for size in range(len(whole)):
        with pytest.raises(CorruptionError):
            open_request(memoryview(whole[:size]))


def test_unknown_versions_are_refused_but_for_api_versions() -> None:
    header = RequestHeader(request_api_key=12, request_api_version=99).to_bytes(2)
    with pytest.raises(ApiError, match="UNSUPPORTED_VERSION"):
        open_request(memoryview(header))
    header = RequestHeader(request_api_key=18, request_api_version=99).to_bytes(2)
    assert open_request(memoryview(header)).is_unknown_api_versions


def test_negative_api_versions_version_is_refused() -> None:
    header = RequestHeader(request_api_key=18, request_api_version=-1).to_bytes(1)
    with pytest.raises(ApiError):
        open_request(memoryview(header))


def test_api_versions_response_has_header_version_0_in_flexible_versions() -> None:
    api = api_named("ApiVersions")
    frame = b"".join(frame_response(ApiVersionsResponse(), api, 4, 9))
    assert frame[4:8] == struct.pack(">i", 9)
    assert ApiVersionsResponse.decode(frame[8:], 4) == ApiVersionsResponse()
    correlation_id, body = open_response(memoryview(frame)[4:], api, 4)
    assert (correlation_id, bytes(body)) == (9, frame[8:])


def test_response_round_trip_with_records_is_not_copied() -> None:
    api = api_named("Fetch")
    records = bytes(1000)
    partition = PartitionData(partition_index=1, records=records)
    sent = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
    parts = frame_response(sent, api, 17, 5)
    assert any(part is records for part in parts)
    frame = b"".join(parts)
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    correlation_id, body = open_response(memoryview(frame)[4:], api, 17)
    assert correlation_id == 5
    assert FetchResponse.decode(body, 17) == sent


def test_response_header_tags_are_skipped() -> None:
    header = ResponseHeader(correlation_id=3, unknown_tags=((0, b"abc"),)).to_bytes(1)
    correlation_id, body = open_response(memoryview(header + b"x"), api_named("Fetch"), 12)
    assert (correlation_id, bytes(body)) == (3, b"x")


def test_a_cut_response_header_is_corrupt() -> None:
    whole = ResponseHeader(correlation_id=3, unknown_tags=((0, b"abc"),)).to_bytes(1)
    for size in range(len(whole)):
        with pytest.raises(CorruptionError):
            open_response(memoryview(whole[:size]), api_named("Fetch"), 12)


def test_the_first_request_of_librdkafka_is_read() -> None:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    frame = b"".join(frame_request(request, api_named("ApiVersions"), 3, 1, "rdkafka"))
    # key 18, version 3, correlation id 1, plain client id, no tags, then compact strings.
    assert (
        frame[4:].hex() == "00120003000000010007" + b"rdkafka".hex() + "00" + "0278" + "0231" + "00"
    )
