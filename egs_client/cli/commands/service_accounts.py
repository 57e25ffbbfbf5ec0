"""`egs service-account` manages the programs of a workspace, and their tokens. Members see them, owners manage them."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import UNSET

from egs_client.cli import names, options
from egs_client.cli.exits import Refused, say
from egs_client.cli.output import Column, Output, show_list, show_one
from egs_client.cli.session import agreed, client, settled, workspace_of
from egs_client.cli.words import when
from egs_client.errors import NotFound

if TYPE_CHECKING:
    from egs_client.models.shared import NewToken, Token
    from egs_client.models.slices import ServiceAccount
    from egs_client.sync.client import Client

app = typer.Typer(add_completion=False, help="Programs of a workspace, and their tokens.", no_args_is_help=True, rich_markup_mode=None)
token_app = typer.Typer(add_completion=False, help="Tokens of a service account.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(token_app, name="token")
apps = {"service-account": app}
DAY_S = 86_400


class Role(StrEnum):
    viewer = "viewer"
    editor = "editor"


class Scope(StrEnum):
    read = "read"
    gpr_write = "gpr:write"
    write = "write"


def state_of(account: ServiceAccount) -> str:
    return "enabled" if account.is_active else "disabled"


Account = Annotated[str, typer.Argument(help="Its name or id.", metavar="ACCOUNT", autocompletion=names.service_accounts)]
TokenName = Annotated[str, typer.Argument(help="The token's name or id.", metavar="TOKEN")]
ACCOUNTS: list[Column[ServiceAccount]] = [
    Column("NAME", lambda account: account.name),
    Column("ROLE", lambda account: account.role or ""),
    Column("STATE", state_of),
    Column("FROM", lambda account: account.cluster or "EGS"),
    Column("CLUSTER USER", lambda account: account.cluster_user, is_wide=True),
    Column("MADE BY", lambda account: account.created_by or "", is_wide=True),
    Column("ID", lambda account: account.id, is_wide=True),
]
TOKENS: list[Column[Token]] = [
    Column("NAME", lambda token: token.name),
    Column("SCOPES", lambda token: ", ".join(token.scopes)),
    Column("ENDS", lambda token: "revoked" if token.revoked_at else when(token.expires_at)),
    Column("LAST USED", lambda token: when(token.last_used_at)),
    Column("FROM", lambda token: token.last_address, is_wide=True),
    Column("ID", lambda token: token.id, is_wide=True),
]


@app.command("ls", hidden=True)
@app.command("list")
def list_(output: Output = "table", workspace: options.Workspace = None) -> None:
    """List the service accounts of a workspace."""
    with client() as egs:
        rows = egs.slices.service_accounts.list(workspace_of(workspace, egs), page_size=500).all()
    show_list(rows, ACCOUNTS, output=output, kind="service-account", none="There is none: egs service-account create NAME")


@app.command("get", hidden=True)
@app.command()
def show(account: Account, workspace: options.Workspace = None, output: Output = "table") -> None:
    """Show one service account."""
    with client() as egs:
        slice_ = workspace_of(workspace, egs)
        _show(egs.slices.service_accounts.get(slice_, _full(account, slice_)), slice_, output)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Its name; the workspace's comes before it.")],
    role: Annotated[Role, typer.Option(help="Editors file requests and manage their own. Viewers look.")] = Role.editor,
    workspace: options.Workspace = None,
    dry_run: options.DryRun = False,
    output: Output = "table",
) -> None:
    """Make a service account, under whose name a pipeline acts."""
    with client() as egs:
        slice_ = workspace_of(workspace, egs)
        if dry_run:
            print(f"{slice_}:{name} would be {role.value} of workspace {slice_}.")
            return
        with settled():
            made = egs.slices.service_accounts.create(slice_, name=name, role=role.value)
        _show(made, slice_, output)
    if output == "table":
        say(f"Make its token: egs service-account token create {name} TOKEN -n {slice_}")


@app.command()
def edit(
    account: Account,
    role: Annotated[Role | None, typer.Option(help="Its new role.")] = None,
    is_active: Annotated[
        bool | None, typer.Option("--enable/--disable", help="Disabled, its tokens end to work at once, and its objects are refused.")
    ] = None,
    workspace: options.Workspace = None,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Change its role, disable or enable it. Its requests stay."""
    if role is None and is_active is None:
        raise Refused("Say what to change: --role viewer, --disable or --enable.")
    with client() as egs:
        slice_ = workspace_of(workspace, egs)
        found = egs.slices.service_accounts.get(slice_, _full(account, slice_))
        if role is not None:
            print(f"role: {found.role} -> {role.value}")
        if is_active is not None:
            print(f"state: {state_of(found)} -> {'enabled' if is_active else 'disabled'}")
        if dry_run or not agreed(f"Change {found.name}?", is_yes=yes or is_active is not False, needs_yes=True):
            return
        with settled():
            changed = egs.slices.service_accounts.update(
                slice_,
                found.id,
                role=UNSET if role is None else role.value,
                is_active=UNSET if is_active is None else is_active,
            )
    print(f"{changed.name} is {changed.role}, {state_of(changed)}.")


@app.command()
def delete(account: Account, workspace: options.Workspace = None, yes: options.Yes = False, dry_run: options.DryRun = False) -> None:
    """End it and its tokens at once. Requests and records keep its name."""
    with client() as egs:
        slice_ = workspace_of(workspace, egs)
        found = egs.slices.service_accounts.get(slice_, _full(account, slice_))
        if dry_run:
            print(f"{found.name} would be deleted.")
            return
        if not agreed(f"Delete {found.name}?", is_yes=yes, needs_yes=True):
            return
        with settled():
            egs.slices.service_accounts.delete(slice_, found.id)
    print(f"{found.name} is deleted.")


@token_app.command("ls", hidden=True)
@token_app.command("list")
def tokens(account: Account, workspace: options.Workspace = None, output: Output = "table") -> None:
    """List the tokens of a service account."""
    with client() as egs:
        slice_ = workspace_of(workspace, egs)
        rows = egs.slices.service_accounts.tokens.list(slice_, _full(account, slice_), page_size=500).all()
    show_list(rows, TOKENS, output=output, kind="token", none=f"It has none: egs service-account token create {account} TOKEN")


@token_app.command("create")
def token_create(
    account: Account,
    name: Annotated[str, typer.Argument(help="The token's name, e.g. that of the pipeline.", metavar="TOKEN")],
    scope: Annotated[list[Scope] | None, typer.Option(help="What it may do; may be repeated. Default: gpr:write.")] = None,
    days: Annotated[int, typer.Option(help="After how many days it ends.", min=1)] = 90,
    network: Annotated[
        list[str] | None, typer.Option(help="An address or network that may use it, as 10.0.0.0/8; may be repeated. Default: all.")
    ] = None,
    workspace: options.Workspace = None,
    output: Output = "table",
) -> None:
    """Make a token, and print it alone: it is shown once."""
    with client() as egs:
        slice_ = workspace_of(workspace, egs)
        scopes: list[Any] = [each.value for each in scope or [Scope.gpr_write]]
        with settled():
            made = egs.slices.service_accounts.tokens.create(
                slice_, _full(account, slice_), name=name, scopes=scopes, expires_in_s=days * DAY_S, networks=network or UNSET
            )
    _show_new(made, output)


@token_app.command("rotate")
def token_rotate(
    account: Account,
    token: TokenName,
    overlap: Annotated[str | None, typer.Option(help="How long the old one works on, as 30m; 0 for not at all. Default: 1h.")] = None,
    workspace: options.Workspace = None,
    output: Output = "table",
) -> None:
    """Make a new token of the same terms, and print it alone."""
    overlap_s = options.seconds(overlap)
    with client() as egs:
        slice_ = workspace_of(workspace, egs)
        full = _full(account, slice_)
        found = _token_of(egs, slice_, full, token)
        with settled():
            made = egs.slices.service_accounts.tokens.rotate(
                slice_, full, found.id, overlap_s=UNSET if overlap_s is None else int(overlap_s)
            )
    _show_new(made, output)


@token_app.command("revoke")
def token_revoke(account: Account, token: TokenName, workspace: options.Workspace = None, yes: options.Yes = False) -> None:
    """End a token at once."""
    with client() as egs:
        slice_ = workspace_of(workspace, egs)
        full = _full(account, slice_)
        found = _token_of(egs, slice_, full, token)
        if not agreed(f"Revoke token {found.name} of {full}, last used {when(found.last_used_at)}?", is_yes=yes, needs_yes=True):
            return
        with settled():
            egs.slices.service_accounts.tokens.delete(slice_, full, found.id)
    print(f"Token {found.name} is revoked.")


def _full(account: str, slice_: str) -> str:
    """Returns the name with the workspace's before it, also if only the rest was given."""
    try:
        return str(uuid.UUID(account))
    except ValueError:
        return account if ":" in account else f"{slice_}:{account}"


def _token_of(egs: Client, slice_: str, account: str, reference: str) -> Token:
    """Finds the token by id or by name; of several of one name the one that is still valid. Raises NotFound or Refused."""
    rows = egs.slices.service_accounts.tokens.list(slice_, account, page_size=500).all()
    named = [token for token in rows if reference in {token.id, token.name}]
    good = [token for token in named if token.revoked_at is None and token.expires_at > datetime.now(UTC)] or named[:1]
    if not good:
        detail = f"{account} has no token {reference}: egs service-account token list {account} -n {slice_}"
        raise NotFound(status=404, code="not_found", title="Not found", detail=detail)
    if len(good) > 1:
        ids = ", ".join(token.id for token in good)
        raise Refused(f"{account} has {len(good)} good tokens of the name {reference}. Name one by its id: {ids}")
    return good[0]


def _show(account: ServiceAccount, slice_: str, output: str) -> None:
    lines = [
        ("Name", account.name),
        ("Workspace", slice_),
        ("Role", account.role or ""),
        ("State", state_of(account)),
        ("From", f"cluster {account.cluster}, {account.cluster_user}" if account.cluster else "EGS"),
        ("Made by", account.created_by or ""),
        ("Id", account.id),
    ]
    show_one(account, lines, output=output, kind="service-account")


def _show_new(made: NewToken, output: str) -> None:
    if output != "table":
        show_one(made, [], output=output, kind="token")
        return
    if made.token is None:
        raise Refused(f"Token {made.name} was made by an earlier try, whose answer was lost. It is shown once: rotate it for another.")
    print(made.token)
    say(f"Token {made.name} may {', '.join(made.scopes)} and ends {when(made.expires_at)}. It is not shown again.")
