"""``odradek completion``: what a shell needs to complete the commands and options of this one."""

from typing import Final

import click
from click.shell_completion import get_completion_class

from odradek.cli.name_completion import VARIABLE
from odradek.cli.tool_options import Tool

_SHELLS: Final = ("bash", "zsh", "fish")
_PROGRAM: Final = "odradek"


@click.command(cls=Tool)
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    r"""Print a script that teaches a shell to complete this command.

    \b
    bash   odradek completion bash >> ~/.bashrc
    zsh    odradek completion zsh >> ~/.zshrc
    fish   odradek completion fish > ~/.config/fish/completions/odradek.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows these three"
    root = click.get_current_context().find_root().command
    # bash older than 4.4 cannot do it, and click says so on stderr.
    click.echo(kind(root, {}, _PROGRAM, VARIABLE).source())
