"""AlterConfigs and IncrementalAlterConfigs: for each resource all changes or none."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Protocol, TypeVar

from odradek.controller.result import Result
from odradek.controller.view import MIN_INSYNC_REPLICAS, ClusterView
from odradek.core.errors import ApiError, ErrorCode
from odradek.metadata import ConfigResource, ResourceType, VersionedRecord
from odradek.protocol.generated import alter_configs as replacing
from odradek.protocol.generated import incremental_alter_configs as incremental
from odradek.protocol.generated.metadata_records import ClearElrRecord, ConfigRecord


class ConfigOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class _Resource(Protocol):
    """What the resources of both requests have in common."""

    resource_type: int
    resource_name: str


_R = TypeVar("_R", bound=_Resource)
Changes = Mapping[str, str | None]
"""New values by name; None deletes."""


def alter_configs(
    view: ClusterView, request: replacing.AlterConfigsRequest
) -> Result[replacing.AlterConfigsResponse]:
    """Plan AlterConfigs: what is not named is deleted."""
    response = replacing.AlterConfigsResponse()
    records: list[VersionedRecord] = []
    for resource, error in _each(view, request.resources, _replacement, records):
        response.responses.append(
            replacing.AlterConfigsResourceResponse(
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return Result(() if request.validate_only else tuple(records), response)


def incremental_alter_configs(
    view: ClusterView, request: incremental.IncrementalAlterConfigsRequest
) -> Result[incremental.IncrementalAlterConfigsResponse]:
    response = incremental.IncrementalAlterConfigsResponse()
    records: list[VersionedRecord] = []
    for resource, error in _each(view, request.resources, _increments, records):
        response.responses.append(
            incremental.AlterConfigsResourceResponse(
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return Result(() if request.validate_only else tuple(records), response)


def plan_configs(
    view: ClusterView, resource: ConfigResource, changes: Changes, *, is_new: bool = False
) -> list[VersionedRecord]:
    """Return the records of ``changes``; ``is_new`` if the same batch creates the resource.

    Raises:
        ApiError: INVALID_CONFIG, or what the rules or a missing resource call for.
    """
    existing = view.image.config_of(resource)
    merged = dict(existing)
    for name, value in changes.items():
        _check_change(view, resource, name, value)
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = value
    view.rules.validate(resource, merged, existing)
    if not is_new:
        _check_exists(view, resource)
    # A broker gets the record even if the value is the same: it then loads key files again.
    repeat = resource.type == ResourceType.BROKER
    records = [
        _record(view, resource, name, value)
        for name, value in changes.items()
        if repeat or existing.get(name) != value
    ]
    if view.image.elr_enabled and any(_name(each) == MIN_INSYNC_REPLICAS for each in records):
        # Who is eligible was decided by the old minimum.
        topic_name = resource.name if resource.type == ResourceType.TOPIC else ""
        records.append(view.versioned(ClearElrRecord(topic_name=topic_name)))
    return records


def _each(
    view: ClusterView,
    resources: Iterable[_R],
    changes_of: Callable[[ClusterView, ConfigResource, _R], Changes],
    records: list[VersionedRecord],
) -> Iterable[tuple[_R, ApiError | None]]:
    resources = list(resources)
    seen = Counter((each.resource_type, each.resource_name) for each in resources)
    for each in resources:
        resource = ConfigResource(ResourceType(each.resource_type), each.resource_name)
        try:
            if seen[each.resource_type, each.resource_name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the resource is there more than once")
            _check_type(resource, each.resource_type)
            planned = plan_configs(view, resource, changes_of(view, resource, each))
            if len(records) + len(planned) > view.settings.records_per_request_max:
                raise ApiError(ErrorCode.POLICY_VIOLATION, "too many changes in one request")
            records += planned
            yield each, None
        except ApiError as error:  # one bad resource must not fail its neighbours
            yield each, error


def _replacement(
    view: ClusterView, resource: ConfigResource, request: replacing.AlterConfigsResource
) -> Changes:
    _check_names(config.name for config in request.configs)
    for config in request.configs:
        if config.value is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{config.name} needs a value")
    gone: dict[str, str | None] = dict.fromkeys(view.image.config_of(resource))
    return gone | {config.name: config.value for config in request.configs}


def _increments(
    view: ClusterView, resource: ConfigResource, request: incremental.AlterConfigsResource
) -> Changes:
    _check_names(config.name for config in request.configs)
    return {config.name: _incremented(view, resource, config) for config in request.configs}


def _incremented(
    view: ClusterView, resource: ConfigResource, config: incremental.AlterableConfig
) -> str | None:
    try:
        operation = ConfigOperation(config.config_operation)
    except ValueError:
        problem = f"{config.name}: unknown operation {config.config_operation}"
        raise ApiError(ErrorCode.INVALID_REQUEST, problem) from None
    if operation is ConfigOperation.DELETE:
        return None
    if config.value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{config.name} needs a value")
    if operation is ConfigOperation.SET:
        return config.value
    if not view.rules.is_list(resource, config.name):
        problem = f"{config.name} is not a list: set it instead"
        raise ApiError(ErrorCode.INVALID_CONFIG, problem)
    current = view.image.config_of(resource).get(config.name)
    if current is None:
        current = view.rules.default_value(resource, config.name) or ""
    items = [item for item in current.split(",") if item]
    named = config.value.split(",")
    if operation is ConfigOperation.APPEND:
        items += [item for item in dict.fromkeys(named) if item not in items]
    else:
        items = [item for item in items if item not in named]
    return ",".join(items)


def _check_names(names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"named more than once: {', '.join(twice)}")


def _check_type(resource: ConfigResource, number: int) -> None:
    # Loggers are no part of the cluster's state: whoever owns them answers for them.
    if resource.type in (ResourceType.UNKNOWN, ResourceType.BROKER_LOGGER):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"unknown resource type {number}")


def _check_change(
    view: ClusterView, resource: ConfigResource, name: str, value: str | None
) -> None:
    if value is not None and len(value) > view.settings.config_value_chars_max:
        limit = view.settings.config_value_chars_max
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{name}: at most {limit} characters")
    if name != MIN_INSYNC_REPLICAS or not view.image.elr_enabled:
        return
    # With ELR every broker and the controller must mean the same minimum.
    if resource.type == ResourceType.BROKER and resource.name:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{name} cannot differ by broker while ELR is on")
    if resource.type == ResourceType.BROKER and value is None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{name} cannot be removed while ELR is on")


def _check_exists(view: ClusterView, resource: ConfigResource) -> None:
    if resource.type == ResourceType.TOPIC and resource.name not in view.image.topics:
        problem = f"there is no topic {resource.name!r}"
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, problem)
    if resource.type == ResourceType.BROKER and resource.name:
        if not resource.name.isascii() or not resource.name.isdecimal():
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{resource.name!r} is no broker id")
        node = int(resource.name)
        nodes = {*view.image.brokers, *view.image.controllers, view.settings.node_id}
        if node not in nodes:
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no node {node}")


def _record(
    view: ClusterView, resource: ConfigResource, name: str, value: str | None
) -> VersionedRecord:
    return view.versioned(
        ConfigRecord(
            resource_type=resource.type, resource_name=resource.name, name=name, value=value
        )
    )


def _name(record: VersionedRecord) -> str | None:
    return record.message.name if isinstance(record.message, ConfigRecord) else None
