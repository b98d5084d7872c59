"""``odradek configs`` for users: SCRAM credentials, in Kafka's lines, without their passwords."""

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from odradek.cli.main import main
from odradek.testing.broker import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(memory=True) as started:
        yield started


def configs(broker: Broker, *arguments: str) -> Result:
    server = ("--bootstrap-server", broker.bootstrap_servers)
    return CliRunner().invoke(main, ["configs", *server, *arguments])


def alter(broker: Broker, user: str, *changes: str) -> Result:
    return configs(broker, "--alter", "--entity-type", "users", "--entity-name", user, *changes)


def test_credentials_are_set_shown_and_removed(broker: Broker) -> None:
    assert configs(broker, "--describe", "--entity-type", "users").output == ""
    done = "Completed updating config for user ann.\n"
    credential = "SCRAM-SHA-256=[iterations=8192,password=a,b=c]"
    assert alter(broker, "ann", "--add-config", credential).output == done
    short = configs(
        broker, "--alter", "--user", "ann", "--add-config", "SCRAM-SHA-512=[password=x]"
    )
    assert short.output == done
    line = "SCRAM credential configs for user-principal 'ann' are "
    described = configs(broker, "--describe", "--user", "ann")
    assert described.output == (
        f"{line}SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096\n"
    )
    as_json = configs(broker, "--describe", "--entity-type", "users", "--json")
    assert json.loads(as_json.output) == [
        {
            "entityType": "users",
            "entityName": "ann",
            "scramCredentials": [
                {"mechanism": "SCRAM-SHA-256", "iterations": 8192},
                {"mechanism": "SCRAM-SHA-512", "iterations": 4096},
            ],
        }
    ]
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert alter(broker, "ann", "--delete-config", mechanism).output == done
    assert configs(broker, "--describe", "--user", "ann").output == ""
    gone = alter(broker, "ann", "--delete-config", "SCRAM-SHA-256")
    assert gone.exit_code == 1
    assert "Attempt to delete a user credential that does not exist" in gone.output


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("--add-config", "SCRAM-SHA-256=[iterations=100,password=hush]"), "minimum 4096"),
        (("--add-config", "SCRAM-SHA-256=[iterations=17000,password=hush]"), "Too many iterations"),
        (("--add-config", "SCRAM-SHA-256=hush"), "Invalid credential property SCRAM-SHA-256"),
        (("--add-config", "producer_byte_rate=7"), "quotas come later"),
        (
            ("--add-config", "SCRAM-SHA-256=[password=hush],SCRAM-SHA-512=[password=hush]"),
            "cannot be altered twice",
        ),
    ],
)
def test_what_is_refused_repeats_no_password(
    broker: Broker, changes: tuple[str, ...], words: str
) -> None:
    refused = alter(broker, "bob", *changes)
    assert refused.exit_code != 0
    assert words in refused.output
    assert "hush" not in refused.output


def test_there_is_no_credential_for_all_users(broker: Broker) -> None:
    refused = configs(broker, "--describe", "--entity-type", "users", "--entity-default")
    assert refused.exit_code != 0
    assert "--user-defaults is not allowed" in refused.output
