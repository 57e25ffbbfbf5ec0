"""Makes the commands of a group when they are asked for."""

from __future__ import annotations

from typing import Any, ClassVar

from typer.core import TyperGroup


class LazyGroup(TyperGroup):
    """`texts` has the names, as help shows them."""

    texts: ClassVar[dict[str, str]] = {}

    def build(self, name: str) -> Any:
        raise NotImplementedError

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.texts)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.texts:
            return None
        made = self.build(cmd_name)
        made.name = cmd_name
        return made

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.texts.items()))
