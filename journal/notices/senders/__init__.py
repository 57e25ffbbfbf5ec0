"""Sends letters: one module for each kind of channel. They use no database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from journal.models import ChannelKind
from journal.notices.letters import Letter
from journal.notices.senders import mail, slack, webhook

SENDERS: Final[Mapping[str, Callable[[Letter], None]]] = {
    ChannelKind.MAIL: mail.send,
    ChannelKind.SLACK_WEBHOOK: slack.send_to_webhook,
    ChannelKind.SLACK_BOT: slack.send_as_bot,
    ChannelKind.WEBHOOK: webhook.send,
}


def send(letter: Letter) -> None:
    """Raises NotSent."""
    SENDERS[letter.kind](letter)
