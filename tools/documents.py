"""Makes the documents that follow from code and tests: compatibility, configs, seed rows."""

import argparse
import ast
import sys
from pathlib import Path

from odradek.broker.dispatch import HANDLERS
from odradek.control.served_apis import SERVED
from odradek.core.config import render_markdown
from odradek.protocol.apis import ALL_APIS, Api
from tools.seed_document import render_seed_rows

ROOT = Path(__file__).parents[1]
HANDLERS_FOLDER = ROOT / "src/odradek/broker/handlers"


def documents() -> dict[Path, str]:
    return {
        ROOT / "docs/compatibility.md": compatibility(),
        ROOT / "docs/configs.md": render_markdown(),
        ROOT / "docs/seed-rows.md": render_seed_rows(ROOT),
    }


def compatibility() -> str:
    """Return which APIs a node speaks and what is missing in each, from the handlers themselves."""
    spoken = [api for api in ALL_APIS if api.name in HANDLERS]
    silent = [api for api in ALL_APIS if api.name not in HANDLERS]
    lines = [
        "# Compatibility",
        "",
        "Made by `make docs` from the handlers; do not edit. The codec knows all "
        f"{len(ALL_APIS)} APIs of Kafka 4.4; a node speaks {len(spoken)} of them so far.",
        "",
        "| key | API | versions | not implemented |",
        "|---|---|---|---|",
        *(_row(api) for api in spoken),
        "",
        "Not spoken yet: " + ", ".join(f"{api.name} ({api.key})" for api in silent) + ".",
        "",
        "A controller listener serves "
        + ", ".join(f"{api.name} ({api.key})" for api in SERVED)
        + ". Requests of other APIs close the connection, as in Kafka.",
        "",
        "A broker that was granted its controlled shutdown can register again at once; with Kafka "
        "its next start waits until the session times out (9 s). The active controller writes a "
        "no-op record every `metadata.max.idle.interval.ms` only if nothing else was written, and "
        "only if there is another node; Kafka writes it always.",
        "",
        "Moves of partitions follow Kafka's rules but for three, where Kafka's would never end or "
        "lose sight of something ([ADR 15](adr/0015-when-a-move-is-over.md)).",
        "",
        "Produce is advertised from version 0, because librdkafka stops compressing otherwise; "
        "versions 0 to 2 are refused, as in Kafka 4.",
        "",
        "No client is throttled: `throttle_time_ms` is 0 in every response, and quotas of clients "
        "and of topic changes can be neither set nor read. Their configs have no effect. "
        "Replication is throttled as in Kafka (clusters.md).",
        "",
        "Listeners speak PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, with PLAIN, SCRAM-SHA-256 and "
        "SCRAM-SHA-512 ([clusters.md](clusters.md#sasl)); one that names another mechanism is "
        "refused at the start, in one line. There is no authorizer: a client that has proved who "
        "it is may do everything. Certificates in PEM are replaced while the node runs, as in "
        "Kafka, by IncrementalAlterConfigs on `listener.name.<name>.ssl.keystore.*` or "
        "`ssl.truststore.*`; "
        "other configs of listeners need a restart.",
        "",
        "What the controller refuses has Kafka's code and Kafka's words; "
        "`tests/interop/test_controller_refusals_kafka.py` has the list, and the exceptions.",
        "",
    ]
    return "\n".join(lines)


def _row(api: Api) -> str:
    source = (HANDLERS_FOLDER / f"{HANDLERS[api.name]}.py").read_text()
    doc = ast.get_docstring(ast.parse(source)) or ""
    _, _, missing = doc.partition("Not implemented:")
    missing = " ".join(missing.split("\n\n")[0].split())
    return f"| {api.key} | {api.name} | {api.version_min}-{api.version_stable_max} | {missing} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail on a difference")
    check = parser.parse_args().check
    stale = [p for p, text in documents().items() if not p.exists() or p.read_text() != text]
    for path in stale:
        if check:
            print(f"{path.relative_to(ROOT)} is not what the code says: run make docs")
        else:
            path.write_text(documents()[path])
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
