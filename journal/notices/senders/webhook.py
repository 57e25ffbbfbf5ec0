"""Sends JSON to webhooks, signed as docs/how-to/notices.md says."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from typing import Any

from core.outbound import post
from core.rest.output import utc_text
from core.rest.sealed import seal
from journal.notices.letters import Letter, Line
from journal.notices.senders.answers import check_status


def send(letter: Letter) -> None:
    """Raises NotSent."""
    notices = [_notice(line) for line in letter.lines]
    told = {"id": str(letter.id), "sent_at": utc_text(letter.at), "is_test": letter.is_test, "channel": letter.channel, "notices": notices}
    body = json.dumps(told, ensure_ascii=False).encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "EGS",
        "X-EGS-Delivery": str(letter.id),
        "X-EGS-Signature": signature(letter.secrets, body, at_s=int(letter.at.timestamp())),
    }
    answer = post(letter.target, body=body, headers=headers)
    check_status(answer.status, answer.headers)


def signature(secrets: Sequence[str], body: bytes, *, at_s: int) -> str:
    """Returns `t=<seconds>`, and for each key `v1=<HMAC-SHA256 of "<seconds>.<body>", in hex>`."""
    signed = (hmac.new(secret.encode(), b"%d." % at_s + body, hashlib.sha256).hexdigest() for secret in secrets)
    return ",".join([f"t={at_s}", *(f"v1={each}" for each in signed)])


def _notice(line: Line) -> dict[str, Any]:
    event = line.event
    return {
        "event": str(seal(event.pk)),
        "kind": line.kind,
        "event_kind": event.kind,
        "severity": event.severity,
        "at": utc_text(event.at),
        "text": event.message,
        "gpr": str(event.gpr_id) if event.gpr_id else None,
        "slice": str(event.slice_id) if event.slice_id else None,
        "url": line.url or None,
    }
