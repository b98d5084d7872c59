"""What was configured while the brokers ran, on top of what this one started with.

The metadata log holds it in two resources: the broker resource without a name, for all brokers, and
the one with this broker's id, which is stronger. Both were validated when they were written, but by
the software and next to the ``server.properties`` of that day. A broker must not fail to start
because of them, so what does not fit any more is left out and named.
"""

from odradek.core.config import BrokerConfig, BrokerLevels, ConfigError, reconfigure
from odradek.metadata.config_resource import CLUSTER_DEFAULTS, ConfigResource
from odradek.metadata.image import ClusterImage


def broker_levels(config: BrokerConfig, image: ClusterImage) -> BrokerLevels:
    """Return the levels of a broker's configs as the image has them now."""
    return BrokerLevels(
        config.levels.static,
        image.config_of(CLUSTER_DEFAULTS),
        image.config_of(ConfigResource.broker(config.node_id)),
    )


def is_for_broker(resource: ConfigResource, node_id: int) -> bool:
    """Whether a change of ``resource`` may change the config of this broker."""
    return resource in (CLUSTER_DEFAULTS, ConfigResource.broker(node_id))


def with_dynamic_configs(
    config: BrokerConfig, image: ClusterImage
) -> tuple[BrokerConfig, tuple[str, ...]]:
    """Return the config that counts, and the names of what could not be used."""
    levels = broker_levels(config, image)
    everywhere, here = dict(levels.dynamic_default), dict(levels.dynamic_broker)
    refused: list[str] = []
    while True:
        try:
            return reconfigure(config, everywhere, here), tuple(refused)
        except ConfigError as error:
            # A rule about two configs may name the one in the file: then all others go.
            culprits = {error.name} & {*everywhere, *here} or {*everywhere, *here}
            if not culprits:
                raise  # the file alone: it was fine when this broker started
            refused += sorted(culprits)
            for name in culprits:
                everywhere.pop(name, None)
                here.pop(name, None)
