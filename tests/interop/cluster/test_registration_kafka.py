"""What a controller answers to brokers that register and send heartbeats: Kafka's and ours.

Each case is asked of both. The tables say what Kafka 4.3 answers; they are what an Odradek broker
must satisfy to join a Kafka quorum, and what ours must answer to a Kafka broker.
"""

from typing import Any, Final

import pytest

from odradek.core.errors import ErrorCode
from odradek.core.ids import ZERO_UUID, Uuid
from odradek.protocol.generated.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Listener,
)
from odradek.protocol.generated.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from tests.interop.cluster.registrations import (
    FEATURES,
    PLAINTEXT,
    Asked,
    Registered,
    new_id,
    new_uuid,
    registration,
)

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

READ_ALL: Final = 1 << 40
"""An offset of somebody who has read all."""


def register(
    controller: Asked, request: BrokerRegistrationRequest, version: int | None = None
) -> str:
    answer = controller.ask(request, BrokerRegistrationResponse, version)
    assert (answer.broker_epoch >= 0) == (answer.error_code == ErrorCode.NONE)
    return ErrorCode(answer.error_code).name


def reserved(number: int) -> list[Uuid]:
    return [Uuid(number.to_bytes(16, "big"))]


def without(name: str) -> BrokerRegistrationRequest:
    return registration({each: levels for each, levels in FEATURES.items() if each != name})


def claiming(name: str, low: int, high: int) -> BrokerRegistrationRequest:
    return registration({**FEATURES, name: (low, high)})


def test_a_broker_of_ours_is_taken_in(controller: Asked) -> None:
    assert register(controller, registration()) == "NONE"


FEATURE_CASES: Final[dict[str, tuple[BrokerRegistrationRequest, str]]] = {
    **{
        f"{name} not named": (without(name), "UNSUPPORTED_VERSION")
        for name in FEATURES
        if name != "metadata.version"
    },
    **{
        f"{name} only above": (claiming(name, high + 1, high + 1), "UNSUPPORTED_VERSION")
        for name, (_, high) in FEATURES.items()
    },
    **{
        f"{name} only below": (claiming(name, 0, high - 1), "UNSUPPORTED_VERSION")
        for name, (_, high) in FEATURES.items()
    },
    "metadata.version not named": (without("metadata.version"), "INVALID_REGISTRATION"),
    "no feature at all": (registration({}), "INVALID_REGISTRATION"),
    "an unknown one, from 0 on": (claiming("a.version", 0, 1), "NONE"),
    "an unknown one, from 1 on": (claiming("a.version", 1, 1), "UNSUPPORTED_VERSION"),
    "a range backwards": (claiming("metadata.version", 31, 7), "UNSUPPORTED_VERSION"),
    "a range below 0": (claiming("group.version", -3, 5), "NONE"),
}


@pytest.mark.parametrize("case", FEATURE_CASES)
def test_a_broker_must_be_able_to_do_all_that_is_switched_on(controller: Asked, case: str) -> None:
    request, expected = FEATURE_CASES[case]
    assert register(controller, request) == expected


TWICE: Final = new_uuid()
OTHER_CASES: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "another cluster": ({"cluster_id": "another"}, "INCONSISTENT_CLUSTER_ID"),
    "no cluster": ({"cluster_id": ""}, "INCONSISTENT_CLUSTER_ID"),
    "no directory": ({"log_dirs": []}, "INVALID_REGISTRATION"),
    "a directory twice": ({"log_dirs": [TWICE, TWICE]}, "INVALID_REGISTRATION"),
    "a directory without an id": ({"log_dirs": [ZERO_UUID]}, "INVALID_REGISTRATION"),
    "the last reserved directory": ({"log_dirs": reserved(99)}, "INVALID_REGISTRATION"),
    "the first that is not": ({"log_dirs": reserved(100)}, "NONE"),
    "from ZooKeeper": ({"is_migrating_zk_broker": True}, "BROKER_ID_NOT_REGISTERED"),
    # Kafka takes these.
    "no listener": ({"listeners": []}, "NONE"),
    "a listener twice": ({"listeners": [PLAINTEXT, PLAINTEXT]}, "NONE"),
    "the controllers' listener": (
        {"listeners": [Listener(name="CONTROLLER", host="h", port=1)]},
        "NONE",
    ),
    "a rack without a name": ({"rack": ""}, "NONE"),
    "an incarnation without an id": ({"incarnation_id": ZERO_UUID}, "NONE"),
}


@pytest.mark.parametrize("case", OTHER_CASES)
def test_what_is_refused_and_what_is_not(controller: Asked, case: str) -> None:
    changes, expected = OTHER_CASES[case]
    assert register(controller, registration(**changes)) == expected


@pytest.mark.parametrize(
    ("version", "expected"),
    # Directories came with version 2: an older broker has none.
    [(0, "INVALID_REGISTRATION"), (1, "INVALID_REGISTRATION"), (2, "NONE"), (3, "NONE")],
)
def test_versions_without_directories_are_refused(
    controller: Asked, version: int, expected: str
) -> None:
    assert register(controller, registration(), version) == expected


def test_a_directory_belongs_to_one_broker(controller: Asked) -> None:
    first = registration()
    assert register(controller, first) == "NONE"
    second = registration(log_dirs=[new_uuid(), *first.log_dirs])
    assert register(controller, second) == "INVALID_REGISTRATION"


def test_a_broker_is_unfenced_when_it_has_read_its_own_registration(controller: Asked) -> None:
    broker = Registered(controller)
    epoch = broker.epoch
    assert broker.beat(0, fence=True) == ["fenced"]
    assert broker.beat(epoch - 1, fence=True) == ["fenced"]
    assert broker.beat(epoch, fence=True) == ["caught up", "fenced"]
    assert broker.beat(epoch - 1) == ["fenced"]
    assert broker.beat(epoch) == ["caught up"]
    assert broker.beat(-1) == []  # not caught up, but nobody fences it for that
    assert broker.beat(epoch, offline_log_dirs=[new_uuid()]) == ["caught up"]
    assert broker.beat(epoch, fence=True) == ["caught up", "fenced"]
    assert broker.beat(epoch) == ["caught up"]


def test_an_epoch_that_is_not_the_registered_one_is_stale(controller: Asked) -> None:
    broker = Registered(controller)
    for wrong in (broker.epoch - 1, broker.epoch + 1):
        assert broker.beat(broker.epoch, broker_epoch=wrong) == ["STALE_BROKER_EPOCH"]
    assert broker.beat(broker.epoch, broker_id=new_id()) == ["STALE_BROKER_EPOCH"]


def test_the_same_incarnation_keeps_its_epoch_and_another_waits_for_its_end(
    controller: Asked,
) -> None:
    broker = Registered(controller)
    epoch = broker.epoch
    assert broker.ask().broker_epoch == epoch
    # Kafka waits until the last of its registrations has been read, which is not at the epoch.
    assert broker.beat(READ_ALL) == ["caught up"]
    again = broker.ask()
    assert (again.error_code, again.broker_epoch) == (0, epoch)
    assert broker.beat(READ_ALL) == ["caught up"]  # not fenced by that
    broker.request.incarnation_id = new_uuid()
    assert register(controller, broker.request) == "DUPLICATE_BROKER_REGISTRATION"


def test_one_that_never_sent_a_heartbeat_can_be_replaced_at_once(controller: Asked) -> None:
    broker = Registered(controller)
    broker.request.incarnation_id = new_uuid()
    assert broker.ask().broker_epoch > broker.epoch


def test_a_broker_that_leads_nothing_may_shut_down_at_once(controller: Asked) -> None:
    broker = Registered(controller)
    assert broker.beat(broker.epoch) == ["caught up"]
    shut_down = ["caught up", "fenced", "shut down"]
    assert broker.beat(broker.epoch, want_shut_down=True) == shut_down
    assert broker.beat(broker.epoch, want_shut_down=True) == shut_down


def test_an_unregistered_broker_is_stale_and_may_register_again(controller: Asked) -> None:
    broker = Registered(controller)
    assert broker.beat(broker.epoch) == ["caught up"]
    request = UnregisterBrokerRequest(broker_id=broker.request.broker_id)
    assert controller.ask(request, UnregisterBrokerResponse).error_code == 0
    assert broker.beat(broker.epoch) == ["STALE_BROKER_EPOCH"]
    again = controller.ask(request, UnregisterBrokerResponse)
    assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert broker.ask().broker_epoch > broker.epoch
