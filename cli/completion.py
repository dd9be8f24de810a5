"""`segbroker completion bash|zsh|fish`: prints the script that makes the shell complete us."""

import click

from .command import Command

VARIABLE = "_SEGBROKER_COMPLETE"  # click derives it from the program's name


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    \b
    To have it in every new shell:
      bash   segbroker completion bash > ~/.local/share/bash-completion/completions/segbroker
      zsh    segbroker completion zsh  > "${fpath[1]}/_segbroker"
      fish   segbroker completion fish > ~/.config/fish/completions/segbroker.fish

    \b
    Only in this shell (bash, zsh):
      source <(segbroker completion bash)
    """
    from click.shell_completion import get_completion_class

    root = ctx.find_root()
    found = get_completion_class(shell)
    assert found is not None, shell
    click.echo(found(root.command, {}, "segbroker", VARIABLE).source())
