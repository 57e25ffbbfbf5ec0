"""Stores which server to call and as whom: profiles in ~/.config/egs/profiles.json, which only their owner can read.

EGS_URL and EGS_TOKEN win over the profile; EGS_LOGIN names another profile than the current one. Tokens lie in the system's keyring where
`egs login` found one.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from egs_client.errors import NotSetUp

KEYRING_SERVICE = "egs"
LOOPBACK = {"localhost", "127.0.0.1", "::1"}


@dataclass(slots=True)
class Profile:
    url: str
    token: str = ""  # empty: in the keyring
    workspace: str = ""  # what commands mean when they name none


@dataclass(slots=True)
class Profiles:
    current: str = ""
    profiles: dict[str, Profile] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Access:
    url: str
    token: str
    workspace: str
    profile: str


def is_readable_by_others(url: str) -> bool:
    """Tell whether what is sent there goes over a network without TLS."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname not in LOOPBACK


def config_dir() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "egs"


def profiles_load() -> Profiles:
    path = config_dir() / "profiles.json"
    try:
        stored = json.loads(path.read_text())
        return Profiles(stored["current"], {name: Profile(**values) for name, values in stored["profiles"].items()})
    except FileNotFoundError:
        return Profiles()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotSetUp(f"{path} cannot be read ({error}). Repair it, or delete it and sign in again: egs login.") from None


def profiles_save(profiles: Profiles) -> None:
    """Writes all profiles or none, and never lets others read them."""
    folder = config_dir()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=folder)  # 0600
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(asdict(profiles), file, indent=2)
        Path(name).replace(folder / "profiles.json")
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def access(profile: str | None = None) -> Access:
    """Raises NotSetUp."""
    url, token, wanted = os.environ.get("EGS_URL", ""), os.environ.get("EGS_TOKEN", ""), profile or os.environ.get("EGS_LOGIN", "")
    if url and token:
        return Access(url, token, os.environ.get("EGS_WORKSPACE", ""), "")
    profiles = profiles_load()
    name = wanted or profiles.current
    stored = profiles.profiles.get(name)
    if stored is None:
        known = f" There is: {', '.join(sorted(profiles.profiles))}." if profiles.profiles else ""
        what = f"There is no profile {name}." if wanted else "You are not signed in."
        raise NotSetUp(f"{what}{known} Sign in: egs login https://egs.example.com")
    if url and not token and url.rstrip("/") != stored.url:
        raise NotSetUp(
            f"EGS_URL is {url}, but the token of the profile {name} is for {stored.url}. Set EGS_TOKEN too, or sign in: egs login {url}"
        )
    workspace = os.environ.get("EGS_WORKSPACE", "") or stored.workspace
    token = token or stored.token or _from_keyring(name)
    if not token:
        raise NotSetUp(f"The profile {name} has no token any more. Sign in again: egs login {stored.url}")
    return Access(url or stored.url, token, workspace, name)


def token_store(name: str, token: str) -> str:
    """Returns what the profile's file has to hold: nothing if a keyring took the token."""
    keyring = _keyring()
    if keyring is None:
        return token
    try:
        keyring.set_password(KEYRING_SERVICE, name, token)
    except Exception:  # a keyring that is locked or broken: the file is there
        return token
    return ""


def token_forget(name: str) -> None:
    keyring = _keyring()
    if keyring is not None:
        try:
            keyring.delete_password(KEYRING_SERVICE, name)
        except Exception:  # it had none
            return


def _from_keyring(name: str) -> str:
    keyring = _keyring()
    try:
        return (keyring.get_password(KEYRING_SERVICE, name) or "") if keyring is not None else ""
    except Exception:
        return ""


def _keyring() -> Any:
    """Returns None if the package is missing (`pip install egs-client[keyring]`), or if it has no place to keep anything."""
    try:
        import keyring
    except ImportError:
        return None
    return keyring if keyring.get_keyring().priority > 0 else None
