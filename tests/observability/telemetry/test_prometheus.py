"""Long courses of GPUs come from a real Prometheus: right values, of nobody else's time, and EGS's own while it is away."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.urls import reverse
from pytest_django.fixtures import Settings

from core.clock import db_now
from core.errors import InvalidInput
from core.outbound import post
from inventory.models import Cluster, Gpu, ReservedGpu
from observability.models import LatestReading, Reading10m
from observability.prometheus import queries
from observability.prometheus.expressions import NamedGpu, expressions
from observability.prometheus.models import PrometheusSource
from observability.prometheus.services import named, prometheus_change, prometheus_test
from observability.telemetry.partitions import partitions_ensure
from observability.telemetry.selectors import ReadingCourse, courses_of
from tests.builders import hold, make_cluster, make_gpr, make_slice, make_user, nodes_of
from tests.databases import travel
from tests.journal.notices.test_outbound import certificate
from tests.observability.telemetry.prometheus import OwnPrometheus
from tests.observability.telemetry.saying import gpus_of
from tests.pages.user_world import client_of

pytestmark = [pytest.mark.xdist_group("prometheus"), pytest.mark.django_db]

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
NOW = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
BACK = timedelta(days=120)  # longer than EGS keeps anything
EVERY_S = 1800
USER, PASSWORD = "reader", "reader-of-this-test"
WEB = {"basic_auth_users": {USER: "$2b$04$BPXDCCtASsd6/BwkP.ePlejqtcSLYrgE.KDGfVFWfhg/CyY1ZfRti"}}


def past() -> Iterator[tuple[str, str, float, float]]:
    """It has GPU-0 to GPU-3 as dcgm-exporter spells them in 3.x and 4.x, and another cluster's GPU. Each is as warm as the day is old."""
    seconds = reversed(range(0, int(BACK.total_seconds()), EVERY_S))
    for at_s in (NOW.timestamp() - second for second in seconds):
        age_days = int((NOW.timestamp() - at_s) // 86_400)
        for n, labels in enumerate(LABELS):
            pod = "" if age_days % 2 else ',exported_pod="train-0",exported_namespace="vision"'
            yield "DCGM_FI_DEV_GPU_TEMP", labels + pod, 30 + n + age_days / 10, at_s
        yield "DCGM_FI_PROF_GR_ENGINE_ACTIVE", LABELS[0], 0.25, at_s
        yield "DCGM_FI_DEV_XID_ERRORS", LABELS[0], 79 if at_s >= NOW.timestamp() - 2 * 86_400 else 0, at_s
        yield "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", LABELS[0], (at_s % 864_000) // 600, at_s  # begins anew
        yield "DCGM_FI_PROF_PCIE_TX_BYTES", LABELS[0], 1024 * 1024, at_s
        yield "DCGM_FI_PROF_PCIE_RX_BYTES", LABELS[0], 2 * 1024 * 1024, at_s
        for part in (1, 2):  # a part of what LABELS[0] says as a whole, and parts of a GPU that is not told of as a whole
            yield "DCGM_FI_DEV_GPU_TEMP", f'{LABELS[0]},GPU_I_ID="{part}",GPU_I_PROFILE="1g.10gb"', 99, at_s
            yield "DCGM_FI_DEV_FB_USED", f'{LABELS[1]},GPU_I_ID="{part}",GPU_I_PROFILE="1g.10gb"', 1000 * part, at_s


LABELS = (
    'gpu="0",UUID="GPU-0",Hostname="p-n0",cluster="c"',
    'gpu="1",UUID="GPU-1",Hostname="p-n0",cluster="c"',
    'gpu="0",gpu_uuid="GPU-2",hostname="p-n1",cluster="c"',
    'gpu="1",UUID="other",hostname="p-n1",cluster="c"',  # EGS does not know its UUID
    'gpu="1",UUID="GPU-9",hostname="p-n1",cluster="elsewhere"',
)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnPrometheus]:
    made = OwnPrometheus(tmp_path_factory.mktemp("prometheus"), web=WEB)
    made.remember(past())
    made.start()
    yield made
    made.stop()


@pytest.fixture
def cluster(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(queries, "TIMEOUT_S", 60.0)  # others work on this machine as well
    settings.EGS_OUTBOUND_ALLOW = [ip_network("127.0.0.0/8")]
    made = make_cluster("p", nodes=2, gpus=2)
    for n, gpu in enumerate(gpu for node in nodes_of(made) for gpu in gpus_of(node)):
        Gpu.objects.filter(pk=gpu.pk).update(hardware_uuid=f"GPU-{n}" if n < 3 else "")
    queries.forget_answers()
    yield made
    queries.forget_answers()


def use(cluster: Cluster, prometheus: OwnPrometheus, **changes: Any) -> None:
    change = {"url": prometheus.url, "auth": "basic", "username": USER, "secret": PASSWORD, "matchers": 'cluster="c"', **changes}
    prometheus_change(cluster=cluster, change=change, actor=make_user(is_admin=True), now=NOW)  # type: ignore[arg-type]


def all_gpus(cluster: Cluster) -> list[Gpu]:
    return list(Gpu.objects.filter(node__cluster=cluster).select_related("node").order_by("node__name", "index"))


def seen(actor: Any, cluster: Cluster, *, since: datetime, until: datetime = NOW) -> list[ReadingCourse]:
    return list(courses_of(actor, all_gpus(cluster), since=since, until=until, step_s=None, now=NOW).values())


def test_a_range_beyond_what_egs_keeps_is_read_with_the_units_and_the_labels_of_each_exporter(
    cluster: Cluster, prometheus: OwnPrometheus
) -> None:
    use(cluster, prometheus)
    first, second, third, fourth = seen(make_user(is_admin=True), cluster, since=NOW - BACK)

    assert {course.is_of_prometheus for course in (first, second, third, fourth)} == {True}
    assert first.step_s == 10_800
    assert len(first.points) in (959, 960)
    begin = first.points[0]["at"]
    assert begin < NOW - timedelta(days=119)
    for course, n in ((first, 0), (second, 1), (third, 2), (fourth, 3)):
        old, new = course.points[0], course.points[-1]
        assert (old["temperature_c"], new["temperature_c"]) == (round(30 + n + 11.9), 30 + n), n
    last = first.points[-1]
    assert (last["utilization_percent"], last["pcie_mib_s"], last["power_w"]) == (25, 3, None)
    assert second.points[-1]["memory_used_mib"] == 3000  # its parts together
    assert all(point["new_faults"] >= 0 for point in first.points)
    assert sum(point["new_faults"] for point in first.points[-24:]) - sum(point["new_faults"] for point in first.points[-12:]) > 12


def test_a_member_sees_the_time_of_his_whole_nodes_alone_and_shared_nodes_by_what_egs_joined(
    cluster: Cluster, prometheus: OwnPrometheus
) -> None:
    use(cluster, prometheus)
    member, other = make_user(), make_user()
    mine, theirs = make_slice(cluster, owner=member), make_slice(cluster, owner=other)
    first, second = nodes_of(cluster)
    begin, end = NOW - timedelta(days=60), NOW - timedelta(days=50, minutes=7)
    hold(make_gpr(mine, owner=member, nodes=1), first, starts_at=begin, ends_at=end)
    ReservedGpu.objects.update(state="RELEASED")
    cluster.reservations.update(state="RELEASED", phase="RELEASED", released_at=end)
    hold(make_gpr(theirs, owner=other, nodes=1), first, starts_at=end, ends_at=NOW)
    hold(make_gpr(theirs, owner=other, nodes=1), second, gpus_per_node=1, starts_at=begin, ends_at=NOW)

    whole, _, *not_his = seen(member, cluster, since=NOW - BACK)
    assert (whole.is_of_prometheus, [span.since_at for span in whole.spans]) == (True, [begin])
    step = timedelta(seconds=whole.step_s)
    assert len(whole.points) > 50
    assert all(begin <= point["at"] and point["at"] + step <= end for point in whole.points)
    assert all(not course.points for course in not_his)

    *_, shared, free = seen(other, cluster, since=NOW - BACK)
    assert (shared.is_of_prometheus, shared.points) == (False, [])
    assert (free.is_of_prometheus, free.points) == (True, [])
    assert not seen(make_user(), cluster, since=NOW - BACK)[0].points


def test_readers_of_one_range_share_one_answer_until_it_is_old_or_the_settings_change(
    cluster: Cluster, prometheus: OwnPrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(cluster, prometheus)
    asked: list[str] = []

    def counted(url: str, **more: Any) -> Any:
        asked.append(url)
        return post(url, **more)

    monkeypatch.setattr(queries, "post", counted)
    admin, member, since = make_user(is_admin=True), make_user(), NOW - 30 * DAY
    hold(make_gpr(make_slice(cluster, owner=member), owner=member), *nodes_of(cluster)[:1], starts_at=NOW - 20 * DAY, ends_at=NOW)
    source, gpus = PrometheusSource.objects.get(), [named(gpu, PrometheusSource.objects.get()) for gpu in all_gpus(cluster)]

    with ThreadPoolExecutor(4) as readers:
        hours = [{"since": NOW - 3 * DAY, "until": NOW, "step_s": 3600}] * 4
        answers = list(readers.map(lambda range_: queries.values_over(source, gpus, **range_), hours))
    once = len(expressions(gpus, step_s=3600, matchers=""))
    assert (len(asked), len({id(answer) for answer in answers})) == (once, 1)

    asked.clear()
    first = seen(admin, cluster, since=since)
    assert [course.points for course in seen(admin, cluster, since=since)] == [course.points for course in first]
    assert len(asked) == once
    theirs = seen(member, cluster, since=since)
    assert len(asked) == 2 * once
    assert len(theirs[0].points) < len(first[0].points)
    monkeypatch.setattr(queries, "KEPT_S", 0.0)
    use(cluster, prometheus, matchers='cluster="none"')
    assert not seen(admin, cluster, since=since)[0].is_of_prometheus
    use(cluster, prometheus)
    assert len(seen(admin, cluster, since=since)) == len(seen(admin, cluster, since=since))
    assert len(asked) == 5 * once


def test_while_prometheus_is_away_egs_shows_its_own_readings_and_says_so(cluster: Cluster, prometheus: OwnPrometheus) -> None:
    use(cluster, prometheus, url="http://127.0.0.1:9")
    gpu = all_gpus(cluster)[0]
    at = NOW - timedelta(days=8)
    partitions_ensure(Reading10m, [at])
    course = LatestReading.objects.create(gpu=gpu, at=at)
    Reading10m._default_manager.create(series_id=course.pk, at=at, temperature_c=44)

    own, *_ = seen(make_user(is_admin=True), cluster, since=NOW - timedelta(days=9))
    assert (own.is_of_prometheus, [point["temperature_c"] for point in own.points]) == (False, [44])
    assert own.why_own == "Prometheus gives no readings now, so these are EGS's own. The connection failed."
    use(cluster, prometheus, matchers='cluster="none"')
    unknown, *_ = seen(make_user(is_admin=True), cluster, since=NOW - timedelta(days=9))
    assert ([point["temperature_c"] for point in unknown.points], unknown.why_own[-43:]) == (
        [44],
        "It has no series of this GPU for this time.",
    )
    use(cluster, prometheus, url="http://127.0.0.1:9")
    member = make_user()
    hold(make_gpr(make_slice(cluster, owner=member), owner=member), *nodes_of(cluster)[:1], starts_at=NOW - 9 * DAY, ends_at=NOW)
    assert seen(member, cluster, since=NOW - 10 * DAY)[0].why_own == "Prometheus gives no readings now, so these are EGS's own."
    assert not seen(member, cluster, since=NOW - 6 * DAY)[0].why_own  # EGS keeps enough of it


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"secret": "wrong"}, "status 401"),
        ({"auth": "bearer"}, "status 401"),
        ({"matchers": 'cluster="none"'}, "0 of 4 GPUs"),
        ({}, "4 of 4 GPUs"),
        ({"matchers": ""}, "3 of 4 GPUs"),  # nodes of another cluster may have the same names
    ],
)
def test_a_test_says_what_prometheus_knows(cluster: Cluster, prometheus: OwnPrometheus, changes: dict[str, Any], why: str) -> None:
    use(cluster, prometheus, **changes)
    assert why in prometheus_test(PrometheusSource.objects.get(), now=NOW)[1]


@pytest.mark.rotates
def test_over_tls_the_certificate_must_be_one_that_the_administrator_gave(cluster: Cluster, tmp_path: Path) -> None:
    pem = certificate("localhost", tmp_path)
    files = {"cert_file": str(pem), "key_file": str(pem)}
    over_tls = OwnPrometheus(tmp_path, web={"tls_server_config": files})
    over_tls.start()
    try:
        for ca_pem, why in (("", "The connection failed."), (pem.read_text().partition("-----END PRIVATE KEY-----")[2], "0 of 4 GPUs")):
            use(cluster, over_tls, url=f"https://localhost:{over_tls.port}", auth="none", ca_pem=ca_pem)
            assert why in prometheus_test(PrometheusSource.objects.get(), now=NOW)[1]
    finally:
        over_tls.stop()


def test_an_address_inside_the_network_is_asked_only_where_that_is_allowed(
    cluster: Cluster, prometheus: OwnPrometheus, settings: Settings
) -> None:
    use(cluster, prometheus)
    settings.EGS_OUTBOUND_ALLOW = []
    is_ok, text = prometheus_test(PrometheusSource.objects.get(), now=NOW)
    assert not is_ok
    assert "inside this network" in text


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"url": "http://me:secret@prometheus.example"}, "url"),
        ({"url": "https://prometheus.example/?a=b"}, "url"),
        ({"secret": ""}, "secret"),
        ({"username": "a:b"}, "username"),
        ({"matchers": 'cluster="c"} or vector(1)'}, "matchers"),
        ({"matchers": "cluster"}, "matchers"),
        ({"ca_pem": "no certificate"}, "ca_pem"),
        ({"auth": "bearer", "secret": "two\nlines"}, "secret"),
    ],
)
def test_what_cannot_be_used_is_refused(cluster: Cluster, prometheus: OwnPrometheus, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        use(cluster, prometheus, **changes)
    assert refused.value.detail.startswith(f"{field}: ")


def test_the_secret_is_not_sent_to_another_address(cluster: Cluster, prometheus: OwnPrometheus) -> None:
    use(cluster, prometheus)
    assert PASSWORD not in PrometheusSource.objects.get().sealed
    with pytest.raises(InvalidInput):
        use(cluster, prometheus, url="https://thief.example", secret="")
    use(cluster, prometheus, secret="")
    assert prometheus_test(PrometheusSource.objects.get(), now=NOW)[0]
    use(cluster, prometheus, url="")
    assert not PrometheusSource.objects.exists()


def test_names_of_gpus_are_no_promql(cluster: Cluster) -> None:
    evil = NamedGpu(uuid4(), 'GPU-"} or {__name__=~".+', 'node"|.*', 0, is_by_place=True)
    for each in expressions([evil], step_s=600, matchers=""):
        assert '"} or {' not in each.text.replace('\\"', "")
        assert "|.*" not in each.text.replace("\\\\|\\\\.\\\\*", "")
    assert math.isfinite(len(expressions([evil], step_s=600, matchers="")))


@pytest.fixture
def just_after_the_last_sample() -> Iterator[None]:
    """The series end at NOW, and the suite may come to a test of pages an hour later."""
    with travel(NOW + timedelta(minutes=1)):
        yield


@pytest.mark.usefixtures("just_after_the_last_sample")
def test_the_charts_of_a_member_say_where_they_come_from_and_an_administrator_sets_it_on_a_page(
    cluster: Cluster, prometheus: OwnPrometheus
) -> None:
    client = client_of(make_user(is_admin=True))
    page = reverse("admin-cluster-prometheus", args=[cluster.pk])
    form = {"auth": "basic", "username": USER, "matchers": 'cluster="c"', "ca_pem": "", "beyond_s": "7d"}
    refused = client.post(page, {**form, "url": prometheus.url, "secret": ""}).content.decode()
    assert "Give the token or password" in refused
    assert "4 of 4 GPUs" in client.post(page, {**form, "url": prometheus.url, "secret": PASSWORD}, follow=True).content.decode()
    shown = client.get(page).content.decode()
    assert prometheus.url in shown
    assert PASSWORD not in shown

    member = make_user()
    begin = db_now() - 40 * DAY
    hold(make_gpr(make_slice(cluster, owner=member), owner=member), *nodes_of(cluster)[:1], starts_at=begin, ends_at=db_now())
    first, _, third, _ = all_gpus(cluster)
    client = client_of(member)
    chart = client.get(reverse("gpu", args=[first.pk]), {"range": "1y"}).content.decode()
    assert "from Prometheus" in chart
    assert ">Year<" in chart
    several = client.get(reverse("gpu-compare"), {"range": "90d"}).content.decode()
    assert "from Prometheus" in several
    of_another = client.get(reverse("gpu", args=[third.pk]), {"range": "1y"})
    assert "No readings in this time" in of_another.content.decode()
    assert client_of(make_user()).get(reverse("gpu", args=[first.pk])).status_code == 404
