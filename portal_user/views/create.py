"""Create and edit GPU requests, and show offers meanwhile."""

from __future__ import annotations

from copy import copy
from datetime import timedelta
from functools import partial
from uuid import UUID

from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from accounts.idempotency import create_once, digest_of, in_one
from accounts.models import IdempotentCreation
from accounts.policy import Verb
from core.errors import Conflict, EgsError, NotAllowed, NotFound, StaleState
from gpr.allocation.stored_plan import plan_turn
from gpr.models import Gpr, GprTemplate
from gpr.requests.editing import gpr_edit
from gpr.requests.selectors import gpr_for, template_for
from journal.refusals import error_record
from portal_shared.access import PageRequest, needs_write, signed_in
from portal_shared.forms.fields import rebound
from portal_shared.forms.questions import UNPROCESSABLE, closed
from portal_shared.shell import Shell
from portal_shared.toasts import toast
from portal_user.forms import GprForm, new_key
from portal_user.job_form import with_file
from portal_user.pages.requests.create import ChangesMeanwhile, CreatePage, RequestForms, folds_of, meanwhile_of, not_whole
from portal_user.pages.requests.detail import WAITS
from portal_user.pages.requests.job_preview import JobPreview
from portal_user.pages.requests.offers import OffersPanel, offers_url
from slices.models import Slice
from slices.selectors import slice_for

LATELY = timedelta(hours=1)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def create(request: PageRequest, slice: str, kind: type[GprForm] = GprForm) -> HttpResponse:
    slice_ = slice_for(request.user, slice, verb=Verb.REQUEST)
    request_forms = RequestForms.set_up(request, slice_, kind=kind)
    if request.method == "GET":
        form = request_forms.first_form(like=_like(request), template=_template(request, slice_), name=request.GET.get("name", ""))
        return _page(request, slice_, request_forms, form)
    form = request_forms.form(with_file(request.POST, request.FILES), is_question=_is_question(request))
    if _is_question(request) or not form.is_valid():
        return _page(request, slice_, request_forms, form)
    try:
        pk = _submit(request, form)
    except Conflict:
        return _filed_before(request, slice_, request_forms, form)
    except (NotFound, NotAllowed):
        raise
    except EgsError as error:
        error_record(error, actor=request.user, path=request.path, now=request.now)
        form.refuse(error)
        return _page(request, slice_, request_forms, form)
    return HttpResponseRedirect(reverse(form.PAGE, args=[pk]))


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def edit(request: PageRequest, pk: UUID) -> HttpResponse:
    gpr = gpr_for(request.user, pk, verb=Verb.CHANGE)
    if request.method == "GET" and gpr.state not in WAITS:  # a POST is refused below, with what was typed
        return closed(request, gpr, "edited", shell=Shell.user(request, page="requests", slice_=gpr.slice))
    request_forms = RequestForms.set_up(request, gpr.slice, edited=gpr)
    if request.method == "GET":
        return _page(request, gpr.slice, request_forms, request_forms.first_form())
    form = request_forms.form(request.POST, is_question=_is_question(request))
    if _is_question(request) or not form.is_valid():
        return _page(request, gpr.slice, request_forms, form)
    if form.cleaned_data["version"] != gpr.version:
        return _changed_meanwhile(request, request_forms, form, gpr)
    try:
        # A copy: a refused edit must not change the GPR that the page shows.
        changed = gpr_edit(gpr=copy(gpr), actor=request.user, spec=form.spec(), now=request.now)
    except StaleState:
        return _changed_meanwhile(request, request_forms, form, gpr_for(request.user, pk, verb=Verb.CHANGE))
    except (NotFound, NotAllowed):
        raise
    except EgsError as error:
        error_record(error, actor=request.user, path=request.path, now=request.now)
        form.refuse(error)
        return _page(request, gpr.slice, request_forms, form)
    toast(request, f"{changed.name} is changed")
    return HttpResponseRedirect(reverse("gpr", args=[pk]))


@require_POST
@signed_in
def offers(request: PageRequest, slice: str, kind: type[GprForm] = GprForm) -> HttpResponse:
    """Answers the fragment. `?edit=`: the GPR to be changed."""
    slice_ = slice_for(request.user, slice, verb=Verb.REQUEST)
    edited = gpr_for(request.user, request.GET["edit"], verb=Verb.CHANGE) if "edit" in request.GET else None
    if edited is not None and edited.slice_id != slice_.pk:
        raise NotFound("GPR")
    request_forms = RequestForms.set_up(request, slice_, edited=edited, kind=kind)
    form = request_forms.form(request.POST, is_question=True)
    panel = OffersPanel.build(request, form, url=offers_url(slice_.name, form, edited), stock=request_forms.stock, edited=edited)
    shown = {"panel": panel, "folds": folds_of(form, request), "form": form, "job": JobPreview.of(form, request_forms.stock)}
    context = {**shown, "is_part": True, "now": request.now, "edited": edited}
    return render(request, "user/create/offers.html", context)


def _page(
    request: PageRequest,
    slice_: Slice,
    request_forms: RequestForms,
    form: GprForm,
    *,
    meanwhile: ChangesMeanwhile | None = None,
    filed_url: str = "",
) -> HttpResponse:
    page = CreatePage.build(request, slice_, request_forms, form, meanwhile=meanwhile, filed_url=filed_url)
    is_refused = form.is_bound and bool(form.errors)
    status = 409 if meanwhile or filed_url else UNPROCESSABLE if is_refused else 200
    shown = {"page": page, "panel": page.panel, "folds": page.folds, "form": form, "job": page.job}
    context = {**shown, "shell": page.shell, "now": request.now, "edited": page.edited}
    return render(request, form.TEMPLATE, context, status=status)


def _submit(request: PageRequest, form: GprForm) -> UUID:
    """Each opened form creates one request, however often it is sent."""
    key = form.cleaned_data["key"] or new_key()
    digest = digest_of(form.body())
    if not form.cleaned_data["again"]:
        refuse_repetition(request, route=form.ROUTE, key=key, digest=digest)
    create = plan_turn()(in_one(partial(form.file, now=request.now)))
    pk, is_repeat = create_once(user=request.user, route=form.ROUTE, key=key, digest=digest, now=request.now, create=create)
    if not is_repeat:
        toast(request, f"{form.cleaned_data['name']} is filed")
    return pk


def refuse_repetition(request: PageRequest, *, route: str, key: str, digest: str) -> None:
    """Raises Conflict when the same was filed recently with another key: a reopened form has a new key."""
    lately = IdempotentCreation.objects.filter(user=request.user, route=route, digest=digest, created_at__gt=request.now - LATELY)
    if lately.exclude(key=key).exists():
        raise Conflict("You sent the same request within the last hour. Send it again to create a second one.")


def _filed_before(request: PageRequest, slice_: Slice, request_forms: RequestForms, form: GprForm) -> HttpResponse:
    """Gives the form a new key and asks for confirmation of a second request."""
    anew = rebound(form, key=new_key(), again="yes")
    return _page(request, slice_, request_forms, anew, filed_url=reverse(form.LIST_PAGE, args=[slice_.name]))


def _changed_meanwhile(request: PageRequest, request_forms: RequestForms, form: GprForm, gpr: Gpr) -> HttpResponse:
    """Keeps what was typed, for the GPR as it is now."""
    is_old = form.cleaned_data["version"] is not None
    data = request.POST.copy()
    data["version"] = str(gpr.version)
    anew = request_forms.form(data)
    anew.is_valid()
    return _page(request, gpr.slice, request_forms, anew, meanwhile=meanwhile_of(anew, gpr) if is_old else not_whole(anew, gpr))


def _like(request: PageRequest) -> Gpr | None:
    given = request.GET.get("from")
    return gpr_for(request.user, given) if given else None


def _template(request: PageRequest, slice_: Slice) -> GprTemplate | None:
    given = request.GET.get("template")
    return template_for(request.user, given, slice_=slice_) if given else None


def _is_question(request: PageRequest) -> bool:
    return request.POST.get("act") == "offers"
