"""ApiVersions (key 18), versions 0-5: which APIs and versions this node speaks.

v3  flexible; client software name and version in the request; finalized features (tagged).
v4  features with minimum version 0.  v5  cluster id and node id of the node the client means.

What is forwarded to the controller is advertised in the versions that the active controller speaks
as well, if it is another node's and has been asked something.

A version from the future is answered in version 0 with UNSUPPORTED_VERSION and the versions of
this API, so that the client can ask again (KIP-511).
"""

import re

from odradek.broker.context import Answer, RequestContext
from odradek.broker.dispatch import SPOKEN, newest_version
from odradek.core.errors import ErrorCode
from odradek.metadata.config_resource import ResourceType
from odradek.metadata.features import ANNOUNCED_FEATURES, KRAFT_VERSION
from odradek.protocol.apis import API_VERSIONS_KEY, Api, api_for_key
from odradek.protocol.forwarded import FORWARDED
from odradek.protocol.generated.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_TELEMETRY = ("GetTelemetrySubscriptions", "PushTelemetry")

# Names go into logs and metrics, so they may hold nothing that could forge a line there.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: RequestContext, request: ApiVersionsRequest | None) -> Answer:
    if request is None:
        keys = [_advertised(context, api) for api in SPOKEN if api.key == API_VERSIONS_KEY]
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=keys)
    if context.version >= 3 and not _is_sane(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if context.version >= 3:
        context.connection.client_software_name = request.client_software_name
        context.connection.client_software_version = request.client_software_version
    # Clients ask for subscriptions when they see these, and tell their users so: only where it is
    # of use, then.
    hidden = () if _wants_telemetry(context) else _TELEMETRY
    advertised = [_advertised(context, api) for api in SPOKEN if api.name not in hidden]
    return ApiVersionsResponse(
        api_keys=_with_controller(context, advertised),
        supported_features=_supported(context.version),
        finalized_features_epoch=context.broker.metadata_offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(_finalized(context).items())
        ],
    )


def _with_controller(context: RequestContext, advertised: list[ApiVersion]) -> list[ApiVersion]:
    """Return what both this broker and the active controller speak, of what is forwarded."""
    versions = context.broker.controller.versions
    if versions is None:
        return advertised
    both = []
    for each in advertised:
        if api_for_key(each.api_key).name in FORWARDED:
            theirs = versions.range_of(each.api_key)
            if theirs is None or theirs[0] > each.max_version or theirs[1] < each.min_version:
                continue
            each.min_version = max(each.min_version, theirs[0])
            each.max_version = min(each.max_version, theirs[1])
        both.append(each)
    return both


def _finalized(context: RequestContext) -> dict[str, int]:
    levels = dict(context.broker.image.features)
    if context.broker.metadata.kraft_version > 0:
        levels[KRAFT_VERSION] = context.broker.metadata.kraft_version
    return levels


def _wants_telemetry(context: RequestContext) -> bool:
    configs = context.broker.image.configs
    return any(resource.type is ResourceType.CLIENT_METRICS for resource in configs)


def _supported(version: int) -> list[SupportedFeatureKey]:
    # Clients of before v4 take a least version of 0 for nonsense and give up (KIP-1022).
    return [
        SupportedFeatureKey(name=name, min_version=levels.min, max_version=levels.max)
        for name, levels in sorted(ANNOUNCED_FEATURES.items())
        if levels.min > 0 or version >= 4
    ]


def _is_sane(request: ApiVersionsRequest) -> bool:
    names = (request.client_software_name, request.client_software_version)
    return all(_SOFTWARE.fullmatch(name) for name in names)


def _advertised(context: RequestContext, api: Api) -> ApiVersion:
    # KAFKA-18659: librdkafka compresses only if it is told that old Produce versions exist.
    first = 0 if api.name == "Produce" else api.version_min
    newest = newest_version(api, context.broker.config)
    return ApiVersion(api_key=api.key, min_version=first, max_version=newest)
