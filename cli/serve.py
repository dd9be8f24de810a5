"""`segbroker serve`: one broker in this process, until a signal.

    stdout   exactly one line, flushed, when connections are taken:
                 segbroker listening on 127.0.0.1:9092
             scripts wait for it and take the address from its last word (port 0 took a free one);
             with metrics_listen another one: segbroker metrics on http://127.0.0.1:9644/metrics;
             systemd is told as well (service_manager.py); what nobody reads holds nothing up: the
             line comes when there is room for it
    stderr   the log, see --log-format

    SIGTERM or SIGINT   once: no new connection, requests in flight are answered (for at most
                        drain_timeout_ms), everything is synced and closed, exit code 0
                        again: the drain is given up, files are synced and closed, exit code 130
                        or 143
                        a third time: the process ends as it is, also one that still starts, or
                        waits for a disk; what was acknowledged is as safe as its durability class
                        says

Every setting of the broker is a flag here, made from the fields of `BrokerConfig`: a setting
cannot be forgotten.  What one listener has of its own is --listener-name-<name>-..., whatever the
listeners are called.  Flags win over SEGBROKER_* variables, these over the --config file.
"""

import fcntl
import json
import os
import resource
import signal
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import Field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import click

from segbroker.broker.configuration.config import BrokerConfig, keys, merge
from segbroker.broker.configuration.listener_keys import PREFIX

from .command import Command, Place
from .exit_codes import ExitCode
from .failures import Failure
from .service_manager import READY, STOPPING, tell

if TYPE_CHECKING:
    import trio

    from segbroker.broker.server import Broker

# What a first-time reader of --help looks for; the rest is for tuning.
COMMON = (
    "data",
    "listen",
    "advertised",
    "listeners",
    "durability",
    "partitions",
    "auto_create_topics",
    "log_level",
    "log_format",
)


_OF_LISTENERS: Final = "--" + PREFIX.replace("_", "-")


class ServeCommand(Command):
    """Shows the common settings first, the many others under a heading of their own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = dict.fromkeys(arg.partition("=")[0] for arg in args)
        ctx.meta[_OF_LISTENERS] = [
            _option_of_listener(flag) for flag in given if flag.startswith(_OF_LISTENERS)
        ]
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *ctx.meta.get(_OF_LISTENERS, ())]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        common: list[tuple[str, str]] = []
        tuning: list[tuple[str, str]] = []
        known = {spec.name for spec in keys()}
        for param in self.get_params(ctx):
            row = param.get_help_record(ctx)
            if row is not None:
                rare = param.name in known and param.name not in COMMON
                (tuning if rare else common).append(row)
        with formatter.section("Options"):
            formatter.write_dl(common)
        with formatter.section("Further settings"):
            formatter.write_dl(tuning)


def _option(spec: Field[Any]) -> click.Option:
    """The flag of one setting.  The configuration checks the value: it knows the bounds."""
    flag = "--" + spec.name.replace("_", "-")
    text = spec.metadata["doc"]
    if spec.default != "":
        default = str(spec.default).lower() if isinstance(spec.default, bool) else spec.default
        text += f"  [default: {default}]"
    if isinstance(spec.default, bool):
        flag += "/--no-" + spec.name.replace("_", "-")
        return click.Option([flag], default=None, help=text)
    metavar = "N" if isinstance(spec.default, int) else "TEXT"
    metavar = {
        "data": "DIR",
        "listen": "HOST:PORT",
        "advertised": "HOST:PORT",
        "metrics_listen": "HOST:PORT",
    }.get(spec.name, metavar)
    choices = spec.metadata["choices"]
    return click.Option([flag], metavar="|".join(choices) or metavar, default=None, help=text)


def _option_of_listener(flag: str) -> click.Option:
    """The flag of a setting of one listener; the configuration checks whether there is one."""
    name = flag.removeprefix("--").replace("-", "_")
    for spec in keys():
        if spec.metadata["listener"] and name.endswith(f"_{spec.name}"):
            if spec.metadata["secret"]:
                raise click.UsageError(f"{name} is a secret, and has no flag")
            if isinstance(spec.default, bool):
                return click.Option([flag], is_flag=True, default=None, hidden=True)
    return click.Option([flag], default=None, hidden=True)


def with_settings(command: click.Command) -> click.Command:
    """Add a flag for every setting, before --config and --help."""
    # A command line is no place for a secret: everybody on the machine can read it.
    told = (spec for spec in keys() if not spec.metadata["secret"])
    command.params[:0] = [_option(spec) for spec in sorted(told, key=_rank)]
    return command


def _rank(spec: Field[Any]) -> int:
    return COMMON.index(spec.name) if spec.name in COMMON else len(COMMON)


@with_settings
@click.command(cls=ServeCommand)
@click.option(
    "--config",
    metavar="FILE",
    envvar="SEGBROKER_CONFIG",
    show_envvar=True,
    type=Place(is_directory=False),
    help="TOML file with settings, at its top level.",
)
@click.option("--show-config", is_flag=True, help="Print every setting with its source, and end.")
@click.pass_context
def serve(
    ctx: click.Context, /, config: Path | None, show_config: bool, **flags: str | bool | None
) -> None:
    """Run a broker on a data directory.

    Prints `segbroker listening on HOST:PORT` to standard output when it is ready, a line for each
    listener, and with --metrics-listen `segbroker metrics on http://HOST:PORT/metrics`; the log
    goes to standard error.  SIGTERM or Ctrl-C ends it after the requests in flight; a second one
    gives these up, a third ends the process as it is.  SIGHUP makes it read the certificate again.

    A setting for one listener only is --listener-name-NAME-SETTING, for example
    --listener-name-outside-ssl-ca.

    Each setting is also an environment variable (SEGBROKER_DATA for --data) and a key of the
    --config file (data); flags win over variables, variables over the file.  Secrets
    (initial_password, ssl_key_password) have no flag.

    \b
    Examples:
      segbroker serve
      segbroker serve --data /var/lib/segbroker --listen 127.0.0.1:9092
      segbroker serve --listen 127.0.0.1:0 --durability disk
    """
    settings = merge(flags, os.environ, _text(config) if config else "")
    if show_config:
        for spec in settings.all_keys.values():
            if spec.metadata["of"] and spec.name not in settings.by_listener:
                continue
            value = settings.value(spec.name)
            # As the --config file takes it: what is shown can be saved and edited.
            row = f"{spec.name} = {_toml(value)}"
            if spec.metadata["secret"] and value:
                row = f"# {spec.name} is set and not shown"
            click.echo(f"{row:<40} # {settings.source(spec.name)}")
        return
    ctx.exit(run(settings))


def _toml(value: str | int | bool) -> str:
    """A value as TOML has it; its strings have the escapes of JSON's."""
    return json.dumps(value, ensure_ascii=False)


def _text(config: Path) -> str:
    try:
        return config.read_text("utf-8-sig")  # editors of Windows put a mark in front
    except UnicodeDecodeError as exc:
        raise Failure(f"{config} is not text in UTF-8, as TOML is", ExitCode.CONFIG) from exc


def raise_descriptor_limit() -> int | None:
    """Take as many descriptors as the system allows: partitions and connections need thousands.

    Shells give 1,024 for the sake of select(), which nothing here uses.

    How many there are, also where it gives no more (a hard limit above fs.nr_open, a filter of
    system calls); None: as many as one likes.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # CPython makes the second of EPERM and EINVAL
            hard = soft
    return None if hard == resource.RLIM_INFINITY else hard


def append_to_log() -> None:
    """Have what is logged to a file appended to it, also by `2> broker.log`: when somebody cuts the
    file off (logrotate's copytruncate) the next line is its first, and not behind as many NULs."""
    if stat.S_ISREG(os.fstat(sys.stderr.fileno()).st_mode):
        flags = fcntl.fcntl(sys.stderr.fileno(), fcntl.F_GETFL)
        fcntl.fcntl(sys.stderr.fileno(), fcntl.F_SETFL, flags | os.O_APPEND)


def import_structlog() -> None:
    """Have structlog imported as where there is no rich, with which it draws tracebacks: a daemon's
    log has none of these, and rich would be 4 MiB of its memory for good."""
    is_new = "rich" not in sys.modules
    if is_new:
        cast("dict[str, object]", sys.modules)["rich"] = None  # `import rich` fails from here on
    try:
        import structlog  # noqa: F401 - for what is imported later
    finally:
        if is_new:
            del sys.modules["rich"]


def run(settings: BrokerConfig) -> int:
    """Serve until a signal; the exit code."""
    import_structlog()
    import trio

    from segbroker.broker.configuration.config import join_address
    from segbroker.broker.configuration.logs import configure
    from segbroker.broker.loop.long_lived import spare
    from segbroker.broker.server import Broker

    append_to_log()
    configure(settings)
    broker = Broker(settings, descriptors_max=raise_descriptor_limit())
    forced: list[int] = []

    async def main() -> None:
        wanted = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        with trio.open_signal_receiver(*wanted) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_obey, signals, broker, nursery.cancel_scope, forced)
                await nursery.start(_run, broker, nursery.cancel_scope)
                # A line for each listener, in the order of the configuration; flushes.
                lines = [f"segbroker listening on {one.address}" for one in broker.listeners]
                if broker.metrics_address is not None:
                    page = join_address(*broker.metrics_address)
                    lines.append(f"segbroker metrics on http://{page}/metrics")
                nursery.start_soon(spare, broker.core.topics)
                tell(READY)
                with suppress(OSError):  # a file, which takes it at once
                    await trio.lowlevel.wait_writable(sys.stdout)
                click.echo("\n".join(lines))

    trio.run(main)
    return 128 + forced[0] if forced else ExitCode.OK


async def _run(
    broker: "Broker",
    scope: "trio.CancelScope",
    *,
    task_status: "trio.TaskStatus[tuple[str, int]]",
) -> None:
    await broker.run(task_status=task_status)
    scope.cancel()


async def _obey(
    signals: AsyncIterator[int], broker: "Broker", scope: "trio.CancelScope", forced: list[int]
) -> None:
    """The first signal drains, the second cuts everything off, a third finds the system's own
    handler; SIGHUP reads the certificate."""
    import structlog

    log = structlog.get_logger()
    draining = False
    async for number in signals:
        log.info("signal_received", signal=signal.Signals(number).name)
        if number == signal.SIGHUP:
            await broker.reload_certificate()
        elif not draining:
            draining = True
            tell(STOPPING)
            broker.drain()
        else:
            forced.append(number)
            scope.cancel()
            for third in (signal.SIGTERM, signal.SIGINT):
                signal.signal(third, signal.SIG_DFL)
