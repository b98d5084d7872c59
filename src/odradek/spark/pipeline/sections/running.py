"""The sections ``trigger`` and ``spark``: when a pipeline runs, and on what."""

from typing import Final

from odradek.spark.pipeline.definition import AvailableNow, Every, Once, SparkSettings, Trigger
from odradek.spark.pipeline.sections.names import INTERVAL
from odradek.spark.pipeline.yaml_positions import Section, shown

_MASTER: Final = "local[*]"


def read_trigger(root: Section) -> Trigger:
    found = root.find("trigger")
    if found is None:
        return Every("")
    if found.content in ("available_now", "availableNow"):
        return AvailableNow()
    if found.content == "once":
        return Once()
    if not isinstance(found.content, dict):
        wanted = "must be available_now, once or {every: 10 seconds}"
        root.problem("trigger", f"{wanted}, not {shown(found.content)}")
        return Every("")
    section = Section(found, "trigger", root.problems)
    interval = section.text("every", required=True)
    section.finish()
    if interval is not None and not INTERVAL.fullmatch(interval.strip()):
        section.problem("every", f"must be a time like '10 seconds', not {interval!r}")
    return Every(interval or "")


def read_spark(root: Section) -> SparkSettings:
    section = root.section("spark")
    if section is None:
        return SparkSettings(_MASTER, {})
    master, remote = section.text("master"), section.text("remote")
    if master is not None and remote is not None:
        section.problem("remote", "does not go with master: give one of them")
    if remote is not None and not remote.startswith("sc://"):
        section.problem("remote", f"must begin with sc://, not {remote!r}")
    conf = section.options("conf")
    section.finish()
    return SparkSettings(remote or master or _MASTER, conf)
