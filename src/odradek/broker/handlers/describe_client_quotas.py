"""DescribeClientQuotas (key 48), versions 0-1: quotas of users, client ids and addresses.

v1  flexible.  A filter names types of entities, each with an exact name, its default, or any;
``strict`` wants no other type beside them.

Kafka's ``kafka-configs`` asks for them before it shows the SCRAM credentials of users. What is
reported is what a Kafka wrote into the metadata.

Not implemented: quotas themselves: nothing is throttled, and none can be set here.
"""

from collections.abc import Mapping
from typing import Final

from odradek.broker.context import Answer, RequestContext
from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.generated.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2
_TYPES: Final = ("ip", "user", "client-id")
_ANY: Final = object()

Filter = Mapping[str, object]
"""What the name of each type must be: a string, None for its default, or ``_ANY``."""


def handle(context: RequestContext, request: DescribeClientQuotasRequest) -> Answer:
    try:
        wanted = _filter(request.components)
    except ApiError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )
    entries: dict[tuple[tuple[str, str | None], ...], EntryData] = {}
    for key, record in context.broker.image.client_quotas.items():
        if not _matches(dict(key.entity), wanted, strict=request.strict):
            continue
        entry = entries.get(key.entity)
        if entry is None:
            entity = [EntityData(entity_type=kind, entity_name=name) for kind, name in key.entity]
            entry = entries[key.entity] = EntryData(entity=entity)
        entry.values.append(ValueData(key=key.key, value=record.value))
    return DescribeClientQuotasResponse(error_message="", entries=list(entries.values()))


def _filter(components: list[ComponentData]) -> Filter:
    wanted: dict[str, object] = {}
    for each in components:
        if not each.entity_type:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if each.entity_type in wanted:
            problem = "cannot appear more than once in the filter."
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Entity type {each.entity_type} {problem}")
        if each.entity_type not in _TYPES:
            problem = f"Unsupported entity type {each.entity_type}"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, problem)
        wanted[each.entity_type] = _match(each)
    if "ip" in wanted and len(wanted) > 1:
        problem = (
            "Invalid entity filter component combination. IP filter component should not be used"
            " with user or clientId filter component."
        )
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)
    return wanted


def _match(component: ComponentData) -> object:
    if component.match_type == EXACT:
        if component.match is None:
            problem = "Request specified MATCH_TYPE_EXACT, but set match string to null."
            raise ApiError(ErrorCode.INVALID_REQUEST, problem)
        return component.match
    if component.match_type not in (DEFAULT, SPECIFIED):
        problem = f"Unknown match type {component.match_type}"
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)
    if component.match is not None:
        name = "DEFAULT" if component.match_type == DEFAULT else "SPECIFIED"
        problem = f"Request specified MATCH_TYPE_{name}, but also specified a match string."
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)
    return None if component.match_type == DEFAULT else _ANY


def _matches(entity: Mapping[str, str | None], wanted: Filter, *, strict: bool) -> bool:
    if strict and len(entity) != len(wanted):
        return False
    return all(
        kind in entity and (name is _ANY or entity[kind] == name) for kind, name in wanted.items()
    )
