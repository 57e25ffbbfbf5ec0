"""Says what an act would do, before it is done: as the server foretells it, or else what is and what would be."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from egs_client.cli.acts.answers import cell, show
from egs_client.cli.exits import say
from egs_client.cli.output import Column, show_list
from egs_client.cli.words import clock, here
from egs_client.errors import UnknownOperation

if TYPE_CHECKING:
    from egs_client.models.gpr import DecisionPreview, StartChange

# The operation that says what another would do.
PREVIEWS = {
    "maintenance.create": "preview",
    "policies.update": "preview",
    **{f"gprs.{act}": "preview" for act in ("approve", "reject", "evict", "priority", "move")},
    **{f"{of}.{act}": "closing" for of in ("projects", "slices") for act in ("archive", "remove")},
}
OLDER = "This server is older than egs and cannot tell what that would do."
MOVED: list[Column[StartChange]] = [
    Column("NAME", lambda change: change.gpr),
    Column("WORKSPACE", lambda change: change.slice),
    Column("PLANNED", lambda change: clock(change.old_start_at) if change.old_start_at else ""),
    Column("WOULD START", lambda change: clock(change.new_start_at) if change.new_start_at else ""),
]


def show_preview(group: Any, path: str, name: str, positional: list[str], values: dict[str, Any]) -> None:
    operation = PREVIEWS.get(f"{path}.{name}")
    is_decision = path == "gprs" and operation is not None
    now = group.get(*positional) if name != "create" and positional and hasattr(group, "get") and (is_decision or not operation) else None
    if now is not None:
        known = [(field, getattr(now, field, None)) for field in ("name", "state", "priority")]
        print(f"  now: {', '.join(f'{field} {cell(value)}' for field, value in known if value not in (None, ''))}")
    for field, value in values.items():
        old = f"{cell(getattr(now, field))} -> " if hasattr(now, field) else ""
        print(f"  {field}: {old}{cell(value)}")
    if operation:
        _show_foretold(getattr(group, operation), {"act": name} if is_decision else {}, positional, values)


def _show_foretold(ask: Any, act: dict[str, str], positional: list[str], values: dict[str, Any]) -> None:
    taken = inspect.signature(ask).parameters
    try:
        answer = ask(*positional, **act, **{field: value for field, value in values.items() if field in taken})
    except UnknownOperation:
        say(OLDER)
        return
    if act:
        _show_decision(answer)
    else:
        show(answer, "table", kind="preview")


def _show_decision(preview: DecisionPreview) -> None:
    print(here(preview.sentence))
    if preview.others is None:
        return
    if preview.others.evicted:
        print(f"It would evict, after notice: {', '.join(f'{each.gpr} of {each.slice}' for each in preview.others.evicted)}.")
    print(preview.others.summary)
    if preview.others.moved:
        show_list(preview.others.moved, MOVED, output="table", kind="gpr", none="")
