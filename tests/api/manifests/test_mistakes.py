"""Every mistake is told with its line and field, and nothing is changed."""

from __future__ import annotations

import re
from random import Random

import pytest

from accounts.models import Scope, User
from journal.models import Event
from manifests.models import ManifestObject
from protocol.manifests.faults import FAULTS_TOLD
from slices.models import Project, Slice
from tests import factories
from tests.api.conftest import Caller, World, assert_problem
from tests.api.manifests.setups import SETUP, acts, apply, at, diff, document, mistakes
from tests.builders import SHAPE
from tests.effort import DAY

JUNK = [
    *("null", "[]", "{}", "''", "-1", "99999999999999999999", "true", "[[]]", "[{a: 1}]", "{a: {b: [1]}}", '"\\u202e"', '"a\\0b"', "3.7"),
    *("2026-13-45T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-11-22T18:00:00", "'../x'", "'%2F'", "-8h"),
    *('"v\\u0456sion"', "\U0001f680"),
]
TEN = f"""\
apiVersion: egs.io/v1alpha1
kind: Project
metadata: {{name: fine}}
---
apiVersion: egs.io/v1
kind: Workspce
metadata: {{name: one, lables: {{a: b}}}}
---
apiVersion: egs.io/v1alpha1
kind: Workspace
metadata: {{name: two}}
spec:
  project: fine
  cluster: [aurora]
  mayEvict: yes
  endsAt: soon
  home: 7
---
apiVersion: egs.io/v1alpha1
kind: Member
metadata: {{name: owner}}
spec: {{workspace: two, role: owner}}
---
apiVersion: egs.io/v1alpha1
kind: Quota
spec:
  project: fine
  shape: H200-141GB
  guaranteedGpus: 8
---
apiVersion: egs.io/v1alpha1
kind: Member
metadata: {{name: teammate}}
spec:
  workspace: canary-slice
  role: boss
---
apiVersion: egs.io/v1alpha1
kind: Workspace
metadata: {{name: three}}
spec:
  project: fine
  clusters:
  - aurora
  - mars
---
apiVersion: egs.io/v1alpha1
kind: Maintenance
spec: {{cluster: aurora, startsAt: {at(2)}, endsAt: {at(1)}, reason: "\\u202e"}}
---
apiVersion: egs.io/v1alpha1
kind: Project
metadata: {{name: fine}}
---
apiVersion: egs.io/v1alpha1
kind: Namespace
metadata: {{name: Bad_Name, namespace: x}}
spec: {{workspace: vision, cluster: aurora}}
---
kind: Budget
spec: {{period: week, a: 1, a: 2}}
---
a: *b
---
- not
- a mapping
"""


def test_ten_kinds_of_mistake_are_told_at_once_and_nothing_changes(admin: Caller, world: World) -> None:
    events = Event.objects.count()

    body = assert_problem(apply(admin, TEN), 400, "invalid_manifests")

    found = sorted((fault["line"], fault["field"], fault["code"]) for fault in body["faults"])
    assert found == [
        (5, "apiVersion", "unknown_version"),
        (6, "kind", "unknown_kind"),
        (7, "metadata.lables", "unknown_field"),
        (14, "spec.cluster", "unknown_field"),
        (15, "spec.mayEvict", "ambiguous"),
        (15, "spec.mayEvict", "unknown_field"),
        (17, "spec.home", "invalid_input"),
        (28, "spec.shape", "invalid_input"),
        (36, "spec.role", "invalid_input"),
        (45, "spec.clusters[1]", "not_found"),
        (49, "spec.reason", "invalid_input"),
        (53, "metadata.name", "duplicate_object"),
        (57, "metadata.namespace", "unknown_field"),
        (60, "apiVersion", "unknown_version"),
        (61, "spec.a", "duplicate_key"),
        (61, "spec.a", "unknown_field"),
        (63, "a", "alias"),
        (65, "", "no_object"),
    ]
    told = {(fault["line"], fault["field"]): fault["detail"] for fault in body["faults"]}
    assert told[6, "kind"].endswith("Did you mean Workspace?")
    assert told[14, "spec.cluster"].endswith("Did you mean clusters?")
    assert told[7, "metadata.lables"].endswith("Did you mean labels?")
    assert Event.objects.count() == events
    assert not Project.objects.filter(name="fine").exists()
    assert not ManifestObject.objects.exists()


def test_what_can_be_applied_is_when_that_is_asked_for(admin: Caller, world: World) -> None:
    text = f"{document('Project', 'fine')}---\n{document('Workspace', 'lost', 'project: nowhere')}"

    answer = apply(admin, text, is_partial=True)

    assert acts(answer) == ["created"]
    assert mistakes(answer) == [(8, "spec.project", "not_found")]
    assert Project.objects.filter(name="fine").exists()


def test_a_workspace_of_others_is_answered_as_an_absent_one(owner: Caller, world: World) -> None:
    for spec in ("workspace: {}, role: viewer", "workspace: {}, shape: H100-80GB, nodes: 1, duration: 1h"):
        kind, name = ("Member", "teammate") if "role" in spec else ("GPUProvisioningRequest", "train")
        theirs, absent = (apply(owner, document(kind, name, spec.format(place))).json() for place in ("canary-slice", "nowhere"))

        assert theirs == absent
        assert [fault["code"] for fault in theirs["faults"]] == ["not_found"]
    for name in ("../slices/vision", "vision/members", "vision?x=1", str(world.slice.pk)):
        text = document("Member", "teammate", f"workspace: '{name}', role: viewer")
        assert mistakes(apply(owner, text)) == [(4, "spec.workspace", "not_found")]


@pytest.mark.parametrize(
    ("persona", "code"), [("owner", "not_allowed"), ("teammate", "not_allowed"), ("outsider", "not_found"), ("half_admin", "not_found")]
)
def test_who_may_not_do_it_by_the_api_may_not_by_a_manifest(persona: str, code: str, world: World, request: pytest.FixtureRequest) -> None:
    caller: Caller = request.getfixturevalue(persona)
    text = document("Policy", "", "workspace: vision, mayEvict: true")

    assert [fault["code"] for fault in apply(caller, text).json()["faults"]] == [code]
    assert not Slice.objects.get(name="vision").may_evict


def test_a_token_that_may_read_alone_sees_differences_and_changes_nothing(reader: Caller, world: World) -> None:
    text = document("Member", "teammate", "workspace: vision, role: editor")

    assert apply(reader, text).status_code == 403
    answer = diff(reader, text)
    assert answer.json()["results"] == []
    assert mistakes(answer) == [(1, "", "not_allowed")]
    assert acts(diff(reader, document("Member", "teammate", "workspace: vision, role: viewer"))) == ["unchanged"]
    assert not ManifestObject.objects.exists()


def test_a_bound_token_reaches_nothing_beyond(world: World) -> None:
    second = factories.make_slice(world.cluster, name="second", owner=world.people.owner)
    bound = Caller(factories.token(User.objects.get(name="owner"), Scope.READ, Scope.WRITE, slices=[str(second.pk)]))

    answer = apply(bound, document("Member", "teammate", "workspace: vision, role: editor"))

    assert mistakes(answer) == [(4, "spec.workspace", "not_found")]
    assert "vision" not in bound.get("manifests/export/").json()["text"]


@pytest.mark.rotates
def test_whatever_stands_in_a_field_is_answered_with_words_and_a_line(admin: Caller, world: World) -> None:
    factories.cluster("borealis")
    documents, numbers = SETUP.split("---\n"), Random(DAY.toordinal())
    for _ in range(25):
        text = "---\n".join(numbers.sample(documents, 3))
        start, end = numbers.choice([match.span(1) for match in re.finditer(r": ([^,\n}{]+)", text)])

        answer = diff(admin, text[:start] + numbers.choice(JUNK) + text[end:])

        assert answer.status_code == 200, text
        assert all(fault["detail"] and fault["line"] for fault in answer.json()["faults"])


def test_a_name_that_only_looks_like_another_is_another_s_name(admin: Caller, world: World) -> None:
    (fault,) = diff(admin, document("Workspace", "v\u0456sion", f"project: {world.slice.project.name}")).json()["faults"]

    assert (fault["line"], fault["field"], fault["code"]) == (3, "metadata.name", "invalid_input")


def test_a_huge_body_and_files_of_one_name_are_refused(admin: Caller) -> None:
    assert_problem(apply(admin, "#" * 2**20), 413, "body_too_large")
    file = {"name": "a.yaml", "text": ""}
    assert_problem(admin.post("manifests/apply/", {"files": [file, file]}), 400, "invalid_input")


def test_no_call_keeps_the_plan_to_itself_for_long(owner: Caller, world: World) -> None:
    text = "---\n".join(
        document("GPUProvisioningRequest", f"train-{n}", f"workspace: vision, shape: {SHAPE}, nodes: 1, duration: 2h") for n in range(51)
    )

    assert mistakes(diff(owner, text)) == [(5 * 50 + 1, "", "too_many")]
    assert mistakes(apply(owner, text, is_partial=True)) == [(5 * 50 + 1, "", "too_many")]
    assert not world.slice.gprs.exists()


def test_of_very_many_mistakes_the_first_are_told_and_how_many_more_there_are(admin: Caller) -> None:
    text = "---\n".join(f"apiVersion: egs.io/v1alpha1\nkind: Wrong{i}\nmetadata: {{name: a}}\n" for i in range(FAULTS_TOLD + 50))

    problem = admin.post("manifests/apply/", {"files": [{"name": "all.yaml", "text": text}]}).json()

    *told, more = problem["faults"]
    assert problem["detail"] == f"There are {FAULTS_TOLD + 50} mistakes. Nothing was changed."
    assert [fault["line"] for fault in told] == [4 * i + 2 for i in range(FAULTS_TOLD)]
    assert (more["line"], more["code"]) == (4 * FAULTS_TOLD + 2, "too_many")
    assert more["detail"].startswith("There are 50 more mistakes")
