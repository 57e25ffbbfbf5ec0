"""`manage.py egs_create_user`: how the first people come in."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from accounts.models import Scope, User
from accounts.tokens.services import token_authenticate
from core.clock import db_now

pytestmark = pytest.mark.django_db


def create(*arguments: str) -> str:
    out = StringIO()
    call_command("egs_create_user", *arguments, stdout=out)
    return out.getvalue().strip()


@pytest.mark.parametrize(("flags", "scopes"), [((), {Scope.READ, Scope.WRITE}), (("--admin",), set(Scope))])
def test_it_prints_a_token_that_works(flags: tuple[str, ...], scopes: set[Scope]) -> None:
    token = token_authenticate(plain=create("ann", *flags), address="", now=db_now())

    assert token is not None
    assert (token.user.name, token.user.role == "admin", set(token.scopes)) == ("ann", bool(flags), scopes)


def test_a_second_time_it_prints_another_token_of_the_same_user() -> None:
    assert create("ann") != create("ann")
    assert User.objects.count() == 1


@pytest.mark.parametrize(("first", "second"), [((), ("--admin",)), (("--admin",), ())])
def test_it_raises_nobody_and_lowers_nobody(first: tuple[str, ...], second: tuple[str, ...]) -> None:
    create("ann", *first)

    with pytest.raises(CommandError, match="Choose another name"):
        create("ann", *second)

    assert (User.objects.get().role == "admin") == bool(first)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 64, "a\u202eb", "a/b"])
def test_a_name_that_the_api_would_not_take_is_refused(name: str) -> None:
    with pytest.raises(CommandError):
        create(name)

    assert not User.objects.exists()
