from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from core.words import plural
from journal.notices.selectors import notice_for
from journal.notices.services import notice_read, notices_read_all
from portal_shared.access import PageRequest, signed_in
from portal_shared.shell import Bell
from portal_shared.toasts import done
from portal_user.pages.bell import NewestNotices, NoticesPage

TOPICS = ("notices",)


@require_GET
@signed_in
def notices(request: PageRequest) -> HttpResponse:
    """`?part=` asks for the list, the bell, or the newest for the bell."""
    match request.GET.get("part"):
        case "bell":
            return render(request, "components/shell/bell.html", {"bell": Bell.of(request.user)})
        case "newest":
            return render(request, "user/notices/newest.html", {"page": NewestNotices.build(request), "now": request.now})
        case part:
            page = NoticesPage.build(request)
            template = "user/notices/list.html" if part == "list" else "user/notices/page.html"
            return render(request, template, {"page": page, "shell": page.shell, "now": request.now})


@require_POST
@signed_in
def read(request: PageRequest, pk: UUID) -> HttpResponse:
    notice_read(notice=notice_for(request.user, pk), now=request.now)
    return done(request, "The notice is marked as read", back_url=reverse("notices"), topics=TOPICS)


@require_POST
@signed_in
def read_all(request: PageRequest) -> HttpResponse:
    count = notices_read_all(user=request.user, now=request.now)
    return done(request, f"{plural(count, 'notice')} marked as read", back_url=reverse("notices"), topics=TOPICS)
