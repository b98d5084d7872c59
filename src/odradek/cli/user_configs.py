"""``odradek configs`` for users: their SCRAM credentials, in the lines of Kafka's tool.

Missing: quotas of users; no broker here has them yet.
"""

import re
from collections.abc import Mapping
from typing import Final

import click

from odradek.cli.tables import print_json
from odradek.cli.tool_options import ToolError
from odradek.client.admin.admin import Admin
from odradek.client.admin.users import RemoveScramCredential, ScramChange, SetScramCredential
from odradek.core.errors import ErrorCode
from odradek.core.scram import ITERATIONS_MIN, ScramMechanism

_MECHANISMS: Final = {each.mechanism_name: each for each in ScramMechanism}
_CREDENTIAL: Final = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)", re.DOTALL)
_DEFAULT_ITERATIONS: Final = ("", "-1")


def scram_change(changes: Mapping[str, str | None]) -> ScramChange:
    """Return the one change of a user's credentials; an error repeats no password.

    Raises:
        click.UsageError: It is not one, or makes no sense.
    """
    strangers = [name for name in changes if name not in _MECHANISMS]
    if strangers:
        problem = f"Only SCRAM credential configs ({', '.join(_MECHANISMS)}) can be altered for"
        raise click.UsageError(
            f"{problem} 'users'; quotas come later. Unexpected config names: {', '.join(strangers)}"
        )
    if len(changes) > 1:
        raise click.UsageError("A user credential cannot be altered twice in the same request")
    ((name, value),) = changes.items()
    if value is None:
        return RemoveScramCredential(mechanism=_MECHANISMS[name])
    match = _CREDENTIAL.fullmatch(value)
    if match is None:
        problem = f"write {name}=[iterations={ITERATIONS_MIN},password=...], iterations if need be"
        raise click.UsageError(f"Invalid credential property {name}: {problem}")
    iterations = ITERATIONS_MIN
    if match[1] is not None and match[1] not in _DEFAULT_ITERATIONS:
        iterations = int(match[1])
    if iterations < ITERATIONS_MIN:
        problem = f"is less than the minimum {ITERATIONS_MIN} required for {name}"
        raise click.UsageError(f"Iterations {iterations} {problem}")
    return SetScramCredential(mechanism=_MECHANISMS[name], password=match[2], iterations=iterations)


async def alter_user(user: str, change: ScramChange, admin: Admin) -> None:
    (await admin.alter_user_scram_credentials({user: change})).unwrap()
    click.echo(f"Completed updating config for user {user}.")


async def describe_users(user: str | None, admin: Admin, *, as_json: bool) -> None:
    """Print the credentials of one user or of all; one who has none has no line, as in Kafka."""
    results = await admin.describe_user_scram_credentials(None if user is None else [user])
    documents = []
    for name, result in sorted(results.items()):
        if result.error is not None:
            if getattr(result.error, "code", None) is ErrorCode.RESOURCE_NOT_FOUND:
                continue
            raise ToolError(str(result.error))
        infos = result.unwrap()
        documents.append(
            {
                "entityType": "users",
                "entityName": name,
                "scramCredentials": [
                    {"mechanism": each.mechanism.mechanism_name, "iterations": each.iterations}
                    for each in infos
                ],
            }
        )
        if not as_json:
            text = ", ".join(
                f"{each.mechanism.mechanism_name}=iterations={each.iterations}" for each in infos
            )
            click.echo(f"SCRAM credential configs for user-principal '{name}' are {text}")
    if as_json:
        print_json(documents)
