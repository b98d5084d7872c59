"""What the tools that talk to a cluster have in common: options, refusals, the client.

Flags and outputs are those of Kafka's scripts, with four exceptions: ``--help`` writes to stdout
and is exit code 0, no stack trace follows an error, a wrong call is not answered with the list of
all options, and whatever fails is exit code 1 (some of Kafka's tools print ``Error:`` and exit with
0).

    @click.command(cls=Tool, no_args_is_help=True)
    @server_options()
    @click.option("--list", "is_list", is_flag=True)
    def topics(server: Server, is_list: bool) -> None:
        server.run(list_topics)            # async def list_topics(admin: Admin) -> None
"""

import asyncio
import functools
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

import click

from odradek.cli.suggestions import check_command
from odradek.client.admin.admin import SETTINGS, Admin
from odradek.client.errors import BrokerError
from odradek.client.settings import CONTROLLERS, SERVERS, Definition, as_settings
from odradek.core.errors import OdradekError
from odradek.core.java_properties import parse_properties

F = TypeVar("F", bound=Callable[..., Any])

PROPERTIES_BYTES_MAX: Final = 2**20
_BROKER_LIST: Final = "--broker-list"
_NO_SERVER: Final = 'Missing required argument "[bootstrap-server]"'
_ZOOKEEPER: Final = "--zookeeper is not an option any more: use --bootstrap-server HOST:PORT"


class Either(NamedTuple):
    """How a tool refuses ``--bootstrap-server`` and ``--bootstrap-controller``, both or neither."""

    both: str
    neither: str
    has_short_names: bool = False


BROKERS_OR_CONTROLLERS: Final = Either(
    "argument --bootstrap-controller: not allowed with argument --bootstrap-server",
    "one of the arguments --bootstrap-server --bootstrap-controller is required",
)


class ToolError(OdradekError):
    """What was asked for cannot be done; the message is all there is to say."""


def refuse(ctx: click.Context, message: str) -> NoReturn:
    """Refuse a wrong call: why, and where the options are listed, on stderr; exit code 1.

    Kafka's tools print the whole list of options below, in which the reason drowns.
    """
    click.echo(f"{message}\n{_short_usage(ctx)}", err=True)
    ctx.exit(1)


def _short_usage(ctx: click.Context) -> str:
    return f"{ctx.get_usage()}\nTry '{ctx.command_path} --help' for its options."


def show_help(ctx: click.Context, message: str) -> NoReturn:
    """Answer a call with nothing as Kafka's tools do: the help on stderr, exit code 1."""
    click.echo(f"{message}\n{ctx.get_help()}", err=True)
    ctx.exit(1)


class Tool(click.Command):
    """A command whose wrong use is exit code 1, as is calling it with nothing.

    Long options may have one dash, as Kafka's tools take them: ``-topic``.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            show_help(ctx, self.get_short_help_str(200))
        known = {name for param in self.params for name in param.opts}
        try:
            return super().parse_args(ctx, [_with_dashes(each, known) for each in args])
        except click.UsageError as error:
            refuse(ctx, error.format_message())

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with client_warnings():
                return super().invoke(ctx)
        except click.UsageError as error:
            refuse(ctx, error.format_message())


@contextmanager
def client_warnings() -> Iterator[None]:
    """Have what clients warn of on stderr: why a tool waits."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("WARN: %(message)s"))
    logger = logging.getLogger("odradek.client")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _with_dashes(word: str, known: Collection[str]) -> str:
    is_option = word.startswith("-") and f"-{word.partition('=')[0]}" in known
    return f"-{word}" if is_option else word


class ToolGroup(click.Group):
    """Commands of one tool, each a ``Tool``."""

    command_class = Tool

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:  # unless a shell asks how to complete it
            show_help(ctx, "Missing command.")
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            refuse(ctx, error.format_message())

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            refuse(ctx, error.format_message())

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            if not ctx.resilient_parsing:
                check_command(self, ctx, args[0])
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            refuse(ctx, error.format_message())


class Server:
    """The cluster that a tool was pointed at: how to reach it, and a client for it."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = dict(settings)

    @property
    def uses_controllers(self) -> bool:
        """Whether it was pointed at controllers, not brokers."""
        return CONTROLLERS in self.settings

    def known(self, definitions: Mapping[str, Definition]) -> dict[str, str]:
        """Return the settings that a kind of client knows; the others are told and left out.

        Java's clients do so too, and people share one file between many programs.
        """
        unknown = sorted(self.settings.keys() - definitions.keys())
        if unknown:
            click.echo(f"WARN: these settings are not known: {', '.join(unknown)}", err=True)
        return {name: each for name, each in self.settings.items() if name in definitions}

    def run(
        self,
        work: Callable[[Admin], Awaitable[None]],
        *,
        report: Callable[[str], None] | None = None,
        defaults: Mapping[str, str] | None = None,
    ) -> None:
        """Do the work of a tool with an admin client, and end with exit code 1 if it fails.

        ``report`` says why in the words of the tool; without it one line goes to stderr.
        """

        async def session() -> None:
            async with Admin(as_settings({**(defaults or {}), **self.known(SETTINGS)})) as admin:
                await work(admin)

        finish(session(), report=report)


def finish(work: Awaitable[None], *, report: Callable[[str], None] | None = None) -> None:
    """Run a coroutine to its end; what goes wrong is one line and exit code 1."""

    async def main() -> None:
        await work

    try:
        asyncio.run(main())
    except BrokenPipeError:
        raise  # whoever read our output has had enough; click ends quietly
    except (OdradekError, OSError) as error:
        (report or _to_stderr)(reason(error))
        raise click.exceptions.Exit(1) from error
    except KeyboardInterrupt:
        raise click.exceptions.Exit(130) from None


def _to_stderr(message: str) -> None:
    click.echo(message, err=True)


def reason(error: Exception) -> str:
    """Return why something failed: in the broker's own words, where it has some."""
    if isinstance(error, BrokerError) and error.message:
        return error.message
    return str(error)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def server_options(
    *,
    controller: Either | None = None,
    required: bool = True,
    old_config: Sequence[str] = (),
    has_broker_list: bool = False,
) -> Callable[[F], F]:
    """Add the options by which a cluster is reached; the command gets them as ``server``.

    Args:
        controller: Take ``--bootstrap-controller`` too, in the place of ``--bootstrap-server``; how
            both and neither are refused.
        required: Without a server there is nothing to do. Otherwise ``server`` may be None.
        old_config: Former names of ``--command-config``, taken with a word of warning.
        has_broker_list: The command has a ``--broker-list`` of its own; elsewhere it is taken for
            the ``--bootstrap-server`` of older days.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(
            *arguments: Any,
            bootstrap_server: str | None,
            command_config: Path | None,
            command_property: tuple[str, ...],
            **options: Any,
        ) -> Any:
            for name in old_config:
                path = options.pop(_identifier(name))
                command_config = _take_old_config(name, path, command_config)
            if not has_broker_list:
                bootstrap_server = _take_broker_list(options.pop("broker_list"), bootstrap_server)
            server = None
            if controller and (controllers := options.pop("bootstrap_controller")) is not None:
                if bootstrap_server is not None:
                    raise click.UsageError(controller.both)
                server = make_server(controllers, command_config, command_property, CONTROLLERS)
            elif bootstrap_server is not None:
                server = make_server(bootstrap_server, command_config, command_property)
            elif required:
                raise click.UsageError(controller.neither if controller else _NO_SERVER)
            return function(*arguments, server=server, **options)

        decorated: Any = call
        for option in reversed(_options(controller, old_config, has_broker_list)):
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]  # what click makes of functions

    return decorate


def pass_server(function: F) -> F:
    """Give a command of a ``ToolGroup`` the ``server`` that the group was pointed at."""

    @click.pass_context
    @functools.wraps(function)
    def call(ctx: click.Context, /, **options: Any) -> Any:
        if ctx.obj is None:
            group = ctx.parent.command.params if ctx.parent is not None else []
            has_controller = any(each.name == "bootstrap_controller" for each in group)
            either = "either --bootstrap-controller or " if has_controller else ""
            problem = f"You must specify {either}--bootstrap-server"
            raise click.UsageError(f"{problem}, before the command.")
        return function(server=ctx.obj, **options)

    return call  # type: ignore[return-value]  # what click makes of functions


def make_server(
    bootstrap: str, command_config: Path | None, properties: Sequence[str], kind: str = SERVERS
) -> Server:
    """Put together what was given: the file, then single properties, then the address.

    ``kind`` is the setting that the address is; the file's other one does not count then.

    Raises:
        click.UsageError: The file cannot be read, or something is not ``name=value``.
    """
    settings = {} if command_config is None else load_properties(command_config)
    settings |= key_values(properties, "--command-property")
    for name in (SERVERS, CONTROLLERS):
        settings.pop(name, None)
    return Server({**settings, kind: bootstrap})


def load_properties(path: Path) -> dict[str, str]:
    """Read a properties file.

    Raises:
        click.UsageError: It cannot be read.
    """
    try:
        if path.stat().st_size > PROPERTIES_BYTES_MAX:
            raise click.UsageError(f"{path} is too large for a properties file")
        return parse_properties(path.read_bytes())
    except (OSError, ValueError) as error:
        raise click.UsageError(f"cannot read {path}: {error}") from error


def key_values(texts: Sequence[str], option: str) -> dict[str, str]:
    """Read ``name=value``; a value may have more of the signs in it, or be empty.

    Raises:
        click.UsageError: There is no name.
    """
    pairs = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name.strip():
            raise click.UsageError(f"{option}: {text!r} is not name=value")
        pairs[name.strip()] = value.strip()
    return pairs


def check_one_action(chosen: Mapping[str, bool]) -> str:
    """Return the one action that was chosen.

    Raises:
        click.UsageError: There is none, or there are several.
    """
    actions = [name for name, is_chosen in chosen.items() if is_chosen]
    if len(actions) != 1:
        raise click.UsageError(f"Command must include exactly one action: {', '.join(chosen)}")
    return actions[0]


def check_not_with(used: str, given: Mapping[str, object], others: Iterable[str]) -> None:
    """Refuse options beside which another makes no sense; a value of None, () or False is absent.

    Raises:
        click.UsageError: Both are there.
    """
    if not is_given(given[used]):
        return
    for other in others:
        if other != used and is_given(given[other]):
            raise click.UsageError(f'Option "[{used}]" can\'t be used with option "[{other}]"')


def is_given(value: object) -> bool:
    return value is not None and value is not False and value != ()


def check_required(given: Mapping[str, object], names: Iterable[str]) -> None:
    """Refuse a call that lacks an option.

    Raises:
        click.UsageError: One is not there.
    """
    for name in names:
        if not is_given(given[name]):
            raise click.UsageError(f'Missing required argument "[{name}]"')


def _identifier(flag: str) -> str:
    return flag.strip("-").replace(".", "_").replace("-", "_")


def _take_old_config(name: str, path: Path | None, current: Path | None) -> Path | None:
    if path is None:
        return current
    if current is not None:
        raise click.UsageError(f"{name} and --command-config cannot be specified together.")
    click.echo(
        f"Option {name} has been deprecated and will be removed in a future version."
        " Use --command-config instead."
    )
    return path


def _take_broker_list(old: str | None, current: str | None) -> str | None:
    if old is None:
        return current
    click.echo(f"Option {_BROKER_LIST} is deprecated. Use --bootstrap-server instead.", err=True)
    return old if current is None else current


def _options(
    controller: Either | None, old_config: Sequence[str], has_broker_list: bool
) -> list[Callable[[Any], Any]]:
    file = click.Path(dir_okay=False, path_type=Path)
    has_short_names = controller is not None and controller.has_short_names
    short = {"--bootstrap-server": "-b", "--bootstrap-controller": "-C", "--command-config": "-c"}

    def names(name: str) -> tuple[str, ...]:
        return (name, short[name]) if has_short_names else (name,)

    options = [
        click.option(
            *names("--bootstrap-server"),
            metavar="HOST:PORT,…",
            help="The brokers to begin with: one that answers is enough."
            + ("" if controller else " REQUIRED."),
        ),
        click.option(
            *names("--command-config"),
            type=file,
            help="A properties file with settings of the client.",
        ),
        click.option(
            "--command-property",
            multiple=True,
            metavar="NAME=VALUE",
            help="A setting of the client; wins over the file, and may be repeated.",
        ),
        click.version_option(version("odradek"), message="%(version)s"),
    ]
    if controller:
        options.insert(
            1,
            click.option(
                *names("--bootstrap-controller"),
                metavar="HOST:PORT,…",
                help="The controllers to begin with, in the place of --bootstrap-server.",
            ),
        )
    options += [
        click.option(name, _identifier(name), type=file, hidden=True) for name in old_config
    ]
    if not has_broker_list:
        options.append(click.option(_BROKER_LIST, hidden=True))
    options.append(
        click.option("--zookeeper", hidden=True, expose_value=False, callback=_refuse_zookeeper)
    )
    return options


def _refuse_zookeeper(_: click.Context, __: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError(_ZOOKEEPER)
