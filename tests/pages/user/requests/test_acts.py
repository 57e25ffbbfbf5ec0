"""Release, extend and cancel by page: each asks first, says what came of it, and is done once."""

from __future__ import annotations

import json
import re
from copy import deepcopy

import pytest
from django.test import Client

from accounts.models import Scope
from gpr.models import EndReason, Gpr, GprState
from tests import factories
from tests.pages.user_world import HTMX, World, text, version_in

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True, scope="module")
def built_runs(built_world: World) -> Gpr:
    return factories.active(built_world.slice, built_world.people.owner, name="runs", nodes=2, duration_s=7200)


@pytest.fixture
def runs(built_runs: Gpr, db: None) -> Gpr:
    return deepcopy(built_runs)


@pytest.fixture
def waits(world: World, runs: Gpr) -> Gpr:
    return factories.gpr(world.slice, world.people.owner, name="waits", nodes=2)


def address(gpr: Gpr, act: str) -> str:
    return f"/gprs/{gpr.pk}/{act}/"


def test_the_question_says_what_happens_on_a_page_of_its_own(world: World, runs: Gpr) -> None:
    markup = text(world.client("owner").get(address(runs, "release")))

    assert "<h1>Release runs now?</h1>" in markup
    assert "2 nodes (16 GPUs) leave vision." in markup
    assert "Release 16 GPUs" in markup
    assert f'href="/gprs/{runs.pk}/"' in markup


def test_for_htmx_the_question_is_a_dialog(world: World, runs: Gpr) -> None:
    markup = text(world.client("owner").get(address(runs, "release"), headers=HTMX))

    assert markup.lstrip().startswith("<dialog")
    assert "<html" not in markup


def test_a_release_leads_back_with_a_word(world: World, runs: Gpr) -> None:
    owner = world.client("owner")
    version = version_in(text(owner.get(address(runs, "release"))))

    response = owner.post(address(runs, "release"), {"version": version})

    assert (response.status_code, response["Location"]) == (302, f"/gprs/{runs.pk}/")
    runs.refresh_from_db()
    assert (runs.state, runs.end_reason) == (GprState.EXITING, EndReason.EARLY_RELEASE)
    assert "runs is released" in text(owner.get(response["Location"]))


def test_in_a_dialog_the_word_is_a_toast_and_the_page_looks_again(world: World, runs: Gpr) -> None:
    response = world.client("owner").post(address(runs, "release"), {"version": runs.version}, headers=HTMX)

    assert response.status_code == 204
    told = json.loads(response["HX-Trigger"])
    assert "runs is released" in told["egs:toast"]["text"]
    assert "egs:gpr" in told


def test_a_release_that_is_sent_twice_is_refused_the_second_time_and_says_why(world: World, runs: Gpr) -> None:
    owner = world.client("owner")
    owner.post(address(runs, "release"), {"version": runs.version})

    markup = text(owner.post(address(runs, "release"), {"version": runs.version}), 409)

    assert "There is nothing to release any more." in markup


@pytest.mark.parametrize(
    ("sent", "status", "told"),
    [
        ({"extra": "soon"}, 422, "Write 90 min"),
        ({"extra": "0 min"}, 422, "at least one second"),
        ({"extra": "500 d"}, 422, "this one can get 6 d 22 h more at most"),
        ({"extra": "1 min", "version": "999"}, 409, "Review its current state and decide again."),
        ({"extra": "1 min", "version": "x"}, 409, "Review its current state and decide again."),
    ],
)
def test_a_page_answers_a_refusal_with_its_status_and_a_dialog_with_itself(
    sent: dict[str, str], status: int, told: str, world: World, runs: Gpr
) -> None:
    """Both say why, and what was typed stays. A dialog that is refused is ordinary use: no error in the console of the browser."""
    owner, given = world.client("owner"), {"version": str(runs.version), **sent}

    page = text(owner.post(address(runs, "extend"), given), status)
    dialog = text(owner.post(address(runs, "extend"), given, headers=HTMX), 200)

    for markup in (page, dialog):
        assert told in markup
        assert f'value="{sent["extra"]}"' in markup
    assert dialog.lstrip().startswith("<dialog")


def test_what_is_given_up_cannot_be_taken_back(world: World, runs: Gpr) -> None:
    """Pages write words out."""
    markup = text(world.client("owner").get(address(runs, "release")))

    assert "given up and cannot be taken back." in markup
    assert "&#x27;t" not in markup


def test_an_extension_moves_the_end(world: World, runs: Gpr) -> None:
    before = runs.ends_at
    assert before is not None

    response = world.client("owner").post(address(runs, "extend"), {"version": runs.version, "extra": "30 min"})

    assert response.status_code == 302
    runs.refresh_from_db()
    assert runs.ends_at is not None
    assert (runs.ends_at - before).total_seconds() == 1800


def test_an_extension_that_is_refused_says_until_when_and_who_is_next_and_offers_that_in_one_click(world: World) -> None:
    """It holds one of two nodes for 2 h, a stranger the other for 3 h. A request for both nodes starts after that."""
    cluster, outsider = factories.cluster("borealis", nodes=2), world.people.outsider
    mine = factories.make_slice(cluster, owner=world.people.owner)
    foreign, third = (factories.make_slice(cluster, name=name, owner=outsider) for name in ("canary-second", "canary-third"))
    runs = factories.active(mine, world.people.owner, name="short", nodes=1, duration_s=7200)
    factories.active(foreign, outsider, name="canary-long", nodes=1, duration_s=10_800)
    factories.gpr(third, outsider, name="canary-job", nodes=2)
    owner = world.client("owner")

    markup = text(owner.post(address(runs, "extend"), {"version": runs.version, "extra": "3 h"}, headers=HTMX))

    assert "Others have been promised these GPUs" in markup
    assert re.search(r"It can end at (\w{3} )?\d\d:\d\d at the latest, then another request is next\.", markup)
    assert 'value="3 h"' in markup
    assert "canary" not in markup
    until = re.search(r'name="until" value="([^"]+)">Extend to', markup)
    assert until
    sent = {"version": version_in(markup), "extra": "3 h", "until": ["", until[1]]}
    assert owner.post(address(runs, "extend"), sent).status_code == 302
    before = runs.ends_at
    runs.refresh_from_db()
    assert before
    assert runs.ends_at
    assert 3500 < (runs.ends_at - before).total_seconds() < 3700


def test_an_extension_with_somebody_next_at_once_says_so(world: World, runs: Gpr) -> None:
    factories.gpr(world.foreign, world.people.outsider, name="canary-job", nodes=2)

    markup = text(world.client("owner").post(address(runs, "extend"), {"version": runs.version, "extra": "45 min"}, headers=HTMX))

    assert "It cannot end later: another request is next. File a new request." in markup
    assert f"/workspaces/vision/create/?from={runs.pk}" in markup
    assert 'value="45 min"' in markup
    assert "canary" not in markup


def test_an_extension_by_nothing_sensible_is_refused(world: World, runs: Gpr) -> None:
    before, owner = runs.ends_at, world.client("owner")

    for extra in ("", "soon", "30", "0 min", "500 d", "99999999999 d"):
        assert owner.post(address(runs, "extend"), {"version": runs.version, "extra": extra}).status_code == 422, extra

    runs.refresh_from_db()
    assert runs.ends_at == before


def test_a_waiting_request_is_canceled(world: World, waits: Gpr) -> None:
    owner = world.client("owner")
    assert "Cancel waits?" in text(owner.get(address(waits, "delete")))

    response = owner.post(address(waits, "delete"), {"version": waits.version})

    assert response.status_code == 302
    waits.refresh_from_db()
    assert waits.state == GprState.CANCELED
    for again in (owner.get(address(waits, "delete")), owner.post(address(waits, "delete"), {"version": waits.version})):
        markup = text(again, 409)
        assert "“Canceled”" in markup
        assert "Cancel the request</button>" not in markup


def test_without_the_version_that_was_read_nothing_is_done(world: World, runs: Gpr) -> None:
    owner = world.client("owner")

    for version in ("", "x", "999", "-1"):
        assert owner.post(address(runs, "release"), {"version": version}).status_code == 409, version

    runs.refresh_from_db()
    assert runs.state == GprState.ACTIVE


@pytest.mark.parametrize(("act", "persona"), [("release", "owner"), ("extend", "admin"), ("delete", "owner")])
def test_only_its_owner_and_an_admin_may_act(act: str, persona: str, world: World, request: pytest.FixtureRequest) -> None:
    gpr: Gpr = request.getfixturevalue("waits" if act == "delete" else "runs")

    for other, answer in (("teammate", 403), ("outsider", 404)):
        assert world.client(other).get(address(gpr, act)).status_code == answer
        assert world.client(other).post(address(gpr, act), {"version": gpr.version, "extra": "1 min"}).status_code == answer
    assert Gpr.objects.get(pk=gpr.pk).version == gpr.version

    client = world.client(persona)
    assert client.get(address(gpr, act)).status_code == 200
    assert client.post(address(gpr, act), {"version": gpr.version, "extra": "1 min"}).status_code == 302
    assert Gpr.objects.get(pk=gpr.pk).version != gpr.version


def test_a_token_that_may_only_read_is_asked_nothing(world: World, runs: Gpr) -> None:
    reader: Client = world.client("owner", Scope.READ)

    for act in ("release", "extend", "delete", "edit"):
        assert reader.get(address(runs, act)).status_code == 403
        assert reader.post(address(runs, act), {"version": runs.version}).status_code == 403
    runs.refresh_from_db()
    assert runs.state == GprState.ACTIVE


def test_a_login_that_has_ended_does_nothing_and_leads_to_the_login_page(world: World, runs: Gpr) -> None:
    response = Client().post(address(runs, "release"), {"version": runs.version})

    assert (response.status_code, response["Location"]) == (302, "/login/")
    runs.refresh_from_db()
    assert runs.state == GprState.ACTIVE
