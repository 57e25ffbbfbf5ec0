from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from accounts.policy import ObjectKind, Verb, may_all
from core.errors import EgsError, NotAllowed, NotFound
from core.rest.references import one_by_reference
from inventory.selectors import cluster_for
from portal_shared.access import PageRequest, needs_write, signed_in
from portal_shared.forms.questions import UNPROCESSABLE, decide, refused, sent
from portal_shared.forms.questions import ask as put
from portal_user.forms import KubeconfigForm
from portal_user.pages.tenants.access import AccessPage, KubeconfigPage, adopt_question, ask_question, clusters_ready, revoke_question
from slices.kubeconfigs.services import KubeconfigNotMade, kubeconfig_ask, kubeconfig_read, kubeconfig_revoke
from slices.models import Slice
from slices.namespaces.services import namespace_adopt
from slices.selectors import kubeconfig_for, slice_for

TOPICS = ("gpr",)


@require_GET
@signed_in
def access(request: PageRequest, slice: str) -> HttpResponse:
    """`?part=list` asks for the fragment."""
    page = AccessPage.build(request, slice_for(request.user, slice))
    template = "user/access/list.html" if request.GET.get("part") == "list" else "user/access/page.html"
    return render(request, template, {"page": page, "shell": page.shell, "now": request.now})


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def ask(request: PageRequest, slice: str) -> HttpResponse:
    slice_ = slice_for(request.user, slice)
    form = KubeconfigForm(
        sent(request), clusters=clusters_ready(slice_), initial={"duration": "8 h", "cluster": request.GET.get("cluster")}
    )
    question = ask_question(request, slice_, form)
    if not form.is_bound:
        return put(request, question)
    if not form.is_valid():
        return put(request, question, status=UNPROCESSABLE)
    try:
        return _make(request, slice_, form)
    except (NotFound, NotAllowed):
        raise
    except EgsError as error:
        return refused(request, question, error)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def show(request: PageRequest, slice: str, pk: UUID) -> HttpResponse:
    """Only POST reveals the kubeconfig, since a GET may be repeated by browsers and proxies."""
    row = kubeconfig_for(request.user, slice_for(request.user, slice), pk)
    if request.method == "GET":
        return _show(request, KubeconfigPage.of(request, row))
    try:
        text = kubeconfig_read(kubeconfig=row, actor=request.user, now=request.now)
    except KubeconfigNotMade:
        return _show(request, KubeconfigPage.of(request, row, is_asked=True))
    except NotAllowed:
        raise
    except EgsError as error:
        # Fragments get 200: see portal_shared.questions.ask.
        return _show(request, KubeconfigPage.of(request, row, refused=error.detail), status=200 if request.htmx else error.status)
    return _show(request, KubeconfigPage.of(request, row, text=text))


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def revoke(request: PageRequest, slice: str, pk: UUID) -> HttpResponse:
    row = kubeconfig_for(request.user, slice_for(request.user, slice), pk, write=True)

    def action() -> str:
        kubeconfig_revoke(kubeconfig=row, actor=request.user, now=request.now)
        return f"The kubeconfig of {row.user.name} is revoked"

    return decide(request, revoke_question(request, row, sent(request)), action, topics=TOPICS)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def adopt(request: PageRequest, slice: str, pk: UUID) -> HttpResponse:
    if not may_all(request.user, Verb.DECIDE, ObjectKind.NAMESPACE):
        raise NotFound("page")
    slice_ = slice_for(request.user, slice)
    row = one_by_reference(slice_.namespaces.select_related("slice", "cluster"), str(pk), what="namespace")

    def action() -> str:
        namespace_adopt(namespace=row, actor=request.user, now=request.now)
        return f"{slice_.name} may adopt {row.name}"

    return decide(request, adopt_question(request, row, sent(request)), action, topics=TOPICS)


def _make(request: PageRequest, slice_: Slice, form: KubeconfigForm) -> HttpResponse:
    cluster = cluster_for(request.user, form.cleaned_data["cluster"])
    duration_s = form.cleaned_data["duration"]
    row = kubeconfig_ask(slice_=slice_, cluster=cluster, duration_s=duration_s, actor=request.user, now=request.now)
    if not request.htmx:
        return HttpResponseRedirect(reverse("kubeconfig", args=[slice_.name, row.pk]))
    page = KubeconfigPage.of(request, row, is_asked=True)
    return render(request, "user/access/kubeconfig_dialog.html", {"page": page, "shell": page.shell, "now": request.now})


def _show(request: PageRequest, page: KubeconfigPage, *, status: int = 200) -> HttpResponse:
    template = "user/access/kubeconfig_body.html" if request.htmx else "user/access/kubeconfig.html"
    return render(request, template, {"page": page, "shell": page.shell, "now": request.now}, status=status)
