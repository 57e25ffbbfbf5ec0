"""Turns request bodies of `gprs/` into specs. gpr.requests.spec validates the values."""

from __future__ import annotations

from typing import Any

from django.db.models import TextChoices
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from accounts.models import User
from core.errors import InvalidInput
from core.rest.fields import Flag, FreeForm, Id, Reference, StrictSerializer, Text, ToldNumber, WholeNumber, whole_number
from core.rest.sentences import MISSING
from core.words import DURATION_S_MAX, duration_parse
from gpr.followers.selectors import predecessor_for
from gpr.models import AfterCondition, GprTemplate, Nearness
from gpr.queue.decision_previews import Act
from gpr.queue.moves import MoveTo
from gpr.requests.selectors import template_for
from gpr.requests.spec import BOUNDS, GprSpec
from gpr.templates.fields import merged
from inventory.models import Cluster
from inventory.selectors import cluster_for
from slices.selectors import slice_for

WHY_MAX_CHARS = 300
BULK_MAX = 200
VERSION_HELP = "The version that you read. The answer is 409 if the request has changed since."
IDLE_HELP = "It is released when its GPUs did nothing for so long, 5 minutes at least. 0: never. Null: as long as the policy says."
AFTER_HELP = "A GPR, by name or id, of the same project or of a workspace of yours: this one starts when that has ended. Empty: none."
CONDITION_HELP = "With `success` this one is canceled unless that one has its time or is given back, and its job succeeds."
NEEDED = ("nodes", "duration_s")  # a request must give these; all other fields have defaults
REPLACEMENT_WHY_MAX_CHARS = 150  # it becomes part of the reason why the node is cordoned


@extend_schema_field(
    {"oneOf": [{"type": "integer", "minimum": 0, "maximum": DURATION_S_MAX}, {"type": "string", "pattern": "^[0-9A-Za-z ]{1,100}$"}]}
)
class Duration(serializers.Field[int, Any, int, Any]):
    """Takes a number of whole seconds, or a text such as `90`, `1h30m`, `2d` or `PT1H30M`."""

    def to_internal_value(self, data: Any) -> int:
        if not isinstance(data, str):
            return int(WholeNumber().run_validation(data))
        try:
            return whole_number(data) if data.isdecimal() else duration_parse(data)
        except ValueError:
            raise serializers.ValidationError("Must be whole seconds, or text as 1h30m, 2d or PT1H30M.") from None

    def to_representation(self, value: int) -> int:
        return value


class GprChange(StrictSerializer):
    """Takes the fields of a request. An omitted field keeps its value, or gets its default in a new request."""

    name = Text(allow_blank=True, required=False)
    shape = Text(
        allow_blank=True,
        required=False,
        help_text="E.g. H100-80GB. Empty, with `min_gpu_memory_gib`: EGS chooses the shape.",
    )
    min_gpu_memory_gib = ToldNumber(bounds=BOUNDS["min_gpu_memory_gib"], required=False, allow_null=True)
    nodes = ToldNumber(bounds=BOUNDS["nodes"], required=False)
    gpus_per_node = ToldNumber(bounds=BOUNDS["gpus_per_node"], required=False, allow_null=True, help_text="Null: all of each node.")
    duration_s = Duration(required=False)
    priority = ToldNumber(bounds=BOUNDS["priority"], required=False, help_text="A higher priority is first. Default: 101.")
    clusters = serializers.ListField(
        child=Reference(),
        required=False,
        allow_empty=True,
        max_length=100,
        help_text="Clusters where it may run. Empty: all of the slice.",
    )
    earliest_start_at = serializers.DateTimeField(required=False, allow_null=True)
    after = Reference(required=False, allow_null=True, allow_blank=True, help_text=AFTER_HELP)
    after_condition = serializers.ChoiceField(choices=AfterCondition.choices, required=False, help_text=CONDITION_HELP)
    is_booking = Flag(required=False, help_text="It starts at `earliest_start_at`, or is refused with the nearest times.")
    node_type = Text(allow_blank=True, required=False, max_length=63)
    rdma = Flag(required=False)
    within = serializers.ChoiceField(
        choices=Nearness.choices,
        required=False,
        help_text="A rack or NVLink domain that all of its nodes must share. EGS always places them as near to each other as possible.",
    )
    idle_timeout_s = Duration(required=False, allow_null=True, help_text=IDLE_HELP)
    evictable = Flag(required=False)
    may_evict = Flag(required=False)
    requeue_on_failure = Flag(required=False)
    run_checks = Flag(required=False)
    model = FreeForm(required=False, help_text="Name and parameters of the model, in any form.")


class GprPatch(GprChange):
    version = WholeNumber(required=False, help_text=VERSION_HELP)


class GprCreate(GprChange):
    name = Text(allow_blank=True)
    slice = Reference()
    nodes = ToldNumber(bounds=BOUNDS["nodes"], required=False, help_text="Required unless the template has it.")
    duration_s = Duration(required=False, help_text="Required unless the template has it.")
    template = Reference(
        required=False,
        allow_null=True,
        help_text="A template of the slice or of the platform, for all fields that are not given here. The slice's own goes first.",
    )


class GprAsk(GprCreate):
    """Takes the fields of a creation, without a required name."""

    name = Text(allow_blank=True, default="estimate")


class Versioned(StrictSerializer):
    version = WholeNumber(required=False, help_text=VERSION_HELP)


class Extension(Versioned):
    extra_s = Duration()
    is_dry = Flag(required=False, help_text="Whether to refuse what is not possible, and else to change nothing.")


class Decision(Versioned):
    why = Text(
        max_length=WHY_MAX_CHARS,
        required=False,
        allow_blank=True,
        default="",
        help_text="The reason, which is recorded with the user's name.",
    )


class ReasonedDecision(Versioned):
    """Takes a decision against the owner, who must learn the reason."""

    why = Text(max_length=WHY_MAX_CHARS, help_text="The reason, which is recorded with the user's name and shown to the owner.")


class EvictionDecision(ReasonedDecision):
    requeue = Flag(required=False, help_text="Whether it is queued again for its remaining time. Default: the owner's choice.")


class BulkActs(TextChoices):
    CANCEL = "cancel"
    RELEASE = "release"
    APPROVE = "approve"
    REJECT = "reject"


class Bulk(StrictSerializer):
    act = serializers.ChoiceField(choices=BulkActs.choices)
    ids = serializers.ListField(child=Id(), min_length=1, max_length=BULK_MAX)
    why = Text(max_length=WHY_MAX_CHARS, required=False, help_text="The reason; `reject` needs one, `cancel` and `release` take none.")

    def validate(self, data: dict[str, Any]) -> dict[str, Any]:
        if data["act"] == BulkActs.REJECT and "why" not in data:
            raise serializers.ValidationError({"why": ["The owner has to learn the reason."]})
        if data["act"] in {BulkActs.CANCEL, BulkActs.RELEASE} and "why" in data:
            raise serializers.ValidationError({"why": ["This act takes no reason."]})
        return data


class NodeReplacement(Versioned):
    node = Reference(help_text="One of `nodes_assigned`, by name or id.")
    why = Text(max_length=REPLACEMENT_WHY_MAX_CHARS, help_text="The reason, which is recorded with the user's name and shown to the owner.")


class PriorityChange(Decision):
    priority = ToldNumber(bounds=BOUNDS["priority"])


class Move(Decision):
    to = serializers.ChoiceField(choices=MoveTo.choices, help_text="The new place among requests of its priority.")


class DecisionQuestion(StrictSerializer):
    """Describes a decision that nobody has made yet."""

    act = serializers.ChoiceField(choices=Act.choices)
    priority = ToldNumber(bounds=BOUNDS["priority"], required=False, help_text="Only `priority` takes it.")
    to = serializers.ChoiceField(choices=MoveTo.choices, required=False, help_text="Only `move` takes it.")
    requeue = Flag(required=False, help_text="Only `evict` takes it.")

    def validate(self, data: dict[str, Any]) -> dict[str, Any]:
        for act, field in ((Act.PRIORITY, "priority"), (Act.MOVE, "to")):
            if data["act"] == act and field not in data:
                raise serializers.ValidationError({field: [MISSING]})
        return data


def spec_of_create(data: dict[str, Any], *, actor: User) -> GprSpec:
    """Raises NotFound or InvalidInput."""
    slice_, said = slice_for(actor, data["slice"]), {name: value for name, value in data.items() if name != "template"}
    template = template_for(actor, data["template"], slice_=slice_) if data.get("template") else None
    if template and "clusters" not in said:
        _check_cluster(template)
    fields = merged(template, said) if template else said
    if missing := [name for name in NEEDED if name not in fields]:
        raise InvalidInput({name: [MISSING] for name in missing})
    clusters = clusters_of(fields.get("clusters", []), actor=actor)
    after = predecessor_for(actor, fields["after"], slice_=slice_) if fields.get("after") else None
    return GprSpec(**{**fields, "slice": slice_, "clusters": clusters, "template": template, "after": after})


def _check_cluster(template: GprTemplate) -> None:
    """Raises InvalidInput."""
    if template.cluster and template.slice and not template.slice.clusters.filter(pk=template.cluster.pk).exists():
        text = f"Template {template.name} is for cluster {template.cluster.name}, which workspace {template.slice.name} uses no longer."
        raise InvalidInput({"template": [f"{text} Name other clusters, or have one of its owners change the template."]})


def clusters_of(references: list[str], *, actor: User) -> tuple[Cluster, ...]:
    return tuple(cluster_for(actor, reference) for reference in dict.fromkeys(references))
