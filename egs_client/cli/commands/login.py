"""`egs login`, `logout` and `whoami` sign in, sign out and say who is signed in."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated
from urllib.parse import urlsplit

import typer

from egs_client.cli import early
from egs_client.cli.exits import Refused, say
from egs_client.cli.output import Output, show_one
from egs_client.cli.session import chosen, client, is_interactive
from egs_client.cli.words import when
from egs_client.config import Profile, access, is_readable_by_others, profiles_load, profiles_save, token_forget, token_store
from egs_client.gprs import workspace_meant

login_app, logout_app, whoami_app = (typer.Typer(add_completion=False, rich_markup_mode=None) for _ in range(3))


class Scope(StrEnum):
    read = "read"
    gpr_write = "gpr:write"
    write = "write"
    admin = "admin"


apps = {"login": login_app, "logout": logout_app, "whoami": whoami_app}


@login_app.command()
def login(
    url: Annotated[str | None, typer.Argument(help="The address of EGS. Default: the profile's.")] = None,
    with_token: Annotated[bool, typer.Option("--with-token", help="Read a token from standard input.")] = False,
    device: Annotated[bool, typer.Option("--device", help="Show a code to confirm in a browser on any machine; open none here.")] = False,
    scope: Annotated[Scope, typer.Option(help="What the token may do; you can grant less in the browser.")] = Scope.write,
    workspace: Annotated[str, typer.Option("--workspace", "-n", help="The workspace that commands use if they name none.")] = "",
    insecure: Annotated[bool, typer.Option("--insecure-http", help="Send the token without TLS, though others could read it.")] = False,
) -> None:
    """Sign in, and store that as a profile, which only you can read.

    A code is shown here, which you confirm in the browser, signed in there as always, by an identity provider too. Where there is a
    browser, it opens. The token lies in the system's keyring where there is one, else in ~/.config/egs. Without a terminal the token is
    read from standard input.
    """
    from egs_client.sync.client import Client

    early.over()
    if device and with_token:
        raise Refused("Give --device or --with-token, not both.")
    profiles = profiles_load()
    known = profiles.profiles.get(chosen.profile or profiles.current)
    url = (url or (known.url if known else "")).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise Refused("Name the server, as egs login https://egs.example.com")
    if is_readable_by_others(url) and not insecure:
        raise Refused(f"{url} has no TLS, so others could read your token. Use https, or add --insecure-http.")
    if with_token or not (device or is_interactive()):
        token = _token_given()
    else:
        from egs_client.cli.device import token_by_device

        token = token_by_device(url, scope=scope.value, is_here=not device) or _token_given(page=f"{url}/account/tokens/new/")
    with Client(url, token, patience_s=0) as egs:
        me = egs.me.get()
    if workspace and workspace not in {own.name for own in me.slices} and not me.is_admin:
        raise Refused(f"You are in no workspace {workspace}. You are in: {', '.join(own.name for own in me.slices) or 'none'}")
    name = chosen.profile or parts.netloc
    profiles.profiles[name] = Profile(url=url, token=token_store(name, token), workspace=workspace or workspace_meant(me.slices))
    profiles.current = name
    profiles_save(profiles)
    may = ", ".join(me.token.scopes)
    print(f"Signed in to {url} as {me.name}. Profile {name}; the token may {may} and ends {when(me.token.expires_at)}.")


@logout_app.command()
def logout(revoke: Annotated[bool, typer.Option("--revoke", help="Revoke the token at the server, too.")] = False) -> None:
    """Forget the token of the profile."""
    profiles = profiles_load()
    name = chosen.profile or profiles.current
    if name not in profiles.profiles:
        raise Refused("There is no such profile." if name else "You are not signed in.")
    if revoke:
        with client() as egs:
            egs.tokens.delete(egs.me.get().token.id)
    token_forget(name)
    del profiles.profiles[name]
    profiles.current = "" if profiles.current == name else profiles.current
    profiles_save(profiles)
    print(f"Signed out of {name}.{' Its token is revoked.' if revoke else ''}")


@whoami_app.command()
def whoami(output: Output = "table") -> None:
    """Tell who is signed in, on which server, and when the token ends."""
    found = access(chosen.profile)
    with client() as egs:
        me = egs.me.get()
    lines = [
        ("Name", me.name),
        ("Role", me.role),
        ("Server", found.url),
        ("Profile", found.profile or "from EGS_URL and EGS_TOKEN"),
        ("Workspaces", "\n".join(f"{own.name} ({own.role})" for own in me.slices)),
        ("Default", found.workspace or workspace_meant(me.slices) or "none: add -n WORKSPACE"),
        ("Token", f"{me.token.name}, scopes {', '.join(me.token.scopes)}, ends {when(me.token.expires_at)}"),
    ]
    show_one(me, lines, output=output, kind="user")


def _token_given(*, page: str = "") -> str:
    if sys.stdin.isatty():
        from egs_client.cli.device import hidden_typing

        say(f"{f'Make a token at {page}, paste it' if page else 'Paste the token'} here, then press Enter:")
        with hidden_typing():
            token = sys.stdin.readline().strip()
    else:
        token = sys.stdin.readline().strip()
    if not token:
        raise Refused(
            "There is no token on standard input. In a pipeline: egs login URL --with-token < FILE, or set EGS_URL and EGS_TOKEN."
        )
    return token
