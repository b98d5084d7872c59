"""``odradek serve``: run a node until it is told to stop.

Its stdout has one line for each listener once clients can come, its stderr the log.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from odradek.broker.event_log import LogFormat

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("properties", required=False, type=_FILE)
@click.option("--config", "config_file", type=_FILE, help="The same as PROPERTIES.")
@click.option(
    "-daemon",
    "--daemon",
    "is_daemon",
    is_flag=True,
    help="Run it in the background; return when it is ready. `odradek stop` ends it.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the data lies. Default: a folder of this user's.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port on 127.0.0.1; 0 picks a free one. Default: 9092.",
)
@click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a config; may be repeated, and wins over file and environment.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Serve metrics for Prometheus at /metrics, and /healthz, over HTTP; 0 picks a free port.",
)
@click.option(
    "--metrics-host",
    default="127.0.0.1",
    show_default=True,
    help="The address for that. There is no password: mind who can reach it.",
)
@click.option(
    "--log-format",
    type=click.Choice(["human", "json"]),
    default="human",
    show_default=True,
    help="How the log on stderr is written: for people, or one JSON object a line.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="The least of what is written to the log.",
)
def serve(
    properties: Path | None,
    config_file: Path | None,
    data_dir: Path | None,
    port: int | None,
    overrides: tuple[str, ...],
    metrics_port: int | None,
    metrics_host: str,
    log_format: "LogFormat",
    log_level: str,
    is_daemon: bool,
) -> None:
    """Run a node. With no options: a broker on 127.0.0.1:9092, data in a folder of this user's.

    PROPERTIES is a server.properties file, in Kafka's names. Without it the node is one that stands
    alone: internal topics have one replica, and group.initial.rebalance.delay.ms is 0, as in
    Kafka's sample files; with it Kafka's defaults hold.

    A node that names controllers (controller.quorum.voters, controller.quorum.bootstrap.servers) is
    part of a cluster: `odradek storage format` comes first.

    Prints `odradek ready on HOST:PORT` for each listener as soon as it serves requests: a broker's
    when the controller has unfenced it. SIGTERM and Ctrl-C stop it cleanly.

    Topics that clients ask for are created by default, as in Kafka. In production set
    auto.create.topics.enable=false: a misspelt name would otherwise become a topic.
    """
    # Imported here, so that other commands do not pay for a broker.
    from odradek.broker.event_log import logging_to
    from odradek.core.errors import OdradekError

    if properties is not None and config_file is not None:
        raise click.UsageError("PROPERTIES and --config: give one of them")
    own = []
    if data_dir is not None:
        own.append(f"log.dirs={data_dir}")
    if port is not None:
        own.append(f"listeners=PLAINTEXT://127.0.0.1:{port}")
    if is_daemon:
        file = properties or config_file
        words = [] if file is None else [str(file)]
        words += [word for each in (*own, *overrides) for word in ("--override", each)]
        if metrics_port is not None:
            words += ["--metrics-port", str(metrics_port), "--metrics-host", metrics_host]
        words += ["--log-format", log_format, "--log-level", log_level]
        _start_daemon(file, [*own, *overrides], words)
        return
    with logging_to(sys.stderr, log_format, log_level):
        try:
            _run(properties or config_file, [*own, *overrides], metrics_host, metrics_port)
        except (OdradekError, OSError) as error:
            if log_format == "json":
                _log_end(error)
                sys.exit(1)
            raise click.ClickException(str(error)) from error


def _run(
    config_file: Path | None, overrides: list[str], metrics_host: str, metrics_port: int | None
) -> None:
    from odradek.broker.metrics.endpoint import Endpoint
    from odradek.node.node import Node
    from odradek.node.serving import load_config, run

    loaded = load_config(config_file, overrides)
    node = Node(loaded.config)
    endpoint = None if metrics_port is None else Endpoint(node, metrics_host, metrics_port)

    def on_ready(host: str, port: int) -> None:
        click.echo(f"odradek ready on {host}:{port}")

    run(node, loaded, on_ready, endpoint)


def _start_daemon(config_file: Path | None, overrides: list[str], words: list[str]) -> None:
    from odradek.core.errors import OdradekError
    from odradek.local.daemons import start_daemon
    from odradek.node.serving import load_config

    try:
        daemon, ready = start_daemon(load_config(config_file, overrides).config, words)
    except (OdradekError, OSError) as error:
        raise click.ClickException(str(error)) from error
    for address in ready:
        click.echo(f"odradek ready on {address}")
    if not ready:
        click.echo("not ready yet: it waits for other nodes of its cluster, or recovers its logs")
    click.echo(f"node {daemon.node_id}, pid {daemon.process.pid}, log {daemon.log}")


def _log_end(error: Exception) -> None:
    """Say why the command ends, where whoever reads the log expects JSON."""
    import logging

    from odradek.core.event import Event

    logging.getLogger("odradek.node").critical(Event("ended", error=error))
