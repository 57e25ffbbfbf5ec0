"""The page of a workspace's namespaces and kubeconfigs: what each reader sees and may do, and a secret that is shown once."""

from __future__ import annotations

import html
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import Scope
from core.clock import db_now
from inventory.models import AgentSession
from protocol.tenancy.workspaces import BindingState
from slices.kubeconfigs.services import kubeconfig_revoke
from slices.models import Kubeconfig, KubeconfigState, Namespace, Unbinding
from slices.namespaces.services import namespace_bind, namespace_unbind
from tests.pages.user_world import HTMX, World, text
from tests.slices.kubeconfigs import SECRET, answer, asked, list_digest, made, ready_namespace, says_left

pytestmark = pytest.mark.django_db
PATH, ASK = "/workspaces/vision/access/", "/workspaces/vision/access/new/"
FORM = {"cluster": "aurora", "duration": "2 h"}


@pytest.fixture
def namespace(world: World) -> Namespace:
    return ready_namespace(world.slice, world.cluster, at=db_now())


def test_it_shows_each_namespace_as_its_agent_finds_it(world: World, owner: Client, namespace: Namespace) -> None:
    _, old, left = (
        namespace_bind(slice_=world.slice, cluster=world.cluster, name=name, actor=None, now=db_now()) for name in ("new", "old", "left")
    )
    Namespace.objects.filter(pk=old.pk).update(state=BindingState.CONFLICT, detail="There was a namespace of this name before.")
    namespace_unbind(namespace=left, actor=world.people.owner, now=db_now())
    Unbinding.objects.update(detail="A GPR still has nodes.")

    page = html.unescape(text(owner.get(PATH)))

    for said in ("train", "Ready", "old", "In conflict", "There was a namespace of this name before.", "new", "has not reported it yet"):
        assert said in page
    assert "Being unbound" in page
    assert "A GPR still has nodes." in page
    assert "Adopt</a>" not in page
    assert "Adopt</a>" in text(world.client("admin").get(PATH))


def test_a_member_gets_a_kubeconfig_in_a_dialog_that_asks_until_it_is_made_and_shows_it_once(owner: Client, namespace: Namespace) -> None:
    assert "Get a kubeconfig" in text(owner.get(PATH))
    assert "Make kubeconfig" in text(owner.get(ASK, headers=HTMX))

    dialog = text(owner.post(ASK, FORM, headers=HTMX))
    row = Kubeconfig.objects.get()
    url = f"{PATH}{row.pk}/"
    assert f'hx-post="{url}"' in dialog
    assert row.duration_s == 7200
    waiting = text(owner.post(url, headers=HTMX))
    assert f'hx-post="{url}"' in waiting
    answer(row, at=db_now())
    shown = text(owner.post(url, headers=HTMX))
    again = text(owner.post(url, headers=HTMX))

    assert SECRET in shown
    assert "hx-post" not in shown
    assert SECRET not in again
    assert "shown only once" in again
    assert SECRET not in text(owner.get(PATH))


def test_without_a_script_it_is_shown_on_a_page_of_its_own_when_its_button_is_pressed(owner: Client, namespace: Namespace) -> None:
    answered = owner.post(ASK, FORM)
    row = Kubeconfig.objects.get()
    assert (answered.status_code, answered["Location"]) == (302, f"{PATH}{row.pk}/")
    answer(row, at=db_now())

    before = text(owner.get(answered["Location"]))
    shown = text(owner.post(answered["Location"]))

    assert "Show it, once" in before
    assert SECRET not in before  # a page may be asked for again by anything on the way
    assert SECRET in shown
    assert text(owner.post(answered["Location"]), 409)


@pytest.mark.parametrize(("persona", "answer_", "shown"), [("teammate", 403, True), ("outsider", 404, False), ("admin", 403, True)])
def test_nobody_else_reads_it(persona: str, answer_: int, shown: bool, world: World, namespace: Namespace) -> None:
    row = made(world.slice, world.cluster, world.people.owner, at=db_now())
    client = world.client(persona)

    response = client.post(f"{PATH}{row.pk}/")

    assert (response.status_code, SECRET in response.content.decode()) == (answer_, False)
    assert client.get(PATH).status_code == (200 if shown else 404)
    row.refresh_from_db()
    assert row.state == KubeconfigState.MADE


@pytest.mark.parametrize(
    ("persona", "answer_", "state"),
    [("owner", 302, "revoked"), ("teammate", 403, "given"), ("outsider", 404, "given"), ("admin", 302, "revoked")],
)
def test_the_owner_s_is_revoked_by_himself_and_by_administrators(
    persona: str, answer_: int, state: str, world: World, namespace: Namespace
) -> None:
    row = made(world.slice, world.cluster, world.people.owner, at=db_now())
    Kubeconfig.objects.update(state="given", token="", due_at=db_now() + timedelta(hours=1))
    client = world.client(persona)
    url = f"{PATH}{row.pk}/revoke/"

    offered = url in client.get(PATH).content.decode()
    response = client.post(url)

    row.refresh_from_db()
    assert (response.status_code, row.state, offered) == (answer_, state, state == "revoked")


def test_a_question_about_one_that_has_ended_says_so(world: World, owner: Client, namespace: Namespace) -> None:
    row = asked(world.slice, world.cluster, world.people.owner, at=db_now())
    assert "stops accepting it within seconds" in text(owner.get(f"{PATH}{row.pk}/revoke/", headers=HTMX))
    owner.post(f"{PATH}{row.pk}/revoke/")

    assert "This kubeconfig has ended" in text(owner.post(f"{PATH}{row.pk}/revoke/"), 409)


def test_one_that_is_revoked_is_shown_as_being_so_until_the_cluster_has_done_it(world: World, owner: Client, namespace: Namespace) -> None:
    made(world.slice, world.cluster, world.people.owner, at=db_now())
    kubeconfig_revoke(kubeconfig=Kubeconfig.objects.get(), actor=world.people.owner, now=db_now())
    assert "Being revoked" in text(owner.get(PATH))

    says_left(world.cluster, digest=list_digest(world.cluster), at=db_now())

    shown = text(owner.get(PATH))
    assert "Revoked" in shown
    assert "Being revoked" not in shown


def test_why_there_is_no_button_is_said(world: World, owner: Client) -> None:
    assert "needs a namespace that is ready" in text(owner.get(PATH))
    ready_namespace(world.slice, world.cluster, at=db_now())
    assert "Only members get a kubeconfig" in text(world.client("admin").get(PATH))
    reads_only = world.client("owner", Scope.READ)
    assert "may only read" in text(reads_only.get(PATH))
    assert "Get a kubeconfig" not in text(reads_only.get(PATH))
    assert reads_only.get(ASK).status_code == 403


def test_what_is_refused_is_said_in_the_form(world: World, owner: Client, namespace: Namespace) -> None:
    assert "7 d at most" in text(owner.post(ASK, {**FORM, "duration": "30 d"}), 422)
    assert "10 min at least" in text(owner.post(ASK, {**FORM, "duration": "1 min"}), 422)
    AgentSession.objects.all().delete()
    assert "not been heard lately" in text(owner.post(ASK, FORM), 409)
    assert not Kubeconfig.objects.exists()


def test_only_an_administrator_lets_a_workspace_adopt_a_namespace(world: World, owner: Client) -> None:
    row = namespace_bind(slice_=world.slice, cluster=world.cluster, name="old", actor=None, now=db_now())
    Namespace.objects.update(state=BindingState.CONFLICT)
    url = f"{PATH}namespaces/{row.pk}/adopt/"

    assert [owner.post(url).status_code, world.client("outsider").post(url).status_code] == [404, 404]
    assert "secrets included" in text(world.client("admin").get(url))
    assert world.client("admin").post(url).status_code == 302
    row.refresh_from_db()
    assert row.may_adopt


def test_an_administrator_approves_or_refuses_a_name_that_waits(world: World, owner: Client) -> None:
    rows = {
        name: namespace_bind(slice_=world.slice, cluster=world.cluster, name=name, actor=world.people.owner, now=db_now())
        for name in ("monitoring", "gpu-operator")
    }
    admin, urls = world.client("admin"), {name: f"{PATH}namespaces/{row.pk}/" for name, row in rows.items()}

    assert "has to approve this name" in text(owner.get(PATH))
    assert "Approve" not in text(owner.get(PATH))
    assert [owner.post(f"{urls['monitoring']}{act}/").status_code for act in ("approve", "refuse")] == [404, 404]
    assert f"{urls['monitoring']}approve/" in text(admin.get(PATH))
    assert "Give vision the namespace" in text(admin.get(f"{urls['monitoring']}approve/", headers=HTMX))
    assert admin.post(f"{urls['monitoring']}approve/").status_code == 302
    assert "This field is required" in text(admin.post(f"{urls['gpu-operator']}refuse/"), 422)
    assert admin.post(f"{urls['gpu-operator']}refuse/", {"why": "It is the cluster's."}).status_code == 302

    assert [row.name for row in Namespace.with_pending.all()] == [row.name for row in Namespace.objects.all()] == ["monitoring"]


def test_ten_rows_cost_what_two_cost(world: World, owner: Client) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as seen:
            text(owner.get(PATH))
        return len(seen)

    ready_namespace(world.slice, world.cluster, at=db_now(), name="n0")
    asked(world.slice, world.cluster, world.people.owner, at=db_now())
    few = cost()
    for number in range(1, 9):
        ready_namespace(world.slice, world.cluster, at=db_now(), name=f"n{number}")
        asked(world.slice, world.cluster, world.people.owner, at=db_now())

    assert cost() == few
