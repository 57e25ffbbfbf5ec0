"""Mints bearer tokens: `<kind>_<key id>_<secret><checksum>`.

Kind and CRC let a scanner recognize a leaked token; the key id finds the row. An HMAC is enough for a random secret of 178 bits.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import zlib
from dataclasses import dataclass
from enum import StrEnum

from django.conf import settings

BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
KEY_ID_LENGTH, SECRET_LENGTH, CHECKSUM_LENGTH = 12, 30, 6


class TokenKind(StrEnum):
    USER = "egsu"
    AGENT = "egsa"
    JOIN = "egsb"


@dataclass(frozen=True, slots=True)
class MintedToken:
    """`plain` is shown once and not stored."""

    plain: str
    key_id: str
    digest: str
    pepper_id: str


@dataclass(frozen=True, slots=True)
class ParsedToken:
    kind: TokenKind
    key_id: str
    secret: str


def token_mint(kind: TokenKind) -> MintedToken:
    key_id, secret = _random(KEY_ID_LENGTH), _random(SECRET_LENGTH)
    pepper_id = max(settings.EGS_TOKEN_PEPPERS, key=int)
    body = f"{kind}_{key_id}_{secret}"
    return MintedToken(body + _checksum(body), key_id, token_digest(secret, pepper_id), pepper_id)


def token_parse(plain: str) -> ParsedToken | None:
    """Returns None for a wrong form or checksum."""
    body, checksum = plain[:-CHECKSUM_LENGTH], plain[-CHECKSUM_LENGTH:]
    parts = body.split("_")
    if len(parts) != 3 or parts[0] not in set(TokenKind) or len(parts[1]) != KEY_ID_LENGTH:
        return None
    if not set(parts[1] + parts[2]) <= set(BASE62) or not checksum.isascii() or not hmac.compare_digest(checksum, _checksum(body)):
        return None
    return ParsedToken(TokenKind(parts[0]), parts[1], parts[2])


def token_digest(secret: str, pepper_id: str) -> str:
    pepper: str = settings.EGS_TOKEN_PEPPERS[pepper_id]
    return hmac.new(pepper.encode(), secret.encode(), hashlib.sha256).hexdigest()


def token_matches(secret: str, *, digest: str, pepper_id: str) -> bool:
    """Returns False also when the pepper was removed from the settings."""
    if pepper_id not in settings.EGS_TOKEN_PEPPERS:
        return False
    return hmac.compare_digest(token_digest(secret, pepper_id), digest)


def _random(length: int) -> str:
    return "".join(secrets.choice(BASE62) for _ in range(length))


def _checksum(body: str) -> str:
    number, digits = zlib.crc32(body.encode()), ""
    for _ in range(CHECKSUM_LENGTH):
        number, digit = divmod(number, len(BASE62))
        digits = BASE62[digit] + digits
    return digits
