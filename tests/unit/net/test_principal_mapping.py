r"""Rules from the subject of a certificate to a user; most examples are those of Kafka's docs."""

import pytest

from odradek.core.errors import CorruptionError
from odradek.net.principal_mapping import MappingRulesError, PrincipalMapper

ALICE = "CN=Alice,OU=ServiceUsers,O=Org,C=US"
DUKE = "CN=Duke,OU=JavaSoft,O=Sun,C=US"
RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        (ALICE, "alice"),
        ("CN=Duke,OU=Java,O=Sun,L=Fister,ST=CA,C=US", "duke@java"),
        (DUKE, "DUKE"),
        ("OU=JavaSoft,O=Sun", "OU=JavaSoft,O=Sun"),
    ],
)
def test_the_first_rule_that_matches_counts(subject: str, name: str) -> None:
    assert PrincipalMapper(RULES).name_of(subject) == name


def test_a_pattern_matches_the_whole_subject_or_not_at_all() -> None:
    mapper = PrincipalMapper("RULE:CN=([^,]*)/$1/")
    assert mapper.name_of("CN=Alice") == "Alice"
    with pytest.raises(CorruptionError, match=r"no rule of ssl\.principal\.mapping\.rules matches"):
        mapper.name_of(ALICE)


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("RULE:^CN=([^,]*),.*$/$1 of $2/", "Alice of $2"),  # no such group
        ("RULE:^CN=([^,]*),.*$/$12/", "Alice2"),  # the first group, and a two
        ("RULE:^CN=(Ali)(ce),.*$/$2$1/", "ceAli"),
        ("RULE:^CN=Alice.*$/$1/", "$1"),
        (r"RULE:^CN=([^,]*),.*$/a\/b\$1/", "a/b$1"),
        (r"RULE:^CN=(Alice|a\/b),.*$/$1/", "Alice"),
        ("RULE:^CN=(x)?Alice.*$/$1y/", "y"),  # a group that took no part
        ("RULE:^.*$//", ""),
    ],
)
def test_replacements_are_javas(rule: str, name: str) -> None:
    assert PrincipalMapper(rule).name_of(ALICE) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "default",
        "RULE:",
        "RULE:CN=/x",
        "RULE:CN=(.*)/$1/X",
        "RULE:CN=(.*/$1/",
        "RULE:(?=CN)(.*)/$1/",  # RE2 has no lookahead
        r"RULE:CN=(.*)\1/$1/",
        "DEFAULT,,DEFAULT",
        f"RULE:{'x' * 5000}/y/",
    ],
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(MappingRulesError):
        PrincipalMapper(text)


def test_no_subject_makes_a_pattern_run_for_long() -> None:
    mapper = PrincipalMapper("RULE:^(([a-z])+.)+[A-Z]([a-z])+$/$1/,DEFAULT")
    subject = "a" * 20_000
    assert mapper.name_of(subject) == subject
