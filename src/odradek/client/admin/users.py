"""SCRAM credentials of users: describe, set, remove (KIP-554).

A password never leaves this process: what is sent is its salted hash, with the salt. That hash is
as good as the password to whoever reads it, so a listener with TLS is the place to send it to.
"""

import asyncio
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from odradek.client.admin.driver import Driver, refusal
from odradek.client.admin.results import Result, Results
from odradek.client.errors import KafkaError, check
from odradek.core.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism, salted_password
from odradek.protocol.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.protocol.generated.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)

_SALT_BYTES: Final = 24


class ScramCredentialInfo(NamedTuple):
    """What may be known of a credential."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, kw_only=True)
class SetScramCredential:
    """A new password for a user; ``salt`` is random unless it is given."""

    mechanism: ScramMechanism
    password: str | bytes = field(repr=False)
    iterations: int = ITERATIONS_MIN
    salt: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class RemoveScramCredential:
    mechanism: ScramMechanism


ScramChange: TypeAlias = SetScramCredential | RemoveScramCredential


class UserOperations:
    _driver: Driver

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> Results[str, tuple[ScramCredentialInfo, ...]]:
        """Return which credentials users have: all users, or those that are named."""
        driver = self._driver
        names = None if users is None else [UserName(name=name) for name in users]
        if names == []:
            return Results(())  # to a broker, none is all

        async def ask(node_id: int) -> Results[str, tuple[ScramCredentialInfo, ...]]:
            request = DescribeUserScramCredentialsRequest(users=names)
            response = await driver.cluster.ask(
                node_id, request, DescribeUserScramCredentialsResponse
            )
            check(response.error_code, response.error_message, about="SCRAM credentials")
            return Results(
                (
                    each.user,
                    _result(
                        refusal(each.error_code, each.error_message, about=each.user),
                        _infos(each.credential_infos),
                    ),
                )
                for each in response.results
            )

        return await driver.single(ask, timeout_ms=timeout_ms)

    async def alter_user_scram_credentials(
        self, changes: Mapping[str, ScramChange], *, timeout_ms: float | None = None
    ) -> Results[str, None]:
        """Set or remove one credential of each user.

        ``{"ann": SetScramCredential(mechanism=ScramMechanism.SCRAM_SHA_256, password=…)}``
        """
        driver = self._driver
        deletions = {
            name: ScramCredentialDeletion(name=name, mechanism=change.mechanism)
            for name, change in changes.items()
            if isinstance(change, RemoveScramCredential)
        }
        upsertions = {
            # In a thread: salting takes milliseconds, and is meant to.
            name: await asyncio.to_thread(_upsertion, name, change)
            for name, change in changes.items()
            if isinstance(change, SetScramCredential)
        }

        async def ask(node_id: int, users: Sequence[str]) -> Mapping[str, KafkaError | None]:
            request = AlterUserScramCredentialsRequest(
                deletions=[deletions[user] for user in users if user in deletions],
                upsertions=[upsertions[user] for user in users if user in upsertions],
            )
            response = await driver.cluster.ask(node_id, request, AlterUserScramCredentialsResponse)
            return {
                each.user: refusal(each.error_code, each.error_message, about=each.user)
                for each in response.results
            }

        return await driver.bulk(changes, driver.to_controller, ask, timeout_ms=timeout_ms)


def _upsertion(name: str, change: SetScramCredential) -> ScramCredentialUpsertion:
    password = change.password
    secret = password.encode() if isinstance(password, str) else password
    salt = secrets.token_bytes(_SALT_BYTES) if change.salt is None else change.salt
    # A broker refuses more, or less; that is no reason to be busy for hours.
    rounds = min(max(change.iterations, 1), ITERATIONS_MAX)
    return ScramCredentialUpsertion(
        name=name,
        mechanism=change.mechanism,
        iterations=change.iterations,
        salt=salt,
        salted_password=salted_password(change.mechanism, secret, salt, rounds),
    )


def _infos(infos: Iterable[CredentialInfo]) -> tuple[ScramCredentialInfo, ...]:
    # A Kafka has them in the order of a hash, which is another after each start.
    found = (ScramCredentialInfo(ScramMechanism(each.mechanism), each.iterations) for each in infos)
    return tuple(sorted(found))


def _result(
    error: KafkaError | None, value: tuple[ScramCredentialInfo, ...]
) -> Result[tuple[ScramCredentialInfo, ...]]:
    return Result(value) if error is None else Result(error=error)
