from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from accounts.idempotency import create_once, digest_of, in_one
from accounts.policy import Verb
from core.errors import Conflict, EgsError, NotAllowed, NotFound
from gpr.allocation.stored_plan import plan_turn
from gpr.bookings.services import SERIES_ROUTE, series_cancel, series_create
from gpr.requests.selectors import series_for
from gpr.requests.services import CREATION_ROUTE, gpr_submit
from journal.refusals import error_record
from portal_shared.access import PageRequest, needs_write, signed_in
from portal_shared.forms.fields import rebound
from portal_shared.forms.questions import UNPROCESSABLE, decide, sent
from portal_shared.toasts import toast
from portal_user.forms import BookForm, new_key
from portal_user.pages.bookings import BookingsPage, BookPage, cancel_question
from portal_user.pages.requests.create import RequestForms
from portal_user.views.create import refuse_repetition
from slices.models import Slice
from slices.selectors import slice_for

TOPICS = ("gpr", "plan")


@require_GET
@signed_in
def bookings(request: PageRequest, slice: str) -> HttpResponse:
    """`?part=list` asks for the fragment."""
    page = BookingsPage.build(request, slice_for(request.user, slice))
    template = "user/bookings/list.html" if request.GET.get("part") == "list" else "user/bookings/page.html"
    return render(request, template, {"page": page, "shell": page.shell, "now": request.now})


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def book(request: PageRequest, slice: str) -> HttpResponse:
    slice_ = slice_for(request.user, slice, verb=Verb.REQUEST)
    shapes = [shape.shape for shape in RequestForms.set_up(request, slice_).shapes]
    if request.method == "GET":
        return _page(request, slice_, BookForm(initial={"key": new_key()}, slice_=slice_, shapes=shapes))
    form = BookForm(request.POST, slice_=slice_, shapes=shapes)
    if not form.is_valid():
        return _page(request, slice_, form)
    try:
        return _book(request, slice_, form)
    except (NotFound, NotAllowed):
        raise
    except EgsError as error:
        error_record(error, actor=request.user, path=request.path, now=request.now)
        if type(error) is Conflict:
            form = rebound(form, key=new_key(), again="yes")
        form.refuse(error)
        return _page(request, slice_, form)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def cancel(request: PageRequest, pk: UUID) -> HttpResponse:
    series = series_for(request.user, pk, write=True)

    def action() -> str:
        series_cancel(series=series, actor=request.user, now=request.now)
        return f"The series {series.name} is canceled"

    return decide(request, cancel_question(request, series, sent(request)), action, topics=TOPICS)


def _book(request: PageRequest, slice_: Slice, form: BookForm) -> HttpResponse:
    """Each opened form books once, however often it is sent."""
    ask = form.series_ask(request.zone)

    def once() -> UUID:
        return gpr_submit(actor=request.user, spec=form.spec(), now=request.now).pk

    def again_and_again() -> UUID:
        return series_create(actor=request.user, ask=ask, now=request.now).pk  # type: ignore[arg-type]

    route, create = (CREATION_ROUTE, once) if ask is None else (SERIES_ROUTE, again_and_again)
    digest = digest_of({name: str(value) for name, value in form.cleaned_data.items() if name not in {"key", "again"}})
    key = form.cleaned_data["key"] or new_key()
    if not form.cleaned_data["again"]:
        refuse_repetition(request, route=route, key=key, digest=digest)
    pk, _ = create_once(user=request.user, route=route, key=key, digest=digest, now=request.now, create=plan_turn()(in_one(create)))
    toast(request, f"{form.cleaned_data['name']} is booked")
    return HttpResponseRedirect(reverse("gpr", args=[pk]) if ask is None else reverse("bookings", args=[slice_.name]))


def _page(request: PageRequest, slice_: Slice, form: BookForm) -> HttpResponse:
    page = BookPage.build(request, slice_, form)
    status = UNPROCESSABLE if form.is_bound else 200
    return render(request, "user/create/book.html", {"page": page, "shell": page.shell, "now": request.now}, status=status)
