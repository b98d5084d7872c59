"""How clients prove who they are on a listener that speaks SASL, as its configs say.

PLAIN has its users in ``listener.name.<name>.plain.sasl.jaas.config``, as ``user_<name>`` options
of Kafka's PlainLoginModule. SCRAM has them in the metadata of the cluster, so that users can be
added while brokers run.

Other mechanisms are refused when the node starts. Kafka's default, GSSAPI, is one of them: a
listener with SASL needs ``sasl.enabled.mechanisms``.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from odradek.core.config import BrokerConfig, ConfigError
from odradek.core.config.listener_configs import ListenerConfigs
from odradek.core.jaas import JaasError, parse_jaas
from odradek.core.scram import ScramKeys, ScramMechanism
from odradek.metadata.kept_records import ScramCredentials
from odradek.metadata.touched import ScramKey
from odradek.net.gate import Gate, MakeGate
from odradek.net.sasl.exchange import SaslExchange, SaslSettings
from odradek.net.sasl.mechanisms import PLAIN, Mechanism, Plain
from odradek.net.sasl.scram import NONCE_BYTES, Scram, ScramCredential
from odradek.net.settings import ConnectionInfo

_ENABLED: Final = "sasl.enabled.mechanisms"
_JAAS: Final = "sasl.jaas.config"
_PLAIN_MODULE: Final = "PlainLoginModule"
_USER_PREFIX: Final = "user_"
_SCRAM: Final = {each.mechanism_name: each for each in ScramMechanism}
_SECRET_BYTES: Final = 32


class Authentication:
    """Makes the gates of listeners; one for a node."""

    def __init__(
        self,
        scram_credentials: Callable[[], ScramCredentials],
        *,
        now_ms: Callable[[], int],
        secret_bytes: Callable[[int], bytes],
    ) -> None:
        """``secret_bytes`` returns so many bytes that no one can guess."""
        self._scram_credentials = scram_credentials
        self._now_ms = now_ms
        self._secret_bytes = secret_bytes
        self._own_secret = secret_bytes(_SECRET_BYTES)

    def gates_of(self, config: BrokerConfig, listener: str) -> MakeGate:
        """Return what makes the gate of each connection of a listener.

        Raises:
            ConfigError: The listener's configs cannot be used; ``name`` is the one to change.
        """
        configs = ListenerConfigs(config, listener)
        settings = SaslSettings(
            mechanisms=self._mechanisms(config, configs),
            frame_bytes_max=config.integer("sasl.server.max.receive.size"),
            failure_delay_ms=config.integer("connection.failed.authentication.delay.ms"),
            session_ms_max={
                name: configs.integer_of(name, "connections.max.reauth.ms")
                for name in (PLAIN, *_SCRAM)
            },
        )

        def make_gate(info: ConnectionInfo) -> Gate:
            return SaslExchange(info, settings, self._now_ms)

        return make_gate

    def _mechanisms(
        self, config: BrokerConfig, configs: ListenerConfigs
    ) -> Mapping[str, Callable[[], Mechanism]]:
        known = ", ".join((PLAIN, *_SCRAM))
        names = configs.elements(_ENABLED)
        if not configs.is_set(_ENABLED):
            raise _needs_mechanisms(config, configs.listener, known)
        if not names:
            raise configs.refuse(_ENABLED, f"is empty; the mechanisms here are {known}")
        made: dict[str, Callable[[], Mechanism]] = {}
        for name in names:
            if name == PLAIN:
                made[name] = partial(Plain, _plain_users(configs))
            elif name in _SCRAM:
                _check_no_controllers(config, configs, name)
                made[name] = partial(self._scram, _SCRAM[name], self._secret(config))
            else:
                raise configs.refuse(_ENABLED, f"{name} is not supported here, only {known}")
        return made

    def _secret(self, config: BrokerConfig) -> bytes:
        """Return what salts of unknown users are made from; equal on brokers that share one."""
        shared = config.text("delegation.token.secret.key")
        return shared.encode() if shared else self._own_secret

    def _scram(self, mechanism: ScramMechanism, secret: bytes) -> Mechanism:
        nonce = urlsafe_b64encode(self._secret_bytes(NONCE_BYTES)).decode()
        return Scram(mechanism, self._find, nonce=nonce, unknown_user_secret=secret)

    def _find(self, mechanism: ScramMechanism, username: str) -> ScramCredential | None:
        record = self._scram_credentials().get(ScramKey(mechanism, username))
        if record is None:
            return None
        keys = ScramKeys(record.stored_key, record.server_key)
        return ScramCredential(record.salt, record.iterations, keys)


def _needs_mechanisms(config: BrokerConfig, listener: str, known: str) -> ConfigError:
    """Refuse a listener by the config that gives it its protocol: it has no other of its own."""
    protocol = config.security_protocols[listener]
    name = "listeners" if listener == protocol else "listener.security.protocol.map"
    return ConfigError(
        f"The listener {listener} speaks {protocol}: set {_ENABLED} to one or more of {known}. "
        "Kafka's default, GSSAPI, is not supported here.",
        name=name,
    )


def _check_no_controllers(config: BrokerConfig, configs: ListenerConfigs, mechanism: str) -> None:
    if configs.listener in config.controller_listener_names:
        raise configs.refuse(
            _ENABLED,
            f"{mechanism} cannot authenticate nodes to a controller: its users are in the metadata,"
            f" which exists only when controllers have reached each other; use {PLAIN} there",
        )


def _plain_users(configs: ListenerConfigs) -> dict[str, str]:
    text = configs.jaas(PLAIN)
    name = f"listener.name.{configs.listener.lower()}.plain.{_JAAS}"
    if text is None:
        problem = f'needs {name}={_PLAIN_MODULE} required user_alice="…";'
        raise configs.refuse(_ENABLED, f"PLAIN {problem}")
    try:
        module = parse_jaas(text)
    except JaasError as error:
        raise configs.refuse(_JAAS, str(error)) from error
    if module.name != _PLAIN_MODULE:
        raise configs.refuse(_JAAS, f"{module.name} is not for PLAIN: {_PLAIN_MODULE} is")
    return {
        option.removeprefix(_USER_PREFIX): value
        for option, value in module.options.items()
        if option.startswith(_USER_PREFIX) and value
    }
