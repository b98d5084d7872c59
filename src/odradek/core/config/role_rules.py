"""Which configs go with which ``process.roles``: the quorum and the listeners; Kafka's rules.

============================  ==================  =========================  ====================
config                        broker              controller                 broker,controller
============================  ==================  =========================  ====================
voters or bootstrap servers   needed              needed                     alone: not needed
node.id in voters             never               if there are voters        if there are voters
controller.listener.names     needed, and not     needed, and all of         as a controller;
                              in listeners        listeners                  alone: not needed
advertised.listeners          clients' listeners  controllers' listeners     both
============================  ==================  =========================  ====================

One rule is looser than Kafka's: a node that is broker and controller at once and names no other
controllers is a quorum of one, and needs neither a listener for its controller nor its own address.
"""

from collections.abc import Iterator

from odradek.core.config.broker_config import BrokerConfig
from odradek.core.config.quorum_addresses import ANY_ADDRESS, BOOTSTRAP_SERVERS, VOTERS

Rule = Iterator[tuple[str, bool, str]]
"""The config to change, whether the rule is kept, and what to say if not."""

_AUTO_JOIN = "controller.quorum.auto.join.enable"
_CONTROLLERS = "controller.listener.names"
_INTER_BROKER = "inter.broker.listener.name"
_MAP = "listener.security.protocol.map"


def role_rules(config: BrokerConfig) -> Rule:
    yield "process.roles", bool(config.process_roles), "process.roles must not be empty."
    broker_id = config.integer("broker.id")
    yield (
        "broker.id",
        broker_id in (-1, config.node_id),
        f"node.id ({config.node_id}) and broker.id ({broker_id}) must be the same; "
        "broker.id is deprecated, use node.id.",
    )


def quorum_rules(config: BrokerConfig) -> Rule:
    voters = config.quorum_voters
    if not (config.is_broker and config.is_controller):
        yield (
            "process.roles",
            bool(voters or config.quorum_bootstrap_servers),
            f"{BOOTSTRAP_SERVERS} (or {VOTERS}) must name the controllers, unless "
            "process.roles is broker,controller.",
        )
    nowhere = [node_id for node_id, address in voters.items() if address.host in ("", ANY_ADDRESS)]
    yield (
        VOTERS,
        not nowhere,
        f"{VOTERS} has no address for the voter {nowhere and nowhere[0]} that other nodes can "
        "connect to.",
    )
    if config.is_controller:
        yield (
            VOTERS,
            not voters or config.node_id in voters,
            f"{VOTERS} must contain node.id {config.node_id} of this controller; "
            f"it has {', '.join(map(str, voters))}.",
        )
    else:
        yield (
            VOTERS,
            config.node_id not in voters,
            f"{VOTERS} must not contain node.id {config.node_id}: this node is only a broker.",
        )
        yield (
            _AUTO_JOIN,
            not config.flag(_AUTO_JOIN),
            f"{_AUTO_JOIN} is only for nodes with the role controller.",
        )


def listener_rules(config: BrokerConfig) -> Rule:
    names = [listener.name for listener in config.listeners]
    controllers = config.controller_listener_names
    for name in (*names, *controllers):
        yield (
            _MAP,
            name in config.security_protocols,
            f"{_MAP} has no protocol for the listener {name}.",
        )
    if config.is_controller:
        yield from _controller_listeners(config, names)
    else:
        yield (
            _CONTROLLERS,
            bool(controllers) and not set(controllers).intersection(names),
            f"{_CONTROLLERS} must name the controllers' listener, which a node that is "
            "only a broker must not have in listeners.",
        )
    if config.is_broker:
        yield from _broker_listeners(config, names)
    else:
        yield from _only_controller_listeners(config, names)
    everywhere = [*config.advertised_listeners, *config.advertised_controller_listeners]
    yield (
        _advertised_by(config),
        all(listener.host != ANY_ADDRESS for listener in everywhere),
        "advertised.listeners cannot use 0.0.0.0, to which no node can connect: "
        "set it to an address that clients and other nodes reach.",
    )


def _controller_listeners(config: BrokerConfig, names: list[str]) -> Rule:
    controllers = config.controller_listener_names
    missing = [name for name in controllers if name not in names]
    yield (
        _CONTROLLERS,
        not missing,
        f"{_CONTROLLERS} has {', '.join(missing)}, which listeners does not.",
    )
    yield (
        _CONTROLLERS,
        bool(controllers) or config.is_alone,
        f"{_CONTROLLERS} must name the listener of this controller: {VOTERS} or "
        f"{BOOTSTRAP_SERVERS} names controllers, which reach each other through it.",
    )


def _only_controller_listeners(config: BrokerConfig, names: list[str]) -> Rule:
    controllers = config.controller_listener_names
    yield (
        "listeners",
        set(names) <= set(controllers),
        f"listeners must only have names from {_CONTROLLERS}, because process.roles is controller.",
    )
    if config.text(_INTER_BROKER) is not None:
        name = config.inter_broker_listener_name
        yield (
            _INTER_BROKER,
            name not in controllers and name in config.security_protocols,
            f"{_INTER_BROKER} is {name}: it is the brokers' listener, must not be one of "
            f"{_CONTROLLERS}, and needs a protocol in {_MAP}.",
        )


def _broker_listeners(config: BrokerConfig, names: list[str]) -> Rule:
    advertised = [listener.name for listener in config.advertised_listeners]
    yield (
        _advertised_by(config),
        bool(advertised),
        f"There must be a listener for clients: all are in {_CONTROLLERS}.",
    )
    yield (
        _INTER_BROKER,
        config.inter_broker_listener_name in advertised,
        f"{_INTER_BROKER} is {config.inter_broker_listener_name}, but must be one of "
        f"the advertised listeners: {', '.join(advertised)}.",
    )
    yield (
        "advertised.listeners",
        set(advertised) <= set(names),
        f"advertised.listeners must only have names from listeners: {', '.join(names)}.",
    )


def _advertised_by(config: BrokerConfig) -> str:
    name = "advertised.listeners"
    return name if config.elements(name) else "listeners"
