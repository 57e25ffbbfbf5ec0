"""Changing a waiting request by page: two tabs, other people, and what can no longer be changed."""

from __future__ import annotations

from copy import deepcopy

import pytest
from django.test import Client

from core.clock import db_now
from gpr.models import Gpr, GprState
from gpr.queue.decisions import gpr_set_priority
from slices.models import Role
from slices.services import member_set
from tests import factories
from tests.api.conftest import Caller
from tests.pages.user_world import HTMX, OFFERS, World, client_of, form, snippet_in, text, version_in

# Each day: tests/api/requests/test_change.py, and test_every_page.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]


@pytest.fixture(autouse=True, scope="module")
def built_waits(built_world: World) -> Gpr:
    slice_, owner = built_world.slice, built_world.people.owner
    factories.active(slice_, owner, name="runs", nodes=2)
    return factories.gpr(slice_, owner, name="waits", nodes=2, duration_s=3600, model={"name": "asr"})


@pytest.fixture
def waits(built_waits: Gpr, db: None) -> Gpr:
    """It waits behind one that holds both nodes."""
    return deepcopy(built_waits)


def address(gpr: Gpr) -> str:
    return f"/gprs/{gpr.pk}/edit/"


def test_the_form_shows_what_is_asked_now_and_saves_what_is_changed(owner: Client, waits: Gpr) -> None:
    markup = text(owner.get(address(waits)))
    assert 'value="waits"' in markup
    assert 'value="asr"' in markup
    assert "Save changes" in markup

    sent = form(name="renamed", nodes="1", model_name="asr", version=version_in(markup))
    response = owner.post(address(waits), sent)

    waits.refresh_from_db()
    assert (response.status_code, response["Location"]) == (302, f"/gprs/{waits.pk}/")
    assert (waits.name, waits.nodes, waits.model) == ("renamed", 1, {"name": "asr"})


def test_the_idle_time_out_is_shown_and_changed_and_never_is_a_word_for_it(owner: Client, waits: Gpr) -> None:
    Gpr.objects.filter(pk=waits.pk).update(idle_timeout_s=1800)
    markup = text(owner.get(address(waits)))
    assert 'name="idle_timeout" value="30 min"' in markup
    assert "for 30 min" in text(owner.get(f"/gprs/{waits.pk}/"))

    for typed, stored in (("Never", 0), ("45 min", 2700), ("", None)):
        version = version_in(text(owner.get(address(waits))))
        assert owner.post(address(waits), form(name="renamed", nodes="1", idle_timeout=typed, version=version)).status_code == 302
        waits.refresh_from_db()
        assert waits.idle_timeout_s == stored
    refused = owner.post(address(waits), form(idle_timeout="soon", version=str(waits.version)))
    assert "Write 90 min" in text(refused, 422)


def test_an_edit_does_not_wait_for_itself(owner: Client, waits: Gpr) -> None:
    markup = text(owner.post(f"{OFFERS}?edit={waits.pk}", form(nodes="2", version="1"), headers=HTMX))

    assert "It waits for runs" in markup
    assert "It waits for waits" not in markup


@pytest.mark.parametrize(("persona", "answer"), [("owner", 200), ("teammate", 403), ("outsider", 404), ("admin", 200)])
def test_only_its_owner_and_an_admin_may_edit_it(persona: str, answer: int, world: World, waits: Gpr) -> None:
    client = world.client(persona)

    assert client.get(address(waits)).status_code == answer
    assert client.post(address(waits), form(name="changed", nodes="2", version="1")).status_code == (302 if answer == 200 else answer)
    waits.refresh_from_db()
    assert (waits.name == "changed") == (answer == 200)


@pytest.mark.daily
def test_an_editor_may_not_touch_what_another_filed(world: World, waits: Gpr) -> None:
    ben = factories.user("ben")
    member_set(slice_=world.slice, user=ben, role=Role.EDITOR, actor=None, now=db_now())

    assert client_of(ben).post(address(waits), form(name="changed", version="1")).status_code == 403


def test_of_two_tabs_the_second_keeps_its_text_sees_the_change_and_applies_its_own_anew(owner: Client, waits: Gpr) -> None:
    first = second = version_in(text(owner.get(address(waits))))
    assert owner.post(address(waits), form(name="waits", nodes="1", duration="2 h", version=first)).status_code == 302

    markup = text(owner.post(address(waits), form(name="mine", nodes="2", duration="3 h", version=second)), 409)

    assert "It changed while you were writing" in markup
    assert 'value="mine"' in markup
    assert "waits was changed" in markup
    assert "<td>2 h</td>" in markup
    assert '<td class="strong">3 h</td>' in markup
    waits.refresh_from_db()
    assert (waits.name, waits.duration_s) == ("waits", 7200)

    again = owner.post(address(waits), form(name="mine", nodes="2", duration="3 h", version=version_in(markup)))

    waits.refresh_from_db()
    assert again.status_code == 302
    assert (waits.name, waits.nodes, waits.duration_s) == ("mine", 2, 10_800)


def test_a_change_by_an_administrator_is_met_the_same_way(owner: Client, world: World, waits: Gpr) -> None:
    version = version_in(text(owner.get(address(waits))))
    gpr_set_priority(gpr=waits, priority=180, actor=world.people.admin, why="A deadline.", now=db_now())

    markup = text(owner.post(address(waits), form(name="waits", nodes="2", version=version)), 409)

    assert "A deadline." in markup
    assert "<td>180</td>" in markup


def test_a_form_without_the_version_that_was_read_changes_nothing(owner: Client, waits: Gpr) -> None:
    for version in ("", "0", "77", "x", "-1"):
        assert owner.post(address(waits), form(name="forged", nodes="2", version=version)).status_code == 409, version

    waits.refresh_from_db()
    assert waits.name == "waits"


@pytest.mark.parametrize("version", [None, "", "x", "-1", "\x00"])
def test_a_form_that_did_not_come_back_whole_says_so_and_what_to_do(version: str | None, owner: Client, waits: Gpr) -> None:
    """It never says "Version: enter a whole number" of a field that nobody sees. It keeps what was typed, and can be saved."""
    markup = text(owner.post(address(waits), form(name="mine", nodes="2", duration="3 h", version=version)), 409)

    assert "This page was too old or incomplete" in markup
    assert "Reload the page to start over" in markup
    assert f'href="{address(waits)}">Reload</a>' in markup
    assert "Not sent" not in markup
    assert '<td class="strong">3 h</td>' in markup
    again = owner.post(address(waits), form(name="mine", nodes="2", duration="3 h", version=version_in(markup)))
    assert again.status_code == 302


def test_the_code_beside_an_edit_is_the_change_that_the_form_makes(world: World, owner: Client) -> None:
    """This holds also for what an edit takes away."""
    waits = factories.gpr(world.slice, world.people.owner, name="waits", nodes=2, clusters=(world.cluster,), node_type="hgx")
    typed = form(name="waits", nodes="1", duration="2 h", version=str(waits.version))

    body = snippet_in(text(owner.post(f"{OFFERS}?edit={waits.pk}", typed, headers=HTMX))).body
    answer = Caller(factories.token(world.people.owner)).patch(f"gprs/{waits.pk}/", body)

    assert answer.status_code == 200, answer.content
    assert body == {"nodes": 1, "duration_s": 7200, "node_type": "", "clusters": [], "version": waits.version}
    assert (answer.json()["nodes"], answer.json()["node_type"], answer.json()["clusters"]) == (1, "", [])


def test_what_has_started_is_no_longer_changed_and_the_text_stays(owner: Client, world: World) -> None:
    runs = Gpr.objects.get(name="runs")

    markup = text(owner.post(address(runs), form(name="late-change", version=str(runs.version))), 422)

    assert "By now its state is “Active”. To give its nodes back, release it." in markup
    assert 'value="late-change"' in markup


def test_a_change_that_could_never_start_is_refused_and_the_promise_stands(owner: Client, waits: Gpr) -> None:
    promised_at = waits.promise.promised_start_at

    markup = text(owner.post(address(waits), form(name="waits", nodes="9", version=str(waits.version))), 422)

    assert "No available cluster is large enough" in markup
    waits.refresh_from_db()
    assert (waits.state, waits.nodes, waits.promise.promised_start_at) == (GprState.QUEUED, 2, promised_at)


def test_the_offers_of_an_edit_are_for_those_who_may_edit(world: World, waits: Gpr) -> None:
    foreign = factories.gpr(world.foreign, world.people.outsider)
    owner = world.client("owner")

    assert owner.post(f"{OFFERS}?edit={foreign.pk}", form()).status_code == 404
    assert owner.post(f"{OFFERS}?edit=nonsense", form()).status_code == 404
    assert world.client("teammate").post(f"{OFFERS}?edit={waits.pk}", form()).status_code == 403
    assert world.client("admin").post(f"{OFFERS}?edit={foreign.pk}", form()).status_code == 404
