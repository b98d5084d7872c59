"""Texts become values, and values texts, as in Java; each limit refuses what is outside."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.core.config import BROKER_CONFIGS, ConfigError, ConfigType, ConfigValue
from odradek.core.config.definitions import CONFIGS
from odradek.core.config.values import format_value, parse_value


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.BOOLEAN, "False", False),
        (ConfigType.INT, " +5", 5),
        (ConfigType.INT, "-2147483648", -(2**31)),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.SHORT, "007", 7),
        (ConfigType.DOUBLE, "0.50", 0.5),
        (ConfigType.DOUBLE, "1e3", 1000.0),
        (ConfigType.DOUBLE, ".5f", 0.5),
        (ConfigType.LIST, "", ()),
        (ConfigType.LIST, " a , b,c ", ("a", "b", "c")),
        (ConfigType.LIST, "a,b,a", ("a", "b")),
        (ConfigType.LIST, "a,,b", ("a", "", "b")),
        (ConfigType.STRING, " a b ", "a b"),
        (ConfigType.PASSWORD, " x ", "x"),
    ],
)
def test_parsing(kind: ConfigType, text: str, value: ConfigValue) -> None:
    assert parse_value("n", kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (ConfigType.BOOLEAN, "yes", "Expected value to be either true or false"),
        (ConfigType.INT, "2147483648", "Not a number of type INT"),
        (ConfigType.INT, "1_000", "Not a number of type INT"),
        (ConfigType.INT, "", "Not a number of type INT"),
        (ConfigType.INT, "1.0", "Not a number of type INT"),
        (ConfigType.INT, "٣", "Not a number of type INT"),
        (ConfigType.SHORT, "32768", "Not a number of type SHORT"),
        (ConfigType.LONG, "1" * 5000, "Not a number of type LONG"),
        (ConfigType.DOUBLE, "half", "Not a number of type DOUBLE"),
        (ConfigType.DOUBLE, "NaN", "Not a number of type DOUBLE"),
    ],
)
def test_what_is_of_another_type_is_refused(kind: ConfigType, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_value("n", kind, text)
    assert str(caught.value) == f"Invalid value {text} for configuration n: {reason}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (5, "5"),
        (0.5, "0.5"),
        (1.0, "1.0"),
        (1e7, "1.0E7"),
        (1.5e-7, "1.5E-7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        ((), ""),
        (("a", "b"), "a,b"),
    ],
)
def test_formatting(value: ConfigValue, text: str) -> None:
    assert format_value(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_survives_being_printed(value: float) -> None:
    assert parse_value("n", ConfigType.DOUBLE, format_value(value)) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("num.partitions", "0", "Value must be at least 1"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "Value must be no more than 1"),
        ("ssl.client.auth", "maybe", "String must be one of: required, requested, none"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("remote.log.storage.manager.impl.prefix", " ", "String must be non-empty"),
        (
            "group.consumer.migration.policy",
            "up",
            "String must be one of (case insensitive): DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL",
        ),
    ],
)
def test_what_is_not_allowed_is_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BROKER_CONFIGS[name].parse(text)
    shown = text.strip()
    assert caught.value.message == f"Invalid value {shown} for configuration {name}: {message}"


def test_the_message_of_an_empty_list_or_element_is_kafkas() -> None:
    with pytest.raises(ConfigError, match="'listeners' must not be empty"):
        BROKER_CONFIGS["listeners"].parse("")
    with pytest.raises(ConfigError, match=r"^Configuration 'log.dirs' values must not be empty\.$"):
        BROKER_CONFIGS["log.dirs"].parse("/a,,/b")


@pytest.mark.parametrize("text", ["latest", "earliest", "by_duration:P1D", "by_duration:PT1H2.5S"])
def test_where_a_share_group_may_begin(text: str) -> None:
    definitions = {name: row for rows in CONFIGS.values() for name, row in rows.items()}
    assert definitions["share.auto.offset.reset"].parse(text) == text
    for wrong in ("first", "by_duration:", "by_duration:P", "by_duration:P1DT"):
        with pytest.raises(ConfigError):
            definitions["share.auto.offset.reset"].parse(wrong)
