"""The API table is Kafka 4.4's, and loading it does not load the codecs."""

import re
import subprocess
import sys

import pytest

from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.protocol.apis import ALL_APIS, api_for_key, api_named, message_class


def test_there_are_91_live_apis_with_unique_keys_and_names() -> None:
    assert len(ALL_APIS) == 91
    assert len({api.key for api in ALL_APIS}) == 91
    assert len({api.name for api in ALL_APIS}) == 91


def test_request_and_response_of_every_api_know_the_same_versions() -> None:
    for api in ALL_APIS:
        request, response = api.request(), api.response()
        assert request.ID == response.ID == api.key
        assert (request.VERSION_MIN, request.VERSION_MAX) == (api.version_min, api.version_max)
        assert (response.VERSION_MIN, response.VERSION_MAX) == (api.version_min, api.version_max)
        assert set(request.DECODERS) == set(response.DECODERS) == set(request.ENCODERS)
        assert request.FLEXIBLE_FROM == api.flexible_from


def test_dropped_api_keys_are_refused() -> None:
    for key in (4, 5, 6, 7, -1, 95, 32767):
        with pytest.raises(CorruptionError, match="unknown API key"):
            api_for_key(key)


def test_versions_outside_the_known_ones_are_refused() -> None:
    fetch = api_named("Fetch")
    fetch.check_known(0)  # dropped by Kafka 4, still readable
    for version in (-1, 19):
        with pytest.raises(ApiError, match="Fetch version") as refused:
            fetch.check_known(version)
        assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_unstable_versions_are_known_but_not_the_stable_maximum() -> None:
    api = api_named("InitProducerId")
    assert (api.version_stable_max, api.version_max) == (5, 6)


def test_api_versions_responses_never_have_header_tags() -> None:
    assert api_named("ApiVersions").response_header_version(4) == 0
    assert api_named("Metadata").response_header_version(9) == 1
    assert api_named("Metadata").response_header_version(8) == 0


def test_message_class_finds_internal_records_too() -> None:
    assert message_class("GroupMetadataValue").ID == 2
    assert message_class("EndTxnMarker").VERSION_MAX == 0


def test_importing_the_table_imports_no_codec() -> None:
    script = (
        "import sys, odradek.protocol.framing;"
        "print([m for m in sys.modules if m.startswith('odradek.protocol.generated.')])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "[]"


def test_module_prints_one_line_per_api() -> None:
    run = [sys.executable, "-m", "odradek.protocol"]
    lines = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == 91
    assert lines[0] == "0 Produce 3-13"
    assert all(re.fullmatch(r"\d+ [A-Z]\w+ \d+-\d+", line) for line in lines)
