"""Encrypts secrets that the hub has to use later, as the URL of a Slack webhook.

The highest key of EGS_SECRET_KEYS encrypts, the others still decrypt; `egs_rotate_secrets` encrypts all anew.
"""

from __future__ import annotations

import base64
from functools import lru_cache
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.db.models import QuerySet


class SecretLost(Exception):
    """The key of this secret is no longer in the settings."""


def encrypt(plain: str) -> str:
    return _fernet().encrypt(plain.encode()).decode()


def decrypt(sealed: str) -> str:
    """Raises SecretLost."""
    try:
        return _fernet().decrypt(sealed.encode()).decode()
    except InvalidToken:
        raise SecretLost("EGS_SECRET_KEYS has no key for it any more.") from None


def rotate(sealed: str) -> str:
    """Encrypt with the newest key. Raises SecretLost."""
    try:
        return _fernet().rotate(sealed.encode()).decode()
    except InvalidToken:
        raise SecretLost("EGS_SECRET_KEYS has no key for it any more.") from None


def rotate_rows(rows: QuerySet[Any], column: str) -> tuple[int, int]:
    """Encrypt a column with the newest key. Returns how many values it encrypted, and how many no key reads."""
    done_count = lost_count = 0
    for pk, sealed in list(rows.exclude(**{column: ""}).values_list("pk", column)):
        try:
            # Only if it has not been changed meanwhile: a new secret has the newest key anyway.
            rows.filter(pk=pk, **{column: sealed}).update(**{column: rotate(sealed)})
            done_count += 1
        except SecretLost:
            lost_count += 1
    return done_count, lost_count


def _fernet() -> MultiFernet:
    keys: dict[str, str] = settings.EGS_SECRET_KEYS
    return MultiFernet([_key(keys[id_]) for id_ in sorted(keys, key=int, reverse=True)])


@lru_cache(maxsize=16)
def _key(text: str) -> Fernet:
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"egs.vault.v1").derive(text.encode())
    return Fernet(base64.urlsafe_b64encode(derived))
