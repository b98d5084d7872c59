"""From the ``sasl.…`` settings to a ``Login``: who a client is, and how it says so.

Names are librdkafka's (``sasl.username``, ``sasl.password``) or Java's (``sasl.jaas.config``). For
OAUTHBEARER there is ``sasl.oauthbearer.token``, or ``sasl.oauthbearer.token.provider``: a function,
plain or async, that returns a token which is good now. It is asked for each connection, and again
when a session ends; a plain one is called on a thread of its own.
"""

import asyncio
import inspect
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from odradek.core.jaas import JaasError, parse_jaas
from odradek.wire.connection_settings import ConnectionSettings
from odradek.wire.errors import AuthenticationError, ConfigurationError
from odradek.wire.sasl.mechanisms import Mechanism, OauthBearer, Plain
from odradek.wire.sasl.scram import HASHES, Scram

TokenProvider = Callable[[], str | Awaitable[str]]

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, *HASHES, OAUTHBEARER)
_NONCE_BYTES: Final = 24
_MODULES: Final = {
    PLAIN: "PlainLoginModule",
    OAUTHBEARER: "OAuthBearerLoginModule",
    **dict.fromkeys(HASHES, "ScramLoginModule"),
}


class Login:
    """Makes the mechanism of one exchange after the other. Shows its secrets to nobody."""

    def __init__(
        self,
        mechanism: str,
        username: str = "",
        password: str = "",
        *,
        is_delegation_token: bool = False,
        token: str = "",
        provider: TokenProvider | None = None,
    ) -> None:
        self.mechanism = mechanism
        self.username = username
        self._password = password
        self._is_delegation_token = is_delegation_token
        self._token = token
        self._provider = provider

    async def begin(self) -> Mechanism:
        """Return a new exchange.

        Raises:
            AuthenticationError: There is no token to be had.
        """
        if self.mechanism == OAUTHBEARER:
            return OauthBearer(await self._next_token())
        if self.mechanism == PLAIN:
            return Plain(self.username, self._password)
        return Scram(
            self.mechanism,
            self.username,
            self._password,
            nonce=secrets.token_urlsafe(_NONCE_BYTES),
            is_delegation_token=self._is_delegation_token,
        )

    async def _next_token(self) -> str:
        provider = self._provider
        if provider is None:
            return self._token
        try:
            if inspect.iscoroutinefunction(provider):
                token = await provider()
            else:
                given = await asyncio.to_thread(provider)
                token = await given if inspect.isawaitable(given) else given
        except Exception as error:
            problem = f"sasl.oauthbearer.token.provider failed: {error!r}"
            raise AuthenticationError(problem) from error
        if not isinstance(token, str):
            kind = type(token).__name__
            raise AuthenticationError(f"sasl.oauthbearer.token.provider returned {kind}, not str")
        return token

    def __repr__(self) -> str:
        who = f" as {self.username}" if self.username else ""
        return f"<login by {self.mechanism}{who}>"


def login_from(settings: ConnectionSettings) -> Login | None:
    """Return how to log in; None without SASL.

    Raises:
        ConfigurationError: Something is missing, or does not go with something else.
    """
    given = sorted(name for name in settings.given if name.startswith("sasl."))
    if not settings.text("security.protocol").startswith("SASL_"):
        if given:
            problem = f"{', '.join(given)}: without effect"
            raise ConfigurationError(
                f"{problem} unless security.protocol is SASL_SSL or …PLAINTEXT"
            )
        return None
    mechanism = settings.text("sasl.mechanism")
    if mechanism not in MECHANISMS:
        known = ", ".join(MECHANISMS)
        raise ConfigurationError(f"sasl.mechanism: {mechanism!r} is not one of {known}")
    if mechanism == OAUTHBEARER:
        return _token_login(settings)
    return _password_login(settings, mechanism)


def _password_login(settings: ConnectionSettings, mechanism: str) -> Login:
    username, password = settings.text("sasl.username"), settings.text("sasl.password")
    is_token = False
    if settings.text("sasl.jaas.config"):
        if username or password:
            raise ConfigurationError("give sasl.jaas.config or sasl.username, not both")
        options = _options(settings, mechanism)
        username, password = options.get("username", ""), options.get("password", "")
        is_token = mechanism != PLAIN and options.get("tokenauth", "").lower() == "true"
    if not username or not password:
        raise ConfigurationError(f"{mechanism} needs sasl.username and sasl.password")
    if mechanism == PLAIN and "\0" in username + password:
        raise ConfigurationError("PLAIN: neither name nor password can have a zero character")
    return Login(mechanism, username, password, is_delegation_token=is_token)


def _token_login(settings: ConnectionSettings) -> Login:
    if settings.text("sasl.jaas.config"):
        _options(settings, OAUTHBEARER)
    token = settings.text("sasl.oauthbearer.token")
    provider = settings.value("sasl.oauthbearer.token.provider")
    if bool(token) == (provider is not None):
        raise ConfigurationError(
            "OAUTHBEARER needs sasl.oauthbearer.token, or sasl.oauthbearer.token.provider"
        )
    if provider is not None and not callable(provider):
        raise ConfigurationError("sasl.oauthbearer.token.provider has to be a function")
    return Login(OAUTHBEARER, token=token, provider=provider)


def _options(settings: ConnectionSettings, mechanism: str) -> dict[str, str]:
    try:
        module = parse_jaas(settings.text("sasl.jaas.config"))
    except JaasError as error:
        raise ConfigurationError(f"sasl.jaas.config {error}") from error
    if module.name != _MODULES[mechanism]:
        raise ConfigurationError(
            f"sasl.jaas.config: {module.name} is not for {mechanism}: {_MODULES[mechanism]} is"
        )
    return dict(module.options)
