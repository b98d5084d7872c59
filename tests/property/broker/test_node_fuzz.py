"""A node answers every request that its protocol allows; 50,000 of them are in ``make fuzz``."""

import pytest

from fuzz.node_session import NodeSession
from odradek.broker.context import Answer, RequestContext
from odradek.broker.dispatch import SPOKEN
from odradek.broker.handlers import list_groups
from odradek.protocol.generated.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

REQUESTS = 6_000


@pytest.mark.slow
def test_requests_of_every_api_are_answered_and_nothing_breaks() -> None:
    report = NodeSession(seed=1).run(REQUESTS)
    assert not report.failed, f"{report} {report.findings}"
    assert report.asked.keys() == {api.name for api in SPOKEN}
    assert report.answered + report.unanswered_by_wish + report.parked >= REQUESTS


def test_a_handler_that_raises_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(context: RequestContext, request: ListGroupsRequest) -> Answer:
        raise KeyError("planted")

    monkeypatch.setattr(list_groups, "handle", handle)
    report = NodeSession(seed=1).run(200)
    assert report.failed
    kinds = sorted(report.findings)
    assert any(kind.startswith("KeyError at test_node_fuzz.py") for kind in kinds), kinds
    assert any(kind.startswith("ConnectionError at ListGroups") for kind in kinds), kinds


def test_a_response_that_does_not_decode_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(context: RequestContext, request: ListGroupsRequest) -> Answer:
        return ListGroupsResponse(groups=[ListedGroup(group_id="g" * 40_000)])

    monkeypatch.setattr(list_groups, "handle", handle)
    report = NodeSession(seed=1).run(200)
    assert any("ListGroups" in kind for kind in report.findings), report.findings
