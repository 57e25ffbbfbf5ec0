"""Makes the holder of the setup token the first administrator, while there is none.

The token is signed and not stored: the first administrator makes it worthless.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.core import signing
from django.db import transaction

from accounts.models import PlatformRole, Scope, User
from accounts.people.services import user_create
from accounts.tokens.services import NewToken, token_issue
from core.errors import NotAllowed
from core.locks import transaction_lock

SALT: Final = "egs.setup"
LIFE: Final = timedelta(hours=1)
TOKEN_LIFE: Final = timedelta(days=90)


def setup_token() -> str:
    return signing.dumps("first administrator", salt=SALT)


def is_set_up() -> bool:
    return User.objects.filter(role=PlatformRole.ADMIN).exists()


@transaction.atomic
def administrator_set_up(*, token: str, name: str, now: datetime) -> NewToken:
    """Raises NotAllowed, or NameTaken."""
    transaction_lock("roles")
    try:
        signing.loads(token, salt=SALT, max_age=LIFE)
    except signing.BadSignature:
        raise NotAllowed("This setup token is not valid any more. Print a new one with: manage.py egs_setup_token") from None
    if is_set_up():
        raise NotAllowed("EGS has an administrator already. Ask one to add you.")
    user = user_create(name=name, role=PlatformRole.ADMIN, now=now)
    return token_issue(user=user, name="first", scopes=list(Scope), life=TOKEN_LIFE, now=now)
