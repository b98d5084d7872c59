"""Events as lines of JSON, each with its time and name: what Kafka's verifiable clients print."""

import time
from typing import Any

import click

from odradek.storage.dump.java_text import json_text


def print_event(name: str, **fields: Any) -> None:
    timestamp = time.time_ns() // 1_000_000
    click.echo(json_text({"timestamp": timestamp, "name": name, **fields}).encode())
