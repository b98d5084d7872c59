"""ApiVersions (key 18), versions 0-5: which APIs and versions a controller listener serves.

v3  flexible; client software name and version in the request; finalized features (tagged).
v4  features with minimum version 0.  v5  cluster id and node id of the node the client means.

A version from the future is answered in version 0 with UNSUPPORTED_VERSION and the versions of
this API, so that the client can ask again (KIP-511).
"""

import re
from typing import Final

from odradek.control.context import Control, ControlContext
from odradek.control.served_apis import SERVED
from odradek.core.errors import ErrorCode
from odradek.metadata.features import KRAFT_VERSION, KRAFT_VERSIONS, SUPPORTED_FEATURES
from odradek.protocol.apis import Api
from odradek.protocol.generated.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

# Names go into logs and metrics, so they may hold nothing that could forge a line there.
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: ControlContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    version = context.caller.version
    if version >= 3 and not _is_sane(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    control = context.control
    return ApiVersionsResponse(
        api_keys=[_advertised(api) for api in SERVED],
        supported_features=_supported(version),
        finalized_features_epoch=control.image.provenance.last_offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(_finalized(control).items())
        ],
    )


def unsupported_version(api: Api) -> ApiVersionsResponse:
    """Answer a version from the future, in version 0."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_advertised(api)]
    )


def _finalized(control: Control) -> dict[str, int]:
    levels = dict(control.image.features)
    if control.quorum.kraft_version > 0:
        levels[KRAFT_VERSION] = control.quorum.kraft_version
    return levels


def _supported(version: int) -> list[SupportedFeatureKey]:
    # Clients of before v4 take a least version of 0 for nonsense and give up (KIP-1022).
    return [
        SupportedFeatureKey(name=name, min_version=levels.min, max_version=levels.max)
        for name, levels in sorted({**SUPPORTED_FEATURES, KRAFT_VERSION: KRAFT_VERSIONS}.items())
        if levels.min > 0 or version >= 4
    ]


def _is_sane(request: ApiVersionsRequest) -> bool:
    names = (request.client_software_name, request.client_software_version)
    return all(_SOFTWARE.fullmatch(name) for name in names)


def _advertised(api: Api) -> ApiVersion:
    return ApiVersion(
        api_key=api.key, min_version=api.version_min, max_version=api.version_stable_max
    )
