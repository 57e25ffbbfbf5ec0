from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from portal_shared.access import PageRequest, signed_in
from portal_user.pages.promises import UserPromisesPage


@require_GET
@signed_in
def promises(request: PageRequest) -> HttpResponse:
    page = UserPromisesPage.build(request)
    return render(request, "user/promises.html", {"page": page, "shell": page.shell, "now": request.now})
