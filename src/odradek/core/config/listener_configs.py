"""The configs of one listener: those with its prefix, or else those of the node.

``listener.name.internal.ssl.key.password`` counts for INTERNAL before ``ssl.key.password`` does.
"""

from odradek.core.config.broker_config import BrokerConfig
from odradek.core.config.definitions import BROKER_CONFIGS
from odradek.core.config.values import ConfigError, ConfigValue


class ListenerConfigs:
    def __init__(self, config: BrokerConfig, listener: str) -> None:
        self.listener = listener
        self._prefix = f"listener.name.{listener.lower()}."
        self._texts = config.levels.merge()
        self._values = config.values

    def name(self, base: str) -> str:
        """Return the config that counts."""
        own = self._prefix + base
        return own if own in self._texts else base

    def text(self, base: str) -> str | None:
        value = self._value(base)
        assert value is None or isinstance(value, str), base
        return value or None

    def elements(self, base: str) -> tuple[str, ...]:
        value = self._value(base)
        assert isinstance(value, tuple), base
        return value

    def jaas(self, mechanism: str) -> str | None:
        """Return ``sasl.jaas.config``, which a mechanism may have for itself."""
        own = f"{self._prefix}{mechanism.lower()}.sasl.jaas.config"
        return self._texts.get(own) or self.text("sasl.jaas.config")

    def integer_of(self, mechanism: str, base: str) -> int:
        """Return a config that a mechanism may have for itself."""
        own = self._texts.get(f"{self._prefix}{mechanism.lower()}.{base}")
        value = self._value(base) if own is None else BROKER_CONFIGS[base].parse(own)
        assert isinstance(value, int), base
        return value

    def _value(self, base: str) -> ConfigValue | None:
        own = self._prefix + base
        if own in self._texts:
            return BROKER_CONFIGS[base].parse(self._texts[own])
        return self._values[base]

    def is_set(self, base: str) -> bool:
        """Whether a config is set, for this listener or for the node."""
        return base in self._texts or self._prefix + base in self._texts

    def refuse(self, base: str, message: str) -> ConfigError:
        name = self.name(base)
        return ConfigError(f"{name}: {message} (listener {self.listener}).", name=name)
