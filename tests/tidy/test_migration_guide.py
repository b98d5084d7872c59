"""The guide to a migration has the commands that ``examples/migration`` runs, and no others."""

import re
from pathlib import Path

from examples.migration.commands import guide_lines

GUIDE = Path(__file__).parents[2] / "docs" / "migration.md"


def test_the_guide_has_the_commands_that_the_script_runs() -> None:
    blocks = re.findall(r"^```console\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    joined = "\n".join(blocks).replace("\\\n", " ")
    told = [" ".join(each[2:].split()) for each in joined.splitlines() if each.startswith("$ ")]
    assert sorted(set(told)) == sorted(set(guide_lines()))
