"""What ``up``, ``down`` and ``local`` have in common: the folder, and one line for what fails."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from odradek.cli.tool_options import Tool
from odradek.core.errors import OdradekError

if TYPE_CHECKING:
    from odradek.local.folder import ClusterFolder

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_FOLDER: Final = ".odradek"

folder_option = click.option(
    "--dir",
    "path",
    type=click.Path(path_type=Path),
    default=DEFAULT_FOLDER,
    show_default=True,
    metavar="D",
    help="The folder of the cluster.",
)


class LocalTool(Tool):
    """A tool whose failures are one line on stderr and exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # whoever read our output has had enough; click ends quietly
        except (OdradekError, OSError) as error:
            click.echo(f"Error: {error}", err=True)
            raise click.exceptions.Exit(1) from error


def open_folder(path: Path) -> "ClusterFolder":
    from odradek.local.folder import ClusterFolder

    return ClusterFolder(path)


def dir_argument(path: Path) -> str:
    """Return what has to be added to commands for this folder."""
    return "" if str(path) == DEFAULT_FOLDER else f" --dir {path}"
