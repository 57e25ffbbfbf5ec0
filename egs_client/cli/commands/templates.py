"""`egs template`: what requests, jobs and notebooks may start from. Those who may write them use manifests or `egs admin template`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from egs_client.cli import names, options
from egs_client.cli.output import Column, Output, show_list, show_one
from egs_client.cli.session import client
from egs_client.cli.words import span

if TYPE_CHECKING:
    from egs_client.models.gpr import Template

app = typer.Typer(add_completion=False, help="Templates that requests may start from.", no_args_is_help=True, rich_markup_mode=None)
apps = {"template": app}
PLATFORM = "platform"
NONE = "There is no template. Owners of a workspace make its own, administrators those of the platform."


def runs(template: Template) -> str:
    if template.image is None and template.kind is None and not template.manifest:
        return "-"
    return f"{template.kind or 'Job'} {template.image or ''}".strip()


COLUMNS: list[Column[Template]] = [
    Column("NAME", lambda template: template.name),
    Column("OF", lambda template: template.slice or PLATFORM),
    Column("RUNS", runs),
    Column("NODES", lambda template: str(template.nodes or "-")),
    Column("SHAPE", lambda template: template.shape or "-"),
    Column("FOR", lambda template: span(int(template.duration_s)) if template.duration_s else "-"),
    Column("DEFAULT", lambda template: "yes" if template.is_default else "", is_wide=True),
    Column("CLUSTER", lambda template: template.cluster or "", is_wide=True),
    Column("ID", lambda template: template.id, is_wide=True),
]


@app.command("ls", hidden=True)
@app.command("list")
def list_(output: Output = "table", workspace: options.Workspace = None) -> None:
    """List templates: those of workspaces, and those of the platform. A workspace's own hides the platform's of the same name."""
    given: dict[str, Any] = {"slice": workspace} if workspace else {}
    with client() as egs:
        show_list(egs.templates.list(page_size=500, **given).all(), COLUMNS, output=output, kind="template", none=NONE)


@app.command("get", hidden=True)
@app.command()
def show(
    template: Annotated[str, typer.Argument(help="Its name or id.", metavar="TEMPLATE", autocompletion=names.templates)],
    output: Output = "table",
) -> None:
    """Show all of one template."""
    with client() as egs:
        found = egs.templates.get(template)
        show_one(found, _lines(found), output=output, kind="template")


def _lines(template: Template) -> list[tuple[str, str]]:
    rows = [("Name", template.name), ("Id", template.id), ("Of", template.slice or PLATFORM), ("Runs", runs(template))]
    unsaid = {"id", "name", "slice", "slice_id", "cluster_id", "created_at", "kind", "image", "manifest"}
    for field in template.__struct_fields__:
        value = getattr(template, field)
        if field not in unsaid and value not in (None, [], {}, False):
            text = span(int(value)) if field.endswith("_s") and field != "releases_box" else str(value)
            rows.append((field.removesuffix("_s").replace("_", " ").capitalize(), text))
    return rows
