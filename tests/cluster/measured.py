"""Nodes that serve metrics, and what they say."""

import re
import urllib.request
from pathlib import Path

from tests.cluster.flavours import Odradek
from tests.cluster.processes import ClusterNode
from tests.unit.broker.metrics_scrape import Scrape

SCRAPE_SECONDS_MAX = 60
_URL = re.compile(r"\burl=(http://\S+/metrics)")


class MeasuredOdradek(Odradek):
    """Each node has its metrics on a port of its own choice, which its log names."""

    def command(self, properties: Path) -> list[str]:
        return [*super().command(properties), "--metrics-port", "0"]


def scrape(node: ClusterNode) -> Scrape:
    url = _URL.findall(node.log_file.read_text())[-1]  # its log has earlier runs, too
    with urllib.request.urlopen(url, timeout=SCRAPE_SECONDS_MAX) as answer:
        return Scrape(answer.read())
