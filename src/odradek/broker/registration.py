"""What a broker tells the controller about itself when it starts."""

from typing import TYPE_CHECKING

from odradek.broker.listeners import registered_listeners
from odradek.core.ids import Uuid
from odradek.metadata.features import ANNOUNCED_FEATURES
from odradek.protocol.generated.broker_registration import BrokerRegistrationRequest, Feature

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer

_NO_EPOCH = -1


def registration_request(broker: "BrokerServer", incarnation_id: Uuid) -> BrokerRegistrationRequest:
    """Return the request of a node that listens and has locked its directories."""
    previous_epoch = broker.store.previous_broker_epoch
    return BrokerRegistrationRequest(
        broker_id=broker.node_id,
        cluster_id=broker.cluster_id,
        incarnation_id=incarnation_id,
        listeners=registered_listeners(broker.config, broker.server.endpoints),
        features=[
            Feature(
                name=name, min_supported_version=versions.min, max_supported_version=versions.max
            )
            for name, versions in ANNOUNCED_FEATURES.items()
        ],
        rack=broker.config.broker_rack,
        log_dirs=[each.directory_id for each in broker.store.directories if each.directory_id],
        previous_broker_epoch=_NO_EPOCH if previous_epoch is None else previous_epoch,
    )
