"""`egs apply`, `diff`, `delete`, `get`, `export` and `lint`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from egs_client.cli import names, options
from egs_client.cli.exits import DIFFERENT, REFUSED, Refused, say
from egs_client.cli.manifests.files import Files, Folder, documents_of, fail, secrets_for, tell, texts_of
from egs_client.cli.output import Column, Output, show_list, show_one
from egs_client.cli.session import agreed, client, settled
from egs_client.cli.words import counted
from egs_client.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from egs_client.manifests.text import Document
    from egs_client.models.manifests import ManifestFileRequest, ManifestReport, ManifestResult

LONG_S = 300.0
GONE = ("deleted", "archived")
PLATFORM = "platform"  # whose policy has neither a name nor an owner
SIGNS = {"created": "+", "changed": "~", "deleted": "-", "archived": "-"}


def _kinds() -> list[str]:
    from egs_client.manifests.kinds import KINDS

    return [kind.words[0] for kind in KINDS]


def _of_kind(ctx: typer.Context, incomplete: str) -> list[str]:
    return names.objects(str(ctx.params.get("kind") or ""))(incomplete)


def _app(command: Any) -> typer.Typer:
    made = typer.Typer(add_completion=False, rich_markup_mode=None)
    made.command()(command)
    return made


Manager = Annotated[str, typer.Option(help="The owner of the fields in the manifests.")]
Force = Annotated[bool, typer.Option("--force", help="Take over fields that other managers own.")]
Prune = Annotated[bool, typer.Option("--prune", help="Delete what this manager applied with the label of -l and no manifest names now.")]
Label = Annotated[list[str] | None, typer.Option("--selector", "-l", help="A label as team=robotics; may be repeated.")]
Kind = Annotated[str, typer.Argument(help="A kind, e.g. workspaces, quotas or gpr.", autocompletion=_kinds)]


def apply(
    filename: Files = None,
    kustomize: Folder = None,
    prune: Prune = False,
    selector: Label = None,
    manager: Manager = "egs",
    force: Force = False,
    partial: Annotated[bool, typer.Option("--partial", help="Apply what can be, although other manifests have mistakes.")] = False,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    output: Output = "table",
) -> None:
    """Make objects as manifests say: all of them, or none where one has a mistake."""
    texts, labels = texts_of(filename, kustomize), _labels(prune, selector)
    given: dict[str, Any] = {
        "files": _requests(texts),
        "manager": manager,
        "is_forced": force,
        "prune": labels,
        "secrets": secrets_for(texts),
    }
    with client(timeout_s=LONG_S) as egs:
        if dry_run:
            _show(egs.manifests.diff(**given), output)
        elif not labels or _may_prune(egs.manifests.diff(**given), is_yes=yes):
            with settled():
                report = _answer(lambda: egs.manifests.apply(**given, is_partial=partial))
            _show(report, output)


def diff(
    filename: Files = None,
    kustomize: Folder = None,
    prune: Prune = False,
    selector: Label = None,
    manager: Manager = "egs",
    force: Force = False,
    output: Output = "table",
) -> None:
    """Show what apply would change. Exit code 13: there are differences."""
    texts, labels = texts_of(filename, kustomize), _labels(prune, selector)
    with client(timeout_s=LONG_S) as egs:
        report = egs.manifests.diff(files=_requests(texts), manager=manager, is_forced=force, prune=labels, secrets=secrets_for(texts))
    if output == "table":
        for result in report.results:
            _print_changes(result)
        fail(report.faults)
    else:
        _show(report, output)
    if any(result.act in SIGNS for result in report.results):
        raise typer.Exit(DIFFERENT)


def delete(
    filename: Files = None,
    kustomize: Folder = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    output: Output = "table",
) -> None:
    """Delete what manifests name. Workspaces and projects are archived."""
    files = _requests(texts_of(filename, kustomize))
    with client(timeout_s=LONG_S) as egs:
        preview = _answer(lambda: egs.manifests.delete(files=files, is_dry=True))
        if dry_run or preview.faults:
            _show(preview, output)
            return
        if _agree([result for result in preview.results if result.act in GONE], is_yes=yes):
            with settled():
                report = _answer(lambda: egs.manifests.delete(files=files))
            _show(report, output)


def get(
    kind: Kind,
    name: Annotated[str | None, typer.Argument(autocompletion=_of_kind)] = None,
    workspace: options.Workspace = None,
    output: Output = "table",
) -> None:
    """List objects of a kind as manifests: -o yaml can be applied again."""
    with client(timeout_s=LONG_S) as egs:
        text = egs.manifests.export(**_given(kind=kind, name=name, workspace=workspace)).text
    if name and not text:
        raise NotFound(status=404, code="not_found", title="Not found", detail=f"There is no {kind} {name}, or you may not see it.")
    if output == "yaml":
        print(text, end="")
        return
    documents = documents_of({"-": text})
    if output not in {"table", "wide", "name"}:
        show_list([each.data for each in documents], [], output=output, kind=kind, none="")
        return
    columns: list[Column[Document]] = [
        Column("KIND", lambda each: str(each.data["kind"])),
        Column("NAME", lambda each: _name(each.data)),
        Column("OF", lambda each: _place(each.data)),
    ]
    if output == "name":
        print("\n".join(f"{each.data['kind'].lower()}/{_name(each.data) or _place(each.data) or PLATFORM}" for each in documents))
    else:
        show_list(documents, columns, output=output, kind=kind, none=f"There are no {kind}, or you may not see them.")


def export(
    kinds: Annotated[list[str] | None, typer.Argument(help="Default: the whole set-up.", autocompletion=_kinds)] = None,
    workspace: options.Workspace = None,
) -> None:
    """Print what there is as manifests, without secrets."""
    with client(timeout_s=LONG_S) as egs:
        print(egs.manifests.export(**_given(kind=",".join(kinds or []), workspace=workspace)).text, end="")


def lint(files: Annotated[list[str], typer.Argument(help="Files and folders, or - for standard input.")]) -> None:
    """Check manifests without a server: YAML, kinds, fields, names, and types and bounds of values."""
    from egs_client.cli.manifests.types import type_faults
    from egs_client.manifests.documents import documents_check
    from egs_client.manifests.faults import told_first
    from egs_client.manifests.text import documents_read

    texts = texts_of(files)
    documents, faults = [], []
    for name, text in texts.items():
        found, wrong = documents_read(name, text)
        documents += found
        faults += wrong
    wanted, wrong = documents_check(documents)
    fail(told_first([*faults, *wrong, *type_faults(wanted)]))
    total = f"{counted(len(documents), 'manifest')} in {counted(len(texts), 'file')}"
    print(f"No mistake can be seen without the server: {total}.")


apps = {name: _app(command) for name, command in (("apply", apply), ("diff", diff), ("delete", delete), ("get", get), ("export", export))}
apps["lint"] = _app(lint)


def _requests(texts: dict[str, str]) -> list[ManifestFileRequest]:
    from egs_client.models.manifests import ManifestFileRequest

    return [ManifestFileRequest(name=name[-253:], text=text) for name, text in texts.items()]


def _labels(prune: bool, selector: Iterable[str] | None) -> dict[str, str]:
    labels = dict(each.partition("=")[::2] for each in selector or ())
    if prune != bool(labels):
        raise Refused("--prune and -l LABEL=VALUE belong together: only objects with the label are deleted.")
    return labels


def _given(**values: str | None) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


def _answer(call: Any) -> ManifestReport:
    try:
        report: ManifestReport = call()
    except InvalidInput as error:
        if error.code != "invalid_manifests":
            raise
        tell([_Fault(**fault) for fault in error.extra["faults"]])
        say("Nothing was changed.")
        raise typer.Exit(REFUSED) from None
    return report


class _Fault:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


def _may_prune(preview: ManifestReport, *, is_yes: bool) -> bool:
    fail(preview.faults)
    return _agree([result for result in preview.results if not result.file and result.act in GONE], is_yes=is_yes)


def _agree(going: list[ManifestResult], *, is_yes: bool) -> bool:
    for result in going:
        say(f"- {_line(result)}")
    return not going or agreed(f"Delete {'this' if len(going) == 1 else f'these {len(going)}'}?", is_yes=is_yes, needs_yes=True)


def _show(report: ManifestReport, output: str) -> None:
    if not report.results and not report.faults:
        say("There is no manifest in what was given, so nothing was changed.")
    if output in {"table", "wide", "name"}:
        for result in report.results:
            print(_named(result) if output == "name" else _line(result))
            if result.signing_secret:
                print(f"  the key of its signatures, shown once: {result.signing_secret}")
    else:
        show_one(report, [], output=output, kind="")
    sys.stdout.flush()
    fail(report.faults)


def _named(result: ManifestResult) -> str:
    return f"{result.kind.lower()}/{result.name}" if result.name else result.kind.lower()


def _line(result: ManifestResult) -> str:
    place = f" of {result.place}" if result.place else ""
    return f"{_named(result)}{place} {result.act}{f': {result.note}' if result.note else ''}"


def _print_changes(result: ManifestResult) -> None:
    if result.act in SIGNS:
        print(f"{SIGNS[result.act]} {_line(result)}")
        for change in result.changes:
            print(f"    {change.field}: {json.dumps(change.old)} -> {json.dumps(change.new)}")


def _name(data: Any) -> str:
    spec = data.get("spec", {})
    own = [str(spec[name]) for name in ("provider", "group", "shape", "period", "startsAt") if spec.get(name)]
    return str(data.get("metadata", {}).get("name") or " ".join(own))


def _place(data: Any) -> str:
    spec = data.get("spec", {})
    return next((str(spec[name]) for name in ("workspace", "project", "node", "cluster") if spec.get(name)), "")
