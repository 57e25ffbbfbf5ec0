"""Reads settings from the environment. Raises ImproperlyConfigured for a value that does not parse."""

import json
import os
import re
from collections.abc import Collection
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

PROVIDER_MUST = {"key", "label", "issuer", "client_id", "client_secret"}
PROVIDER_MAY = {"scopes", "groups_claim", "algorithm"}
PROVIDER_KEY = re.compile("[a-z0-9-]{1,31}")
TRUE, FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}


def env_str(name: str, default: str = "") -> str:
    return os.environ.get(name, default)


def env_bool(name: str, default: bool) -> bool:
    value = os.environ.get(name)
    if value is None:
        return default
    if value.lower() in TRUE | FALSE:
        return value.lower() in TRUE
    raise ImproperlyConfigured(f"{name} must be one of 1, 0, true, false, not {value!r}.")


def env_int(name: str, default: int) -> int:
    value = os.environ.get(name)
    if value is None:
        return default
    try:
        return int(value)
    except ValueError:
        raise ImproperlyConfigured(f"{name} must be a whole number, not {value!r}.") from None


def env_choice(name: str, default: str, choices: Collection[str]) -> str:
    value = env_str(name, default)
    if value in choices:
        return value
    raise ImproperlyConfigured(f"{name} must be {' or '.join(choices)}, not {value!r}.")


def env_list(name: str, default: str = "") -> list[str]:
    return [part.strip() for part in env_str(name, default).split(",") if part.strip()]


def env_networks(name: str, default: str) -> list[IPv4Network | IPv6Network]:
    """Reads `10.0.0.0/8,::1`."""
    try:
        return [ip_network(part) for part in env_list(name, default)]
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} must list addresses or networks as 10.0.0.0/8: {error}.") from None


def env_secret(name: str, default: str = "") -> str:
    """Returns the value of `NAME`, or the content of the file that `NAME_FILE` names (Docker and Kubernetes secrets)."""
    path = os.environ.get(f"{name}_FILE")
    if path is None:
        return env_str(name, default)
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ImproperlyConfigured(f"{name}_FILE names {path!r}, which cannot be read: {error.strerror}.") from None


def env_peppers(name: str, default: str) -> dict[str, str]:
    """Reads `1:first,2:second` as {id: pepper}; unset: `default` as pepper 1."""
    value = env_secret(name)
    if not value:
        return {"1": default}
    pairs = [pair.partition(":") for pair in value.split(",")]
    if not all(id_.isdigit() and pepper for id_, _, pepper in pairs):
        raise ImproperlyConfigured(f"{name} must read 1:first,2:second: a number and a text without commas each.")
    return {id_: pepper for id_, _, pepper in pairs}


def env_providers(name: str) -> list[dict[str, str]]:
    """Reads a JSON list of identity providers; unset: none."""
    text = env_secret(name)
    try:
        entries = json.loads(text) if text else []
        for entry in entries:
            if missing := PROVIDER_MUST - entry.keys() or entry.keys() - PROVIDER_MUST - PROVIDER_MAY:
                raise ValueError(f"check {', '.join(sorted(missing))}")
            is_local = urlsplit(entry["issuer"]).hostname in {"127.0.0.1", "localhost", "::1"}
            if not (all(isinstance(value, str) for value in entry.values()) and (entry["issuer"].startswith("https://") or is_local)):
                raise ValueError("all values are texts, and the issuer begins with https://")
            if not PROVIDER_KEY.fullmatch(entry["key"]):
                raise ValueError("a key has 1 to 31 letters a-z, digits or dashes")
    except (ValueError, AttributeError, TypeError) as error:
        need = ", ".join(sorted(PROVIDER_MUST))
        raise ImproperlyConfigured(f"{name} must be a JSON list of objects with {need}: {error}.") from None
    return list(entries)


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def env_database(name: str, default: str) -> dict[str, object]:
    """Reads `sqlite:///relative.db`, `sqlite:////absolute.db` or `postgres://user:password@host:port/name?option=value`."""
    url = urlsplit(env_secret(name, default))
    if url.scheme == "sqlite":
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": url.path[1:],
            "OPTIONS": {
                # IMMEDIATE: a transaction takes the write lock when it begins instead of failing at its first write.
                "transaction_mode": "IMMEDIATE",
                "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;PRAGMA busy_timeout=10000;",
                "timeout": 10,
            },
        }
    if url.scheme in {"postgres", "postgresql"}:
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": unquote(url.path[1:]),
            "USER": unquote(url.username or ""),
            "PASSWORD": unquote(url.password or ""),
            "HOST": url.hostname or dict(parse_qsl(url.query)).get("host", ""),
            "PORT": str(url.port or ""),
            "CONN_MAX_AGE": 60,
            "CONN_HEALTH_CHECKS": True,
            # A server that does not answer must not block a thread for minutes.
            "OPTIONS": {"connect_timeout": 5},
        }
    raise ImproperlyConfigured(f"{name} must start with sqlite:// or postgres://, not {url.scheme!r}.")
