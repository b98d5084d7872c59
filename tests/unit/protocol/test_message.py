"""What all messages share: equality, printing without secrets, defaults of their own."""

from odradek.protocol.generated.fetch import FetchRequest, PartitionData
from odradek.protocol.generated.metadata import MetadataRequest
from odradek.protocol.generated.sasl_authenticate import SaslAuthenticateRequest


def test_equality_is_by_class_and_fields() -> None:
    assert FetchRequest(max_wait_ms=1) == FetchRequest(max_wait_ms=1)
    assert FetchRequest(max_wait_ms=1) != FetchRequest(max_wait_ms=2)
    assert FetchRequest() != MetadataRequest()
    assert FetchRequest(unknown_tags=((1, b""),)) != FetchRequest()


def test_bytes_are_never_printed() -> None:
    shown = repr(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"))
    assert shown == "SaslAuthenticateRequest(auth_bytes=<13 bytes>)"


def test_default_lists_are_not_shared() -> None:
    FetchRequest().topics.append(None)  # type: ignore[arg-type]
    assert FetchRequest().topics == []


def test_none_and_empty_are_different_where_an_array_may_be_null() -> None:
    assert MetadataRequest().topics == []
    assert MetadataRequest(topics=None).topics is None
    assert PartitionData().aborted_transactions == []
