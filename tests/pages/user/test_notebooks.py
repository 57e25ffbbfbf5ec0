"""Notebooks on the pages: the time left for all members, the way in for the owner alone."""

from __future__ import annotations

import html

import pytest
from django.test import Client

from core.clock import db_now
from core.vault import encrypt
from gpr.models import Job
from journal.models import Event
from protocol.tenancy.workloads import WorkloadPhase
from tests import factories
from tests.pages.user_world import World, client_of, text

pytestmark = [pytest.mark.django_db]
PATH = "/workspaces/vision/notebooks/"
TOKEN = "a-token-of-its-own"


def made(world: World, *, url: str = "") -> Job:
    gpr = factories.active(world.slice, world.people.owner, name="lab", nodes=1)
    seen = {"phase": WorkloadPhase.RUNNING, "seen_run": 1, "pods_running": 1, "seen_namespace": "train", "url": url}
    return Job.objects.create(gpr=gpr, created_at=db_now(), kind="Notebook", image="lab:1", token_sealed=encrypt(TOKEN), **seen)


def test_its_owner_opens_it_from_the_list_and_a_teammate_sees_only_the_time_left(owner: Client, world: World) -> None:
    job, teammate = made(world), client_of(world.people.teammate)

    mine, theirs = text(owner.get(PATH)), text(teammate.get(PATH))

    assert f'hx-post="/jobs/{job.pk}/open/"' in mine
    assert "/open/" not in theirs
    for shown in (mine, theirs):
        assert " left" in shown
        assert "no volume: files are lost at its end" in shown
    assert f'hx-post="/jobs/{job.pk}/open/"' in text(owner.get(f"/jobs/{job.pk}/"))
    assert "/open/" not in text(teammate.get(f"/jobs/{job.pk}/"))


def test_to_open_it_shows_the_commands_and_a_link_with_the_token_and_records_it(owner: Client, world: World) -> None:
    job = made(world)
    assert TOKEN not in text(owner.get(f"/jobs/{job.pk}/open/"))

    shown = html.unescape(text(owner.post(f"/jobs/{job.pk}/open/", headers={"HX-Request": "true"})))

    assert "egs notebook open lab --port 8888" in shown
    assert f"kubectl -n train port-forward service/lab-{job.pk.hex[:8]}-1 8888" in shown
    assert f"http://127.0.0.1:8888/lab?token={TOKEN}" in shown
    assert Event.objects.filter(kind="job.opened", gpr_id=job.gpr_id).count() == 1


def test_behind_an_ingress_it_is_a_link(owner: Client, world: World) -> None:
    job = made(world, url="https://lab.nb.example.org/")

    shown = text(owner.post(f"/jobs/{job.pk}/open/"))

    assert f'href="https://lab.nb.example.org/lab?token={TOKEN}"' in shown
    assert "kubectl" not in shown


def test_others_get_no_token_from_the_page(owner: Client, world: World) -> None:
    job, people = made(world), world.people
    teammate, admin, outsider = (client_of(each) for each in (people.teammate, people.admin, people.outsider))

    assert {client.post(f"/jobs/{job.pk}/open/").status_code for client in (teammate, admin)} == {403}
    assert {client.get(f"/jobs/{job.pk}/open/").status_code for client in (teammate, admin)} == {403}, "it offers no link that it refuses"
    assert outsider.post(f"/jobs/{job.pk}/open/").status_code == 404
    for client in (owner, teammate, admin):
        for path in (PATH, f"/jobs/{job.pk}/", f"/gprs/{job.gpr_id}/"):
            assert TOKEN not in text(client.get(path))


def test_one_that_waits_is_told_of_instead_of_a_link(owner: Client, world: World) -> None:
    gpr = factories.gpr(world.slice, world.people.owner, name="later")
    job = Job.objects.create(gpr=gpr, created_at=db_now(), kind="Notebook", image="lab:1", token_sealed=encrypt(TOKEN))

    assert "not started" in text(owner.get(PATH))
    assert "It cannot be opened now." in text(owner.post(f"/jobs/{job.pk}/open/"), 409)
