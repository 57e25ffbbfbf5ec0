from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.policy import Verb
from core.errors import EgsError, NotAllowed, NotFound
from journal.models import ChannelKind
from journal.notices.channels.services import (
    channel_change,
    channel_confirm,
    channel_create,
    channel_delete,
    channel_replace_key,
    channel_test,
    delivery_retry,
)
from journal.notices.selectors import channel_for, delivery_for
from journal.notices.settings.services import notice_settings_change
from portal_shared.access import PageRequest, needs_write, signed_in
from portal_shared.forms.questions import UNPROCESSABLE, ask, decide, refused, sent
from portal_shared.toasts import done, toast
from portal_user.channel_forms import ChannelForm
from portal_user.pages.channels import (
    ChannelFormPage,
    ChannelPage,
    NoticeSettingsPage,
    WorkspaceChannelsPage,
    code_question,
    delete_question,
    key_question,
    kinds_offered,
    list_url_of,
    settings_form,
)
from slices.models import Slice
from slices.selectors import slice_for

TOPICS = ("notices",)


@require_http_methods(["GET", "POST"])
@signed_in
def settings(request: PageRequest) -> HttpResponse:
    """`?part=channels` asks for the fragment."""
    form = settings_form(request, sent(request))
    if form.is_bound and form.is_valid():
        try:
            notice_settings_change(user=request.user, changes=form.changes(), now=request.now)
            toast(request, "Your notices are set")
            return HttpResponseRedirect(reverse("notice-settings"))
        except NotAllowed:
            raise
        except EgsError as error:
            form.refuse(error)
    page = NoticeSettingsPage.build(request, form)
    if request.GET.get("part") == "channels":
        return render(request, "user/channels/list.html", {"channels": page.channels, "now": request.now})
    return _render(request, "user/channels/settings.html", page, status=UNPROCESSABLE if form.errors else 200)


@require_GET
@signed_in
def of_workspace(request: PageRequest, slice: str) -> HttpResponse:
    """`?part=channels` asks for the fragment."""
    page = WorkspaceChannelsPage.build(request, slice_for(request.user, slice, verb=Verb.MANAGE))
    if request.GET.get("part") == "channels":
        return render(request, "user/channels/list.html", {"channels": page.channels, "now": request.now})
    return _render(request, "user/channels/workspace.html", page)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def create(request: PageRequest, kind: str) -> HttpResponse:
    """Takes from `?workspace=` whose channel it becomes; without it the reader's own."""
    if kind not in ChannelKind.values:
        raise NotFound("page")
    name, chosen = request.GET.get("workspace"), ChannelKind(kind)
    slice_ = slice_for(request.user, name, verb=Verb.MANAGE) if name else None
    form = ChannelForm(sent(request), kind=chosen, offered=kinds_offered(request.user, slice_))
    if form.is_bound and form.is_valid():
        try:
            made = channel_create(owner=slice_ or request.user, terms=form.terms(), actor=request.user, now=request.now)
        except (NotFound, NotAllowed):
            raise
        except EgsError as error:
            form.refuse(error)
        else:
            if made.plain:
                return _render(request, "user/channels/channel.html", ChannelPage.build(request, made.channel, plain=made.plain))
            toast(request, f"{made.channel.name} is added")
            return HttpResponseRedirect(reverse("channel", args=[made.channel.pk]))
    back_url = reverse("workspace-channels", args=[slice_.name]) if slice_ else reverse("notice-settings")
    return _fill_in(request, form, chosen, slice_, back_url)


@require_GET
@signed_in
def channel(request: PageRequest, pk: UUID) -> HttpResponse:
    """`?part=list` asks for its deliveries."""
    page = ChannelPage.build(request, channel_for(request.user, pk))
    return _render(request, "user/channels/deliveries.html" if request.GET.get("part") == "list" else "user/channels/channel.html", page)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def change(request: PageRequest, pk: UUID) -> HttpResponse:
    found = channel_for(request.user, pk)
    chosen = ChannelKind(found.kind)
    form = ChannelForm(sent(request), kind=chosen, offered=kinds_offered(request.user, found.slice), channel=found)
    if form.is_bound and form.is_valid():
        try:
            changed = channel_change(channel=found, changes=form.changes(), actor=request.user, now=request.now)
            toast(request, f"{changed.name} is changed")
            return HttpResponseRedirect(reverse("channel", args=[pk]))
        except (NotFound, NotAllowed):
            raise
        except EgsError as error:
            form.refuse(error)
    return _fill_in(request, form, chosen, found.slice, reverse("channel", args=[pk]))


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def delete(request: PageRequest, pk: UUID) -> HttpResponse:
    found = channel_for(request.user, pk)
    question = delete_question(request, found, sent(request))
    if request.method == "POST":
        channel_delete(channel=found, actor=request.user, now=request.now)
        toast(request, f"{found.name} is deleted")
        return HttpResponseRedirect(list_url_of(found))
    return decide(request, question, lambda: "", topics=TOPICS)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def replace_key(request: PageRequest, pk: UUID) -> HttpResponse:
    """Answers with a page that shows the new key once."""
    found = channel_for(request.user, pk)
    question = key_question(request, found, sent(request))
    if request.method != "POST":
        return ask(request, question)
    try:
        made = channel_replace_key(channel=found, actor=request.user, now=request.now)
    except (NotFound, NotAllowed):
        raise
    except EgsError as error:
        return refused(request, question, error)
    return _render(request, "user/channels/channel.html", ChannelPage.build(request, made.channel, plain=made.plain))


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def confirm(request: PageRequest, pk: UUID) -> HttpResponse:
    found = channel_for(request.user, pk)

    def action(code: str) -> str:
        channel_confirm(channel=found, code=code, actor=request.user, now=request.now)
        return f"{found.target} is confirmed"

    return decide(request, code_question(request, found, sent(request)), action, topics=TOPICS)


@require_POST
@signed_in
def test(request: PageRequest, pk: UUID) -> HttpResponse:
    found = channel_for(request.user, pk)
    channel_test(channel=found, actor=request.user, now=request.now)
    return done(request, f"A test is on its way over {found.name}", back_url=reverse("channel", args=[pk]), topics=TOPICS)


@require_POST
@signed_in
def retry(request: PageRequest, pk: UUID, delivery: UUID) -> HttpResponse:
    found = channel_for(request.user, pk)
    delivery_retry(delivery=delivery_for(found, delivery, request.user), actor=request.user, now=request.now)
    return done(request, "The message is sent again", back_url=reverse("channel", args=[pk]), topics=TOPICS)


def _fill_in(request: PageRequest, form: ChannelForm, kind: ChannelKind, slice_: Slice | None, back_url: str) -> HttpResponse:
    page = ChannelFormPage.build(request, form, kind=kind, slice_=slice_, back_url=back_url)
    return _render(request, "user/channels/form.html", page, status=UNPROCESSABLE if form.errors else 200)


def _render(
    request: PageRequest,
    template: str,
    page: NoticeSettingsPage | WorkspaceChannelsPage | ChannelPage | ChannelFormPage,
    *,
    status: int = 200,
) -> HttpResponse:
    return render(request, template, {"page": page, "shell": page.shell, "now": request.now}, status=status)
