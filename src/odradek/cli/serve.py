"""``odradek serve``: run a node until it is told to stop."""

from pathlib import Path

import click


@click.command()
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A server.properties file, in Kafka's names.",
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
def serve(
    config_file: Path | None, data_dir: Path | None, port: int | None, overrides: tuple[str, ...]
) -> None:
    """Run a broker. With no options: on 127.0.0.1:9092, data in a folder of this user's.

    Prints `odradek ready on HOST:PORT` when clients can come. SIGTERM and Ctrl-C stop it cleanly.

    Topics that clients ask for are created by default, as in Kafka. In production set
    auto.create.topics.enable=false: a misspelt name would otherwise become a topic.
    """
    # Imported here, so that other commands do not pay for a broker.
    from odradek.broker.serving import load_config, run
    from odradek.core.errors import OdradekError

    own = []
    if data_dir is not None:
        own.append(f"log.dirs={data_dir}")
    if port is not None:
        own.append(f"listeners=PLAINTEXT://127.0.0.1:{port}")
    try:
        loaded = load_config(config_file, [*own, *overrides])
        for warning in loaded.warnings:
            click.echo(f"warning: {warning}", err=True)
        if loaded.ignored:
            click.echo(f"warning: without effect yet: {', '.join(loaded.ignored)}", err=True)
        run(loaded.config, lambda host, number: click.echo(f"odradek ready on {host}:{number}"))
    except (OdradekError, OSError) as error:
        raise click.ClickException(str(error)) from error
