"""Clusters: make one, let its agent join, stop and resume what starts there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from egs.errors import EgsError
from egs.pages.access import PageRequest, admin_only, needs_write
from egs.pages.asking import UNPROCESSABLE
from egs.pages.toasts import done
from inventory.models import Cluster
from inventory.selectors import cluster_for
from inventory.services.clusters import cluster_create, cluster_resume, cluster_set_enabled, join_token_issue
from portal_admin.forms import ClusterForm, PlainForm
from portal_admin.pages.clusters import ClustersPage, TokenShown
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.question import Question
from portal_admin.views.asking import ask, sent
from portal_admin.views.showing import show


@require_http_methods(["GET", "POST"])
@admin_only
def clusters(request: PageRequest) -> HttpResponse:
    """GET lists them; POST makes one."""
    form = ClusterForm(sent(request))
    status = 200
    if form.is_valid():
        try:
            cluster = cluster_create(name=form.cleaned_data["name"], actor=request.user, now=request.now)
            return done(request, f"Cluster {cluster.name} is there", back_url=reverse("admin-clusters"), topics=("gpus",))
        except EgsError as error:
            form.add_error("name", error.detail)
            status = error.status
    elif form.is_bound:
        status = UNPROCESSABLE
    return show(request, ClustersPage.build(request, form), "clusters", rows="cluster_rows", status=status)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def join_token(request: PageRequest, pk: UUID) -> HttpResponse:
    cluster = cluster_for(request.user, str(pk))
    if request.method == "GET":
        text = "It is good for one join within the hour. Earlier tokens end now, and an agent that was locked may join again."
        return ask(request, _question(request, cluster, "join-token", "Issue a join token for {name}?", "Issue join token", text))
    token, plain = join_token_issue(cluster=cluster, actor=request.user, now=request.now)
    hub = request.build_absolute_uri("/").rstrip("/")
    command = f"python -m worker_agent --hub {hub} --join-token-file join-token --in-cluster"
    shown = TokenShown(admin_shell(request, page="clusters"), cluster.name, plain, token.expires_at, command)
    return show(request, shown, "join_token_dialog" if request.htmx else "join_token")


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def enable(request: PageRequest, pk: UUID) -> HttpResponse:
    text = "From now on boxes may start there again, if its agent is heard."
    return _decide(request, pk, "enable", "Enable {name}?", text, cluster_set_enabled, is_enabled=True)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def disable(request: PageRequest, pk: UUID) -> HttpResponse:
    text = "Nothing new starts there. What runs, runs to its end; who waits for it is planned elsewhere, or for when it may be back."
    return _decide(request, pk, "disable", "Disable {name}?", text, cluster_set_enabled, is_stop=True, is_enabled=False)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def resume(request: PageRequest, pk: UUID) -> HttpResponse:
    text = "Its agent knew more than this database, an older copy. Compare what its nodes hold with the inventory before it goes on."
    return _decide(request, pk, "resume", "Resume {name}?", text, cluster_resume)


def _decide(
    request: PageRequest, pk: UUID, act: str, title: str, text: str, do: Callable[..., None], *, is_stop: bool = False, **given: Any
) -> HttpResponse:
    cluster = cluster_for(request.user, str(pk))
    if request.method == "GET":
        return ask(request, _question(request, cluster, f"cluster-{act}", title, f"{act.title()} {{name}}", text, is_stop=is_stop))
    do(cluster=cluster, actor=request.user, now=request.now, **given)
    return done(request, f"Cluster {cluster.name} is {act}d", back_url=reverse("admin-clusters"), topics=("gpus", "queue", "schedule"))


def _question(request: PageRequest, cluster: Cluster, name: str, title: str, verb: str, text: str, *, is_stop: bool = False) -> Question:
    return Question(
        title=title.format(name=cluster.name),
        text=text,
        verb=verb.format(name=cluster.name),
        url=reverse(f"admin-{name}", args=[cluster.pk]),
        back_url=reverse("admin-clusters"),
        form=PlainForm(),
        shell=admin_shell(request, page="clusters"),
        is_plain=not is_stop,
    )
