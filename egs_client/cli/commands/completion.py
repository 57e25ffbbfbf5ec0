"""`egs completion SHELL`, as `kubectl completion` does it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


app = typer.Typer(add_completion=False, rich_markup_mode=None)
apps = {"completion": app}


@app.command()
def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.")]) -> None:
    """Print the script that completes commands and names of the server. For bash: source <(egs completion bash)"""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # not in its list of names

    print(get_completion_script(prog_name="egs", complete_var="_EGS_COMPLETE", shell=shell.value))
