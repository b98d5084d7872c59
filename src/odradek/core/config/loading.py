"""From a ``server.properties`` file, the environment and options to a :class:`BrokerConfig`.

The strongest first: ``--override name=value``, the environment, the file, and what the command
brings along. In the environment ``ODRADEK_LOG_SEGMENT_BYTES`` is ``log.segment.bytes``; two
underscores stand for a dash and three for an underscore, as in the images of Kafka.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from odradek.core.config.broker_config import BrokerConfig
from odradek.core.config.consistency import check_consistency, find_doubts
from odradek.core.config.definitions import BROKER_CONFIGS, broker_synonyms, find_broker_definition
from odradek.core.config.levels import BrokerLevels
from odradek.core.config.values import ConfigError
from odradek.core.java_properties import parse_property_lines

ENVIRONMENT_PREFIX: Final = "ODRADEK_"
_UNDERSCORES: Final = {"_": ".", "__": "-", "___": "_"}
_LIKENESS_MIN: Final = 0.75
_PLUGIN_PREFIXES: Final = ("listener.name.", "rsm.config.", "rlmm.config.", "config.providers.")


class Setting(NamedTuple):
    name: str
    value: str
    origin: str
    """For people: ``server.properties, line 12``."""


class ConfigWarning(NamedTuple):
    name: str
    origin: str
    reason: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.name} {self.reason}" if self.origin else self.reason


class Settings(NamedTuple):
    """What one source says."""

    by_name: Mapping[str, Setting]
    warnings: tuple[ConfigWarning, ...] = ()


class LoadedConfig(NamedTuple):
    config: BrokerConfig
    warnings: tuple[ConfigWarning, ...]
    ignored: tuple[str, ...]
    """Configs that were set, are known, and have no effect yet; sorted."""
    origins: Mapping[str, str]
    """Where each config was set, by its name."""

    def locate(self, error: ConfigError) -> ConfigError:
        """Return an error that was found later with the place where its config was set."""
        return ConfigError(
            error.message, name=error.name, origin=error.origin or self.origins.get(error.name, "")
        )


def parse_server_properties(text: str, source_name: str) -> Settings:
    """Read the text of a properties file. Kafka takes the file as ISO 8859-1.

    Raises:
        ConfigError: A malformed escape, or a value that its config does not allow.
    """
    try:
        lines = parse_property_lines(text)
    except ValueError as error:
        raise ConfigError(str(error), origin=source_name) from error
    return _gather(Setting(key, value, f"{source_name}, line {line}") for line, key, value in lines)


def parse_environment(environment: Mapping[str, str]) -> Settings:
    """Pick what is meant for us from environment variables.

    Raises:
        ConfigError: A value that its config does not allow.
    """
    return _gather(
        Setting(_config_name(variable), value, f"environment variable {variable}")
        for variable, value in sorted(environment.items())
        if variable.startswith(ENVIRONMENT_PREFIX)
    )


def parse_overrides(overrides: Iterable[str]) -> Settings:
    """Read ``name=value`` options.

    Raises:
        ConfigError: One without ``=``, or a value that its config does not allow.
    """
    settings = []
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"expected name=value, not {override}", origin="--override")
        settings.append(Setting(name.strip(), value.strip(), "--override"))
    return _gather(settings)


def load_broker_config(
    *sources: Settings, base: Mapping[str, str] | None = None, small_segments: bool = False
) -> LoadedConfig:
    """Put sources together, the strongest first, and check that they agree.

    ``base`` is weaker than all of them and stands for what the command itself brings along.
    ``small_segments`` lets tests have segments of less than a mebibyte.

    Raises:
        ConfigError: Something required is missing, or two configs contradict each other.
    """
    chosen = {name: Setting(name, value, "built in") for name, value in (base or {}).items()}
    for source in reversed(sources):
        chosen.update(source.by_name)
    _copy_node_id(chosen)
    static = {name: setting.value for name, setting in chosen.items()}
    try:
        config = make_broker_config(BrokerLevels(static), small_segments=small_segments)
    except ConfigError as error:
        # Hours may be at fault where milliseconds are complained of.
        names = (error.name, *broker_synonyms(error.name))
        at_fault = next((chosen[name] for name in names if name in chosen), None)
        raise _with_origin(error, at_fault) from error
    doubts = [
        ConfigWarning(name, chosen[name].origin if name in chosen else "", reason)
        for name, reason in find_doubts(config)
    ]
    warnings = [warning for source in sources for warning in source.warnings]
    origins = {name: setting.origin for name, setting in chosen.items()}
    # Of what the command brings along nobody needs to be told.
    wanted = {name for source in sources for name in source.by_name}
    return LoadedConfig(config, (*warnings, *doubts), _find_ignored(wanted), origins)


def make_broker_config(levels: BrokerLevels, *, small_segments: bool = False) -> BrokerConfig:
    """Return the config of a broker, checked.

    Raises:
        ConfigError: A value cannot be used, or two contradict each other.
    """
    config = BrokerConfig.parse(levels, small_segments=small_segments)
    check_consistency(config)
    return config


def reconfigure(
    config: BrokerConfig, dynamic_default: Mapping[str, str], dynamic_broker: Mapping[str, str]
) -> BrokerConfig:
    """Return the config after a change while the broker runs.

    Raises:
        ConfigError: The result cannot be used.
    """
    levels = BrokerLevels(config.levels.static, dynamic_default, dynamic_broker)
    return make_broker_config(levels, small_segments=config.small_segments)


def _gather(settings: Iterable[Setting]) -> Settings:
    by_name: dict[str, Setting] = {}
    warnings = []
    for setting in settings:
        name = setting.name
        if name in by_name:
            reason = f"was set before ({by_name[name].origin}); the later value counts"
            warnings.append(ConfigWarning(name, setting.origin, reason))
        elif not _is_known(name):
            reason = f"is unknown and has no effect{_nearest(name)}"
            warnings.append(ConfigWarning(name, setting.origin, reason))
        by_name[name] = setting
    for setting in by_name.values():
        _check(setting)
    return Settings(by_name, tuple(warnings))


def _check(setting: Setting) -> None:
    definition = find_broker_definition(setting.name)
    if definition is None:
        return
    if definition.dynamic_only:
        message = f"{setting.name} can only be set while the broker runs: use kafka-configs"
        raise ConfigError(message, name=setting.name, origin=setting.origin)
    # The least size of a segment depends on what is loaded; BrokerConfig checks it again.
    if setting.name == "log.segment.bytes":
        return
    try:
        definition.parse(setting.value)
    except ConfigError as error:
        raise _with_origin(error, setting) from error


def _with_origin(error: ConfigError, setting: Setting | None) -> ConfigError:
    definition = BROKER_CONFIGS.get(error.name)
    message = error.message
    if definition and definition.allowed and "Not a number" in message:
        message = f"{message}; allowed: {definition.allowed.text}"
    origin = setting.origin if setting else ""
    return ConfigError(message, name=error.name, origin=origin)


def check_known(names: Iterable[str]) -> None:
    """Refuse names that neither a broker nor a plugin has.

    A node that starts from a file only warns of them, as Kafka does.

    Raises:
        ConfigError: There is no such config.
    """
    for name in names:
        if not _is_known(name):
            advice = _nearest(name) or "; docs/configs.md has all of them"
            raise ConfigError(f"unknown config {name!r}{advice}", name=name)


def _nearest(name: str) -> str:
    from difflib import get_close_matches  # here: most nodes start without a mistake

    close = get_close_matches(name.replace("_", "."), BROKER_CONFIGS, n=1, cutoff=_LIKENESS_MIN)
    return f"; did you mean {close[0]!r}?" if close else ""


def _is_known(name: str) -> bool:
    return find_broker_definition(name) is not None or name.startswith(_PLUGIN_PREFIXES)


def _config_name(variable: str) -> str:
    name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
    return re.sub("_{1,3}", lambda match: _UNDERSCORES[match[0]], name)


def _copy_node_id(chosen: dict[str, Setting]) -> None:
    """Let ``broker.id`` stand for ``node.id`` and the other way round."""
    for name, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
        if name in chosen and other not in chosen:
            chosen[other] = Setting(other, chosen[name].value, chosen[name].origin)


def _find_ignored(chosen: Iterable[str]) -> tuple[str, ...]:
    known = (name for name in chosen if name in BROKER_CONFIGS)
    return tuple(sorted(name for name in known if not BROKER_CONFIGS[name].implemented))
