"""Codes that confirm mail addresses. It stores no code: a code follows from channel and address."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final

from django.conf import settings

from journal.models import Channel

CODE_CHARS: Final = 10  # 50 bits: nobody guesses it over the API


def code_of(channel: Channel) -> str:
    told = f"egs.notices.code {channel.pk} {channel.target}"
    digest = hmac.digest(settings.SECRET_KEY.encode(), told.encode(), hashlib.sha256)
    return base64.b32encode(digest).decode()[:CODE_CHARS]


def code_is_right(channel: Channel, given: str) -> bool:
    return hmac.compare_digest(code_of(channel).encode(), given.strip().upper().encode())
