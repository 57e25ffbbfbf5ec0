"""Refusals use the words of the pages: workspace, request, hours, the reader's clock; never slices, GPRs, seconds or versions."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from accounts.policy import Verb
from core.clock import db_now
from core.errors import (
    CanNeverStart,
    Conflict,
    EgsError,
    IllegalTransition,
    InvalidInput,
    NotAllowed,
    NotFound,
    OverPolicy,
    StaleState,
)
from gpr.models import ENDED, Gpr, GprState
from gpr.requests.editing import gpr_cancel, gpr_edit, spec_of
from gpr.requests.ending import gpr_extend, gpr_release
from gpr.requests.selectors import gpr_for
from gpr.requests.services import gpr_submit
from portal_shared.forms.refusals import refusal_of
from slices.models import Slice
from slices.selectors import slice_for
from tests import factories
from tests.pages.user_world import CREATE, HTMX, OFFERS, World, form, text

pytestmark = pytest.mark.django_db

API_WORDS = re.compile(
    r"\bGPRs?\b|\bslices?\b|\bversion\b|\bUTC\b|_s\b|_gib\b|\b\d{3,} s\b|\b1 (nodes|GPUs)\b|[A-Z]{2,}_[A-Z]+|\(?\b(QUEUED|ACTIVE)\b"
)


def refused(act: Callable[[], Any]) -> EgsError:
    with pytest.raises(EgsError) as caught:
        act()
    return caught.value


def all_refusals(world: World) -> dict[str, EgsError]:
    """Every refusal of a service that a page of the user can run into."""
    people, now = world.people, db_now()
    runs = factories.active(world.slice, people.owner, name="runs", nodes=2, duration_s=7200)
    waits = factories.gpr(world.slice, people.owner, name="waits", nodes=2)
    old = Gpr.objects.get(pk=runs.pk)
    Gpr.objects.filter(pk=old.pk).update(version=old.version + 1)
    runs.refresh_from_db()

    def submit(**changes: Any) -> Callable[[], Any]:
        return lambda: gpr_submit(actor=people.owner, spec=factories.spec(world.slice, **changes), now=now)

    def extend(extra_s: int) -> Callable[[], Any]:
        return lambda: gpr_extend(gpr=runs, extra_s=extra_s, actor=people.owner, now=now)

    return {
        "no such workspace": refused(lambda: slice_for(people.owner, "canary-slice")),
        "no such request": refused(lambda: gpr_for(people.owner, uuid4())),
        "a viewer": refused(lambda: slice_for(people.teammate, "vision", verb=Verb.REQUEST)),
        "a viewer who files": refused(lambda: gpr_submit(actor=people.teammate, spec=factories.spec(world.slice), now=now)),
        "a viewer who acts": refused(lambda: gpr_for(people.teammate, waits.pk, verb=Verb.CHANGE)),
        "an old page": refused(lambda: gpr_for(people.owner, waits.pk, verb=Verb.CHANGE, version=77)),
        "an old row": refused(lambda: gpr_release(gpr=old, actor=people.owner, now=now)),
        "too late to cancel": refused(lambda: gpr_cancel(gpr=runs, actor=people.owner, now=now)),
        "too early to release": refused(lambda: gpr_release(gpr=waits, actor=people.owner, now=now)),
        "too late to edit": refused(lambda: gpr_edit(gpr=runs, actor=people.owner, spec=spec_of(runs), now=now)),
        "too early to extend": refused(lambda: gpr_extend(gpr=waits, extra_s=60, actor=people.owner, now=now)),
        "extended beyond the policy": refused(extend(90 * 86_400)),
        "extended by nothing": refused(extend(0)),
        "extended into a promise": refused(extend(7200)),
        "booked where others are": refused(submit(is_booking=True, earliest_start_at=now + timedelta(minutes=30))),
        "longer than the policy": refused(submit(duration_s=100 * 86_400)),
        "larger than any": refused(submit(nodes=9)),
        "more than a node has": refused(submit(gpus_per_node=9)),
        "no such GPU": refused(submit(shape="B200")),
        "no GPU at all": refused(submit(shape="")),
        "out of range": refused(submit(nodes=20_000, priority=999)),
    }


def test_no_refusal_on_a_page_speaks_as_the_api_does(world: World) -> None:
    """A reader of pages has never heard of slices, GPRs or versions, counts in hours, and lives in his own time zone."""
    told = {name: refusal_of(error) for name, error in all_refusals(world).items()}

    wrong = {name: refusal for name, refusal in told.items() if API_WORDS.search(f"{refusal.title} {refusal.detail}")}
    assert wrong == {}


def test_the_api_keeps_its_facts(world: World) -> None:
    """A program reads numbers and states from members of the problem, not from sentences."""
    found = all_refusals(world)

    assert found["longer than the policy"].extra == {"limit": "duration_max_s", "most": 90 * 86_400}
    assert found["too late to cancel"].extra == {"state": GprState.ACTIVE}
    assert isinstance(found["an old page"].extra["version"], int)


@pytest.mark.parametrize("state", GprState.values)
def test_what_its_state_does_not_allow_is_told_with_the_state_as_the_page_shows_it(state: str) -> None:
    """The word is that of the pill beside it, with what can be done instead."""
    refusal = refusal_of(IllegalTransition("raw", state=state))

    assert not API_WORDS.search(refusal.detail)
    assert ("file a new request" in refusal.detail) == (state in ENDED)


@pytest.mark.parametrize(
    "error", [CanNeverStart("a"), Conflict("a"), NotAllowed("a"), OverPolicy("a"), EgsError("a"), IllegalTransition("a")]
)
def test_a_refusal_that_needs_no_other_words_is_told_as_it_is(error: EgsError) -> None:
    """Nothing is lost on the way to the page."""
    assert (refusal_of(error).title, refusal_of(error).detail) == (error.title, "a")


def test_fields_are_not_named_as_the_api_names_them() -> None:
    """`extra_s: Must be…` is a line of a program."""
    assert refusal_of(InvalidInput({"extra_s": ["One.", "Two."], "name": ["Three."]})).detail == "One. Two. Three."
    assert refusal_of(NotFound("GPR")).detail == "There is no such GPU request, or you may not see it."
    assert refusal_of(StaleState("version 4, you gave 3")).detail == "Review its current state and decide again."


def test_the_pages_show_these_words(world: World) -> None:
    """They stand on a page, in the toast of a fragment, at a field and in a dialog."""
    owner = world.client("owner")
    waits = factories.gpr(world.slice, world.people.owner, name="waits", nodes=2, duration_s=7200)
    gone = f"/gprs/{uuid4()}/"

    assert "There is no such GPU request" in text(owner.get(gone), 404)
    assert "There is no such GPU request" in owner.get(gone, headers=HTMX)["HX-Trigger"]
    assert "There is no such workspace" in text(owner.get("/workspaces/nowhere/"), 404)
    assert "In workspace vision this needs the role editor." in text(world.client("teammate").get(CREATE), 403)
    assert "one may take 90 d at most; 100 d were asked for" in text(owner.post(CREATE, form(duration="100 d")), 422)
    dialog = text(owner.post(f"/gprs/{waits.pk}/release/", {"version": waits.version}, headers=HTMX))
    assert "waits is “Queued” by now. While it waits it can be changed or canceled." in dialog


def test_a_rule_that_asks_for_approval_speaks_of_days_and_of_one_node(world: World) -> None:
    """The page of the request shows it, and so do the offers before it is filed."""
    Slice.objects.filter(pk=world.slice.pk).update(duration_approval_s=86_400, gpus_approval=1)

    markup = text(world.client("owner").post(OFFERS, form(duration="2 d")))

    assert "2 d; longer than 1 d needs approval." in markup
    assert "8 GPUs; more than 1 need approval." in markup


def test_whom_it_waits_for_is_told_with_the_time_on_the_clock_of_the_reader(world: World) -> None:
    """`in 2 h` alone is wrong a minute later on a page that stays open."""
    runs = factories.active(world.slice, world.people.owner, name="runs", nodes=2, duration_s=7200)
    waits = factories.gpr(world.slice, world.people.owner, name="waits", nodes=2)
    owner = world.client("owner")
    owner.cookies["egs_zone"] = "Pacific/Kiritimati"

    markup = text(owner.get(f"/gprs/{waits.pk}/", {"part": "why"}))

    assert re.search(r"runs \(its 2 nodes come free in (2 h|1 h 59 min)[^,]*, at (\w{3} )?\d\d:\d\d\)", markup), markup
    assert "runs</a> holds 2 nodes, until <time" in markup
    assert "UTC)" not in markup
    assert runs.ends_at is not None
