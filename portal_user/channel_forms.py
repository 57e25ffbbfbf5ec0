"""Has the forms of notices and channels. Services hold the rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django import forms

from journal.models import Channel, ChannelKind, Digest, NoticeSettings
from journal.notices.channels.services import SECRET_MAX_CHARS, TARGET_MAX_CHARS, ChannelTerms
from journal.notices.kinds import NoticeKind
from portal_shared.forms.fields import CheckboxesField, PlainTextField
from portal_shared.forms.service_form import ServiceForm

# Label and hint of the target and of the secret, by kind; None: it has none.
TARGETS: Final[dict[str, tuple[str, str]]] = {
    ChannelKind.MAIL: ("Mail address", ""),
    ChannelKind.SLACK_BOT: ("Channel in Slack", "E.g. #gpus. The bot must be a member of it."),
    ChannelKind.WEBHOOK: ("URL", "With https. EGS posts signed JSON there."),
}
SECRETS: Final[dict[str, tuple[str, str]]] = {
    ChannelKind.SLACK_WEBHOOK: ("URL of the incoming webhook", "Begins with https://hooks.slack.com/."),
    ChannelKind.SLACK_BOT: ("Token of the bot", "Begins with xoxb- and needs the right chat:write."),
}
KEPT: Final = "Leave it empty to keep the stored one."


class NoticeSettingsForm(ServiceForm):
    kinds = CheckboxesField(label="Kinds of notices")
    muted_slices = CheckboxesField(label="Muted workspaces")
    quiet_from = forms.TimeField(label="Quiet from", required=False, widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M"))
    quiet_until = forms.TimeField(label="Quiet until", required=False, widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M"))
    zone = forms.CharField(label="Time zone", max_length=63, help_text="E.g. Europe/Berlin.")

    def __init__(
        self, *args: Any, stored: NoticeSettings, offered: Sequence[NoticeKind], slices: Sequence[tuple[str, str]], zone: str, **kwargs: Any
    ) -> None:
        shown = {
            "kinds": [kind for kind in offered if kind not in stored.unwanted_kinds],
            "muted_slices": stored.muted_slices,
            "quiet_from": stored.quiet_from,
            "quiet_until": stored.quiet_until,
            "zone": zone if stored._state.adding else stored.zone,
        }
        super().__init__(*args, initial=shown, **kwargs)
        self._stored, self._offered = stored, offered
        self.fields["kinds"].choices = [(kind.value, kind.label) for kind in offered]  # type: ignore[attr-defined]
        self.fields["muted_slices"].choices = slices  # type: ignore[attr-defined]

    def changes(self) -> dict[str, Any]:
        given = dict(self.cleaned_data)
        wanted, left_out = given.pop("kinds"), set(self._stored.unwanted_kinds) - set(self._offered)
        return {**given, "unwanted_kinds": left_out | {kind for kind in self._offered if kind not in wanted}}


class ChannelForm(ServiceForm):
    name = PlainTextField(label="Name", max_length=63)
    target = PlainTextField(max_length=TARGET_MAX_CHARS)
    secret = forms.CharField(max_length=SECRET_MAX_CHARS, widget=forms.PasswordInput(attrs={"autocomplete": "off"}))
    notice_kinds = CheckboxesField(label="Kinds of notices")
    digest = forms.ChoiceField(label="When", choices=Digest.choices)
    is_on = forms.BooleanField(label="Send messages", required=False)

    def __init__(self, *args: Any, kind: ChannelKind, offered: Sequence[NoticeKind], channel: Channel | None = None, **kwargs: Any) -> None:
        super().__init__(*args, initial=_shown(channel, offered), **kwargs)
        self._kind = kind
        self.fields["notice_kinds"].choices = [(each.value, each.label) for each in offered]  # type: ignore[attr-defined]
        for name, words in (("target", TARGETS.get(kind)), ("secret", SECRETS.get(kind))):
            if words is None:
                del self.fields[name]
            else:
                self.fields[name].label, self.fields[name].help_text = words
        if channel is None:
            del self.fields["is_on"]
        elif "secret" in self.fields:
            self.fields["secret"].required, self.fields["secret"].help_text = False, KEPT

    def terms(self) -> ChannelTerms:
        return ChannelTerms(kind=self._kind, **self.cleaned_data)

    def changes(self) -> dict[str, Any]:
        return dict(self.cleaned_data)


def _shown(channel: Channel | None, offered: Sequence[NoticeKind]) -> dict[str, Any]:
    if channel is None:
        return {"notice_kinds": list(offered), "digest": Digest.NONE}
    return {name: getattr(channel, name) for name in ("name", "target", "notice_kinds", "digest", "is_on")}


class AddressCodeForm(ServiceForm):
    code = PlainTextField(label="Code", max_length=20, help_text="It was sent to the address.")
