"""On this page the first administrator names himself."""

from __future__ import annotations

from django import forms
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from accounts.people.setup import administrator_set_up, is_set_up
from accounts.sessions import session_open_by_token
from core.clock import db_now
from core.errors import EgsError
from portal_shared.access import not_cached
from portal_shared.forms.fields import NameField


class SetupForm(forms.Form):
    token = forms.CharField(widget=forms.HiddenInput, max_length=200)
    name = NameField(label="Your name", max_length=63, help_text="Shown everywhere, e.g. ada.")


@require_http_methods(["GET", "POST"])
def setup(request: HttpRequest) -> HttpResponse:
    """Shows the first token once and signs the administrator in."""
    if is_set_up():
        return HttpResponseRedirect(reverse("login"))
    form = SetupForm(request.POST if request.method == "POST" else None, initial={"token": request.GET.get("token", "")})
    plain = ""
    if form.is_bound and form.is_valid():
        try:
            plain = administrator_set_up(**form.cleaned_data, now=db_now()).plain
            session_open_by_token(request, plain=plain, now=db_now())
        except EgsError as error:
            form.add_error(None, error.detail)
    is_refused = form.is_bound and not plain
    return not_cached(render(request, "setup.html", {"form": form, "plain": plain}, status=400 if is_refused else 200))
