"""What a broker tells the controller about itself when it starts."""

from typing import TYPE_CHECKING

from odradek.broker.listeners import registered_listeners
from odradek.core.ids import Uuid
from odradek.metadata.features import SUPPORTED_FEATURES
from odradek.protocol.generated.broker_registration import BrokerRegistrationRequest, Feature

if TYPE_CHECKING:
    from odradek.broker.node import Node

_NO_EPOCH = -1


def registration_request(node: "Node") -> BrokerRegistrationRequest:
    """Return the request of a node that listens and has opened its logs; each is a new life."""
    previous_epoch = node.store.previous_broker_epoch
    return BrokerRegistrationRequest(
        broker_id=node.node_id,
        cluster_id=node.cluster_id,
        incarnation_id=Uuid.random(node.random),
        listeners=registered_listeners(node.config, node.server.endpoints),
        features=[
            Feature(
                name=name, min_supported_version=versions.min, max_supported_version=versions.max
            )
            for name, versions in SUPPORTED_FEATURES.items()
        ],
        rack=node.config.broker_rack,
        log_dirs=[each.directory_id for each in node.store.directories if each.directory_id],
        previous_broker_epoch=_NO_EPOCH if previous_epoch is None else previous_epoch,
    )
