"""AlterConfigs and IncrementalAlterConfigs: for each resource all changes or none.

What is refused is refused in Kafka's words. Not here: loggers (resource type 8), whose levels are
no part of the cluster's state and which cannot be altered yet.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Protocol, TypeVar

from odradek.controller.config_rules import CORDONED_LOG_DIRS
from odradek.controller.leaders import elect_unclean_leaders
from odradek.controller.result import Result, Steps
from odradek.controller.view import (
    MIN_INSYNC_REPLICAS,
    UNCLEAN_LEADER_ELECTION,
    ClusterView,
)
from odradek.core.errors import ApiError, ErrorCode
from odradek.metadata import ConfigResource, ResourceType, VersionedRecord
from odradek.metadata.features import CORDONED_LOG_DIRS_FROM
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
_Response = TypeVar(
    "_Response", replacing.AlterConfigsResponse, incremental.IncrementalAlterConfigsResponse
)
Changes = Mapping[str, str | None]
"""New values by name; None deletes."""


def alter_configs(
    view: ClusterView, request: replacing.AlterConfigsRequest
) -> Steps[replacing.AlterConfigsResponse]:
    """Plan AlterConfigs: what is not named is deleted."""
    response = replacing.AlterConfigsResponse()
    records: list[VersionedRecord] = []
    for resource, error in _each(view, request.resources, _replacement, records):
        yield
        response.responses.append(
            replacing.AlterConfigsResourceResponse(
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return (yield from _planned(view, records, response, validate_only=request.validate_only))


def incremental_alter_configs(
    view: ClusterView, request: incremental.IncrementalAlterConfigsRequest
) -> Steps[incremental.IncrementalAlterConfigsResponse]:
    response = incremental.IncrementalAlterConfigsResponse()
    records: list[VersionedRecord] = []
    for resource, error in _each(view, request.resources, _increments, records):
        yield
        response.responses.append(
            incremental.AlterConfigsResourceResponse(
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return (yield from _planned(view, records, response, validate_only=request.validate_only))


def _planned(
    view: ClusterView, records: list[VersionedRecord], response: _Response, *, validate_only: bool
) -> Steps[_Response]:
    """Add the leaders that a change of unclean.leader.election.enable brings.

    At once, for partitions that are without one: an administrator who switches it on waits for
    them. Kafka elects them with its next check, within five minutes by default.
    """
    if validate_only:
        return Result((), response)
    if any(_name(each) == UNCLEAN_LEADER_ELECTION for each in records):
        image = view.image.advance([each.message for each in records]).image
        space = view.settings.records_per_request_max - len(records)
        elected = yield from elect_unclean_leaders(view._replace(image=image), space)
        records += elected.records
    return Result(tuple(records), response)


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
                problem = "Each resource must appear at most once."
                raise ApiError(ErrorCode.INVALID_REQUEST, problem)
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
    _refuse_nulls(config.name for config in request.configs if config.value is None)
    gone: dict[str, str | None] = dict.fromkeys(view.image.config_of(resource))
    return gone | {config.name: config.value for config in request.configs}


def _increments(
    view: ClusterView, resource: ConfigResource, request: incremental.AlterConfigsResource
) -> Changes:
    _check_names(config.name for config in request.configs)
    _refuse_nulls(
        config.name
        for config in request.configs
        if config.value is None and config.config_operation != ConfigOperation.DELETE
    )
    return {config.name: _incremented(view, resource, config) for config in request.configs}


def _incremented(
    view: ClusterView, resource: ConfigResource, config: incremental.AlterableConfig
) -> str | None:
    try:
        operation = ConfigOperation(config.config_operation)
    except ValueError:
        problem = f"Unknown operations type {config.config_operation}"
        raise ApiError(ErrorCode.INVALID_REQUEST, problem) from None
    if operation is ConfigOperation.DELETE or config.value is None:
        return None
    if operation is ConfigOperation.SET:
        return config.value
    is_list = view.rules.is_list(resource, config.name)
    if not is_list:
        raise _no_list(resource, config.name, operation, is_known=is_list is not None)
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


def _no_list(
    resource: ConfigResource, name: str, operation: ConfigOperation, *, is_known: bool
) -> ApiError:
    if resource.type is not ResourceType.BROKER:
        problem = f"Can't {operation.name} to key {name} because its type is not LIST."
    elif is_known:
        problem = f"Config value {operation.name.lower()} is not allowed for config key: {name}"
    else:
        problem = f"Unknown config name: {name}"
    return ApiError(ErrorCode.INVALID_CONFIG, problem)


def _check_names(names: Iterable[str]) -> None:
    if any(count > 1 for count in Counter(names).values()):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


def _refuse_nulls(names: Iterable[str]) -> None:
    listed = ", ".join(names)
    if listed:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {listed}")


def _check_type(resource: ConfigResource, number: int) -> None:
    # Loggers are no part of the cluster's state: whoever owns them answers for them.
    if resource.type in (ResourceType.UNKNOWN, ResourceType.BROKER_LOGGER):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {number}")


def _check_change(
    view: ClusterView, resource: ConfigResource, name: str, value: str | None
) -> None:
    if value is not None and len(value) > view.settings.config_value_chars_max:
        limit = view.settings.config_value_chars_max
        problem = "The configuration value cannot be added because it exceeds the maximum value"
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{problem} size of {limit} bytes.")
    if name == CORDONED_LOG_DIRS and view.metadata_version < CORDONED_LOG_DIRS_FROM:
        problem = f"The {name} configuration value cannot be set because it requires"
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{problem} metadata.version >= 4.3-IV0")
    if name != MIN_INSYNC_REPLICAS or not view.image.elr_enabled:
        return
    # With ELR every broker and the controller must mean the same minimum.
    if resource.type == ResourceType.BROKER and resource.name:
        problem = f"Broker-level {name} cannot be altered while ELR is enabled."
        raise ApiError(ErrorCode.INVALID_CONFIG, problem)
    if resource.type == ResourceType.BROKER and value is None:
        problem = f"Cluster-level {name} cannot be removed while ELR is enabled."
        raise ApiError(ErrorCode.INVALID_CONFIG, problem)


def _check_exists(view: ClusterView, resource: ConfigResource) -> None:
    if resource.type == ResourceType.TOPIC and resource.name not in view.image.topics:
        problem = f"The topic '{resource.name}' does not exist."
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, problem)
    if resource.type == ResourceType.BROKER and resource.name:
        if not resource.name.isascii() or not resource.name.isdecimal():
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid broker name {resource.name}")
        node = int(resource.name)
        nodes = {*view.image.brokers, *view.image.controllers, view.settings.node_id}
        if node not in nodes:
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {node} found.")


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
