"""What every subcommand has in common.

    Command   adds --debug; turns expected errors into one sentence and an exit code; ends quietly
              on Ctrl-C (130) and when the reader of our output has gone (0)
    Group     subcommands from a table of module names: imported when called, not before

A broken pipe ends with 0, not with SIGPIPE's 141: `segbroker consume t | head -3` did what was
asked, also under `set -o pipefail`.
"""

import math
import signal
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from . import contexts, properties
from .exit_codes import ExitCode
from .failures import Failure, explain, with_those_before
from .other_words import command_meant, option_meant
from .standard_error import abandon_stderr, say
from .standard_output import abandon_stdout, is_of_stdout
from .stop_signal import GivenUp

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
# A person waits: long enough for a broker that is just starting ...
ACCEPT_TIMEOUT_MS = 3_000
# ... and longer for one that is there and busy: its kernel has accepted, it has not answered yet.
CONNECT_TIMEOUT_MS = 15_000
API_TIMEOUT_MS = 15_000

# What is printed, and goes to nobody as a name: any bytes.
MAY_BE_BYTES = frozenset({"text", "null"})

AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])


class Command(click.Command):
    """A click command whose errors read well; see the module."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - click's own
        super().__init__(*args, **kwargs)
        self.params.append(_debug_option())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as exc:
            if (meant := option_meant(exc.option_name)) is None:
                raise
            raise click.UsageError(f"No such option {exc.option_name!r}: {meant}", ctx) from exc
        except OSError as exc:  # --help prints already
            ctx.exit(_end(exc, ctx))

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - click's own
    ) -> click.Context:
        ctx = super().make_context(info_name, args, parent, **extra)
        if "bootstrap" in ctx.params:
            self._check_text(ctx)
        return ctx

    def _check_text(self, ctx: click.Context) -> None:
        """Names go to the broker as UTF-8; what is none has to be said here."""
        for param in self.params:
            given = ctx.params.get(param.name or "")
            for value in given if isinstance(given, tuple) else (given,):
                if isinstance(value, str) and param.name not in MAY_BE_BYTES and not is_text(value):
                    raise click.BadParameter(f"{value!r} is not text in UTF-8", ctx, param)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's own
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except GivenUp as exc:
            ctx.exit(exc.exit_code)
        except (KeyboardInterrupt, click.Abort):  # Abort: at a question
            ctx.exit(ExitCode.INTERRUPTED)
        except Exception as exc:
            ctx.exit(_end(exc, ctx))


class Seconds(click.FloatRange):
    """A time that is one: neither infinite nor, what no bounds hold off, no number."""

    name = "seconds"

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's own
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:  # noqa: ANN401 - click's own
        if not math.isfinite(float(number := super().convert(value, param, ctx))):
            self.fail(f"{value!r} is not a time", param, ctx)
        return number


class Place(click.Path):
    """A path that is there.  What may not be looked at, or read, is said by the system (9): click
    says of it that it does not exist, or that the command line is wrong."""

    def __init__(self, *, is_directory: bool) -> None:
        super().__init__(
            exists=True,
            file_okay=not is_directory,
            dir_okay=is_directory,
            readable=False,
            path_type=Path,
        )

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's own
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:  # noqa: ANN401 - click's own
        with suppress(FileNotFoundError, NotADirectoryError):  # which click says
            Path(value).stat()
        return super().convert(value, param, ctx)


class Leaf(NamedTuple):
    """Where a subcommand is: `attribute` of the module `module` of this room."""

    module: str
    attribute: str
    short_help: str


class Group(click.Group):
    """A click group over a table of leaves, imported when they are called."""

    command_class = Command
    leaves: ClassVar[dict[str, Leaf]] = {}

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's own
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):  # while the subcommand was still being imported
            ctx.exit(ExitCode.INTERRUPTED)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as exc:
            if exc.option_name in ("-b", "--bootstrap", "-X", "--context"):
                where = f"{exc.option_name} goes after the command"
                raise click.UsageError(where, ctx) from exc
            if (meant := option_meant(exc.option_name)) is None:
                raise
            raise click.UsageError(f"No such option {exc.option_name!r}: {meant}", ctx) from exc
        except OSError as exc:  # --help prints already
            ctx.exit(_end(exc, ctx))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            known = self.list_commands(ctx)
            near = command_meant(name, known) or next(iter(get_close_matches(name, known, n=1)), "")
            if near:  # click knows only commands that are imported
                ctx.fail(f"No such command {name!r}. Did you mean {near!r}?")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.leaves, *self.commands]  # as written, not by the alphabet

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        leaf = self.leaves.get(cmd_name)
        if leaf is None:
            return super().get_command(ctx, cmd_name)
        command = getattr(import_module(f"{__package__}.{leaf.module}"), leaf.attribute)
        assert isinstance(command, click.Command), cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # click would import every module to ask it for its short help.
        if not self.leaves:
            super().format_commands(ctx, formatter)
            return
        with formatter.section("Commands"):
            formatter.write_dl([(name, leaf.short_help) for name, leaf in self.leaves.items()])


def _debug_option() -> click.Option:
    return click.Option(
        ["--debug"],
        is_flag=True,
        expose_value=False,
        help="Show tracebacks of expected errors too.",
        callback=_remember_debug,
    )


def _remember_debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta["segbroker.debug"] = True


def wants_debug(ctx: click.Context) -> bool:
    return bool(ctx.meta.get("segbroker.debug"))


def bootstrap_option(function: AnyCallable) -> AnyCallable:
    """-b/--bootstrap, -X and --context, on every command that talks to a broker."""
    function = properties.options(function)
    return click.option(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT",
        envvar="SEGBROKER_BOOTSTRAP",
        show_default=DEFAULT_BOOTSTRAP,
        show_envvar=True,
        callback=_choose_broker,
        help="Address of the broker; several addresses, of a cluster, are separated by commas.",
    )(function)


def _choose_broker(ctx: click.Context, param: click.Parameter, given: str | None) -> str:
    """The broker and how to connect to it: what is given, or the context; see contexts.py."""
    if ctx.resilient_parsing or ctx.params.get("data_dir") is not None:
        return given or DEFAULT_BOOTSTRAP
    try:
        context = contexts.chosen(ctx, is_bootstrap_given=given is not None)
    except (Failure, OSError) as exc:
        failure = explain(exc, ctx.params)
        assert failure is not None, "of the system, or said already"
        failure.show()
        ctx.exit(failure.code)
    wanted = ctx.meta.get("segbroker.given", {})
    if context is not None:
        wanted = context.properties | wanted
        if given is not None and given != context.bootstrap:
            if ctx.get_parameter_source("bootstrap") is ParameterSource.COMMANDLINE:
                raise click.UsageError(
                    f"-b {given} and the context {ctx.meta['segbroker.context']!r} are two brokers",
                    ctx,
                )
            given = None  # a variable: the context was named for this command
    properties.remember(ctx, wanted)
    value = given
    if value is None:
        value = DEFAULT_BOOTSTRAP if context is None else context.bootstrap
    from segbroker.client.settings import parse_bootstrap

    try:
        parse_bootstrap(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc
    return value


def _end(error: Exception, ctx: click.Context) -> int:
    """The exit code for an expected error, once a sentence says it where it is a failure.

    Raises the error itself where it was not expected, or where --debug wants to see it.
    """
    if isinstance(error, BrokenPipeError):  # the reader of our output has gone
        abandon_stdout()
        return ExitCode.OK
    failure = explain(error, ctx.params)
    if failure is None or wants_debug(ctx):
        raise error
    if any(map(is_of_stdout, with_those_before(error))):
        abandon_stdout()
    failure.show()
    return failure.code


def is_text(argument: str) -> bool:
    """Whether an argument was UTF-8; Python keeps other bytes as lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in argument)


def note(text: str) -> None:
    """A line for the person at the terminal; never data."""
    say(text)


def interruptible(*, silently: bool = False) -> None:
    """Let SIGTERM end a client command as Ctrl-C does, so that `with` blocks are left in order.

    Not by SystemExit: a consumer of a group would wait for a broker that is gone.

    silently: nothing is told on standard error from then on. Who sends the signal to the whole
        group ends the JVM of a command with it, and libraries tell of that in threads of their own.
    """

    def on_sigterm(number: int, frame: object) -> None:
        if silently:
            abandon_stderr()
        raise GivenUp(number)

    signal.signal(signal.SIGTERM, on_sigterm)
