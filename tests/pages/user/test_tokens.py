"""A token that the page makes for `egs login` on the same computer."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.pages.user_world import text

pytestmark = pytest.mark.django_db
NEW = "/account/tokens/new/"
STATE = "s" * 32
TERMS = {"name": "laptop", "scope": "write", "days": "90"}


def test_the_page_of_a_new_token_offers_it_to_the_terminal_that_asked(owner: Client) -> None:
    asked = f"{NEW}?port=41234&state={STATE}&name=egs+on+laptop"
    assert 'value="egs on laptop"' in text(owner.get(asked))

    answer = owner.post(asked, TERMS)

    assert '<form class="push" method="post" action="http://127.0.0.1:41234/">' in text(answer)
    assert f'name="state" value="{STATE}"' in text(answer)
    assert "form-action 'self' http://127.0.0.1:41234/" in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize("query", ["", "port=80&state=" + STATE, "port=41234&state=short", "port=evil.example&state=" + STATE])
def test_any_other_page_of_a_new_token_sends_it_nowhere(owner: Client, query: str) -> None:
    answer = owner.post(f"{NEW}?{query}", TERMS)

    assert "Your new token" in text(answer)
    assert "Give it to egs" not in text(answer)
    assert "127.0.0.1" not in answer.headers["Content-Security-Policy"]
