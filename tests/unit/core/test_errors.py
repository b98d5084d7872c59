"""Error codes are Kafka's numbers, checked against what another library took from Kafka."""

from kio.schema.errors import ErrorCode as KioErrorCode

from odradek.core.errors import ApiError, ErrorCode


def test_codes_and_retriability_agree_with_kio() -> None:
    for theirs in KioErrorCode:
        ours = ErrorCode(theirs.value)
        assert ours.name == theirs.name.upper()
        assert ours.retriable == theirs.retriable, ours.name
    assert len(KioErrorCode) > 130


def test_api_error_shows_code_and_reason() -> None:
    error = ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "a/b")
    assert str(error) == "INVALID_TOPIC_EXCEPTION: a/b"
    assert error.code == 17
