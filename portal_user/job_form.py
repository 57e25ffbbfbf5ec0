"""The form of a job is that of a request, with what is to run on its nodes."""

from __future__ import annotations

import re
import shlex
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from django import forms

from core.errors import InvalidInput
from gpr.jobs.manifest_text import objects_of_text
from gpr.jobs.selectors import kinds_for
from gpr.jobs.services import JOBS_ROUTE, job_create
from gpr.jobs.spec import SAID_BY_MANIFEST, WORDS_MAX_CHARS, JobSpec, job_check
from gpr.models import Gpr, GprTemplate
from gpr.models.jobs import RETRIES_MAX, USER_ID_DEFAULT
from portal_shared.forms.fields import PlainTextField, errors_placed
from portal_shared.forms.service_form import ServiceForm
from portal_user.as_api import job_body
from portal_user.forms import GprForm
from portal_user.pages.waiting_pods import namespaces_of
from protocol.manifests.text import documents_write
from protocol.tenancy.workloads import WorkloadKind
from slices.models import Namespace, Slice

SHELL = ("/bin/sh", "-c")
BLANKS = re.compile(r"[\s,]+")
COMMAND_HINT = "Program and arguments, quoted as in a shell. Empty: those of the image."
MANIFEST_HINT = "Objects of Kubernetes, as YAML, without namespace. The first that can finish says how the job ends."


def _area(rows: int, **attrs: Any) -> forms.Textarea:
    return forms.Textarea(attrs={"rows": rows, "spellcheck": "false", "autocapitalize": "off", **attrs})


class WordsField(forms.CharField):
    """Splits words as a shell does."""

    def clean(self, value: Any) -> list[str]:
        try:
            return shlex.split(_lines(super().clean(value)))
        except ValueError:
            raise forms.ValidationError("A quotation mark is not closed.") from None


class NamesField(forms.CharField):
    def clean(self, value: Any) -> list[str]:
        return [name for name in BLANKS.split(super().clean(value)) if name]


class PairsField(forms.CharField):
    """It takes one pair on each line."""

    def __init__(self, *, mark: str, form: str, **kwargs: Any) -> None:
        super().__init__(required=False, max_length=2 * WORDS_MAX_CHARS, strip=False, **kwargs)
        self._mark, self._form = mark, form

    def clean(self, value: Any) -> dict[str, str]:
        found: dict[str, str] = {}
        for number, line in enumerate(_lines(super().clean(value)).split("\n"), start=1):
            name, sign, rest = line.partition(self._mark)
            name = name.strip()
            if not line.strip():
                continue
            if not sign or not name:
                raise forms.ValidationError(f"Line {number}: write {self._form}.")
            if name in found:
                raise forms.ValidationError(f"Line {number}: {name[:60]} stands there twice.")
            found[name] = rest
        return found


class JobFieldsForm(ServiceForm):
    """Ask which program runs, and how. A subclass sets `slice` before it calls __init__."""

    slice: Slice
    OWN_FOLDS: ClassVar[dict[str, tuple[str, ...]]] = {
        "data": ("env", "secrets", "volumes", "pull_secret", "user_id", "namespace"),
        "failures": ("retries", "checkpoint", "releases_box"),
    }

    kind = forms.ChoiceField(label="What runs", initial=WorkloadKind.JOB.value, widget=forms.RadioSelect)
    image = PlainTextField(label="Image", max_length=500, required=False, help_text="E.g. registry.example/team/train:1.0.")
    command = WordsField(
        label="Command",
        max_length=WORDS_MAX_CHARS,
        required=False,
        help_text=COMMAND_HINT,
        widget=_area(2, placeholder="torchrun train.py --lr 3e-4"),
    )
    manifest = forms.CharField(label="Manifest", required=False, strip=False, help_text=MANIFEST_HINT, widget=_area(12))
    env = PairsField(
        label="Variables",
        mark="=",
        form="NAME=VALUE",
        help_text="NAME=VALUE, one on each line. Members of the workspace see them.",
        widget=_area(3),
    )
    secrets = NamesField(
        label="Secrets as variables", max_length=6000, required=False, help_text="Secrets of the namespace whose values it gets, by name."
    )
    volumes = PairsField(
        label="Volumes",
        mark=":",
        form="CLAIM:/path",
        help_text="CLAIM:/path, one on each line: claims of the namespace, and where they are mounted.",
        widget=_area(2),
    )
    pull_secret = PlainTextField(label="Secret to pull the image", max_length=253, required=False)
    user_id = forms.IntegerField(label="User id of its processes", min_value=1, initial=USER_ID_DEFAULT)
    namespace = forms.ChoiceField(label="Namespace", required=False)
    retries = forms.IntegerField(
        label="Retries after failures", min_value=0, max_value=RETRIES_MAX, initial=0, help_text="Evictions do not count."
    )
    checkpoint = PlainTextField(
        label="Checkpoint command", max_length=4000, required=False, help_text="A shell command. It runs in each pod before that is ended."
    )
    releases_box = forms.BooleanField(label="Give the nodes back when it has finished", required=False, initial=True)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._is_question = bool(kwargs.get("is_question"))
        super().__init__(*args, **kwargs)
        namespaces = self.namespaces()
        self.fields["namespace"].choices = [  # type: ignore[attr-defined]
            ("", "The first of the workspace in its cluster"),
            *((name, name) for name in dict.fromkeys(each.name for each in namespaces)),
        ]
        kinds = [kind for kind in kinds_for(namespaces) if kind != WorkloadKind.NOTEBOOK]
        self.fields["kind"].choices = [(kind, kind) for kind in kinds] + [(WorkloadKind.MANIFEST.value, "Own manifest")]  # type: ignore[attr-defined]
        self.fields["kind"].error_messages["invalid_choice"] = "No cluster of the workspace serves %(value)s."
        self.has_namespace = bool(namespaces)

    def namespaces(self) -> list[Namespace]:
        """Returns those where it may run."""
        return list(self.slice.namespaces.order_by("created_at", "name").select_related("cluster__agent"))

    def clean_manifest(self) -> list[dict[str, Any]]:
        """Leaves the text alone where another kind is chosen, since the field is not shown then."""
        text = _lines(self.cleaned_data["manifest"])
        if self.cleaned_data.get("kind") != WorkloadKind.MANIFEST or (self._is_question and not text.strip()):
            return []
        try:
            return objects_of_text(text)
        except InvalidInput as error:
            raise forms.ValidationError(error.extra["errors"]["manifest"]) from None

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = self.cleaned_data
        if data.get("kind") == WorkloadKind.MANIFEST:
            for name in SAID_BY_MANIFEST:  # it shows none of these
                self.errors.pop(name, None)
        if not self._is_question and not self.errors.keys() & self._own_fields():
            try:
                job_check(self.what())
            except InvalidInput as error:
                errors_placed(self, error)
        return data

    def what(self) -> JobSpec:
        """Says nothing that the manifest says itself."""
        data = self.cleaned_data
        place = {"kind": data["kind"], "namespace": data["namespace"], "releases_box": data["releases_box"]}
        if data["kind"] == WorkloadKind.MANIFEST:
            return JobSpec(**place, objects_wanted=data["manifest"])
        plain = {name: data[name] for name in ("image", "command", "env", "secrets", "volumes", "pull_secret", "user_id", "retries")}
        return JobSpec(**place, **plain, checkpoint=[*SHELL, data["checkpoint"]] if data["checkpoint"] else [])

    def fold_values(self, said: dict[str, Any]) -> dict[str, str]:
        env = len([line for line in str(said["env"] or "").splitlines() if line.strip()])
        parts = [
            f"{env} variables" if env > 1 else "1 variable" if env else "",
            "secrets" if said["secrets"] or said["pull_secret"] else "",
            "volumes" if said["volumes"] else "",
            str(said["namespace"] or ""),
        ]
        again = f"{said['retries'] or 0} retries" if str(said["retries"] or 0) != "1" else "1 retry"
        ends = ["checkpoint"] if said["checkpoint"] else []
        return {
            "data": ", ".join(filter(None, parts)) or "none",
            "failures": ", ".join([again, *ends, "nodes given back" if said["releases_box"] else "nodes kept"]),
        }

    def _own_fields(self) -> frozenset[str]:
        return frozenset(JobFieldsForm.declared_fields)


class JobForm(JobFieldsForm, GprForm):
    """Asks for a job with a request of its own."""

    ROUTE: ClassVar = JOBS_ROUTE
    API_PATH: ClassVar = "/api/v1/jobs/"
    PAGE: ClassVar = "job"
    LIST_PAGE: ClassVar = "jobs"
    CREATE_PAGE: ClassVar = "job-create"
    NAV: ClassVar = "jobs"
    OFFERS_PAGE: ClassVar = "job-offers"
    TEMPLATE: ClassVar = "user/create/job.html"
    CODE_TEMPLATE: ClassVar = "user/create/job_code.html"
    VERB: ClassVar = "Run on"
    FOLDS: ClassVar = {**GprForm.FOLDS, **JobFieldsForm.OWN_FOLDS}

    @staticmethod
    def begun_by(template: GprTemplate) -> dict[str, Any]:
        job = template.job
        given = {
            name: job[name] for name in ("kind", "image", "pull_secret", "user_id", "namespace", "retries", "releases_box") if name in job
        }
        texts = {
            "command": shlex.join(job.get("command", [])),
            "secrets": ", ".join(job.get("secrets", [])),
            "env": "\n".join(f"{name}={value}" for name, value in job.get("env", {}).items()),
            "volumes": "\n".join(f"{claim}:{path}" for claim, path in job.get("volumes", {}).items()),
            "checkpoint": _shell_text(job.get("checkpoint", [])),
            "manifest": documents_write(job["objects_wanted"]) if "objects_wanted" in job else "",
        }
        return {**GprForm.begun_by(template), **given, **{name: text for name, text in texts.items() if text}}

    def body(self) -> dict[str, Any]:
        return {**super().body(), **job_body(self.what(), self.spec().template)}

    def file(self, *, now: datetime) -> UUID:
        return job_create(actor=self.user, spec=self.spec(), what=self.what(), now=now).pk


class BoxJobForm(JobFieldsForm):
    """Has the form of a job in the box of a request that is there."""

    API_PATH: ClassVar = "/api/v1/jobs/in-box/"

    def __init__(self, *args: Any, gpr: Gpr, is_question: bool = False, **kwargs: Any) -> None:
        self.gpr, self.slice = gpr, gpr.slice
        super().__init__(*args, **kwargs)
        self._is_question = is_question
        self.fields["releases_box"].initial = False

    def namespaces(self) -> list[Namespace]:
        return namespaces_of(self.gpr)

    def body(self) -> dict[str, Any]:
        what = self.what()
        said = {name: value for name, value in job_body(what, None).items() if name != "releases_box"}
        return {"gpr": str(self.gpr.pk), **said, **({"releases_box": True} if what.releases_box else {})}


def _shell_text(words: list[str]) -> str:
    return words[-1] if tuple(words[:-1]) == SHELL else shlex.join(words)


def _lines(text: str) -> str:
    """Browsers send lines as CR LF."""
    return text.replace("\r\n", "\n")


def with_file(data: Any, files: Any) -> Any:
    """Puts an uploaded manifest into its field, where the reader sees it again if it has mistakes."""
    file = files.get("manifest_file")
    if file is None:
        return data
    data = data.copy()
    data["manifest"] = file.read(2 * WORDS_MAX_CHARS).decode(errors="replace")
    return data
