"""The form and the page of a request that starts after another one."""

from __future__ import annotations

import pytest

from gpr.models import AfterCondition, Gpr, GprState
from planner.explain import STRANGER
from tests import factories
from tests.pages.user_world import CREATE, HTMX, OFFERS, World, client_of, form, text

pytestmark = pytest.mark.django_db


def test_the_form_takes_the_other_by_name_and_both_pages_say_so(world: World) -> None:
    owner = world.client("owner")
    first = factories.gpr(world.slice, world.people.owner, name="prep")
    asked = form(name="train", after="prep", after_condition="success")

    assert '<option value="prep">' in text(owner.get(CREATE))
    assert "It starts after prep, which ends in" in text(owner.post(OFFERS, asked, headers=HTMX))
    owner.post(CREATE, asked)
    then = Gpr.objects.get(name="train")
    assert (then.after, then.after_condition) == (first, AfterCondition.SUCCESS)

    page, before = text(owner.get(f"/gprs/{then.pk}/")), text(owner.get(f"/gprs/{first.pk}/"))
    assert "It starts after prep" in page
    assert "if it ends well" in page
    assert f'<a href="/gprs/{first.pk}/">prep</a>' in page
    assert "Followed by" in before
    edited = owner.post(f"/gprs/{then.pk}/edit/", form(name="train", after="", version=str(then.version)))
    assert edited.status_code == 302
    assert Gpr.objects.get(pk=then.pk).after is None


def test_the_form_says_what_is_wrong_with_the_other_and_what_it_means_that_one_waits_for_approval(world: World) -> None:
    owner = world.client("owner")
    first = factories.gpr(world.slice, world.people.owner, name="long", duration_s=world.slice.duration_approval_s + 1)
    assert first.state == GprState.PENDING_APPROVAL

    assert "Start after:" in text(owner.post(OFFERS, form(after="nobody"), headers=HTMX))
    assert "which has no place in the plan yet" in text(owner.post(OFFERS, form(after="long"), headers=HTMX))
    assert owner.post(CREATE, form(name="train", after="long")).status_code == 302
    assert "nothing is promised to it" in text(owner.get(f"/gprs/{Gpr.objects.get(name='train').pk}/"))


def test_who_may_not_see_the_other_may_edit_what_starts_after_it_and_learns_no_name(world: World) -> None:
    reader = factories.user("reader")
    beside = factories.make_slice(world.cluster, name="beside", owner=reader, of=world.slice.project)
    first = factories.gpr(world.slice, world.people.owner, name="secret-prep")
    then = factories.gpr(beside, reader, name="train", after=first)
    reads = client_of(reader)

    for path in (f"/gprs/{then.pk}/", f"/gprs/{then.pk}/edit/", "/workspaces/beside/", "/workspaces/beside/create/"):
        page = text(reads.get(path))
        assert "secret-prep" not in page
        assert str(first.pk) not in page
    sent = form(name="renamed", after=STRANGER, version=str(then.version))
    assert reads.post(f"/gprs/{then.pk}/edit/", sent).status_code == 302
    kept = Gpr.objects.get(pk=then.pk)
    assert (kept.name, kept.after) == ("renamed", first)
