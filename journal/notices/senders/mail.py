from __future__ import annotations

from email.utils import parseaddr
from smtplib import SMTPException, SMTPRecipientsRefused, SMTPResponseException
from typing import Final

from django.conf import settings
from django.core.mail import BadHeaderError, EmailMessage

from core.outbound import NotSent
from journal.notices.letters import Letter

SUBJECT_MAX_CHARS: Final = 150
NO_SERVER: Final = "This installation sends no mail: EGS_SMTP_HOST is not set."
REFUSED_FOR_GOOD: Final = 500


def send(letter: Letter) -> None:
    """Raises NotSent."""
    if not settings.EMAIL_HOST:
        raise NotSent(NO_SERVER, is_final=True)
    _, sender = parseaddr(settings.DEFAULT_FROM_EMAIL)
    headers = {
        "Message-ID": f"<{letter.id}@{sender.rpartition('@')[2] or 'localhost'}>",
        "X-EGS-Delivery": str(letter.id),
        "Auto-Submitted": "auto-generated",
    }
    message = EmailMessage(f"[EGS] {letter.subject}"[:SUBJECT_MAX_CHARS], letter.plain_text(), to=[letter.target], headers=headers)
    try:
        message.send()
    except BadHeaderError:
        raise NotSent("The address is not valid.", is_final=True) from None
    except SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        raise NotSent("The mail server refused the address.", is_final=min(codes, default=0) >= REFUSED_FOR_GOOD) from None
    except SMTPResponseException as error:
        raise NotSent(f"The mail server answered {error.smtp_code}.") from None
    except (SMTPException, OSError):
        raise NotSent("The mail server could not be reached.") from None
