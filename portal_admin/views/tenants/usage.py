from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from uuid import UUID

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from gpr.usage.selectors import price_for
from gpr.usage.services import price_delete, price_set
from portal_admin.forms import PriceForm
from portal_admin.pages.nav import admin_shell
from portal_shared.access import PageRequest, admin_only, needs_write
from portal_shared.forms.questions import Question, decide, sent


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def set_price(request: PageRequest) -> HttpResponse:
    def make(shape: str, gpu_hour_price: Decimal, from_day: date) -> str:
        price_set(shape=shape, price=gpu_hour_price, from_day=from_day, actor=request.user, now=request.now)
        return f"A GPU-hour of {shape} costs {gpu_hour_price:f} from {from_day} on"

    form = PriceForm(sent(request), initial={"from_day": request.now.date()})
    text = "Usage of these days costs that much then, also of past days. Prices of earlier days stay."
    question = _question(request, form, "Set a price", text, "Set price", reverse("admin-price-set"))
    return decide(request, question, make, topics=("usage",))


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def delete_price(request: PageRequest, pk: UUID) -> HttpResponse:
    price = price_for(request.user, pk)

    def remove() -> str:
        price_delete(price=price, actor=request.user, now=request.now)
        return "The price is deleted"

    title, url = f"Delete the price of {price.shape} from {price.from_day} on?", reverse("admin-price-delete", args=[pk])
    text = "The price before it holds for these days, or none."
    question = _question(request, forms.Form(sent(request)), title, text, "Delete price", url)
    return decide(request, replace(question, is_plain=False), remove, topics=("usage",))


def _question(request: PageRequest, form: forms.Form, title: str, text: str, verb: str, url: str) -> Question:
    shell = admin_shell(request, page="usage")
    return Question(title, text, verb, url, back_url=reverse("admin-usage"), form=form, shell=shell, is_plain=True)
