"""The pages of alerts: what each reader sees, the count in the navigation, and what can be decided."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client

from core.clock import db_now
from inventory.models import Gpu
from observability.alerts.defaults import defaults_ensure
from observability.alerts.models import Alert, AlertRule, AlertSilence, AlertState, AlertSubject, RuleKind
from observability.models import LatestReading, Reading15s
from observability.telemetry.partitions import partitions_ensure
from tests import factories
from tests.observability.alerts.rows import alert_of, rule_of
from tests.pages.user_world import HTMX, World, text

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin(world: World) -> Client:
    return world.client("admin")


def test_the_list_shows_what_fires_to_those_whom_it_concerns(world: World, owner: Client, admin: Client) -> None:
    alert_of(world.slice, world.people.owner, rule=rule_of(world.slice, None, name="Ours is hot"))
    alert_of(world.foreign, None, rule=rule_of(world.foreign, None, name="Canary is hot"))
    alert_of(None, None, rule=rule_of(None, None, name="Fleet is hot"))

    page = text(owner.get("/alerts/"))
    assert "Ours is hot" in page
    assert "Canary" not in page
    assert "Fleet is hot" not in page
    assert "1 alert fires" in page  # in the navigation
    page = text(admin.get("/admin/alerts/"))
    assert "Fleet is hot" in page
    assert "Ours is hot" not in page
    page = text(admin.get("/admin/alerts/?of=workspaces"))
    assert "Ours is hot" in page
    assert "Canary is hot" in page
    assert "2 alerts fire" not in text(owner.get("/alerts/count/"))
    assert owner.get("/admin/alerts/").status_code == 404


def test_the_list_is_narrowed_to_a_severity_a_cluster_and_what_an_alert_is_about(world: World, admin: Client) -> None:
    heat, dust = (rule_of(None, None, name=name, severity=severity) for name, severity in (("Heat", "error"), ("Dust", "warning")))
    alert_of(None, None, rule=heat, cluster=world.cluster, subjects=20, resolved_at=None)
    alert_of(None, None, rule=dust)

    def names(query: str) -> list[str]:
        page = text(admin.get(f"/admin/alerts/?{query}"))
        return [name for name in ("Heat", "Dust") if f">{name}</a>" in page]

    found = {query: names(query) for query in ("", "severity=error", f"cluster={world.cluster.name}", "q=GPU+19", "q=dust", "q=none")}
    assert list(found.values()) == [["Heat", "Dust"], ["Heat"], ["Heat"], ["Heat"], ["Dust"], []]
    assert "No alerts match" in text(admin.get("/admin/alerts/?q=none"))
    assert admin.get("/admin/alerts/?severity=odd").status_code == 400


def test_a_list_without_alerts_says_so_in_each_state(world: World, owner: Client) -> None:
    for state, says in (("firing", "Nothing is wrong now"), ("resolved", "No alert was resolved"), ("pending", "about to fire")):
        assert says in text(owner.get(f"/alerts/?state={state}"))
    assert owner.get("/alerts/?state=odd").status_code == 400


def test_an_alert_has_a_page_with_its_life_what_to_do_and_the_course_of_the_gpu(world: World, owner: Client) -> None:
    factories.active(world.slice, world.people.owner)
    gpu = Gpu.objects.filter(reserved__isnull=False).order_by("node__name", "index")[0]
    now = db_now()
    series = LatestReading.objects.create(gpu=gpu, at=now, temperature_c=90)
    partitions_ensure(Reading15s, (now, now - timedelta(hours=1)))
    Reading15s.objects.bulk_create(
        Reading15s(series_id=series.pk, at=now - timedelta(seconds=15 * n), temperature_c=90 - n) for n in range(1, 200)
    )
    gpu.reserved.update(starts_at=now - timedelta(minutes=5))
    alert = alert_of(world.slice, world.people.owner, began_at=now - timedelta(minutes=4), note="I look.")
    AlertSubject.objects.update(subject_id=gpu.pk, since_at=now - timedelta(minutes=4))

    page = text(owner.get(f"/alerts/{alert.pk}/"))
    assert "Look at the fans." in page
    assert "Temperature is 70 °C or more" in page
    assert 'id="alert-twin"' in page
    assert page.count("<td>") > 10
    assert '<td class="num">60</td>' not in page  # before the box
    assert 'data-longest="45"' in page  # the line breaks where there were no readings
    assert f"/gpus/{gpu.pk}/" in page
    assert "Alert: hot" in text(owner.get(f"/gpus/{gpu.pk}/"))
    assert "Level of the rule" in page

    AlertRule.objects.filter(pk=alert.rule_id).update(kind=RuleKind.TREND)  # its level is a rise, and no place in the chart
    page = text(owner.get(f"/alerts/{alert.pk}/"))
    assert ("Level of the rule" in page, 'id="alert-twin"' in page) == (False, True)


def test_an_alert_is_acknowledged_with_a_note_and_leaves_the_count(world: World, owner: Client) -> None:
    alert = alert_of(world.slice, world.people.owner)
    assert "Acknowledge hot?" in text(owner.get(f"/alerts/{alert.pk}/acknowledge/", headers=HTMX))
    owner.post(f"/alerts/{alert.pk}/acknowledge/", {"note": "I look at it."})
    alert.refresh_from_db()
    assert (alert.state, alert.note) == (AlertState.ACKNOWLEDGED, "I look at it.")
    assert "0 alerts fire" in text(owner.get("/alerts/count/"))
    assert "I look at it." in text(owner.get("/alerts/?state=acknowledged"))
    head = text(owner.get(f"/alerts/{alert.pk}/?part=head"))  # which refetches itself, so the button goes
    assert ("/acknowledge/" in head, "/silence/" in head) == (False, True)


def test_a_viewer_sees_and_decides_nothing(world: World) -> None:
    teammate = world.client("teammate")
    alert = alert_of(world.slice, world.people.owner)
    page = text(teammate.get("/alerts/"))
    assert alert.places in page
    assert "/acknowledge/" not in page
    for act in ("acknowledge", "silence"):
        assert teammate.post(f"/alerts/{alert.pk}/{act}/", {}).status_code == 403
    assert "/alert-rules/new/" not in text(teammate.get("/alert-rules/"))


def test_a_silence_is_made_for_a_while_shown_and_ended(world: World, owner: Client) -> None:
    alert = alert_of(world.slice, world.people.owner)
    url = f"/alerts/{alert.pk}/silence/"
    assert "Write 90 min" in text(owner.post(url, {"what": "alert", "length": "soon", "reason": "r"}), 422)
    assert "30 days at most" in text(owner.post(url, {"what": "alert", "length": "90 d", "reason": "r"}), 422)
    assert "Select a valid choice" in text(owner.post(url, {"what": "node", "length": "1 h", "reason": "r"}), 422)
    node = world.cluster.nodes.get(name="aurora-0")
    AlertSubject.objects.update(node_id=node.pk)
    assert "All alerts on node aurora-0" in text(owner.get(url))
    owner.post(url, {"what": "node", "length": "1 h", "reason": "It is looked at."})
    assert AlertSilence.objects.get().node == node
    AlertSilence.objects.all().delete()
    owner.post(url, {"what": "rule", "length": "2 h", "reason": "A demo."})
    silence = AlertSilence.objects.get()
    assert (silence.slice, silence.rule, silence.ends_at - silence.starts_at) == (world.slice, alert.rule, timedelta(hours=2))
    page = text(owner.get("/alerts/"))
    assert "Alerts of the rule hot of workspace vision" in page
    assert ">silenced<" in page
    owner.post(f"/alert-silences/{silence.pk}/end/", {})
    assert "A demo." not in text(owner.get("/alerts/"))


RULE = {"name": "Warm", "watches": "temperature_c:threshold", "direction": "above", "level": "70", "severity": "warning", "is_on": "on"}


def test_a_member_makes_changes_and_deletes_a_rule_of_his_workspace(world: World, owner: Client) -> None:
    assert "/alert-rules/new/" in text(owner.get("/alert-rules/"))
    wrong = {**RULE, "slice": str(world.slice.pk), "clear_level": "80"}
    assert "Must be at most the level." in text(owner.post("/alert-rules/new/", wrong), 422)
    scope = {"cluster": "aurora", "shape": "H100-80GB"}
    assert "Select a valid choice" in text(owner.post("/alert-rules/new/", {**wrong, "cluster": "elsewhere"}), 422)
    owner.post("/alert-rules/new/", {**wrong, **scope, "clear_level": "65", "hold_s": "2 min"})
    rule = AlertRule.objects.get(name="Warm")
    assert (rule.cluster.name if rule.cluster else "", rule.shape) == ("aurora", "H100-80GB")
    assert ">H100-80GB</option>" in text(owner.get(f"/alert-rules/{rule.pk}/")).replace(" selected", "")
    assert (rule.slice, rule.owner, rule.tells, rule.hold_s, rule.clear_level) == (world.slice, world.people.owner, "box", 120, 65)
    assert "Temperature is 70 °C or more for 2 min" in text(owner.get("/alert-rules/?of=own"))

    owner.post(f"/alert-rules/{rule.pk}/", {**RULE, "level": "75", "is_on": ""})
    rule.refresh_from_db()
    assert (rule.level, rule.clear_level, rule.is_on, rule.hold_s) == (75, 75, False, 0)
    owner.post(f"/alert-rules/{rule.pk}/delete/", {})
    assert not AlertRule.objects.exists()


def test_an_administrator_changes_a_rule_of_egs_and_cannot_delete_it(world: World, admin: Client, owner: Client) -> None:
    defaults_ensure(now=db_now())
    rule = AlertRule.objects.get(code="gpu-hot")
    assert f"/admin/alert-rules/{rule.pk}/delete/" not in text(admin.get("/admin/alert-rules/"))
    form = text(admin.get(f"/admin/alert-rules/{rule.pk}/"))
    assert "What it watches" not in form
    assert 'value="2 min"' in form
    given = {
        "name": rule.name,
        "direction": "above",
        "level": "85",
        "clear_level": "80",
        "severity": "error",
        "tells": "admins",
        "is_on": "on",
    }
    admin.post(f"/admin/alert-rules/{rule.pk}/", {**given, "tells": "admins"})
    rule.refresh_from_db()
    assert (rule.level, rule.severity, rule.tells, rule.severe_level) == (85, "error", "admins", None)
    assert owner.get(f"/alert-rules/{rule.pk}/").status_code == 404


def test_ten_thousand_alerts_are_pages_of_a_few_queries(world: World, owner: Client, django_assert_max_num_queries: object) -> None:
    rule = rule_of(world.slice, world.people.owner)
    at = db_now()
    shared = {"rule": rule, "slice": world.slice, "state": "FIRING", "severity": "warning", "began_at": at, "joined_at": at, "fired_at": at}
    Alert.objects.bulk_create(Alert(places=f"n{n}", **shared) for n in range(10_000))
    with django_assert_max_num_queries(32):  # type: ignore[operator]
        page = text(owner.get("/alerts/"))
    assert "10,000" in page
    assert page.count('<tr id="alert-') == 50
    for n in range(50):
        rule_of(world.slice, world.people.owner if n % 2 else None, name=f"r{n}")
    with django_assert_max_num_queries(14):  # type: ignore[operator]
        assert text(owner.get("/alert-rules/")).count("/delete/") > 20


def test_alerts_are_silenced_without_one_that_fires_and_nobody_silences_those_of_others(world: World, owner: Client, admin: Client) -> None:
    heat = rule_of(world.slice, None, name="Heat")
    strange = rule_of(world.foreign, None, name="Canary")
    node = world.cluster.nodes.order_by("name")[0]

    asked = text(owner.get("/alert-silences/new/", headers=HTMX))
    assert ("Heat" in asked, "Canary" in asked, 'name="node"' in asked) == (True, False, False)
    given = {"slice": str(world.slice.pk), "rule": str(heat.pk), "length": "2 h", "reason": "We move"}
    for change in ({"slice": str(world.foreign.pk)}, {"rule": str(strange.pk)}, {"length": "9 years"}, {"reason": ""}):
        assert f'name="{next(iter(change))}"' in text(owner.post("/alert-silences/new/", {**given, **change}, headers=HTMX))
    assert AlertSilence.objects.count() == 0
    owner.post("/alert-silences/new/", given, headers=HTMX)
    assert "Alerts of the rule Heat of workspace" in text(owner.get("/alerts/"))
    assert "Heat" not in text(admin.get("/admin/alerts/"))

    where = {"rule": "", "cluster": "", "node": "none", "length": "1 d", "reason": "New switches"}
    assert "There is no such node" in text(admin.post("/admin/alert-silences/new/", where, headers=HTMX))
    admin.post("/admin/alert-silences/new/", {**where, "node": node.name}, headers=HTMX)
    page = text(admin.get("/admin/alerts/"))
    assert f"Alerts on node {node.name}" in page
    silence = AlertSilence.objects.get(slice=None)
    admin.post(f"/admin/alert-silences/{silence.pk}/end/", headers=HTMX)
    assert f"Alerts on node {node.name}" not in text(admin.get("/admin/alerts/"))
