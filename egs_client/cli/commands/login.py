"""`egs login`, `logout` and `whoami`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from egs_client.cli.exits import Refused, say
from egs_client.cli.output import Output, show_one
from egs_client.cli.session import chosen, client, is_interactive
from egs_client.cli.words import when
from egs_client.config import Profile, access, is_readable_by_others, profiles_load, profiles_save, token_forget, token_store

if TYPE_CHECKING:
    from egs_client.models.slices import Me

login_app, logout_app, whoami_app = (typer.Typer(add_completion=False, rich_markup_mode=None) for _ in range(3))
apps = {"login": login_app, "logout": logout_app, "whoami": whoami_app}


@login_app.command()
def login(
    url: Annotated[str | None, typer.Argument(help="The address of EGS. Default: the profile's.")] = None,
    with_token: Annotated[bool, typer.Option("--with-token", help="Read the token from standard input, and ask nothing.")] = False,
    workspace: Annotated[str, typer.Option("--workspace", "-n", help="What commands mean when they name none.")] = "",
    insecure: Annotated[bool, typer.Option("--insecure-http", help="Send the token without TLS, though others could read it.")] = False,
) -> None:
    """Sign in, and store that as a profile, which only you can read.

    The browser opens the page that makes a token, signed in there as always, by an identity provider too. The token lies in the system's
    keyring where there is one, else in ~/.config/egs.
    """
    from egs_client.sync.client import Client

    profiles = profiles_load()
    known = profiles.profiles.get(chosen.profile or profiles.current)
    url = (url or (known.url if known else "")).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise Refused("Name the server, as egs login https://egs.example.com")
    if is_readable_by_others(url) and not insecure:
        raise Refused(f"{url} has no TLS, so others could read your token. Use https, or add --insecure-http.")
    token = _token(url, with_token=with_token)
    with Client(url, token, patience_s=0) as egs:
        me = egs.me.get()
    if workspace and workspace not in {own.name for own in me.slices} and not me.is_admin:
        raise Refused(f"You are in no workspace {workspace}. You are in: {', '.join(own.name for own in me.slices) or 'none'}")
    name = chosen.profile or parts.netloc
    profiles.profiles[name] = Profile(url=url, token=token_store(name, token), workspace=workspace or _only(me))
    profiles.current = name
    profiles_save(profiles)
    print(f"Signed in to {url} as {me.name}. Profile {name}; the token ends {when(me.token.expires_at)}.")


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
        ("Default", found.workspace or _only(me) or "none: add -n WORKSPACE"),
        ("Token", f"{me.token.name}, scopes {', '.join(me.token.scopes)}, ends {when(me.token.expires_at)}"),
    ]
    show_one(me, lines, output=output, kind="user")


def _token(url: str, *, with_token: bool) -> str:
    if with_token or not is_interactive():
        if sys.stdin.isatty():
            say("Paste the token, then press Enter:")
        token = sys.stdin.readline().strip()
    else:
        from egs_client.cli.handover import token_from_person

        token = token_from_person(url)
    if not token:
        raise Refused(
            "There is no token on standard input. In a pipeline: egs login URL --with-token < FILE, or set EGS_URL and EGS_TOKEN."
        )
    return token


def _only(me: Me) -> str:
    return me.slices[0].name if len(me.slices) == 1 else ""
