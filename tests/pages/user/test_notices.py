"""The bell and a page show notices."""

from __future__ import annotations

import pytest
from django.test import Client

from accounts.models import Scope
from journal.models import Notice
from journal.notices.selectors import COUNTED_MAX
from tests.journal.notices.notices import told
from tests.pages.user_world import HTMX, World, text

pytestmark = pytest.mark.django_db


def test_the_bell_of_every_page_counts_what_is_unread(world: World, owner: Client) -> None:
    assert 'aria-label="Notices, none unread"' in text(owner.get("/"))
    for n in range(COUNTED_MAX + 2):
        told(world.people.owner, f"number {n}")

    page = text(owner.get("/workspaces/vision/"))

    assert 'aria-label="Notices, 99+ unread"' in page
    assert '<span class="pip" aria-hidden="true">99+</span>' in page


def test_the_bell_opens_the_newest_ten_with_links_to_what_they_are_about(world: World, owner: Client) -> None:
    for n in range(12):
        told(world.people.owner, f"number {n} ends at 2026-11-27 14:20:00 UTC", slice_id=world.slice.pk)

    newest = text(owner.get("/notices/", {"part": "newest"}, headers=HTMX))

    assert [f"number {n} ends" in newest for n in (11, 2, 1)] == [True, True, False]
    assert 'href="/workspaces/vision/"' in newest
    assert "UTC</a>" not in newest  # moments are shown in the reader's zone


def test_reading_one_and_all_empties_the_bell(world: World, owner: Client) -> None:
    first = told(world.people.owner, "the one")
    told(world.people.owner, "second, at 2026-11-27 14:20:00 UTC")
    assert "UTC</" not in text(owner.get("/notices/"))

    answer = owner.post(f"/notices/{first.pk}/read/", headers=HTMX)
    assert answer.status_code == 204
    assert "egs:notices" in answer["HX-Trigger"]
    assert "the one" not in text(owner.get("/notices/", {"unread": "true"}))
    owner.post("/notices/read-all/")

    assert "2 notices" not in text(owner.get("/notices/"))
    assert "Nothing unread" in text(owner.get("/notices/", {"unread": "true"}))
    assert not Notice.objects.filter(read_at=None).exists()


def test_nobody_reads_the_notices_of_another_and_a_token_that_may_only_read_marks_none(world: World) -> None:
    notice = told(world.people.owner, "a secret of the owner")

    for persona in ("teammate", "admin", "outsider"):
        client = world.client(persona)
        assert "a secret" not in text(client.get("/notices/"))
        assert client.post(f"/notices/{notice.pk}/read/").status_code == 404
    reader = world.client("owner", Scope.READ)
    assert "Mark" not in text(reader.get("/notices/"))
    assert reader.post("/notices/read-all/").status_code == 403
    assert Notice.objects.filter(read_at=None).count() == 1


def test_without_notices_the_page_says_what_would_be_here(owner: Client) -> None:
    assert "No notices yet" in text(owner.get("/notices/"))
    assert "No notices yet" in text(owner.get("/notices/", {"part": "newest"}))
