"""Shows channels of notices: one's own beside what one hears, and those of a workspace; and what became of each message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from django.db.models import OuterRef, QuerySet, Subquery
from django.http import QueryDict
from django.urls import reverse

from accounts.models import User
from accounts.policy import is_platform_admin, own_workspace_ids
from core.pages.parts import ListFoot, Pair
from core.rest.pagination import CURSOR, NEWEST_FIRST
from core.words import plural
from journal.models import Channel, ChannelKind, Delivery, DeliveryState, Digest
from journal.notices.kinds import NoticeKind
from journal.notices.selectors import channels_of, deliveries_of
from journal.notices.settings.services import notice_settings_for
from portal_shared.access import PageRequest, why_not_write
from portal_shared.forms.questions import Question
from portal_shared.forms.service_form import ServiceForm
from portal_shared.parts.paging import foot_of, page_of, url_with
from portal_shared.shell import Shell, WorkspaceMark
from portal_user.channel_forms import AddressCodeForm, ChannelForm, NoticeSettingsForm
from portal_user.pages.requests.listing import may_create
from slices.models import Slice

TEXTS_SHOWN: Final = 3
STATE_CSS: Final = {DeliveryState.SENT: "good", DeliveryState.FAILED: "late"}


@dataclass(frozen=True, slots=True)
class ChannelRow:
    id: UUID
    name: str
    url: str
    kind: str
    target: str
    kinds: str
    word: str
    css: str
    why: str
    at: datetime | None

    @classmethod
    def of(cls, channel: Channel, last: Delivery | None, offered: Sequence[NoticeKind]) -> ChannelRow:
        chosen = [kind for kind in offered if kind in channel.notice_kinds]
        kinds = "All kinds" if len(chosen) == len(offered) else plural(len(chosen), "kind")
        when = "" if channel.digest == Digest.NONE else f", {str(Digest(channel.digest).label).lower()}"
        word, css = ("Not used yet", "soft") if last is None else (str(DeliveryState(last.state).label), _css(last))
        return cls(
            id=channel.pk,
            name=channel.name,
            url=reverse("channel", args=[channel.pk]),
            kind=str(ChannelKind(channel.kind).label),
            target=channel.target,
            kinds=f"{kinds}{when}",
            word="Waits for its code" if channel.needs_code else word if channel.is_on else "Switched off",
            css="late" if channel.needs_code else css if channel.is_on else "soft",
            why=last.error if last else "",
            at=last.created_at if last else None,
        )


@dataclass(frozen=True, slots=True)
class NewChannelLink:
    label: str
    url: str


@dataclass(frozen=True, slots=True)
class ChannelList:
    rows: tuple[ChannelRow, ...]
    new: tuple[NewChannelLink, ...]  # empty: not allowed
    url: str

    @classmethod
    def build(cls, request: PageRequest, channels: QuerySet[Channel], slice_: Slice | None) -> ChannelList:
        offered = kinds_offered(request.user, slice_)
        newest = Delivery.objects.filter(channel=OuterRef("pk")).order_by("-created_at", "id").values("pk")[:1]
        found = list(channels.annotate(last=Subquery(newest)).order_by("name"))
        last = Delivery.objects.in_bulk([channel.last for channel in found if channel.last])
        where = {"workspace": slice_.name} if slice_ else {}
        new = [NewChannelLink(str(kind.label), url_with(reverse("channel-create", args=[kind.value]), where)) for kind in ChannelKind]
        return cls(
            rows=tuple(ChannelRow.of(channel, last.get(channel.last), offered) for channel in found),
            new=tuple(new) if request.may_write else (),
            url=reverse("workspace-channels", args=[slice_.name]) if slice_ else reverse("notice-settings"),
        )


@dataclass(frozen=True, slots=True)
class NoticeSettingsPage:
    shell: Shell
    form: NoticeSettingsForm
    channels: ChannelList
    read_only: str

    @classmethod
    def build(cls, request: PageRequest, form: NoticeSettingsForm) -> NoticeSettingsPage:
        channels = ChannelList.build(request, channels_of(request.user).filter(slice=None), None)
        return cls(Shell.user(request, page="notices"), form, channels, why_not_write(request))


@dataclass(frozen=True, slots=True)
class WorkspaceChannelsPage:
    shell: Shell
    mark: WorkspaceMark
    channels: ChannelList
    read_only: str

    @classmethod
    def build(cls, request: PageRequest, slice_: Slice) -> WorkspaceChannelsPage:
        channels = ChannelList.build(request, Channel.objects.filter(slice=slice_), slice_)
        return cls(_shell(request, slice_), WorkspaceMark.of(slice_), channels, why_not_write(request))


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    id: UUID
    at: datetime
    word: str
    css: str
    texts: tuple[str, ...]
    more_count: int
    attempts: int
    due_at: datetime | None  # of the next attempt
    error: str
    retry_url: str  # empty: nothing to send again, or not allowed

    @classmethod
    def of(cls, row: Delivery, *, may_write: bool) -> DeliveryRow:
        texts = ["A test of this channel"] if row.is_test else [event.message for event in row.events.all()]
        is_over = row.state in {DeliveryState.SENT, DeliveryState.FAILED}
        return cls(
            id=row.pk,
            at=row.created_at,
            word=str(DeliveryState(row.state).label),
            css=_css(row),
            texts=tuple(texts[:TEXTS_SHOWN]),
            more_count=max(len(texts) - TEXTS_SHOWN, 0),
            attempts=row.attempt_count,
            due_at=row.due_at if row.state == DeliveryState.WAITING else None,
            error=row.error,
            retry_url=reverse("delivery-retry", args=[row.channel_id, row.pk]) if is_over and may_write else "",
        )


@dataclass(frozen=True, slots=True)
class ChannelPage:
    """Shows as `plain` the key of a new webhook's signatures, once."""

    shell: Shell
    name: str
    mark: WorkspaceMark | None
    about: tuple[Pair, ...]
    rows: tuple[DeliveryRow, ...]
    foot: ListFoot
    list_url: str
    back_url: str
    test_url: str
    change_url: str
    key_url: str  # empty: it signs nothing, or not allowed
    delete_url: str
    read_only: str
    plain: str
    confirm_url: str  # empty: it needs no code, or not allowed

    @classmethod
    def build(cls, request: PageRequest, channel: Channel, *, plain: str = "") -> ChannelPage:
        url = reverse("channel", args=[channel.pk])
        page = page_of(request, deliveries_of(channel, request.user), ordering=NEWEST_FIRST)
        names = ("channel-test", "channel-change", "channel-delete")
        test, change, delete = (reverse(name, args=[channel.pk]) if request.may_write else "" for name in names)
        return cls(
            shell=_shell(request, channel.slice),
            name=channel.name,
            mark=WorkspaceMark.of(channel.slice) if channel.slice else None,
            about=_about(channel, kinds_offered(request.user, channel.slice)),
            rows=tuple(DeliveryRow.of(row, may_write=request.may_write and not channel.needs_code) for row in page.rows),
            foot=foot_of(page, url),
            list_url=url_with(url, {}, part="list", cursor=request.GET.get(CURSOR, "")),
            back_url=list_url_of(channel),
            test_url=test,
            change_url=change,
            key_url=reverse("channel-replace-key", args=[channel.pk]) if channel.kind == ChannelKind.WEBHOOK and request.may_write else "",
            delete_url=delete,
            read_only=why_not_write(request),
            plain=plain,
            confirm_url=reverse("channel-confirm", args=[channel.pk]) if channel.needs_code and request.may_write else "",
        )


@dataclass(frozen=True, slots=True)
class ChannelFormPage:
    shell: Shell
    title: str
    verb: str
    mark: WorkspaceMark | None
    form: ChannelForm
    back_url: str

    @classmethod
    def build(cls, request: PageRequest, form: ChannelForm, *, kind: ChannelKind, slice_: Slice | None, back_url: str) -> ChannelFormPage:
        is_new = "is_on" not in form.fields
        return cls(
            shell=_shell(request, slice_),
            title=f"{'Add' if is_new else 'Change'} a channel: {kind.label}",
            verb="Add channel" if is_new else "Change channel",
            mark=WorkspaceMark.of(slice_) if slice_ else None,
            form=form,
            back_url=back_url,
        )


def kinds_offered(user: User, slice_: Slice | None) -> list[NoticeKind]:
    """Approval is wanted of administrators."""
    return [kind for kind in NoticeKind if slice_ is not None or is_platform_admin(user) or kind != NoticeKind.APPROVAL_WANTED]


def settings_form(request: PageRequest, data: QueryDict | None) -> NoticeSettingsForm:
    slices = Slice.objects.filter(pk__in=own_workspace_ids(request.user)).order_by("name")
    return NoticeSettingsForm(
        data,
        stored=notice_settings_for(request.user),
        offered=kinds_offered(request.user, None),
        slices=[(str(pk), name) for pk, name in slices.values_list("pk", "name")],
        zone=str(request.zone),
    )


def list_url_of(channel: Channel) -> str:
    return reverse("workspace-channels", args=[channel.slice.name]) if channel.slice else reverse("notice-settings")


def delete_question(request: PageRequest, channel: Channel, data: QueryDict | None) -> Question:
    return Question(
        title=f"Delete the channel {channel.name}?",
        text="EGS sends nothing there any more, nor what still waits. The list of its messages goes with it.",
        verb="Delete channel",
        url=reverse("channel-delete", args=[channel.pk]),
        back_url=list_url_of(channel),
        form=ServiceForm(data),
        shell=_shell(request, channel.slice),
        keep="Keep it",
    )


def key_question(request: PageRequest, channel: Channel, data: QueryDict | None) -> Question:
    return Question(
        title=f"Replace the key of {channel.name}?",
        text="The next page shows the new key, once. For a day EGS signs with both keys, so that you can change the receiver meanwhile.",
        verb="Replace key",
        url=reverse("channel-replace-key", args=[channel.pk]),
        back_url=reverse("channel", args=[channel.pk]),
        form=ServiceForm(data),
        shell=_shell(request, channel.slice),
        is_plain=True,
    )


def code_question(request: PageRequest, channel: Channel, data: QueryDict | None) -> Question:
    return Question(
        title=f"Confirm {channel.target}",
        text="EGS has sent a code there. Enter it to show that you read what arrives.",
        verb="Confirm address",
        url=reverse("channel-confirm", args=[channel.pk]),
        back_url=reverse("channel", args=[channel.pk]),
        form=AddressCodeForm(data),
        shell=_shell(request, channel.slice),
        keep="Not now",
        is_plain=True,
        closed="" if channel.needs_code else "This channel needs no code.",
    )


def _about(channel: Channel, offered: Sequence[NoticeKind]) -> tuple[Pair, ...]:
    kinds = ", ".join(str(kind.label) for kind in offered if kind in channel.notice_kinds)
    return (
        Pair("Kind", str(ChannelKind(channel.kind).label)),
        Pair("Target", channel.target),
        Pair("When", str(Digest(channel.digest).label) if channel.is_on else "Switched off"),
        Pair("Tells of", kinds),
    )


def _css(row: Delivery) -> str:
    is_failing = row.state == DeliveryState.WAITING and row.error
    return "late" if is_failing else STATE_CSS.get(DeliveryState(row.state), "soft")


def _shell(request: PageRequest, slice_: Slice | None) -> Shell:
    if slice_ is None:
        return Shell.user(request, page="notices")
    return Shell.user(request, page="access", slice_=slice_, may_create=may_create(request, slice_))
