"""Hostile lengths, counts, nulls and texts: refused at once, nothing allocated on their word."""

import tracemalloc
from collections.abc import Callable

import pytest

from odradek.core.errors import CorruptionError
from odradek.protocol.generated import delete_topics, fetch
from odradek.protocol.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.generated.delete_topics import DeleteTopicsRequest
from odradek.protocol.generated.describe_user_scram_credentials import (
    DescribeUserScramCredentialsResponse,
)
from odradek.protocol.generated.fetch import FetchRequest
from odradek.protocol.generated.headers import RequestHeader
from odradek.protocol.generated.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.generated.produce import ProduceRequest
from odradek.protocol.generated.sasl_authenticate import SaslAuthenticateRequest
from odradek.protocol.message import Message
from odradek.protocol.primitives import ELEMENTS_MAX, write_uvarint

PEAK_BYTES_MAX = 16 * 1024
"""What a refusal may cost: an exception with its text and traceback, not a thousand elements."""


def peak_bytes(work: Callable[[], object]) -> int:
    """Return the most memory that ``work`` held at once."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def refusal(cls: type[Message], data: bytes, version: int) -> str:
    """Return why the bytes are refused, having checked that the refusal was cheap."""
    problems: list[str] = []

    def decode() -> None:
        with pytest.raises(CorruptionError) as caught:
            cls.decode(data, version)
        problems.append(str(caught.value))

    decode()  # the first time imports and caches
    assert peak_bytes(decode) < PEAK_BYTES_MAX
    return problems[-1]


@pytest.mark.parametrize(
    "count",
    [b"\x7f\xff\xff\xff", b"\x00\x10\x00\x00", b"\x00\x00\x00\x64"],
    ids=["2^31-1", "2^20", "100"],
)
@pytest.mark.parametrize("padding", [0, 3])
def test_an_array_count_beyond_the_bytes_left_is_refused(count: bytes, padding: int) -> None:
    problem = refusal(MetadataRequest, count + bytes(padding), 1)
    assert problem == f"topics: {int.from_bytes(count, 'big')} elements " + (
        "are more than the message can hold"
    )


@pytest.mark.parametrize(
    "count", [b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x08", b"\xe5\x00"], ids=bytes.hex
)
def test_a_compact_array_count_beyond_the_bytes_left_is_refused(count: bytes) -> None:
    assert "topics" in refusal(MetadataRequest, count + bytes(3), 9)


def test_an_array_of_integers_claims_no_memory() -> None:
    partition = bytes(10) + b"\x7f\xff\xff\xff" + bytes(4)  # error, index, leader, then replicas
    topic = b"\x00\x00\x00\x01" + b"\x00\x00" + b"\x00\x01t" + b"\x00\x00\x00\x01" + partition
    assert "replica_nodes" in refusal(MetadataResponse, bytes(4) + topic, 0)


def test_counts_of_one_byte_elements_stop_at_elements_max() -> None:
    """A megabyte of empty strings is a megabyte; as Python objects it would be a hundred."""
    data = bytearray()
    write_uvarint(data, 1 + ELEMENTS_MAX + 1)
    data += b"\x01" * (ELEMENTS_MAX + 1) + bytes(5)
    assert "topic_names" in refusal(DeleteTopicsRequest, bytes(data), 4)


def test_all_arrays_of_a_message_share_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [fetch.FetchTopic(partitions=[fetch.FetchPartition()] * 4) for _ in range(4)]
    data = FetchRequest(topics=topics).to_bytes(12)
    monkeypatch.setattr(fetch, "ELEMENTS_MAX", 20)
    assert len(FetchRequest.decode(data, 12).topics) == 4
    monkeypatch.setattr(fetch, "ELEMENTS_MAX", 19)
    assert "partitions" in refusal(FetchRequest, data, 12)


def test_unknown_tags_share_the_budget_of_the_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    message = DeleteTopicsRequest(topic_names=["a", "b"], unknown_tags=((7, b""), (8, b"")))
    data = message.to_bytes(4)
    monkeypatch.setattr(delete_topics, "ELEMENTS_MAX", 4)
    assert DeleteTopicsRequest.decode(data, 4) == message
    monkeypatch.setattr(delete_topics, "ELEMENTS_MAX", 3)
    assert "tagged fields" in refusal(DeleteTopicsRequest, data, 4)


def test_the_budget_allows_what_large_clusters_send() -> None:
    names = [f"t{i}" for i in range(200_000)]
    data = DeleteTopicsRequest(topic_names=names).to_bytes(4)
    assert DeleteTopicsRequest.decode(data, 4).topic_names == names


ONE = b"\x00\x00\x00\x01"
TWENTY_MILLION = b"\x80\xda\xc4\x09"


@pytest.mark.parametrize("size", [0, 40_000_000], ids=["claimed only", "really sent"])
@pytest.mark.parametrize(
    ("cls", "prefix"),
    [(ApiVersionsRequest, b"\x01\x01"), (ApiVersionsResponse, b"\x00\x00\x01\x00\x00\x00\x00")],
    ids=["no known tags", "known tags"],
)
def test_twenty_million_tagged_fields_are_refused(
    cls: type[Message], prefix: bytes, size: int
) -> None:
    problem = refusal(cls, prefix + TWENTY_MILLION + bytes(size), 3)
    assert problem.startswith("tagged fields: 20000000 ")


@pytest.mark.parametrize(
    "varint",
    [
        b"\x80\x80\x80\x80\x80\x00",  # six bytes for zero
        b"\xff\xff\xff\xff\xff\x7f",
        b"\xff\xff\xff\xff\x1f",  # five bytes, 33 bits
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ],
    ids=bytes.hex,
)
@pytest.mark.parametrize("before", [b"", b"\x01", b"\x01\x01"], ids=["string", "second", "tags"])
def test_a_varint_over_32_bits_is_refused_wherever_it_stands(varint: bytes, before: bytes) -> None:
    assert "varint" in refusal(ApiVersionsRequest, before + varint + bytes(20), 3)


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        (RequestHeader, 1, b"\x00\x12\x00\x00" + bytes(4) + b"\x00\x05abc"),
        (ApiVersionsRequest, 3, b"\x05abc"),
        (SaslAuthenticateRequest, 0, b"\x7f\xff\xff\xffabc"),
        (SaslAuthenticateRequest, 2, b"\xff\xff\xff\xff\x0fabc"),
        (
            ProduceRequest,
            3,
            b"\xff\xff" + bytes(6) + ONE + b"\0\0" + ONE + bytes(4) + b"\x7f\xff\xff\xff",
        ),
        (ProduceRequest, 9, bytes(7) + b"\x02\x01\x02" + bytes(4) + b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_a_length_beyond_the_bytes_left_is_refused(
    cls: type[Message], version: int, data: bytes
) -> None:
    assert "bytes missing" in refusal(cls, data, version)


@pytest.mark.parametrize(
    ("cls", "version", "data", "field"),
    [
        (DeleteTopicsRequest, 1, b"\xff\xff\xff\xff" + bytes(4), "topic_names"),
        (DeleteTopicsRequest, 1, b"\x00\x00\x00\x01\xff\xff" + bytes(4), "topic_names"),
        (DeleteTopicsRequest, 4, b"\x00" + bytes(5), "topic_names"),
        (DeleteTopicsRequest, 4, b"\x02\x00" + bytes(5), "topic_names"),
        (MetadataRequest, 0, b"\xff\xff\xff\xff", "topics"),
        (MetadataRequest, 9, b"\x02\x00\x00" + bytes(4), "name"),
        (ApiVersionsRequest, 3, b"\x00\x01\x00", "client_software_name"),
        (SaslAuthenticateRequest, 0, b"\xff\xff\xff\xff", "auth_bytes"),
        (SaslAuthenticateRequest, 2, b"\x00\x00", "auth_bytes"),
    ],
)
def test_null_is_refused_where_it_may_not_be(
    cls: type[Message], version: int, data: bytes, field: str
) -> None:
    assert refusal(cls, data, version) == f"{field} is null and must not be"


@pytest.mark.parametrize("length", [b"\xff\xfe", b"\x80\x00"], ids=["-2", "-32768"])
def test_any_negative_string_length_means_null(length: bytes) -> None:
    """As in Kafka, which only asks whether it is below zero."""
    header = b"\x00\x12\x00\x00" + bytes(4) + length
    assert RequestHeader.decode(header, 1).client_id is None
    topic_names = b"\x00\x00\x00\x01" + length + bytes(4)
    assert "null" in refusal(DeleteTopicsRequest, topic_names, 1)


@pytest.mark.parametrize("count", [b"\xff\xff\xff\xfe", b"\x80\x00\x00\x00"], ids=["-2", "-2^31"])
def test_negative_array_counts_never_become_sizes(count: bytes) -> None:
    assert MetadataRequest.decode(count, 1).topics is None
    assert "null" in refusal(MetadataRequest, count, 0)


@pytest.mark.parametrize(
    "text", [b"\xff", b"\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"], ids=bytes.hex
)
def test_a_string_that_is_not_utf_8_is_refused(text: bytes) -> None:
    compact = bytes([len(text) + 1]) + text + b"\x01\x00"
    assert "ApiVersionsRequest v3" in refusal(ApiVersionsRequest, compact, 3)
    legacy = b"\x00\x12\x00\x00" + bytes(4) + len(text).to_bytes(2, "big") + text
    assert "RequestHeader v1" in refusal(RequestHeader, legacy, 1)


def test_a_string_may_have_32767_bytes_and_no_more() -> None:
    longest = ApiVersionsRequest(client_software_name="n" * 32767).to_bytes(3)
    assert len(ApiVersionsRequest.decode(longest, 3).client_software_name) == 32767
    longer = ApiVersionsRequest(client_software_name="n" * 32768).to_bytes(3)
    assert "limit is 32767" in refusal(ApiVersionsRequest, longer, 3)


@pytest.mark.parametrize(("character", "kept"), [("k", 32767), ("€", 10922)])
def test_an_error_message_that_is_too_long_is_cut(character: str, kept: int) -> None:
    """It quotes what the client sent, which may be as long as a string can be."""
    response = DescribeUserScramCredentialsResponse(error_message=character * 40_000)
    decoded = DescribeUserScramCredentialsResponse.decode(response.to_bytes(0), 0)
    assert decoded.error_message == character * kept


def test_strings_inside_arrays_have_the_same_limit() -> None:
    longer = DeleteTopicsRequest(topic_names=["n" * 32768]).to_bytes(4)
    assert "limit is 32767" in refusal(DeleteTopicsRequest, longer, 4)


@pytest.mark.parametrize(
    ("size", "problem"), [(3, "bytes left over"), (9, "bytes left over"), (60, "bytes missing")]
)
def test_a_tagged_field_must_fill_its_size_exactly(size: int, problem: str) -> None:
    epoch = b"\x01\x01" + bytes([size]) + bytes(20)  # one tag: finalized_features_epoch, an int64
    assert problem in refusal(ApiVersionsResponse, b"\x00\x00\x01\x00\x00\x00\x00" + epoch, 3)


def test_a_start_behind_the_end_is_refused() -> None:
    with pytest.raises(CorruptionError):
        ApiVersionsRequest.decode_from(b"\x01\x01\x00", 9, 3)
