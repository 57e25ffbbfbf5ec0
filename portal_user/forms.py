"""Has the forms of the users' pages. Services hold the rules."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, time
from typing import Any, ClassVar
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

from django import forms
from django.conf import settings
from django.core.validators import RegexValidator
from django.db.models import Q
from rest_framework.exceptions import APIException

from accounts.models import Scope, User
from core.errors import EgsError, InvalidInput
from core.pages import words
from core.rest.fields import FreeForm
from core.rest.parsers import json_strict
from core.rest.references import id_of
from gpr.bookings.services import SeriesTerms
from gpr.followers.selectors import predecessor_for, predecessors_of
from gpr.models import AfterCondition, Gpr, GprTemplate, Nearness, RepeatRule
from gpr.requests.editing import spec_of
from gpr.requests.selectors import templates_of
from gpr.requests.services import CREATION_ROUTE, gpr_submit
from gpr.requests.spec import GprSpec
from inventory.models import Cluster
from portal_shared.forms.fields import (
    DURATION_HINT,
    CheckboxesField,
    IdleField,
    MomentField,
    NameField,
    PlainTextField,
    SpanField,
    UnseenMoment,
    UnseenNumber,
    UnseenText,
)
from portal_shared.forms.service_form import ServiceForm
from portal_shared.forms.template_form import FLAGS, NUMBER_MAX, SAME_FIELDS, initial_by
from portal_user.as_api import creation_body
from slices.models import PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN, Role, Slice

AFTER_HINT = "Name or id of a request of this project, or of a workspace of yours."
KEY = re.compile(r"\A[0-9a-f]{32}\Z", re.ASCII)
# For a cluster that the workspace cannot use any more.
CLUSTER_NOT_USED = "Workspace {} cannot use cluster {}. Choose others, or none for any."


class RoleForm(ServiceForm):
    role = forms.ChoiceField(label="Role", initial=Role.EDITOR)

    def __init__(self, *args: Any, roles: Sequence[tuple[Any, Any]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["role"].choices = roles  # type: ignore[attr-defined]


class ProgramForm(RoleForm):
    name = PlainTextField(label="Name", max_length=63, help_text="The workspace's name precedes it, as in vision:nightly.")
    field_order = ("name", "role")


class InviteForm(RoleForm):
    user = PlainTextField(label="Name or mail address", max_length=254)
    field_order = ("user", "role")


class DeviceCodeForm(ServiceForm):
    code = forms.CharField(
        label="Code",
        max_length=20,
        widget=forms.TextInput(attrs={"autofocus": True, "autocomplete": "off", "autocapitalize": "characters", "spellcheck": "false"}),
    )


class TokenForm(ServiceForm):
    name = PlainTextField(label="Name", max_length=63, help_text="Its user: a program, a pipeline, a computer.")
    scope = forms.ChoiceField(label="It may")
    days = forms.IntegerField(label="Days until it expires", min_value=1, max_value=settings.EGS_TOKEN_LIFE_MAX.days, initial=90)

    def __init__(self, *args: Any, scopes: Sequence[Scope], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["scope"].choices = [(scope.value, scope.label) for scope in scopes]  # type: ignore[attr-defined]


class GprForm(ServiceForm):
    """Takes as `edited` the GPR that it changes. `is_question`: only for offers, so that the name is optional."""

    ROUTE: ClassVar = CREATION_ROUTE  # in idempotency keys
    API_PATH: ClassVar = "/api/v1/gprs/"
    PAGE: ClassVar = "gpr"  # shows what was filed
    LIST_PAGE: ClassVar = "workspace"
    CREATE_PAGE: ClassVar = "gpr-create"
    NAV: ClassVar = "create"  # its place in the navigation
    OFFERS_PAGE: ClassVar = "gpr-offers"
    TEMPLATE: ClassVar = "user/create/page.html"
    CODE_TEMPLATE: ClassVar = "user/create/snippet.html"
    VERB: ClassVar = "Request"
    FOLDS: ClassVar[dict[str, tuple[str, ...]]] = {
        "start": ("priority", "earliest_start_at", "is_booking", "after", "after_condition"),
        "where": ("clusters", "node_type", "within", "rdma"),
        "rules": ("run_checks", "evictable", "may_evict", "requeue_on_failure", "idle_timeout"),
        "model": ("model_name", "model_parameters"),
    }

    @staticmethod
    def begun_by(template: GprTemplate) -> dict[str, Any]:
        """Returns the initial values that the template sets."""
        return initial_by(template)

    name = forms.CharField(label="Name", max_length=63)
    shape = forms.ChoiceField(label="GPU", required=False)
    min_gpu_memory_gib = forms.IntegerField(label="GPU memory in GiB at least", required=False, min_value=1, max_value=100_000)
    nodes = forms.IntegerField(label="Nodes", min_value=1, max_value=NUMBER_MAX, initial=1)
    gpus_per_node = forms.IntegerField(
        label="GPUs per node", required=False, min_value=1, max_value=NUMBER_MAX, widget=forms.NumberInput(attrs={"placeholder": "all"})
    )
    duration = SpanField(label="Duration", max_length=40, initial="1 h")
    priority = forms.IntegerField(
        label=f"Priority, {PRIORITY_MIN} to {PRIORITY_MAX}", min_value=PRIORITY_MIN, max_value=PRIORITY_MAX, initial=PRIORITY_DEFAULT
    )
    earliest_start_at = MomentField(label="Not before", required=False)
    after = PlainTextField(
        label="Start after", max_length=63, required=False, widget=forms.TextInput(attrs={"list": "after-choices"}), help_text=AFTER_HINT
    )
    after_condition = forms.ChoiceField(label="How that has to end", choices=AfterCondition.choices, required=False)
    is_booking = forms.BooleanField(label="Book this time: start exactly then, or be refused", required=False)
    clusters = forms.MultipleChoiceField(label="Clusters", required=False)
    node_type = PlainTextField(label="Node type", max_length=63, required=False)
    rdma = forms.BooleanField(label="Only nodes with RDMA", required=False)
    within = forms.ChoiceField(label="All nodes in", choices=Nearness.choices, required=False)
    run_checks = forms.BooleanField(label="Run all entry checks", required=False, initial=True)
    evictable = forms.BooleanField(label="May be evicted for a higher priority", required=False, initial=True)
    may_evict = forms.BooleanField(label="May evict others of lower priority", required=False)
    requeue_on_failure = forms.BooleanField(label="Queue again when evicted or failed", required=False, initial=True)
    idle_timeout = IdleField(label="Release when idle for", max_length=40, required=False)
    model_name = PlainTextField(label="Model name", max_length=200, required=False)
    model_parameters = forms.CharField(
        label="Parameters, as JSON", max_length=16_000, required=False, widget=forms.Textarea(attrs={"rows": 3})
    )
    offer = UnseenText(max_length=200)
    template = UnseenText(max_length=36)
    key = UnseenText(validators=[RegexValidator(KEY)])
    again = UnseenText(max_length=3)  # confirms a repetition of a recent request
    version = UnseenNumber(min_value=0)

    def __init__(
        self,
        *args: Any,
        slice_: Slice,
        shapes: Sequence[str],
        user: User,
        edited: Gpr | None = None,
        is_question: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.slice, self.user, self.edited = slice_, user, edited
        self._clusters: dict[str, Cluster] = {cluster.name: cluster for cluster in slice_.clusters.all()}
        self.fields["shape"].choices = [("", "Any"), *((shape, shape) for shape in shapes)]  # type: ignore[attr-defined]
        self.fields["clusters"].choices = [(name, name) for name in self._clusters]  # type: ignore[attr-defined]
        self.fields["clusters"].error_messages["invalid_choice"] = CLUSTER_NOT_USED.format(slice_.name, "%(value)s")
        self.fields["name"].required = not is_question
        by_policy = IdleField.typed(slice_.idle_timeout_s)
        self.fields["idle_timeout"].help_text = f"E.g. 45 min, or “never”. Empty: as the policy says, {by_policy} now."
        for field in self.fields.values():
            field.widget.is_required = field.required

    @property
    def clusters_not_used(self) -> list[str]:
        """Messages about initial clusters that are no longer choices."""
        given = self.initial.get("clusters", [])
        return [CLUSTER_NOT_USED.format(self.slice.name, name) for name in given if name not in self._clusters]

    def clean_after(self) -> Gpr | None:
        text = str(self.cleaned_data["after"])
        if not text:
            return None
        if self.edited is not None and text == predecessor_text(self.edited, self.user):
            return self.edited.after
        try:
            return predecessor_for(self.user, text, slice_=self.slice)
        except EgsError as error:
            texts = error.extra["errors"]["after"] if isinstance(error, InvalidInput) else [error.detail]
            raise forms.ValidationError(texts) from None

    def clean_template(self) -> GprTemplate | None:
        """Returns None if the template was deleted meanwhile."""
        id_ = id_of(self.cleaned_data["template"])
        rows = templates_of(GprTemplate.objects.select_related("cluster"), Q(slice=self.slice))
        return rows.filter(pk=id_).first() if id_ else None

    def clean_model_parameters(self) -> dict[str, Any]:
        text = str(self.cleaned_data["model_parameters"]).strip()
        try:
            return FreeForm().run_validation(json_strict(text)) if text else {}
        except APIException:
            raise forms.ValidationError('Write a JSON object of plain text and finite numbers, as {"precision": "bf16"}.') from None

    def spec(self) -> GprSpec:
        """A chosen offer fixes cluster and shape."""
        data = self.cleaned_data
        names, shape = data["clusters"], data["shape"]
        cluster, _, chosen_shape = data["offer"].partition("/")
        if cluster in self._clusters and chosen_shape:
            names, shape = [cluster], chosen_shape
        model = {**({"name": data["model_name"]} if data["model_name"] else {}), **data["model_parameters"]}
        return GprSpec(
            name=data["name"] or "request",
            slice=self.slice,
            shape=shape,
            min_gpu_memory_gib=None if data["shape"] else data["min_gpu_memory_gib"],
            nodes=data["nodes"],
            gpus_per_node=data["gpus_per_node"],
            duration_s=data["duration"],
            priority=data["priority"],
            clusters=tuple(self._clusters[name] for name in names),
            earliest_start_at=data["earliest_start_at"],
            after=data["after"],
            after_condition=data["after_condition"] or AfterCondition.ANY,
            node_type=data["node_type"],
            within=data["within"],
            idle_timeout_s=data["idle_timeout"],
            model=model,
            template=data["template"],
            **{flag: data[flag] for flag in FLAGS},
        )

    def body(self) -> dict[str, Any]:
        """Returns the body in the API's form."""
        return creation_body(self.spec())

    def file(self, *, now: datetime) -> UUID:
        return gpr_submit(actor=self.user, spec=self.spec(), now=now).pk

    def fold_values(self, said: dict[str, Any]) -> dict[str, str]:
        """Returns the values of further closed sections."""
        return {}

    def open_spec(self) -> GprSpec:
        """Ignores the chosen offer, to get all offers."""
        self.cleaned_data, kept = {**self.cleaned_data, "offer": ""}, self.cleaned_data
        try:
            return self.spec()
        finally:
            self.cleaned_data = kept


class BookForm(ServiceForm):
    """Books once or as a series."""

    name = forms.CharField(label="Name", max_length=63)
    shape = forms.ChoiceField(label="GPU")
    nodes = forms.IntegerField(label="Nodes", min_value=1, max_value=NUMBER_MAX, initial=1)
    gpus_per_node = forms.IntegerField(
        label="GPUs per node", required=False, min_value=1, max_value=NUMBER_MAX, widget=forms.NumberInput(attrs={"placeholder": "all"})
    )
    duration = SpanField(label="Duration", max_length=40, initial="1 h", help_text=DURATION_HINT)
    earliest_start_at = MomentField(label="Starts at")
    repeat = forms.ChoiceField(label="Repeat", required=False, choices=[("", "Once"), *RepeatRule.choices])
    until = forms.DateField(
        label="Repeat until (inclusive)", required=False, widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d")
    )
    key = UnseenText(validators=[RegexValidator(KEY)])
    again = UnseenText(max_length=3)  # confirms a repetition of a recent request

    def __init__(self, *args: Any, slice_: Slice, shapes: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.slice = slice_
        self.fields["shape"].choices = [(shape, shape) for shape in shapes]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = self.cleaned_data
        if data.get("repeat") and not data.get("until") and "until" not in self.errors:
            self.add_error("until", "Enter the last day; four weeks are booked ahead, 200 starts at most.")
        return data

    def spec(self) -> GprSpec:
        """Returns the first booking."""
        data = self.cleaned_data
        return GprSpec(
            name=data["name"],
            slice=self.slice,
            shape=data["shape"],
            nodes=data["nodes"],
            gpus_per_node=data["gpus_per_node"],
            duration_s=data["duration"],
            earliest_start_at=data["earliest_start_at"],
            is_booking=True,
        )

    def series_ask(self, zone: ZoneInfo) -> SeriesTerms | None:
        """Returns None for a single booking."""
        data = self.cleaned_data
        if not data["repeat"]:
            return None
        return SeriesTerms(
            spec=replace(self.spec(), earliest_start_at=None, is_booking=False),
            first_start_at=data["earliest_start_at"],
            rule=RepeatRule(data["repeat"]),
            zone=str(zone),
            until_at=datetime.combine(data["until"], time.max, zone),
        )


class KubeconfigForm(ServiceForm):
    cluster = forms.ChoiceField(label="Cluster")
    duration = SpanField(label="Valid for", max_length=40, required=False, help_text=DURATION_HINT)

    def __init__(self, *args: Any, clusters: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["cluster"].choices = [(cluster, cluster) for cluster in clusters]  # type: ignore[attr-defined]


class RefusalForm(ServiceForm):
    why = PlainTextField(label="Reason", max_length=150, help_text="Recorded with your name, and shown to the workspace.")


class VersionForm(ServiceForm):
    """`version` is that of the GPR that the user saw; None when missing."""

    version = UnseenNumber(min_value=0)


class RejectionForm(VersionForm):
    why = PlainTextField(label="Reason", max_length=150, help_text="Recorded with your name, and shown to its owner.")


MANY_FAULTS = {
    "required": "Choose at least one request.",
    "invalid_choice": "One was changed or decided on meanwhile. Look at it again.",
}


class ManyForm(ServiceForm):
    """Takes as `gprs` ids with the versions that the user saw."""

    gprs = CheckboxesField(label="Requests", required=True, error_messages=MANY_FAULTS)

    def __init__(self, *args: Any, offered: Sequence[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, initial={"gprs": [value for value, _ in offered]}, **kwargs)
        self.fields["gprs"].choices = offered  # type: ignore[attr-defined]


class RejectManyForm(ManyForm):
    why = PlainTextField(label="Reason", max_length=150, help_text="Recorded with your name, and shown to their owners.")


class ExtendForm(VersionForm):
    extra = SpanField(label="Extend by", max_length=40, initial="30 min", help_text=DURATION_HINT)
    until = UnseenMoment()  # sent by the button that offers the latest possible end


def new_key() -> str:
    return uuid4().hex


def predecessor_text(gpr: Gpr, user: User) -> str:
    """Returns the name of the predecessor, if the user may see it."""
    found = predecessors_of([gpr], actor=user).get(gpr.pk)
    return found.name if found else ""


def initial_of(gpr: Gpr, user: User) -> dict[str, Any]:
    spec = spec_of(gpr)
    model = dict(spec.model)
    name = model.pop("name", "") if isinstance(model.get("name"), str) else ""
    return {
        **{field: getattr(spec, field) for field in SAME_FIELDS},
        "after": predecessor_text(gpr, user),
        "duration": words.duration_exact(spec.duration_s),
        "idle_timeout": IdleField.typed(spec.idle_timeout_s),
        "clusters": [cluster.name for cluster in spec.clusters],
        "model_name": name,
        "model_parameters": json.dumps(model) if model else "",
        "version": gpr.version,
    }


class DeputyForm(ServiceForm):
    user = NameField(label="Deputy", max_length=63, help_text="The name of a person who works in your projects.")
    starts_at = MomentField(label="From", required=False, help_text="Empty: now.")
    ends_at = MomentField(label="Until", help_text="The deputy decides until then.")
