"""ControllerRegistration (key 70), version 0: a controller starts (KIP-919).

Where it listens and which features it supports goes into the metadata log.
"""

from odradek.control.context import ControlContext
from odradek.controller import Controller
from odradek.controller.result import Result
from odradek.metadata.features import VersionRange
from odradek.metadata.nodes import ControllerImage, Endpoint
from odradek.protocol.generated.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)


def handle(context: ControlContext, request: ControllerRegistrationRequest) -> None:
    def plan(controller: Controller) -> Result[ControllerRegistrationResponse]:
        records = controller.register_controller(_image(request)).records
        return Result(records, ControllerRegistrationResponse(error_message=None))

    context.change(plan)


def _image(request: ControllerRegistrationRequest) -> ControllerImage:
    return ControllerImage(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        endpoints={
            each.name: Endpoint(each.name, each.host, each.port, each.security_protocol)
            for each in request.listeners
        },
        features={
            each.name: VersionRange(each.min_supported_version, each.max_supported_version)
            for each in request.features
        },
    )
