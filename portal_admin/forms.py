"""Has the forms of the administrators' pages. Services hold the rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django import forms
from django.db.models import Prefetch

from accounts.models import PlatformRole
from core.outbound import URL_MAX_CHARS
from core.pages import words
from core.words import duration_exact
from gpr.queue.moves import MoveTo
from gpr.usage.services import PRICE_MOST
from inventory.models import CheckPolicy, Cluster, Node, SupplyKind
from inventory.selectors import shapes_known
from inventory.services.checks import CheckPolicyChange
from observability.models import RemediationPolicy
from observability.prometheus.models import CA_MAX_CHARS, MATCHERS_MAX_CHARS, USERNAME_MAX_CHARS, Auth, PrometheusSource
from observability.prometheus.services import SECRET_MAX_CHARS
from observability.remediation.faults import ACTION_NAMES, DAY_S, REPAIRS, TRENDS, XID_ACTIONS
from observability.remediation.models import TRIES_MAX, Mode
from observability.remediation.policies import LIMIT_MAX, RemediationTerms
from portal_shared.forms.fields import DURATION_HINT, MomentField, NameField, PlainTextField, SpanField, UnseenNumber
from portal_shared.forms.limit_forms import (
    ALL_SHAPES,
    GPUS_MAX,
    NewBudgetForm,
    OptionalReasonForm,
    reason_field,
    shape_choices,
)
from protocol.nodes.check_limits import IMAGES, LIMITS, Limit, amount
from protocol.nodes.steps import OPTIONAL, ExitStep
from slices.models import PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN, Life, Project, ProjectAdmin, Slice


class DecisionForm(forms.Form):
    """`version` is that of the GPR that the administrator saw."""

    version = UnseenNumber(min_value=0)
    why = reason_field("Recorded with your name.", required=False)


class VerdictForm(DecisionForm):
    """The owner reads the reason."""

    why = reason_field("Recorded with your name, and shown to its owner.", required=True)


class PriorityForm(DecisionForm):
    priority = forms.IntegerField(
        label="Priority", min_value=PRIORITY_MIN, max_value=PRIORITY_MAX, help_text=f"{PRIORITY_MIN} to {PRIORITY_MAX}, higher first."
    )
    field_order = ("version", "priority", "why")


class MoveForm(DecisionForm):
    to = forms.ChoiceField(label="Where to", choices=MoveTo.choices, initial=MoveTo.UP, help_text="Within its priority.")
    field_order = ("version", "to", "why")


class PlainForm(forms.Form):
    pass


class PlatformRoleForm(forms.Form):
    role = forms.ChoiceField(label="Role", choices=PlatformRole.choices, initial=PlatformRole.MEMBER)


class PersonForm(PlatformRoleForm):
    name = NameField(label="Name", max_length=63, help_text="Shown everywhere, e.g. ada.")
    email = forms.EmailField(label="Mail address", max_length=254, required=False)
    field_order = ("name", "email", "role")


class ReasonForm(forms.Form):
    why = reason_field("Recorded with your name.", required=True)


class RepairForm(OptionalReasonForm):
    action = forms.ChoiceField(label="What is done first", choices=[(action, ACTION_NAMES[action]) for action in REPAIRS])
    field_order = ("action", "why")


class RemediationPolicyForm(forms.Form):
    watches_faults = forms.ChoiceField(label="A fault of a GPU", choices=[("yes", "Sets its node aside"), ("no", "Is only recorded")])
    check_node = forms.ChoiceField(label="Check a node that looks well again", choices=Mode.choices)
    restart_driver = forms.ChoiceField(label="Restart the driver's pods", choices=Mode.choices)
    reset_gpus = forms.ChoiceField(label="Reset the GPUs", choices=Mode.choices)
    reboot_node = forms.ChoiceField(label="Reboot the node", choices=Mode.choices)
    tries_max = forms.IntegerField(label="Repairs that may fail", min_value=1, max_value=TRIES_MAX, help_text="Then a person is asked.")
    returns_max = forms.IntegerField(
        label="Returns within a week", min_value=1, max_value=TRIES_MAX, help_text="A node that then fails again is left to a person."
    )
    ignored_xids = PlainTextField(
        label="Ignored Xids", max_length=500, required=False, help_text="Numbers, separated by commas. Errors of applications never count."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for trend in TRENDS:
            within = "a day" if trend.within_s == DAY_S else "an hour"
            self.fields[f"limit_{trend.metric}"] = forms.IntegerField(
                label=f"{trend.what[0].upper()}{trend.what[1:]}",
                min_value=0,
                max_value=LIMIT_MAX,
                required=False,
                help_text=f"So many {within} are a fault; 0: never; empty: {trend.most:,}.",
            )

    def clean_ignored_xids(self) -> list[int]:
        words_ = [word.strip() for word in self.cleaned_data["ignored_xids"].split(",") if word.strip()]
        if not all(word.isdecimal() and int(word) in XID_ACTIONS for word in words_):
            raise forms.ValidationError(f"Must be of {', '.join(map(str, sorted(XID_ACTIONS)))}; no other sets a node aside.")
        return sorted({int(word) for word in words_})

    def change(self) -> RemediationTerms:
        given = self.cleaned_data
        limits = {trend.metric: given[f"limit_{trend.metric}"] for trend in TRENDS}
        return {
            "watches_faults": given["watches_faults"] == "yes",
            "check_node": given["check_node"],
            "restart_driver": given["restart_driver"],
            "reset_gpus": given["reset_gpus"],
            "reboot_node": given["reboot_node"],
            "tries_max": given["tries_max"],
            "returns_max": given["returns_max"],
            "ignored_xids": given["ignored_xids"],
            "limits": {name: limit for name, limit in limits.items() if limit is not None},
        }

    @staticmethod
    def typed(policy: RemediationPolicy) -> dict[str, Any]:
        """Returns initial values for this policy."""
        names = ("check_node", "restart_driver", "reset_gpus", "reboot_node", "tries_max", "returns_max")
        given = {name: getattr(policy, name) for name in names} | {f"limit_{name}": value for name, value in policy.limits.items()}
        watches = "yes" if policy.watches_faults else "no"
        return given | {"watches_faults": watches, "ignored_xids": ", ".join(map(str, policy.ignored_xids))}


class ProjectAdminForm(forms.Form):
    user = PlainTextField(label="Person", max_length=63, help_text="The name of somebody who can sign in.")


class ProjectAdminsForm(forms.Form):
    row = forms.ModelChoiceField(ProjectAdmin.objects.none(), label="Administrator")

    def __init__(self, *args: Any, project: Project, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields["row"]
        field.queryset = project.admins.select_related("user", "project")
        field.label_from_instance = lambda row: row.user.name


class DrainForm(forms.Form):
    drain_force_after_s = SpanField(label="Pods are killed after", max_length=40, help_text="Counted from the end of their request.")
    drain_grace_s = SpanField(label="Disruption budgets hold a pod", max_length=40, help_text="At most so long; 0 s for not at all.")


class PrometheusForm(forms.Form):
    url = PlainTextField(
        label="Address", max_length=URL_MAX_CHARS, required=False, help_text="E.g. https://prometheus.example:9090. Empty: none is used."
    )
    auth = forms.ChoiceField(label="Key", choices=Auth.choices)
    username = PlainTextField(label="User name", max_length=USERNAME_MAX_CHARS, required=False)
    secret = forms.CharField(
        label="Token or password",
        max_length=SECRET_MAX_CHARS,
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text="Empty: the one that is there. EGS shows it to nobody.",
    )
    ca_pem = forms.CharField(
        label="Certificates to trust",
        max_length=CA_MAX_CHARS,
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false"}),
        help_text="PEM; empty: what the system trusts.",
    )
    matchers = PlainTextField(
        label="Labels of its series",
        max_length=MATCHERS_MAX_CHARS,
        required=False,
        help_text='As cluster="aurora". With them GPUs are also found by node and index, else by UUID alone.',
    )
    beyond_s = SpanField(label="Bound", max_length=40, help_text="Charts that begin longer ago come from it.")

    @staticmethod
    def typed(source: PrometheusSource) -> dict[str, str]:
        there = {name: getattr(source, name) for name in ("url", "auth", "username", "ca_pem", "matchers")}
        return {**there, "beyond_s": duration_exact(source.beyond_s)}


class QuotaTermsForm(OptionalReasonForm):
    guaranteed_gpus = forms.IntegerField(
        label="Guaranteed GPUs", min_value=0, max_value=GPUS_MAX, initial=0, help_text="GPUs of this shape."
    )
    most_gpus = forms.IntegerField(
        label="At most", min_value=0, max_value=GPUS_MAX, required=False, help_text="The most that it may hold; empty: no limit."
    )
    field_order = ("owner", "shape", "guaranteed_gpus", "most_gpus", "why")


class OwnedForm(forms.Form):
    """Gives a quota to a project, or to a workspace as a part of its project's."""

    owner = forms.ChoiceField(label="For")
    shape = forms.ChoiceField(label="Shape")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._owners: dict[str, Project | Slice] = {}
        groups: dict[str, list[tuple[str, str]]] = {}
        open_ones = Prefetch("slices", Slice.objects.filter(life=Life.OPEN))
        for project in Project.objects.filter(life=Life.OPEN).prefetch_related(open_ones):
            slices = list(project.slices.all())
            self._owners |= {str(project.pk): project, **{str(slice_.pk): slice_ for slice_ in slices}}
            whole = (str(project.pk), f"{project.name}, the whole project")
            groups[project.name] = [whole, *((str(slice_.pk), slice_.name) for slice_ in slices)]
        self.fields["owner"].choices = [("", "Choose a project or a workspace"), *groups.items()]  # type: ignore[attr-defined]
        shapes = self.fields["shape"]
        shapes.choices = [*([] if shapes.required else [ALL_SHAPES]), *shape_choices()]  # type: ignore[attr-defined]

    def clean_owner(self) -> Project | Slice:
        return self._owners[self.cleaned_data["owner"]]


class QuotaForm(OwnedForm, QuotaTermsForm):
    pass


class BudgetForm(OwnedForm, NewBudgetForm):
    shape = forms.ChoiceField(label="Shape", required=False)
    field_order = ("owner", *NewBudgetForm.field_order)


class PriceForm(forms.Form):
    shape = forms.ChoiceField(label="Shape")
    gpu_hour_price = forms.DecimalField(label="Price of a GPU-hour", min_value=0, max_value=PRICE_MOST, max_digits=11, decimal_places=4)
    from_day = forms.DateField(label="From", widget=forms.DateInput(attrs={"type": "date"}), help_text="A day in UTC; it may be past.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["shape"].choices = shape_choices()  # type: ignore[attr-defined]


class ForceReleaseForm(ReasonForm):
    """Names the reservations that were shown, so that an old page cannot release newer ones."""

    reservations = forms.CharField(widget=forms.HiddenInput, max_length=4000)

    def clean_reservations(self) -> list[UUID]:
        try:
            return [UUID(text) for text in str(self.cleaned_data["reservations"]).split()]
        except ValueError:
            raise forms.ValidationError("These are no ids of reservations.") from None


class ClusterForm(forms.Form):
    name = NameField(label="Name", max_length=63, help_text="Letters, digits, dots, dashes and underscores; shown in every offer.")


class MaintenanceForm(forms.Form):
    """Closes a cluster or one of its nodes."""

    place = forms.ChoiceField(label="Closes")
    starts_at = MomentField(label="Closed from")
    ends_at = MomentField(label="Open again at", help_text="At most 90 days later.")
    reason = PlainTextField(label="Reason", max_length=200, help_text="Shown to all whose workspaces may use the cluster.")

    def __init__(self, *args: Any, clusters: Sequence[Cluster], **kwargs: Any) -> None:
        """`clusters` have prefetched nodes."""
        super().__init__(*args, **kwargs)
        self._places: dict[str, tuple[Cluster, Node | None]] = {}
        groups: list[tuple[str, list[tuple[str, str]]]] = []
        for cluster in clusters:
            nodes = list(cluster.nodes.all())
            self._places |= {str(cluster.pk): (cluster, None), **{str(node.pk): (cluster, node) for node in nodes}}
            whole = (str(cluster.pk), f"{cluster.name}, the whole cluster")
            groups.append((cluster.name, [whole, *((str(node.pk), node.name) for node in nodes)]))
        self.fields["place"].choices = [("", "Choose a cluster or a node"), *groups]  # type: ignore[attr-defined]

    def clean_place(self) -> tuple[Cluster, Node | None]:
        return self._places[self.cleaned_data["place"]]


class BookingQuestionForm(forms.Form):
    """Asks about a hypothetical booking."""

    shape = forms.ChoiceField(label="GPU")
    cluster = forms.ChoiceField(label="Cluster", required=False)
    nodes = forms.IntegerField(label="Nodes", min_value=1, max_value=GPUS_MAX, initial=1)
    gpus_per_node = forms.IntegerField(
        label="GPUs per node", required=False, min_value=1, max_value=GPUS_MAX, widget=forms.NumberInput(attrs={"placeholder": "all"})
    )
    starts_at = MomentField(label="Starts at")
    duration = SpanField(label="Duration", max_length=40, initial="1 h", help_text=DURATION_HINT)
    priority = forms.IntegerField(
        label="Priority",
        min_value=PRIORITY_MIN,
        max_value=PRIORITY_MAX,
        initial=PRIORITY_DEFAULT,
        help_text="Requests of a higher priority are not moved.",
    )

    def __init__(self, *args: Any, clusters: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["shape"].choices = [(shape, shape) for shape in sorted(shapes_known())]  # type: ignore[attr-defined]
        self.fields["cluster"].choices = [("", "Any"), *((name, name) for name in clusters)]  # type: ignore[attr-defined]


class ApprovalForm(ReasonForm):
    """`fingerprint`: of the proposal that was shown."""

    fingerprint = forms.CharField(widget=forms.HiddenInput, max_length=64)


class SupplyTermsForm(OptionalReasonForm):
    name = PlainTextField(label="Name", max_length=63, help_text="Shown in offers.")
    node_count = forms.IntegerField(label="Nodes", min_value=1, max_value=GPUS_MAX, help_text="How many nodes it can provide in total.")
    lead_time = SpanField(label="Lead time", max_length=40, initial="20 min", help_text="From the order to the node.")
    gain = SpanField(
        label="Minimum gain",
        max_length=40,
        initial="10 min",
        help_text="Nodes are ordered only if a request starts sooner by at least this.",
    )


class SupplyForm(SupplyTermsForm):
    cluster = forms.ChoiceField(label="Cluster")
    kind = forms.ChoiceField(label="Kind", choices=SupplyKind.choices)
    shape = PlainTextField(label="Shape", max_length=63, help_text="The shape that its nodes will report; it may be new to the cluster.")
    gpus_per_node = forms.IntegerField(label="GPUs per node", min_value=1, max_value=GPUS_MAX, initial=8)
    gpu_memory_gib = forms.IntegerField(label="GPU memory", min_value=1, max_value=GPUS_MAX, help_text="Minimum GiB per GPU.")
    why = None  # type: ignore[assignment]  # a new one needs no reason
    field_order = ("cluster", "name", "kind", "shape", "gpus_per_node", "gpu_memory_gib", "node_count", "lead_time", "gain")

    def __init__(self, *args: Any, clusters: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["cluster"].choices = [(name, name) for name in clusters]  # type: ignore[attr-defined]


class CheckPolicyTermsForm(OptionalReasonForm):
    """Has a field for each limit and image; empty means the default."""

    skipped_steps = forms.MultipleChoiceField(
        label="Skip steps",
        required=False,
        choices=[(step, f"{words.step_name(step)}{' at the exit' if step in list(ExitStep) else ''}") for step in OPTIONAL],
        widget=forms.SelectMultiple(attrs={"size": len(OPTIONAL)}),
        help_text="Steps to skip there.",
    )
    storage_class = PlainTextField(label="Storage class", max_length=253, required=False, help_text="Empty: the cluster's default.")
    rdma_subnet = PlainTextField(label="RDMA subnet", max_length=19, required=False, help_text="First half of the ports' GIDs; empty: any.")
    runtime_class = PlainTextField(
        label="Runtime class",
        max_length=253,
        required=False,
        help_text="For pods that check GPUs, e.g. nvidia; empty: the agent's default.",
    )
    pull_secret = PlainTextField(
        label="Pull secret", max_length=253, required=False, help_text="For the images, in egs-system; empty: the agent's default."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, use in IMAGES.items():
            self.fields[f"image_{name}"] = PlainTextField(label=f"Image, {name}", max_length=255, required=False, help_text=f"With {use}.")
        for name, limit in LIMITS.items():
            self.fields[f"limit_{name}"] = _limit_field(limit)
        self.order_fields(["cluster", "shape", *self._images(), "pull_secret", "runtime_class", "storage_class", "rdma_subnet"])

    def change(self) -> CheckPolicyChange:
        given = self.cleaned_data
        return {
            "limits": {name: given[f"limit_{name}"] for name in LIMITS if given[f"limit_{name}"] is not None},
            "images": {name: given[f"image_{name}"] for name in IMAGES if given[f"image_{name}"]},
            "skipped_steps": list(given["skipped_steps"]),
            "storage_class": given["storage_class"],
            "rdma_subnet": given["rdma_subnet"],
            "runtime_class": given["runtime_class"],
            "pull_secret": given["pull_secret"],
        }

    @staticmethod
    def _images() -> list[str]:
        return [f"image_{name}" for name in IMAGES]

    @staticmethod
    def typed(policy: CheckPolicy) -> dict[str, Any]:
        """Returns initial values for this policy."""
        fields = {f"limit_{name}": value for name, value in policy.limits.items()}
        fields |= {f"image_{name}": image for name, image in policy.images.items()}
        others = ("skipped_steps", "storage_class", "rdma_subnet", "runtime_class", "pull_secret")
        return fields | {name: getattr(policy, name) for name in others}


class CheckPolicyForm(CheckPolicyTermsForm):
    cluster = forms.ChoiceField(label="Cluster")
    shape = PlainTextField(label="Shape", max_length=63, required=False, help_text="Empty: all shapes. A shape's policy takes precedence.")
    why = None  # type: ignore[assignment]  # a new one needs no reason

    def __init__(self, *args: Any, clusters: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["cluster"].choices = [(name, name) for name in clusters]  # type: ignore[attr-defined]


def _limit_field(limit: Limit) -> forms.FloatField:
    unit = f" ({limit.unit})" if limit.unit else ""
    bound = "At least" if limit.is_least else "At most"
    own = "" if limit.value is None else amount(limit.value)
    by_gpu = "".join(f", {gpu} {value:g}" for gpu, value in limit.by_gpu.items())
    return forms.FloatField(
        label=f"{limit.says}{unit}",
        required=False,
        min_value=0,
        max_value=limit.highest,
        widget=forms.NumberInput(attrs={"placeholder": own or "only measured", "step": "any"}),
        help_text=f"{bound}; default {own or 'none'}{by_gpu}.",
    )
