"""What Kafka answers to `peer_story`, recorded: `python -m tests.interop.cluster.peer_golden`.

The file has each different answer once, and below it the cases that got it.
"""

import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.cluster.flavours import Flavour, Kafka
from tests.interop.cluster.peer_site import PeerSite
from tests.interop.cluster.peer_story import Story

GOLDEN: Final = Path(__file__).parents[2] / "golden" / "cluster" / "peer_answers_kafka_4_3_1.txt"
INDENT: Final = "    "

# Where Odradek differs on purpose.
FAILS_THERE: Final = re.compile("marker (without (producer|epoch)|.* of producer epoch -1)")
SHOWS_MORE: Final = re.compile("ahead: fetch v.* of a future log")
FORGETS_LATER_RUN: Final = "a later run, and the registered one"
SAYS_AGAIN: Final = re.compile("joins( again)?: fetch")
DELIBERATE_COUNT: Final = 16


def is_deliberate(case: str, ours: Any, theirs: Any) -> bool:
    """Tell whether a difference is one of those that are meant to be."""
    if FAILS_THERE.search(case):  # INVALID_REQUEST where Kafka says UNKNOWN_SERVER_ERROR
        code = '"error_code": '
        return json.dumps(ours) == json.dumps(theirs).replace(f"{code}-1", f"{code}42")
    if (
        case == FORGETS_LATER_RUN
    ):  # here the earlier run is refused as soon as the later one fetches
        return '"error_code": 6' in json.dumps(ours) and '"records"' in json.dumps(theirs)
    if SAYS_AGAIN.match(
        case
    ):  # offsets that a follower was told before, as it may not have used them
        rest = {name: value for name, value in ours.items() if name != "responses"}
        return rest == theirs and '"records"' not in json.dumps(ours)
    if SHOWS_MORE.match(case):  # records that are not committed
        (mine,), (other,) = (
            [each["records"] for topic in answer["responses"] for each in topic["partitions"]]
            for answer in (ours, theirs)
        )
        return bool(mine == other[:-1])
    return False


def answers_of(flavour: Flavour) -> dict[str, Any]:
    """Return all answers of a new node."""
    with tempfile.TemporaryDirectory() as folder, PeerSite(Path(folder), flavour) as site:
        return Story(site).tell()


def write(answers: Mapping[str, Any]) -> str:
    cases: dict[str, list[str]] = {}
    for case, answer in answers.items():
        cases.setdefault(json.dumps(answer), []).append(case)
    lines = []
    for answer, names in cases.items():
        lines += [answer, *(INDENT + name for name in names)]
    return "\n".join(lines) + "\n"


def read(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    answer = None
    for line in text.splitlines():
        if line.startswith(INDENT):
            found[line.removeprefix(INDENT)] = answer
        else:
            answer = json.loads(line)
    return found


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(write(answers_of(Kafka())))
