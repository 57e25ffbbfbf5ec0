"""Sends letters, with one module for each kind of channel. They use no database."""

from __future__ import annotations

from journal.models import ChannelKind
from journal.notices.letters import Letter


def send(letter: Letter) -> None:
    """Raises NotSent."""
    from journal.notices.senders import mail, slack, webhook  # only a process that sends needs their libraries

    senders = {
        ChannelKind.MAIL: mail.send,
        ChannelKind.SLACK_WEBHOOK: slack.send_to_webhook,
        ChannelKind.SLACK_BOT: slack.send_as_bot,
        ChannelKind.WEBHOOK: webhook.send,
    }
    senders[ChannelKind(letter.kind)](letter)
