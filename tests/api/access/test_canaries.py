"""A secret stands in every field that holds one, and nobody finds it in what can be read: the API, pages, exports, tables, logs."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
import yaml
from django.apps import apps
from django.test import Client

from accounts.people.setup import setup_token
from core.clock import db_now
from inventory.services.clusters import join_token_issue
from journal.models import ChannelKind
from journal.notices.channels.services import ChannelTerms, channel_create, channel_replace_key
from journal.services import event_record
from tests import canaries, factories
from tests.api.conftest import Caller, World
from tests.canaries import secrets_in
from tests.pages.user_world import client_of
from tests.slices import kubeconfigs

pytestmark = pytest.mark.django_db

PAGES_MAX = 150
LINK = re.compile(r'(?:href|hx-get|action)="(/[^"#?]*)')  # one of each address, whatever its filters
# Stored as they are, because somebody has to read them: until the user has fetched it, and as long as the session lasts.
STORED_PLAIN = {"kubeconfig": {"token"}, "session": {"session_key", "session_data"}}


@pytest.fixture
def planted(world: World, settings: Any) -> set[str]:
    """Returns the secrets."""
    settings.EMAIL_HOST, settings.EMAIL_HOST_PASSWORD = "mail.example", "canary-secret-smtp"
    settings.EGS_TOKEN_PEPPERS = settings.EGS_TOKEN_PEPPERS | {"2": "canary-secret-pepper"}
    settings.EGS_SECRET_KEYS = settings.EGS_SECRET_KEYS | {"2": "canary-secret-vault"}
    owner, now = world.people.owner, db_now()
    kubeconfigs.ready_namespace(world.slice, world.cluster, at=now)
    kubeconfigs.answer(kubeconfigs.asked(world.slice, world.cluster, owner, at=now), at=now, secret="canary-secret-kubeconfig")
    hook = channel_create(
        owner=owner, terms=ChannelTerms(name="hook", kind=ChannelKind.WEBHOOK, target="https://h.example"), actor=owner, now=now
    )
    slack = ChannelTerms(name="slack", kind=ChannelKind.SLACK_WEBHOOK, secret="https://hooks.slack.com/services/canary")
    bot = ChannelTerms(name="bot", kind=ChannelKind.SLACK_BOT, target="#gpus", secret="xoxb-canary-secret-bot")
    for terms in (slack, bot):
        channel_create(owner=world.slice, terms=terms, actor=owner, now=now)
    keys = {hook.plain, channel_replace_key(channel=hook.channel, actor=owner, now=now).plain}
    _, join_token = join_token_issue(cluster=world.cluster, actor=world.people.admin, now=now)
    return {*keys, join_token, factories.token(owner), setup_token(), "canary-secret-kubeconfig", "canary-secret-vault", "services/canary"}


@pytest.mark.rotates(2)  # each day: all answers, records and logs of all other tests are searched, tests/canaries.py
def test_no_secret_is_in_any_answer_page_export_or_table(world: World, planted: set[str]) -> None:
    for person in (world.people.owner, world.people.admin):
        api, browser = Caller(factories.token(person)), client_of(person)
        texts = [*api_texts(api), *page_texts(browser, "/", "/admin/" if person == world.people.admin else "/account/")]
        session = browser.session.session_key
        assert len(texts) > 60
        leaked = [secret for secret in {*planted, str(session)} if any(secret in text for text in texts)]
        assert not leaked
    for name, row in table_rows():
        shown = {column: value for column, value in row.items() if column not in STORED_PLAIN.get(name, set())}
        assert not [secret for secret in planted if secret in repr(shown)], name


@pytest.mark.parametrize("place", ["answer", "log", "record"])
def test_a_planted_leak_is_found(place: str) -> None:
    secret = factories.token(factories.user("ada"))
    if place == "answer":
        Client().get(f"/login/?next=/{secret}/")
    elif place == "log":
        logging.getLogger("egs").warning("refused %s", secret)
    else:
        event_record(kind="user.created", message=f"ada has {secret}", at=db_now())

    found = list(canaries.LEAKS)
    canaries.LEAKS.clear()
    assert found
    assert secrets_in(f"token={secret}") == {secret}


def api_texts(api: Caller) -> list[str]:
    """Answers of every list, export and single object that GET can reach from the lists."""
    paths: dict[str, Any] = yaml.safe_load(Client().get("/api/schema/").content)["paths"]
    plain = [path.removeprefix("/api/v1/") for path, ways in paths.items() if "get" in ways and "{" not in path]
    texts: list[str] = []
    for path in plain:
        answer = api.get(path)
        texts.append(_text_of(answer))
        rows = (
            answer.json()["results"] if '"results"' in texts[-1][:20_000] and answer.headers["Content-Type"] == "application/json" else []
        )
        texts += [_text_of(api.get(f"{path}{row['id']}/")) for row in rows[:3] if isinstance(row, dict) and "id" in row]
    return texts


def page_texts(browser: Client, *starts: str) -> list[str]:
    """Every page that a reader reaches by links."""
    waiting, seen = list(starts), set(starts)
    texts: list[str] = []
    while waiting and len(texts) < PAGES_MAX:
        response = browser.get(waiting.pop(0), follow=True)
        text = _text_of(response)
        texts.append(text)
        links = {link for link in LINK.findall(text) if not link.startswith(("/static/", "/logout", "/api/"))}
        waiting += sorted(links - seen)
        seen |= links
    return texts


def table_rows() -> list[tuple[str, dict[str, Any]]]:
    return [(str(model._meta.model_name), row) for model in apps.get_models() for row in model._base_manager.values()]


def _text_of(answer: Any) -> str:
    body: bytes = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return body.decode()
