"""Templates on the pages: a request starts from one, and a workspace's owners manage them."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from django.test import Client

from accounts.models import Scope
from core.clock import db_now
from gpr.models import Gpr, GprTemplate
from portal_shared.parts.paging import PAGE_ROWS
from portal_user.pages.requests.create import TEMPLATES_SHOWN
from slices.models import Role
from slices.services import member_set
from tests import factories
from tests.builders import SHAPE
from tests.pages.user_world import CREATE, HTMX, OFFERS, World, form, text

# Each day: tests/api/requests/filing/test_templates.py, and test_every_page.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]
PATH = "/workspaces/vision/templates/"
ASKED = {"shape": SHAPE, "nodes": 2, "gpus_per_node": 4, "duration_s": 5400, "priority": 120, "idle_timeout_s": 1800, "evictable": False}


@pytest.fixture
def half(world: World) -> GprTemplate:
    return factories.template(world.slice, name="half-node", asked=ASKED)


def typed(**changes: Any) -> dict[str, Any]:
    """Returns what the browser sends of the template's form."""
    return {
        "name": "half-node",
        "shape": SHAPE,
        "nodes": "1",
        "gpus_per_node": "4",
        "duration": "8 h",
        "rdma": "no",
        "auto": "on",
        **changes,
    }


def test_a_request_s_form_is_filled_in_from_the_template_that_is_chosen_and_the_request_says_so(
    owner: Client, world: World, half: GprTemplate
) -> None:
    first = html.unescape(text(owner.get(CREATE)))
    assert f'hx-get="{CREATE}?template={half.pk}"' in first

    filled = html.unescape(text(owner.get(f"{CREATE}?template={half.pk}&name=train")))

    values = dict(re.findall(r'<input type="(?:text|number|hidden)" name="(\w+)" value="([^"]*)"', filled))
    assert {name: values[name] for name in ("name", "nodes", "gpus_per_node", "duration", "priority", "template")} == {
        **{"name": "train", "nodes": "2", "gpus_per_node": "4", "duration": "1 h 30 min", "priority": "120"},
        "template": str(half.pk),
    }
    assert 'name="evictable" id="id_evictable" ><' in filled
    assert f'value="{SHAPE}" data-gpus-per-node="8" checked' in filled

    text(owner.post(CREATE, form(template=str(half.pk), nodes="1")), 302)
    made = Gpr.objects.get()
    assert made.template == half
    assert re.search(r"<dt>Template</dt>\s*<dd *>half-node", text(owner.get(f"/gprs/{made.pk}/")))


def test_the_code_beside_the_form_says_the_template_and_only_what_differs_from_it(owner: Client, half: GprTemplate) -> None:
    sent = form(
        template=str(half.pk), nodes="1", gpus_per_node="", duration="90 min", idle_timeout="30 min", priority="120", evictable=None
    )

    shown = html.unescape(text(owner.post(OFFERS, sent, headers=HTMX)))

    body = json.loads(shown[shown.index("-d '") + 4 :].split("'", 1)[0])
    assert body == {"slice": "vision", "name": "train", "template": "half-node", "nodes": 1, "gpus_per_node": None}


def test_a_template_that_is_gone_when_the_form_is_sent_is_no_fault_of_the_sender(owner: Client, half: GprTemplate) -> None:
    half.delete()

    text(owner.post(CREATE, form(template=str(half.pk))), 302)

    assert Gpr.objects.get().template is None


@pytest.fixture
def lost(world: World) -> GprTemplate:
    """One of a cluster that has left the workspace."""
    return factories.template(world.slice, name="north", cluster=factories.cluster("borealis"), asked=ASKED)


LOST = "Workspace vision cannot use cluster borealis."


def test_a_form_from_a_template_of_a_cluster_that_has_left_the_workspace_says_so_and_keeps_what_is_typed(
    owner: Client, world: World, lost: GprTemplate, half: GprTemplate
) -> None:
    opened = html.unescape(text(owner.get(f"{CREATE}?template={lost.pk}&name=train")))
    assert LOST in opened
    assert 'value="train"' in opened
    assert re.search(r'<details[^>]*id="fold-where"\s+open', opened)
    assert "any of 1" in opened

    assert LOST not in html.unescape(text(owner.get(f"{CREATE}?template={half.pk}")))
    text(owner.post(CREATE, form(template=str(lost.pk), clusters="aurora")), 302)
    assert list(Gpr.objects.get().clusters.all()) == [world.cluster]


def test_a_request_like_one_in_a_cluster_that_has_left_the_workspace_is_told_so_too(owner: Client, world: World) -> None:
    text(owner.post(CREATE, form(clusters="aurora")), 302)
    made = Gpr.objects.get()
    made.clusters.set([factories.cluster("borealis")])

    for path in (f"{CREATE}?from={made.pk}", f"/gprs/{made.pk}/edit/"):
        assert LOST in html.unescape(text(owner.get(path)))


def test_a_cluster_that_leaves_the_workspace_while_the_form_is_filled_in_is_told_and_nothing_is_filed(
    owner: Client, lost: GprTemplate
) -> None:
    refused = html.unescape(text(owner.post(CREATE, form(template=str(lost.pk), clusters="borealis")), 422))

    assert LOST in refused
    assert 'value="train"' in refused
    assert not Gpr.objects.exists()


def test_a_template_s_form_keeps_a_cluster_that_has_left_the_workspace_until_another_is_chosen(owner: Client, lost: GprTemplate) -> None:
    """Were it no choice, whoever saves anything else would make it one for all clusters."""
    opened = text(owner.get(f"{PATH}{lost.pk}/"))
    assert '<option value="borealis" selected>' in opened

    text(owner.post(f"{PATH}{lost.pk}/", typed(name="north", cluster="borealis")), 422)
    text(owner.post(f"{PATH}{lost.pk}/", typed(name="north", cluster="aurora")), 302)
    lost.refresh_from_db()
    assert lost.cluster
    assert lost.cluster.name == "aurora"


@pytest.mark.daily
def test_nobody_starts_from_a_template_of_others(owner: Client, world: World) -> None:
    foreign = factories.template(world.foreign, name="canary")

    text(owner.get(f"{CREATE}?template={foreign.pk}"), 404)
    text(owner.post(CREATE, form(template=str(foreign.pk))), 302)
    assert Gpr.objects.get().template is None


def test_an_owner_makes_changes_and_deletes_a_template(owner: Client, world: World) -> None:
    assert "No template yet" in text(owner.get(PATH))
    assert "Make a template" in text(owner.get(f"{PATH}new/"))

    text(owner.post(f"{PATH}new/", typed()), 302)
    made = GprTemplate.objects.get()
    assert made.asked == {"shape": SHAPE, "nodes": 1, "gpus_per_node": 4, "duration_s": 28_800, "rdma": False}
    assert (made.auto, made.is_default, made.cluster) == (True, False, None)
    assert "Auto, but not the default" in text(owner.get(PATH))

    shown = text(owner.get(f"{PATH}{made.pk}/"))
    assert 'value="8 h"' in shown
    text(owner.post(f"{PATH}{made.pk}/", typed(nodes="", rdma="", cluster="aurora", is_default="on")), 302)
    made.refresh_from_db()
    assert made.asked == {"shape": SHAPE, "gpus_per_node": 4, "duration_s": 28_800}
    assert (made.is_default, made.cluster) == (True, world.cluster)

    assert "Delete template half-node?" in text(owner.get(f"{PATH}{made.pk}/delete/", headers=HTMX))
    owner.post(f"{PATH}{made.pk}/delete/", headers=HTMX)
    assert not GprTemplate.objects.exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "two words"}, "Letters, digits, dots, dashes and underscores, beginning and ending"),
        ({"name": "half-node-2", "duration": "200 d"}, "one may take"),
        ({"nodes": "20000"}, "Must be from 1 to 10,000."),
    ],
)
def test_what_cannot_be_is_said_at_the_form_and_what_was_typed_stays(changes: dict[str, str], said: str, owner: Client) -> None:
    page = html.unescape(text(owner.post(f"{PATH}new/", typed(**changes)), 422))

    assert said in page
    assert 'value="4"' in page
    assert not GprTemplate.objects.exists()


def test_a_list_of_many_templates_is_paged_and_the_form_leads_to_it(owner: Client, world: World) -> None:
    for number in range(PAGE_ROWS + 1):
        factories.template(world.slice, name=f"many {number:03}")

    first = html.unescape(text(owner.get(PATH)))
    assert (first.count('id="template-'), "many 049" in first, "many 050" in first) == (PAGE_ROWS, True, False)
    (next_url,) = re.findall(r'href="([^"]*)" rel="next"', first)
    second = html.unescape(text(owner.get(next_url)))
    assert (second.count('id="template-'), "many 050" in second) == (1, True)
    assert f'hx-get="{next_url}&part=list"' in second

    form_page = text(owner.get(CREATE))
    assert (form_page.count(f"{CREATE}?template="), f'href="{PATH}">All templates' in form_page) == (2 * TEMPLATES_SHOWN, True)


def test_default_and_auto_are_switched_on_the_list_and_a_new_default_takes_the_place_of_the_old(owner: Client, world: World) -> None:
    old = factories.template(world.slice, name="old", is_default=True)
    new = factories.template(world.slice, name="new", asked=ASKED)

    assert "Make new the default?" in text(owner.get(f"{PATH}{new.pk}/make-default/", headers=HTMX))
    for switch in ("make-default", "auto-on"):
        assert owner.post(f"{PATH}{new.pk}/{switch}/", headers=HTMX).status_code < 300

    for row in (old, new):
        row.refresh_from_db()
    assert (old.is_default, new.is_default, new.auto) == (False, True, True)
    for switch in ("drop-default", "auto-off"):
        owner.post(f"{PATH}{new.pk}/{switch}/")
    new.refresh_from_db()
    assert (new.is_default, new.auto) == (False, False)
    text(owner.get(f"{PATH}{new.pk}/upside-down/"), 404)


@pytest.mark.parametrize(
    ("persona", "sees", "uses", "writes"),
    [
        ("owner", 200, True, 302),
        ("editor", 200, True, 403),
        ("teammate", 200, False, 403),
        ("outsider", 404, False, 404),
        ("admin", 200, True, 302),
    ],
)
def test_who_sees_uses_and_writes_templates(persona: str, sees: int, uses: bool, writes: int, world: World, half: GprTemplate) -> None:
    if persona == "editor":
        member_set(slice_=world.slice, user=world.people.teammate, role=Role.EDITOR, actor=None, now=db_now())
    client = world.client("teammate" if persona == "editor" else persona)

    page = text(client.get(PATH), sees)

    assert (f"{CREATE}?template={half.pk}" in page, f"{PATH}{half.pk}/delete/" in page) == (uses, writes == 302)
    for path, body in ((f"{PATH}new/", typed(name="new")), (f"{PATH}{half.pk}/", typed()), (f"{PATH}{half.pk}/auto-off/", {})):
        assert client.post(path, body).status_code == writes
    assert client.post(f"{PATH}{half.pk}/delete/").status_code == writes
    assert GprTemplate.objects.filter(pk=half.pk).exists() is (writes != 302)


def test_who_signed_in_to_read_changes_nothing(world: World, half: GprTemplate) -> None:
    reader = world.client("owner", Scope.READ)

    assert f"{PATH}{half.pk}/delete/" not in text(reader.get(PATH))
    assert reader.post(f"{PATH}{half.pk}/delete/").status_code == 403
