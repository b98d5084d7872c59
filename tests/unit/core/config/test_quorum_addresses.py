"""Nodes know from their configs where the controllers are."""

import pytest

from odradek.core.config import (
    Address,
    BrokerConfig,
    ConfigError,
    Listener,
    load_broker_config,
    parse_overrides,
)

CONTROLLER = {
    "process.roles": "controller",
    "node.id": "2",
    "listeners": "CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@c1:9093,2@c2:19093,3@[::1]:9093",
}


def load(*overrides: str) -> BrokerConfig:
    return load_broker_config(parse_overrides(overrides), base=CONTROLLER).config


def test_voters_and_bootstrap_servers_become_addresses() -> None:
    config = load("controller.quorum.bootstrap.servers=c1:9093, [fe80::1%eth0]:9")
    assert config.quorum_voters == {
        1: Address("c1", 9093),
        2: Address("c2", 19093),
        3: Address("::1", 9093),
    }
    servers = config.quorum_bootstrap_servers
    assert servers == (Address("c1", 9093), Address("fe80::1%eth0", 9))


def test_a_controller_on_all_interfaces_is_where_the_voters_say() -> None:
    assert load().advertised_controller_listeners == (Listener("CONTROLLER", "c2", 19093),)
    said = load("advertised.listeners=CONTROLLER://elsewhere:1")
    assert said.advertised_controller_listeners == (Listener("CONTROLLER", "elsewhere", 1),)
    own = load("listeners=CONTROLLER://here:9093")
    assert own.advertised_controller_listeners == (Listener("CONTROLLER", "here", 9093),)
    alone = load(
        "controller.quorum.voters=",
        "controller.quorum.bootstrap.servers=c1:1",
        "listeners=CONTROLLER://0.0.0.0:9093",
    )
    assert alone.advertised_controller_listeners == (Listener("CONTROLLER", "", 9093),)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("controller.quorum.voters=2@c2:1,2@c3:1", "has the voter 2 twice"),
        ("controller.quorum.voters=2@0.0.0.0:1", "has no address for the voter 2"),
        ("controller.quorum.voters=2@c2:1,x", "expected id@host:port, not x"),
        ("controller.quorum.voters=2@c2:1,99999999999@x:1", "expected id@host:port, not 9999"),
        ("controller.quorum.voters=1@c1:1,3@c3:1", "must contain node.id 2 of this controller"),
        ("controller.quorum.bootstrap.servers=c:1,d", "expected host:port, not d"),
    ],
)
def test_what_cannot_be_reached_is_refused(override: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        load(override)
