from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from core.errors import EgsError
from core.words import duration_exact
from inventory.models import Cluster
from inventory.selectors import cluster_for
from inventory.services.clusters import cluster_create, cluster_resume, cluster_set_drain, cluster_set_enabled, join_token_issue
from observability.prometheus.services import PrometheusChange, prometheus_change, prometheus_test, source_for
from portal_admin.forms import ClusterForm, DrainForm, PlainForm, PrometheusForm
from portal_admin.pages.fleet.clusters import ClustersPage, TokenShown, join_commands
from portal_admin.pages.nav import admin_shell
from portal_admin.views.rendering import show
from portal_shared.access import PageRequest, admin_only, needs_write
from portal_shared.forms.questions import UNPROCESSABLE, Question, ask, decide, sent
from portal_shared.toasts import done


@require_http_methods(["GET", "POST"])
@admin_only
def clusters(request: PageRequest) -> HttpResponse:
    """GET lists them; POST makes one."""
    form = ClusterForm(sent(request))
    status = 200
    if form.is_valid():
        try:
            cluster = cluster_create(name=form.cleaned_data["name"], actor=request.user, now=request.now)
            return done(request, f"Cluster {cluster.name} is added", back_url=reverse("admin-clusters"), topics=("gpus",))
        except EgsError as error:
            form.add_error("name", error.detail)
            status = error.status
    elif form.is_bound:
        status = UNPROCESSABLE
    return show(request, ClustersPage.build(request, form), "clusters/page", rows="clusters/rows", status=status)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def join_token(request: PageRequest, pk: UUID) -> HttpResponse:
    cluster = cluster_for(request.user, str(pk))
    if request.method == "GET":
        text = "It is valid for one join within the hour. Earlier tokens end now, and a locked agent may join again."
        return ask(request, _question(request, cluster, "join-token", "Issue a join token for {name}?", "Issue join token", text))
    token, plain = join_token_issue(cluster=cluster, actor=request.user, now=request.now)
    hub = request.build_absolute_uri("/").rstrip("/")
    shown = TokenShown(admin_shell(request, page="clusters"), cluster.name, plain, token.expires_at, join_commands(hub))
    return show(request, shown, "clusters/join_token_dialog" if request.htmx else "clusters/join_token")


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def enable(request: PageRequest, pk: UUID) -> HttpResponse:
    return _enable(request, pk, "enable", "Requests may start there again, if its agent is connected.", is_enabled=True)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def disable(request: PageRequest, pk: UUID) -> HttpResponse:
    text = (
        "Nothing new starts there. Running requests continue to their end; waiting ones are planned elsewhere, or for when it may be back."
    )
    return _enable(request, pk, "disable", text, is_enabled=False)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def drain(request: PageRequest, pk: UUID) -> HttpResponse:
    cluster = cluster_for(request.user, str(pk))
    now = {"drain_grace_s": duration_exact(cluster.drain_grace_s), "drain_force_after_s": duration_exact(cluster.drain_force_after_s)}
    text = "How long pods may go on after their request has ended. The page of each request tells it. It holds for ends from now on."
    question = _question(request, cluster, "cluster-drain", "Pods at the end of a request in {name}", "Set it for {name}", text)

    def act_on(drain_force_after_s: int, drain_grace_s: int) -> str:
        cluster_set_drain(cluster=cluster, grace_s=drain_grace_s, force_after_s=drain_force_after_s, actor=request.user, now=request.now)
        return f"Pods in {cluster.name} get {duration_exact(drain_force_after_s)} to stop"

    return decide(request, replace(question, form=DrainForm(sent(request), initial=now)), act_on, topics=("gpus",))


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def prometheus(request: PageRequest, pk: UUID) -> HttpResponse:
    source = source_for(request.user, str(pk))
    cluster = source.cluster
    text = "Charts that begin longer ago than the bound are read from it, where the reader's boxes held the GPUs."
    question = _question(request, cluster, "cluster-prometheus", "Prometheus of {name}", "Set it for {name}", text)
    form = PrometheusForm(sent(request), initial=PrometheusForm.typed(source))

    def act_on(**change: Any) -> str:
        prometheus_change(cluster=cluster, change=PrometheusChange(**change), actor=request.user, now=request.now)  # type: ignore[typeddict-item]
        if not change["url"]:
            return f"{cluster.name} has no Prometheus"
        return prometheus_test(source_for(request.user, str(pk)), now=request.now)[1]

    return decide(request, replace(question, form=form), act_on, topics=("gpus",))


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def resume(request: PageRequest, pk: UUID) -> HttpResponse:
    text = "Its agent knew more than this database, an older copy. Compare what its nodes hold with the inventory before it goes on."
    cluster = cluster_for(request.user, str(pk))
    return _decide(request, cluster, "resume", text, partial(cluster_resume, cluster=cluster), is_so=cluster.rewound_at is None)


def _enable(request: PageRequest, pk: UUID, action: str, text: str, *, is_enabled: bool) -> HttpResponse:
    cluster = cluster_for(request.user, str(pk))
    do = partial(cluster_set_enabled, cluster=cluster, is_enabled=is_enabled)
    return _decide(request, cluster, action, text, do, is_so=cluster.is_enabled == is_enabled, is_stop=not is_enabled)


def _decide(
    request: PageRequest, cluster: Cluster, action: str, text: str, do: Callable[..., None], *, is_so: bool, is_stop: bool = False
) -> HttpResponse:
    """`is_so`: the cluster is in that state already."""
    name, title, verb = f"cluster-{action}", f"{action.title()} {{name}}?", f"{action.title()} {{name}}"
    question = _question(request, cluster, name, title, verb, text, is_stop=is_stop)
    if is_so:
        question = replace(question, closed=f"{cluster.name} is {action}d already: there is nothing to change.")

    def act_on() -> str:
        do(actor=request.user, now=request.now)
        return f"Cluster {cluster.name} is {action}d"

    return decide(request, question, act_on, topics=("gpus", "queue", "schedule"))


def _question(request: PageRequest, cluster: Cluster, name: str, title: str, verb: str, text: str, *, is_stop: bool = False) -> Question:
    return Question(
        title=title.format(name=cluster.name),
        text=text,
        verb=verb.format(name=cluster.name),
        url=reverse(f"admin-{name}", args=[cluster.pk]),
        back_url=reverse("admin-clusters"),
        form=PlainForm(sent(request)),
        shell=admin_shell(request, page="clusters"),
        is_plain=not is_stop,
    )
