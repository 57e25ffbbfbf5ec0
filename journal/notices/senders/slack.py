"""Sends to Slack through its own SDK. The SDK sends through core.outbound.

Slack knows no ids of messages: after a crash between sending and storing it may show a message twice.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Final
from urllib.request import Request

from django.conf import settings
from slack_sdk.errors import SlackApiError
from slack_sdk.web.client import WebClient
from slack_sdk.webhook.client import WebhookClient
from slack_sdk.webhook.webhook_response import WebhookResponse

from core.outbound import Answer, NotSent, post
from journal.notices.letters import Letter
from journal.notices.senders.answers import check_status

CODE: Final = re.compile(r"[a-z_]{1,40}", re.ASCII)
# Another try would not help.
FINAL_CODES: Final = frozenset(
    {"account_inactive", "channel_not_found", "invalid_auth", "is_archived", "missing_scope", "not_in_channel", "token_revoked"}
)
TEXT_MAX_CHARS: Final = 3000
# The SDK would write the URL of a webhook, which is a secret, and each failure, which is told elsewhere.
SILENT: Final = logging.getLogger("egs.slack_sdk")
SILENT.setLevel(logging.CRITICAL)


class _Webhook(WebhookClient):
    def _perform_http_request_internal(self, url: str, req: Request) -> WebhookResponse:
        answer = _post(url, req)
        return WebhookResponse(url=url, status_code=answer.status, body="", headers=dict(answer.headers))


class _Web(WebClient):
    def _perform_urllib_http_request_internal(self, url: str, req: Request) -> dict[str, Any]:
        answer = _post(url, req)
        return {"status": answer.status, "headers": dict(answer.headers), "body": answer.body.decode("utf-8", errors="replace")}


def send_to_webhook(letter: Letter) -> None:
    """Raises NotSent."""
    response = _Webhook(letter.secrets[0], retry_handlers=[], logger=SILENT).send(text=_markup(letter), unfurl_links=False)
    check_status(response.status_code, response.headers)


def send_as_bot(letter: Letter) -> None:
    """Raises NotSent."""
    client = _Web(token=letter.secrets[0], base_url=settings.EGS_SLACK_API, retry_handlers=[], logger=SILENT)
    metadata = {"event_type": "egs_delivery", "event_payload": {"delivery": str(letter.id)}}
    try:
        client.chat_postMessage(channel=letter.target, text=_markup(letter), unfurl_links=False, metadata=metadata)
    except SlackApiError as error:
        check_status(error.response.status_code, error.response.headers)
        code = str(error.response.get("error", ""))
        told = f": {code}" if CODE.fullmatch(code) else ""
        raise NotSent(f"Slack refused the message{told}.", is_final=code in FINAL_CODES) from None
    except (AttributeError, TypeError, ValueError):  # HTML, or JSON that is no object
        raise NotSent("Slack gave no answer that EGS understands.") from None


def _post(url: str, req: Request) -> Answer:
    body = req.data if isinstance(req.data, bytes) else b""
    return post(url, body=body, headers=dict(req.header_items()))


def _markup(letter: Letter) -> str:
    """Slack reads `<!channel>` and links in angle brackets only."""
    text = letter.plain_text()
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")[:TEXT_MAX_CHARS]
