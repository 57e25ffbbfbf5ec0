"""Filing a GPU request by page: what it would get, what is refused and kept, and that one form makes one request."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from accounts.models import Scope
from core.clock import db_now
from gpr.models import Gpr, GprState
from slices.models import Slice
from tests import factories
from tests.api.conftest import Caller
from tests.pages.user_world import CREATE, HTMX, OFFERS, World, form, snippet_in, text

# Each day: tests/api/requests/filing/test_create.py, and tests/browser/test_user.py, where a request is made
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]


def test_the_form_opens_at_its_name_and_fetches_the_offers(world: World) -> None:
    owner = world.client("owner")

    markup = text(owner.get(CREATE))
    assert re.search(r'name="name"[^>]* autofocus', markup)
    assert 'name="key" value="' in markup
    assert 'hx-trigger="load, input' in markup

    offers = text(owner.post(OFFERS, form(name="", gpus_per_node="8"), headers=HTMX))
    assert "1 offer, soonest now" in offers
    assert "Request 8 GPUs" in offers
    assert "load, input" not in offers


def test_an_owner_files_a_request_and_is_led_to_it_with_a_word(world: World) -> None:
    owner = world.client("owner")

    response = owner.post(CREATE, form(name="first", nodes="2"))

    gpr = Gpr.objects.get(name="first")
    assert (response.status_code, response["Location"]) == (302, f"/gprs/{gpr.pk}/")
    assert (gpr.state, gpr.nodes, gpr.duration_s, gpr.gpus_per_node) == (GprState.QUEUED, 2, 3600, None)
    assert "first is filed" in text(owner.get(response["Location"]))
    assert "first is filed" not in text(owner.get(response["Location"]))


def test_every_field_of_the_form_reaches_the_request(world: World) -> None:
    after = (db_now() + timedelta(days=1)).replace(microsecond=0, second=0)
    sent = form(
        name="all", shape="", min_gpu_memory_gib="40", nodes="2", gpus_per_node="4", duration="1h30m", priority="150", clusters=["aurora"],
        earliest_start_at=f"{after:%Y-%m-%dT%H:%M}", node_type="hgx", evictable=None, may_evict="on",
        requeue_on_failure=None, run_checks=None, model_name="conformer", model_parameters='{"precision": "bf16"}',
    )  # fmt: skip

    assert world.client("owner").post(CREATE, sent).status_code == 302

    gpr = Gpr.objects.get(name="all")
    assert (gpr.shape, gpr.min_gpu_memory_gib, gpr.gpus_per_node, gpr.duration_s, gpr.priority) == ("", 40, 4, 5400, 150)
    assert [cluster.name for cluster in gpr.clusters.all()] == ["aurora"]
    assert (gpr.earliest_start_at, gpr.node_type) == (after, "hgx")
    assert (gpr.evictable, gpr.may_evict, gpr.requeue_on_failure, gpr.run_checks) == (False, True, False, False)
    assert gpr.model == {"name": "conformer", "precision": "bf16"}


def test_the_start_that_is_typed_is_in_the_zone_of_the_reader(world: World) -> None:
    owner = world.client("owner")
    owner.cookies["egs_zone"] = "Asia/Tokyo"
    day = (db_now() + timedelta(days=3)).date()

    owner.post(CREATE, form(name="zoned", earliest_start_at=f"{day}T09:00"))

    start_at = Gpr.objects.get(name="zoned").earliest_start_at
    assert start_at is not None
    assert f"{start_at:%Y-%m-%dT%H:%M}" == f"{day}T00:00"


@pytest.mark.parametrize(("persona", "answer"), [("owner", 200), ("teammate", 403), ("outsider", 404), ("admin", 200)])
def test_the_form_is_for_those_who_may_file(persona: str, answer: int, world: World) -> None:
    client = world.client(persona)

    assert client.get(CREATE).status_code == answer
    assert client.post(OFFERS, form()).status_code == answer
    assert client.post(CREATE, form(name="by-page")).status_code == (302 if answer == 200 else answer)
    assert Gpr.objects.filter(name="by-page").exists() == (answer == 200)


def test_a_token_that_may_only_read_opens_no_form_and_files_nothing(world: World) -> None:
    reader = world.client("owner", Scope.READ)

    assert reader.get(CREATE).status_code == 403
    assert reader.post(CREATE, form()).status_code == 403
    assert reader.post(OFFERS, form()).status_code == 403
    assert not Gpr.objects.exists()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"name": ""}, "This field is required"),
        ({"name": "x" * 64}, "at most 63"),
        ({"name": "a\x07b"}, "control or invisible"),
        ({"name": "a\x00b"}, "Null characters"),
        ({"nodes": "two"}, "whole number"),
        ({"nodes": "0"}, "greater than or equal to 1"),
        ({"nodes": "-3"}, "greater than or equal to 1"),
        ({"nodes": "9" * 40}, "less than or equal"),
        ({"nodes": "1.5"}, "whole number"),
        ({"nodes": None}, "This field is required"),
        ({"nodes": "3"}, "No available cluster is large enough"),
        ({"gpus_per_node": "9"}, "No available cluster is large enough"),
        ({"duration": "3600"}, "Write 90 min"),
        ({"duration": "soon"}, "Write 90 min"),
        ({"duration": "9999999999 d"}, "Write 90 min"),
        ({"duration": "0 min"}, "at least one second"),
        ({"duration": "100 d"}, "one may take 90 d at most; 100 d were asked for"),
        ({"priority": "301"}, "less than or equal to 300"),
        ({"priority": "high"}, "whole number"),
        ({"shape": "B200"}, "valid choice"),
        ({"shape": "", "min_gpu_memory_gib": ""}, "how much memory each GPU needs"),
        ({"shape": "", "min_gpu_memory_gib": "many"}, "whole number"),
        ({"clusters": ["borealis"]}, "cannot use cluster borealis"),
        ({"earliest_start_at": "2020-01-01T00:00"}, "between now and a year"),
        ({"earliest_start_at": "tomorrow"}, "valid date"),
        ({"model_parameters": "[1, 2]"}, "JSON object"),
        ({"model_parameters": "{"}, "JSON object"),
        ({"model_parameters": '{"a": NaN}'}, "JSON object"),
        ({"model_parameters": '{"a": 1e999}'}, "JSON object"),
        ({"model_parameters": '{"a": "\\u0000"}'}, "JSON object"),
        ({"model_name": "kept-as-typed\u202eb"}, "control or invisible"),
        ({"model_parameters": "[" * 9000}, "JSON object"),
    ],
)
def test_what_cannot_be_is_refused_and_what_was_typed_is_kept(changes: dict[str, Any], told: str, world: World) -> None:
    response = world.client("owner").post(CREATE, form(**{"model_name": "kept-as-typed", **changes}))

    markup = text(response, 422)
    assert told in markup
    assert "kept-as-typed" in markup
    assert not Gpr.objects.exists()


def test_a_cluster_of_others_is_not_named_and_not_taken(world: World) -> None:
    factories.cluster("secret")

    for reference in ("secret", str(world.foreign.pk)):
        markup = text(world.client("owner").post(CREATE, form(clusters=[reference])), 422)
        assert "cannot use cluster" in markup
    assert "secret" not in text(world.client("owner").get(CREATE))


def test_an_offer_that_was_chosen_keeps_the_request_in_that_cluster(world: World) -> None:
    borealis = factories.cluster("borealis", nodes=2)
    world.slice.clusters.add(borealis)

    world.client("owner").post(CREATE, form(name="pinned", offer="borealis/H100-80GB"))
    world.client("owner").post(CREATE, form(name="forged", offer="canary/H100-80GB"))

    assert [cluster.name for cluster in Gpr.objects.get(name="pinned").clusters.all()] == ["borealis"]
    assert not Gpr.objects.get(name="forged").clusters.exists()


def test_an_offer_that_has_gone_is_said_to_be_gone(world: World) -> None:
    markup = text(world.client("owner").post(OFFERS, form(offer="borealis/H100-80GB"), headers=HTMX))

    assert "Your chosen offer is no longer available" in markup
    assert re.search(r'name="offer" value="" checked', markup)


def test_the_gpu_that_was_asked_for_last_is_chosen_and_its_nodes_are_taken_whole(world: World) -> None:
    """Free nodes do not change the choice. An empty number of GPUs per node means whole nodes of any GPU, also without a script."""
    factories.add_nodes(world.cluster, 1, gpus=4, shape="A10-24GB", memory_gib=24)
    owner = world.client("owner")
    first = text(owner.get(CREATE))
    factories.active(world.slice, world.people.owner, name="last", nodes=1, shape="A10-24GB")

    again = text(owner.get(CREATE))

    assert re.search(r'value="H100-80GB" data-gpus-per-node="8" checked', first)
    assert re.search(r'value="A10-24GB" data-gpus-per-node="4" checked', again)
    for markup, number in ((first, 8), (again, 4)):
        field = re.search(r'<input[^>]*name="gpus_per_node"[^>]*>', markup)
        assert field
        assert f'placeholder="all {number}"' in field[0]
        assert "value=" not in field[0]


def test_what_was_filed_a_moment_ago_is_asked_about_before_it_is_filed_again(world: World) -> None:
    """Back to the form and sent: it is a new page with a new key, and the browser keeps what was typed."""
    owner = world.client("owner")
    owner.post(CREATE, form(name="one"))

    markup = text(owner.post(CREATE, form(name="one")), 409)

    assert "You have sent this form already" in markup
    assert Gpr.objects.count() == 1
    again = re.search(r'name="again" value="(\w+)"', markup)
    assert again
    assert owner.post(CREATE, form(name="one", again=again[1])).status_code == 302
    assert Gpr.objects.count() == 2


def test_while_it_is_written_an_error_stands_beside_its_field(world: World) -> None:
    markup = text(world.client("owner").post(OFFERS, form(duration="soon"), headers=HTMX))

    error = re.search(r'<p class="field-error" id="id_duration_error" hx-swap-oob="true">(.*?)</p>', markup, re.DOTALL)
    assert error
    assert "Write 90 min" in error[1]
    assert re.search(r'<p class="field-error" id="id_nodes_error" hx-swap-oob="true"></p>', markup)


def test_a_double_click_makes_one_request(world: World) -> None:
    owner, sent = world.client("owner"), form(name="twice")

    first, second = owner.post(CREATE, sent), owner.post(CREATE, sent)

    assert first["Location"] == second["Location"]
    assert Gpr.objects.filter(name="twice").count() == 1


def test_a_form_that_is_gone_back_to_and_changed_asks_before_it_files_a_second(world: World) -> None:
    owner, key = world.client("owner"), uuid4().hex
    owner.post(CREATE, form(name="one", key=key))

    markup = text(owner.post(CREATE, form(name="two", key=key)), 409)

    assert "You have sent this form already" in markup
    found = re.search(r'name="key" value="(\w+)"', markup)
    assert found
    assert found[1] != key
    assert owner.post(CREATE, form(name="two", key=found[1])).status_code == 302
    assert Gpr.objects.count() == 2


def test_what_only_its_own_workspace_holds_back_is_told_so_first_with_the_ways_out(world: World) -> None:
    owner, other = world.client("owner"), factories.make_slice(world.cluster, name="robots", owner=world.people.owner)
    runs = factories.active(world.slice, world.people.owner, name="runs", nodes=1, duration_s=7200)

    offers = text(owner.post(OFFERS, form()))
    filed = text(owner.get(owner.post(CREATE, form())["Location"]))

    told = "1 node of H100-80GB in aurora is free now, but workspace vision runs one request at a time: this one waits for runs."
    for shown, first in ((offers, 'class="offers"'), (filed, "why-p")):
        assert shown.index(told) < shown.index(first, shown.index("Only your own workspace is ahead."))
        assert f'<a href="/gprs/{runs.pk}/">Release runs</a>' in shown
        assert f'<a href="/workspaces/{other.name}/create/">Request it in robots</a>' in shown
    assert "Only your own workspace is ahead." not in text(owner.post(OFFERS, form(nodes="2"))), "no nodes are free for it"


def test_without_script_a_button_shows_the_wait_time_and_files_nothing(world: World) -> None:
    markup = text(world.client("owner").post(CREATE, form(name="", nodes="2", act="offers")))

    assert "Request 16 GPUs" in markup
    assert "1 offer, soonest now" in markup
    assert not Gpr.objects.exists()


def test_the_offers_are_a_fragment_with_the_same_request_as_code(world: World) -> None:
    markup = text(world.client("owner").post(OFFERS, form(nodes="2", duration="2 h"), headers=HTMX))

    assert "<html" not in markup
    assert markup.lstrip().startswith("<section")
    assert snippet_in(markup).body == {"slice": "vision", "name": "train", "nodes": 2, "duration_s": 7200, "shape": "H100-80GB"}


WHOLE = {
    "name": "it's <all>", "shape": "", "min_gpu_memory_gib": "40", "nodes": "2", "gpus_per_node": "4", "duration": "1h30m",
    "priority": "150", "clusters": ["aurora"], "node_type": "hgx", "evictable": None, "may_evict": "on",
    "requeue_on_failure": None, "run_checks": None, "model_name": "conformer", "model_parameters": '{"lr": 1.0, "note": "it\'s"}',
    "earliest_start_at": "2099-01-01T09:00",
}  # fmt: skip


@pytest.mark.parametrize("changes", [{}, {"offer": "aurora/H100-80GB"}, WHOLE], ids=["plain", "chosen", "whole"])
@pytest.mark.parametrize("is_form_first", [True, False])
def test_the_code_beside_the_form_is_the_very_request_that_the_form_sends(
    changes: dict[str, Any], is_form_first: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sent by REST as well, before or after the form, it is not filed twice: the answer is the same GPR."""
    far = timedelta(days=365 * 200)
    monkeypatch.setattr("gpr.requests.spec.EARLIEST_START_MAX", far)
    Slice.objects.filter(pk=world.slice.pk).update(ahead_max_s=far.total_seconds())
    owner, sent = world.client("owner"), form(**changes)
    owner.cookies["egs_zone"] = "Asia/Tokyo"
    snippet = snippet_in(text(owner.post(OFFERS, sent, headers=HTMX)))
    api = Caller(factories.token(world.people.owner))
    assert snippet.key == sent["key"]

    if is_form_first:
        assert owner.post(CREATE, sent).status_code == 302
    answer = api.post("gprs/", snippet.body, key=snippet.key)
    assert answer.status_code == 201, answer.content
    filed = owner.post(CREATE, sent)

    gpr = Gpr.objects.get()
    assert answer.json()["id"] == str(gpr.pk)
    assert filed["Location"] == f"/gprs/{gpr.pk}/"
    assert gpr.name == sent["name"]


def test_without_a_name_there_is_no_code_yet(world: World) -> None:
    """The form could not be sent either; a name that nobody chose would be filed."""
    markup = text(world.client("owner").post(OFFERS, form(name=""), headers=HTMX))

    assert "Complete the form, with a name, to see the call." in markup
    assert "curl" not in markup


@pytest.mark.parametrize("field", ["key", "version", "offer"])
@pytest.mark.parametrize("value", ["x" * 5000, "a\x00b", "-1"])
def test_what_nobody_typed_is_no_riddle_for_who_sends_the_form(field: str, value: str, world: World) -> None:
    """A fault in a hidden field cannot be mended by typing, so no error speaks of it."""
    response = world.client("owner").post(CREATE, form(name="filed", **{field: value}))

    assert response.status_code == 302
    assert Gpr.objects.get().name == "filed"


def test_a_question_that_is_not_whole_says_what_is_missing(world: World) -> None:
    markup = text(world.client("owner").post(OFFERS, form(name="", duration="soon", nodes="")))

    assert "No offers for this" in markup
    assert "Duration: Write 90 min" in markup
    assert "Nodes: This field is required" in markup


def test_a_breach_of_the_policy_is_told_and_never_blocks(world: World) -> None:
    Slice.objects.filter(pk=world.slice.pk).update(nodes_approval=1)
    owner = world.client("owner")

    markup = text(owner.post(OFFERS, form(nodes="2")))
    owner.post(CREATE, form(name="big", nodes="2"))

    assert "It needs an administrator's approval" in markup
    assert "more than 1 need approval" in markup
    assert re.search(r'data-fill="id_nodes" value="1">Use 1 node<', markup)
    assert Gpr.objects.get(name="big").state == GprState.PENDING_APPROVAL


def test_a_smaller_request_that_would_start_sooner_is_offered(world: World) -> None:
    factories.active(world.foreign, world.people.outsider, nodes=1, duration_s=7200)

    markup = text(world.client("owner").post(OFFERS, form(nodes="2")))

    assert "What would start sooner" in markup
    assert re.search(r'data-fill="id_nodes" value="1"', markup)
    assert "another workspace" in markup
    assert "canary" not in markup


def test_fewer_gpus_of_a_node_that_would_start_at_once_are_offered(world: World) -> None:
    factories.active(world.foreign, world.people.outsider, nodes=2, gpus_per_node=5, duration_s=7200)

    markup = text(world.client("owner").post(OFFERS, form(gpus_per_node="4")))

    assert re.search(r'data-fill="id_gpus_per_node" value="3"', markup)
    assert "3 GPUs per node" in markup
    assert "at once, 2 h" in markup


def test_a_booking_whose_time_is_taken_is_offered_the_nearest_times(world: World) -> None:
    owner = world.client("owner")
    taken_at = (db_now() + timedelta(days=1)).replace(hour=12, minute=0, second=0, microsecond=0)
    factories.gpr(world.foreign, world.people.outsider, nodes=2, duration_s=7200, earliest_start_at=taken_at, is_booking=True)

    markup = text(owner.post(OFFERS, form(is_booking="on", earliest_start_at=f"{taken_at:%Y-%m-%dT%H:%M}")))

    assert "The nearest times with room" in markup
    assert "<span>Instead</span>" in markup
    times = re.findall(r'data-fill="id_earliest_start_at" value="([^"]+)"', markup)
    assert len(times) == 2
    for value in times:
        assert "The nearest times with room" not in text(owner.post(OFFERS, form(is_booking="on", earliest_start_at=value)))


def test_what_is_not_offered_is_named_with_the_figure_and_the_limit(world: World) -> None:
    world.slice.clusters.add(factories.cluster("tiny", nodes=1, gpus=4, shape="L40S-48GB"))

    markup = text(world.client("owner").post(OFFERS, form(shape="", min_gpu_memory_gib="1", nodes="1", gpus_per_node="8")))

    assert "Not offered" in markup
    assert "Its nodes have 4 GPUs each; you ask for 8." in markup


def test_a_past_request_fills_the_form(world: World) -> None:
    past = factories.gpr(world.slice, world.people.owner, name="past", nodes=2, duration_s=5400, model={"name": "asr", "layers": 12})

    markup = text(world.client("owner").get(f"{CREATE}?from={past.pk}"))

    assert 'value="past"' in markup
    assert 'value="1 h 30 min"' in markup
    assert 'value="asr"' in markup
    assert "&quot;layers&quot;: 12" in markup


def test_a_request_of_others_fills_no_form(world: World) -> None:
    foreign = factories.gpr(world.foreign, world.people.outsider, name="canary-job")

    for reference in (str(foreign.pk), str(uuid4()), "nonsense"):
        response = world.client("owner").get(f"{CREATE}?from={reference}")
        assert response.status_code == 404
        assert b"canary-job" not in response.content


def test_a_login_that_ends_leads_the_fragment_to_the_login_page(world: World) -> None:
    response = Client().post(OFFERS, form(), headers={**HTMX, "HX-Current-URL": "http://testserver/workspaces/vision/create/"})

    assert response.status_code == 401
    assert response["HX-Redirect"] == "/login/?next=%2Fworkspaces%2Fvision%2Fcreate%2F"


def test_a_form_of_another_site_is_refused(world: World) -> None:
    client = Client(enforce_csrf_checks=True)
    client.cookies = world.client("owner").cookies

    assert client.post(CREATE, form()).status_code == 403
    assert not Gpr.objects.exists()
