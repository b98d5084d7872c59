"""Our assignors give what Java's give, for many groups that could be."""

import base64
import json
import subprocess
from pathlib import Path
from random import Random

import pytest

from odradek.client.consumer.assignors import ASSIGNORS
from tests.assignor_cases import Case, random_case, with_racks
from tests.interop.kafka_peer.tools import java_command

CASES = 2_000
SEED = 861  # has groups in which a partition moves back instead of another


def asked(case: Case) -> str:
    members = [
        {
            "id": name,
            "topics": list(each.topics),
            "owned": [list(partition) for partition in each.owned],
            "generation": each.generation_id,
            "instance": each.instance_id,
            "rack": each.rack_id,
            "user_data": None
            if each.user_data is None
            else base64.b64encode(each.user_data).decode(),
        }
        for name, each in case.members.items()
    ]
    racks = [[*partition, sorted(names)] for partition, names in case.racks.items()]
    asked = {"assignor": case.assignor, "topics": case.topics, "members": members, "racks": racks}
    return json.dumps(asked)


def java_assignments(libs: Path, cases: list[Case]) -> list[dict[str, list[tuple[str, int]]]]:
    source = str(Path(__file__).with_name("Assignors.java"))
    run = subprocess.run(
        java_command(source, heap_mib=192, log_level="OFF", libs=libs),
        input="\n".join(map(asked, cases)),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    return [
        {name: sorted((topic, number) for topic, number in share) for name, share in each.items()}
        for each in answers
    ]


@pytest.mark.seed_row("4.1", "4.2")
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize("assignor", list(ASSIGNORS))
def test_assignments_are_those_of_java(kafka_libs: Path, assignor: str) -> None:
    """Without racks, and with them."""
    random = Random(SEED)
    cases = [random_case(random, assignor) for _ in range(CASES)]
    cases += [with_racks(random, random_case(random, assignor)) for _ in range(CASES)]
    theirs = java_assignments(kafka_libs, cases)
    assert len(theirs) == len(cases)
    differing = []
    for case, expected in zip(cases, theirs, strict=True):
        share_of = ASSIGNORS[assignor].assign(case.topics, case.members, case.racks)
        ours = {name: sorted(map(tuple, share)) for name, share in share_of.items()}
        if ours != expected:
            differing.append((case, ours, expected))
    assert not differing, f"{len(differing)} of {len(cases)} differ, first: {differing[0]}"
