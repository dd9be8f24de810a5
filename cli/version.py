"""`segbroker version`: one line that a script can compare; with -v what a bug report needs."""

import click

from .command import Command


@click.command(cls=Command)
@click.option("-v", "--verbose", is_flag=True, help="Also Python, the C kernel and dependencies.")
def version(verbose: bool) -> None:
    """Print the version.

    \b
    Example:
      segbroker version -v
    """
    from importlib.metadata import version as installed

    click.echo(f"segbroker {installed('segbroker')}")
    if verbose:
        import platform

        from segbroker.protocol.kernel import KERNEL_IS_NATIVE

        kernel = "C" if KERNEL_IS_NATIVE else "pure Python (slower; no C compiler at installation)"
        click.echo(f"kernel: {kernel}")
        click.echo(f"python: {platform.python_version()} on {platform.platform()}")
        for name in ("anyio", "click", "cramjam", "rich", "trio", "xxhash"):
            click.echo(f"{name}: {installed(name)}")
