"""Workspaces and their GPU requests: what each of the four sees, groups, filters, pages and fragments."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from accounts.models import Scope
from core.clock import db_now
from gpr.approvals.services import gpr_reject
from gpr.models import EndReason, Gpr, GprState
from gpr.queue.decisions import gpr_evict
from gpr.requests.editing import gpr_cancel
from gpr.requests.ending import gpr_release
from inventory.models import Reservation
from protocol.assignments import Phase
from slices.invitations.services import member_add
from slices.models import Invitation, Membership, Role, Slice
from tests import factories
from tests.builders import make_gpr
from tests.pages.user_world import HTMX, WORKSPACE, World, client_of, text

# Each day: tests/api/requests/test_list.py, and test_every_page.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]


def names(markup: str) -> list[str]:
    return re.findall(r'<a class="strong" href="/gprs/[^"]*">([^<]+)</a>', markup)


def ended(world: World, count: int) -> None:
    now = db_now()
    for n in range(count):
        made = make_gpr(world.slice, name=f"past-{n:03}", owner=world.people.owner)
        Gpr.objects.filter(pk=made.pk).update(state=GprState.CANCELED, ended_at=now - timedelta(minutes=n))


@pytest.mark.parametrize(
    ("persona", "seen"),
    [("owner", {"vision"}), ("teammate", {"vision"}), ("outsider", {"canary-slice"}), ("admin", {"vision", "canary-slice"})],
)
def test_the_first_page_shows_the_reader_his_workspaces(persona: str, seen: set[str], world: World) -> None:
    markup = text(world.client(persona).get("/"))

    assert set(re.findall(r'<tr id="workspace-([^"]+)"', markup)) == seen
    assert ("canary" in markup) == ("canary-slice" in seen)


def test_a_workspace_shows_what_it_holds_and_what_starts_next(world: World, owner: Client) -> None:
    factories.active(world.slice, world.people.owner, name="runs", nodes=2)
    factories.gpr(world.slice, world.people.owner, name="waits", nodes=2)

    markup = text(owner.get("/"))

    assert "runs" in markup
    assert "waits" in markup
    assert "It waits for runs" in markup
    assert re.search(r'waits, <time [^>]*data-tick="ago">in ', text(owner.get(WORKSPACE))), "a countdown that a page goes on with"


def test_somebody_without_a_workspace_is_told_what_to_do(db: None) -> None:
    assert "You are in no workspace yet" in text(client_of(factories.user("new")).get("/"))


@pytest.mark.daily
@pytest.mark.parametrize(("persona", "answer"), [("owner", 200), ("teammate", 200), ("outsider", 404), ("admin", 200)])
def test_a_workspace_is_for_its_members(persona: str, answer: int, world: World) -> None:
    client = world.client(persona)

    for path in (WORKSPACE, f"/workspaces/{world.slice.pk}/", f"{WORKSPACE}?part=pending", f"{WORKSPACE}?part=facts"):
        assert client.get(path).status_code == answer


def test_only_those_who_may_file_see_the_button(world: World) -> None:
    button = 'href="/workspaces/vision/create/"'

    assert button in text(world.client("owner").get(WORKSPACE))
    for page in ("", "jobs/", "notebooks/", "bookings/", "templates/", "access/", "policy/", "people/"):
        assert button not in text(world.client("teammate").get(f"{WORKSPACE}{page}")), page
    assert button not in text(world.client("owner", Scope.READ).get(WORKSPACE))


def test_requests_stand_in_groups_in_the_order_in_which_they_run(world: World, owner: Client) -> None:
    factories.active(world.slice, world.people.owner, name="runs", nodes=2)
    factories.gpr(world.slice, world.people.owner, name="second", nodes=2)
    factories.gpr(world.slice, world.people.owner, name="third", nodes=2)
    gpr_cancel(gpr=factories.gpr(world.slice, world.people.owner, name="gone"), actor=world.people.owner, now=db_now())

    markup = text(owner.get(WORKSPACE))

    assert names(markup) == ["runs", "second", "third", "gone"]
    assert "Canceled by owner before it started." in markup


def test_a_tab_and_a_filter_show_less(world: World, owner: Client) -> None:
    factories.active(world.slice, world.people.owner, name="runs", nodes=2)
    waits = factories.gpr(world.slice, world.people.owner, name="waits", nodes=2, model={"name": "conformer"})

    assert names(text(owner.get(f"{WORKSPACE}?state=pending"))) == ["waits"]
    assert names(text(owner.get(f"{WORKSPACE}?state=provisioned"))) == ["runs"]
    assert names(text(owner.get(f"{WORKSPACE}?q=AIT"))) == ["waits"]
    assert names(text(owner.get(f"{WORKSPACE}?q=conform"))) == ["waits"]
    assert names(text(owner.get(f"{WORKSPACE}?q=gpr-{str(waits.pk)[:8]}"))) == ["waits"]
    assert names(text(owner.get(f"{WORKSPACE}?q={waits.pk}"))) == ["waits"]
    assert "No requests match" in text(owner.get(f"{WORKSPACE}?q=nowhere"))


@pytest.mark.parametrize("query", ["q=%00", "q=" + "x" * 5000, "span=-1", "span=9" * 40, "part=odd", "q=%25_%5C", "state=&q=&part="])
def test_a_strange_address_is_a_plain_page(query: str, owner: Client) -> None:
    assert owner.get(f"{WORKSPACE}?{query}").status_code == 200


def test_a_tab_and_a_part_that_do_not_go_together_are_no_fault(owner: Client) -> None:
    """Addresses are put together by hand as well."""
    for state in ("pending", "ended"):
        for part in ("provisioned", "pending", "ended", "axis", "tabs"):
            assert owner.get(f"{WORKSPACE}?state={state}&part={part}").status_code == 200


def test_the_address_of_a_page_says_nothing_of_its_length(world: World, owner: Client) -> None:
    """`page_size` is the API's: pages are as long as they are."""
    ended(world, 3)

    assert len(names(text(owner.get(f"{WORKSPACE}?state=ended&page_size=1")))) == 3


def tabs(markup: str) -> dict[str, int]:
    return {label: int(count) for label, count in re.findall(r">(All|Pending|Provisioned|Ended) <small>(\d+)</small>", markup)}


def test_the_counts_of_the_tabs_are_fetched_anew_with_the_list(world: World, owner: Client) -> None:
    """A request that starts while the page is open leaves Pending and joins Provisioned, above the list as in it."""
    factories.gpr(world.slice, world.people.owner, name="first")
    page = text(owner.get(WORKSPACE))
    fragment = re.search(r'id="requests-tabs" hx-get="([^"]+)" hx-trigger="egs:gpr from:body"', page)
    assert fragment
    assert tabs(page) == {"All": 1, "Pending": 1, "Provisioned": 0, "Ended": 0}

    factories.active(world.slice, world.people.owner, name="second")
    markup = text(owner.get(fragment[1].replace("&amp;", "&"), headers=HTMX))

    assert "<html" not in markup
    assert tabs(markup) == {"All": 2, "Pending": 1, "Provisioned": 1, "Ended": 0}


def test_the_tabs_count_what_a_search_finds(world: World, owner: Client) -> None:
    """A tab that promises 3 rows and shows 1 would send its reader looking for the others."""
    factories.active(world.slice, world.people.owner, name="asr-runs", nodes=2)
    for name in ("asr-waits", "tts-waits", "tts-too"):
        factories.gpr(world.slice, world.people.owner, name=name, nodes=2)
    found = {"All": 2, "Pending": 1, "Provisioned": 1, "Ended": 0}

    assert tabs(text(owner.get(f"{WORKSPACE}?q=asr"))) == found
    assert tabs(text(owner.get(f"{WORKSPACE}?q=asr&state=pending&part=tabs"))) == found
    assert names(text(owner.get(f"{WORKSPACE}?q=asr"))) == ["asr-runs", "asr-waits"]


def test_what_waits_stands_in_the_order_in_which_it_starts_on_every_page(world: World, owner: Client) -> None:
    """A reader of the tab Pending meets what starts next first; what is not planned yet comes last, oldest first."""
    now = db_now()
    for n in range(120):
        made = make_gpr(world.slice, name=f"waits-{n:03}", owner=world.people.owner)
        starts_at = None if n % 10 == 0 else now + timedelta(hours=(n * 37) % 120 // 2)
        Gpr.objects.filter(pk=made.pk).update(planned_start_at=starts_at, created_at=now + timedelta(seconds=n // 3))
    rows = Gpr.objects.all().order_by("created_at", "pk")
    planned = sorted((row for row in rows if row.planned_start_at), key=lambda row: (row.planned_start_at, row.created_at, row.pk))
    order = [row.name for row in [*planned, *(row for row in rows if row.planned_start_at is None)]]

    pages: list[str] = []
    back: list[str] = []
    path = f"{WORKSPACE}?state=pending"
    for _ in range(3):
        markup = text(owner.get(path))
        pages += names(markup)
        further = re.search(r'href="([^"]*cursor=[^"]*)" rel="next"', markup)
        path = further[1].replace("&amp;", "&") if further else path
    for _ in range(2):
        before = re.search(r'href="([^"]*cursor=[^"]*)" rel="prev"', markup)
        assert before
        markup = text(owner.get(before[1].replace("&amp;", "&")))
        back = names(markup) + back

    assert pages == order
    assert back == order[:100]
    assert names(text(owner.get(WORKSPACE)))[:50] == order[:50]


def test_the_facts_of_the_workspaces_count_those_of_all_pages(world: World, owner: Client) -> None:
    """`60 workspaces, 1 with nodes`: not the 50 that happen to stand on this page."""
    now = db_now()
    for n in range(59):
        made = Slice.objects.create(name=f"a-{n:02}", project=world.slice.project, created_at=now)
        Membership.objects.create(slice=made, user=world.people.owner, role=Role.EDITOR)
    factories.active(world.slice, world.people.owner, name="runs", nodes=2)
    factories.gpr(world.slice, world.people.owner, name="waits", nodes=2)
    factories.gpr(world.foreign, world.people.outsider, name="canary-job", nodes=2)

    for path in ("/", "/?part=list"):
        markup = " ".join(text(owner.get(path)).split())
        assert 'id="workspace-vision"' not in markup
        assert "<dt>Workspaces</dt> <dd > 60 <small>1 with nodes</small>" in markup
        assert "<dt>Waiting</dt> <dd > 1 <small>request</small>" in markup


def test_a_cursor_of_another_list_is_refused(owner: Client, world: World) -> None:
    for cursor in ("x", "AAAA", "W10="):
        assert owner.get(f"{WORKSPACE}?cursor={cursor}").status_code == 400


def test_what_has_ended_is_paged(world: World, owner: Client) -> None:
    ended(world, 60)

    first = text(owner.get(WORKSPACE))
    more = re.search(r'href="([^"]*cursor=[^"]*)" rel="next"', first)
    assert more
    second = text(owner.get(more[1].replace("&amp;", "&")))

    assert names(first) == [f"past-{n:03}" for n in range(50)]
    assert names(second) == [f"past-{n:03}" for n in range(50, 60)]
    assert 'rel="prev"' in second


@pytest.mark.parametrize("part", ["provisioned", "pending", "ended"])
def test_each_group_fetches_itself_anew(part: str, world: World, owner: Client) -> None:
    page = text(owner.get(WORKSPACE + "?state=" + part))
    address = re.search(rf'id="requests-{part}"[^>]*hx-get="([^"]+)"', page) or re.search(r'hx-get="([^"]*part=[^"]*)"', page)
    assert address

    markup = text(owner.get(f"{WORKSPACE}?part={part}", headers=HTMX))

    assert markup.lstrip().startswith(f'<tbody id="requests-{part}"')
    assert "egs:gpr from:body" in markup


def test_how_each_came_to_its_end_is_told(world: World, owner: Client) -> None:
    people = world.people
    early = factories.active(world.slice, people.owner, name="early")
    gpr_release(gpr=early, actor=people.owner, now=db_now())
    factories.observe(early, Phase.RELEASED)
    thrown = factories.active(world.slice, people.owner, name="thrown", requeue_on_failure=False)
    gpr_evict(gpr=thrown, actor=people.admin, why="A deadline.", now=db_now())
    factories.observe(thrown, Phase.RELEASED)
    no = factories.gpr(world.slice, people.owner, name="no")
    gpr_reject(gpr=no, actor=people.admin, why="Split it.", now=db_now())

    markup = text(owner.get(WORKSPACE))

    assert [Gpr.objects.get(name=name).state for name in ("early", "thrown", "no")] == ["RELEASED", "EVICTED", "REJECTED"]
    assert "Released by owner after" in markup
    assert re.search(r"Evicted after [^:]*: A deadline\.", markup)
    assert "Rejected by admin: Split it." in markup


def test_a_node_that_does_not_go_on_is_said_in_the_row(world: World, owner: Client) -> None:
    started = factories.started(world.slice, world.people.owner, name="stuck")
    Reservation.objects.filter(gpr=started).update(failure="Waits for the taint to be accepted.")

    assert "aurora-0: Waits for the taint to be accepted." in text(owner.get(WORKSPACE))


def test_every_end_reason_has_words(world: World, owner: Client) -> None:
    now = db_now()
    held: dict[str, Any] = {"active_at": now - timedelta(hours=1), "ends_at": now, "ended_at": now, "remaining_s": 600}
    for reason in EndReason:
        made = make_gpr(world.slice, name=f"by-{reason.lower()}", owner=world.people.owner)
        for state in (GprState.PROVISIONING, GprState.EXITING, GprState.FAILED):
            Gpr.objects.filter(pk=made.pk).update(state=state, end_reason=reason, **held)

    markup = text(owner.get(WORKSPACE))

    assert len(names(markup)) == len(EndReason)
    assert "A check on the way in failed after" in markup


def test_who_is_invited_joins_or_declines_on_his_page(world: World, owner: Client) -> None:
    stranger, host = world.client("outsider"), world.people.owner
    speech = factories.make_slice(world.cluster, name="speech", owner=host)
    for slice_, role in ((world.slice, Role.EDITOR), (speech, Role.OWNER)):
        member_add(slice_=slice_, reference="outsider", role=role, actor=host, now=db_now())
    urls = {row.slice.name: f"/invitations/{row.pk}/" for row in Invitation.objects.select_related("slice")}

    page = text(stranger.get("/"))

    assert all(f"{url}{act}/" in page for url in urls.values() for act in ("accept", "decline"))
    assert "Invitations" not in text(owner.get("/"))
    assert owner.post(f"{urls['vision']}accept/").status_code == 404
    assert "Join vision?" in text(stranger.get(f"{urls['vision']}accept/", headers=HTMX))
    assert stranger.post(f"{urls['vision']}accept/").status_code == 302
    assert stranger.post(f"{urls['speech']}decline/").status_code == 302
    assert [row.slice.name for row in Membership.objects.filter(user=world.people.outsider).order_by("slice__name")] == [
        "canary-slice",
        "vision",
    ]
    assert "Invitations" not in text(stranger.get("/"))
