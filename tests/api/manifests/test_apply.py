from __future__ import annotations

from typing import Any

from core.clock import db_now
from gpr.models import Gpr, GprState
from journal.models import Channel, Event
from journal.refusals import REFUSED
from manifests.models import ManifestObject
from protocol.manifests.kinds import BY_NAME
from slices.models import Membership, Quota, Slice
from slices.policies.terms import TERMS
from slices.service_accounts.services import service_account_met
from tests import factories
from tests.api.conftest import Caller, World, assert_problem
from tests.api.manifests.setups import acts, apply, diff, document, mistakes
from tests.builders import SHAPE

TRAIN = document("GPUProvisioningRequest", "train", f"workspace: vision, shape: {SHAPE}, nodes: 1, duration: 2h")


def policy(**terms: Any) -> str:
    return document("Policy", "", ", ".join(["workspace: vision", *(f"{name}: {value}" for name, value in terms.items())]))


def test_a_change_tells_old_and_new_value_and_writes_the_event_of_the_api(admin: Caller, world: World) -> None:
    text = policy(durationMax="2d", durationApproval="1d", shapes=f"[{SHAPE}]")

    expected = [
        {"field": "spec.durationMax", "old": None, "new": "2d"},
        {"field": "spec.durationApproval", "old": None, "new": "1d"},
        {"field": "spec.shapes", "old": None, "new": [SHAPE]},
    ]
    assert diff(admin, text).json()["results"][0]["changes"] == expected
    assert Slice.objects.get(name="vision").duration_max_s == 90 * 86_400
    assert apply(admin, text).json()["results"][0]["changes"] == expected
    assert Slice.objects.get(name="vision").duration_max_s == 2 * 86_400
    event = Event.objects.get(kind="policy.changed")
    assert event.actor == world.people.admin
    assert acts(apply(admin, text)) == ["unchanged"]
    assert Event.objects.filter(kind="policy.changed").count() == 1


def test_a_policy_has_all_terms_and_null_inherits_again(admin: Caller, world: World) -> None:
    assert {field.api for field in BY_NAME["Policy"].fields} == {"project", "slice", *TERMS}
    apply(admin, policy(queuedMax=5) + "---\n" + document("Policy", "", "queuedMax: 7"))

    answer = apply(admin, policy(queuedMax="null"))

    assert answer.json()["results"][0]["changes"] == [{"field": "spec.queuedMax", "old": 5, "new": None}]
    assert Slice.objects.get(name="vision").queued_max == 7


def test_a_field_of_another_manager_is_a_conflict_until_it_is_forced_or_left(admin: Caller, world: World) -> None:
    apply(admin, policy(queuedMax=5, podsMax=50), manager="platform")

    answer = apply(admin, policy(queuedMax=6, podsMax=50), manager="ci")

    (fault,) = assert_problem(answer, 400, "invalid_manifests")["faults"]
    assert (fault["line"], fault["field"], fault["code"]) == (3, "spec.queuedMax", "conflict")
    assert fault["detail"].startswith("platform wrote 5 here, you write 6.")
    assert Slice.objects.get(name="vision").queued_max == 5
    assert acts(apply(admin, policy(queuedMax=6), manager="ci", is_forced=True)) == ["changed"]
    assert mistakes(apply(admin, policy(queuedMax=5), manager="platform")) == [(3, "spec.queuedMax", "conflict")]
    apply(admin, policy(podsMax=50), manager="ci")  # it says queuedMax no longer
    assert acts(apply(admin, policy(queuedMax=5), manager="platform")) == ["changed"]


def test_what_somebody_changes_by_hand_is_set_right_again_and_a_new_object_of_the_name_has_no_owners(admin: Caller, world: World) -> None:
    quota = document("Quota", "", f"workspace: vision, shape: {SHAPE}, mostGpus: 4")
    apply(admin, policy(queuedMax=5) + "---\n" + quota, manager="platform")
    admin.patch("slices/vision/", {"queued_max": 7})
    admin.delete(f"quotas/{Quota.objects.get().pk}/")
    admin.post("quotas/", {"slice": "vision", "shape": SHAPE, "most_gpus": 6})

    assert acts(apply(admin, policy(queuedMax=5), manager="platform")) == ["changed"]
    assert acts(apply(admin, quota, manager="ci")) == ["changed"]


def test_objects_with_a_label_go_when_no_document_names_them(admin: Caller, owner: Caller, outsider: Caller, world: World) -> None:
    label = "metadata: {labels: {set: lab}}"
    keep = document("Quota", "", f"workspace: vision, shape: {SHAPE}, mostGpus: 4").replace("spec:", f"{label}\nspec:")
    drop = document("Budget", "", "workspace: vision, period: week, gpuHours: 9").replace("spec:", f"{label}\nspec:")
    room = document("Project", "lab").replace("{name: lab}", "{name: lab, labels: {set: lab}}")
    other = document("Budget", "", "workspace: vision, period: month, gpuHours: 9")
    assert acts(apply(admin, "---\n".join([keep, drop, room, other]))) == ["created"] * 4

    assert acts(apply(admin, keep, prune={"set": "lab"}, manager="another")) == ["unchanged"]  # the labels are not its own
    assert mistakes(apply(admin, keep.replace("set: lab", "set: x"), manager="another")) == [(3, "metadata.labels", "conflict")]
    theirs = document("GPRTemplate", "x", "workspace: canary-slice").replace("{name: x}", "{name: x, labels: {set: lab}}")
    assert acts(apply(outsider, theirs)) == ["created"]
    assert acts(apply(owner, "", prune={"set": "lab"}, is_partial=True)) == []
    preview = diff(admin, f"{keep}---\n{theirs}", prune={"set": "lab"})
    assert acts(preview) == ["unchanged", "unchanged", "deleted", "archived"]
    assert preview.json()["results"][2]["place"] == "vision"
    assert world.slice.budgets.count() == 2
    assert acts(apply(admin, f"{keep}---\n{theirs}", prune={"set": "lab"})) == ["unchanged", "unchanged", "deleted", "archived"]
    assert [budget.period for budget in world.slice.budgets.all()] == ["month"]


def test_quotas_that_trade_room_are_applied_together_and_an_owner_comes_before_others(admin: Caller, world: World) -> None:
    second = factories.make_slice(world.cluster, name="second", owner=world.people.owner, of=world.slice.project)
    project = document("Quota", "", f"project: {world.slice.project.name}, shape: {SHAPE}, guaranteedGpus: 8")
    parts = [document("Quota", "", f"workspace: {name}, shape: {SHAPE}, guaranteedGpus: N") for name in ("vision", second.name)]
    apply(admin, "---\n".join([project, parts[0].replace("N", "8"), parts[1].replace("N", "0")]))

    answer = apply(admin, "---\n".join([parts[1].replace("N", "6"), parts[0].replace("N", "2")]))

    assert acts(answer) == ["changed", "changed"]
    assert sorted(Quota.objects.exclude(slice=None).values_list("slice__name", "guaranteed_gpus")) == [("second", 6), ("vision", 2)]


def test_a_request_is_filed_once_for_whoever_applies_it_even_when_it_has_ended(owner: Caller, world: World) -> None:
    assert acts(apply(owner, TRAIN)) == ["created"]
    assert acts(apply(owner, TRAIN)) == ["unchanged"]
    gpr = Gpr.objects.get()
    assert (gpr.owner, gpr.state) == (world.people.owner, GprState.QUEUED)
    assert acts(apply(owner, TRAIN.replace("2h", "3h"))) == ["changed"]
    gpr.refresh_from_db()
    assert gpr.duration_s == 3 * 3600
    owner.delete(f"gprs/{gpr.pk}/")

    (result,) = apply(owner, TRAIN).json()["results"]

    assert (result["act"], result["note"]) == ("unchanged", "It has ended: CANCELED. Another name files it again.")
    assert Gpr.objects.count() == 1


def test_whom_an_owner_does_not_know_he_invites_once(owner: Caller, world: World) -> None:
    stranger = document("Member", "outsider", "workspace: vision, role: viewer")

    assert acts(apply(owner, stranger)) == ["created"]
    assert acts(apply(owner, stranger)) == ["unchanged"]
    assert acts(apply(owner, stranger.replace("viewer", "editor"))) == ["changed"]
    assert [(each.name, each.role) for each in world.slice.invitations.all()] == [("outsider", "editor")]
    owner.post("manifests/delete/", {"files": [{"name": "a", "text": stranger}]})
    assert not world.slice.invitations.exists()


def test_a_service_account_has_the_name_of_its_workspace_before_it_and_is_deleted_by_it(owner: Caller, world: World) -> None:
    nightly = document("ServiceAccount", "nightly", "workspace: vision, role: editor")
    service_account_met(slice_=world.slice, cluster=world.cluster, cluster_user="system:serviceaccount:x:bot", now=db_now())

    assert acts(apply(owner, nightly)) == ["created"]
    assert owner.get("slices/vision/service-accounts/vision:nightly/").json()["role"] == "editor"
    changed = apply(owner, nightly.replace("editor", "viewer, active: false"))
    assert [row["field"] for row in changed.json()["results"][0]["changes"]] == ["spec.role", "spec.active"]
    exported = owner.get("manifests/export/", kind="sa").json()["text"]
    assert exported.count("kind: ServiceAccount") == 1  # that of the cluster comes by itself
    assert acts(apply(owner, exported)) == ["unchanged"]
    assert acts(owner.post("manifests/delete/", {"files": [{"name": "a", "text": nightly}]})) == ["deleted"]
    assert owner.get("slices/vision/service-accounts/vision:nightly/").status_code == 404
    assert mistakes(apply(owner, nightly.replace("editor", "owner").replace("nightly", "boss"))) == [(4, "spec.role", "invalid_input")]


def test_a_preview_of_a_request_keeps_no_slot(owner: Caller, world: World) -> None:
    assert acts(diff(owner, TRAIN)) == ["created"]
    assert not Gpr.objects.exists()
    assert acts(apply(owner, TRAIN)) == ["created"]
    assert owner.post("manifests/delete/", {"files": [{"name": "a", "text": TRAIN}]}).json()["results"][0]["act"] == "deleted"
    assert Gpr.objects.get().state == GprState.CANCELED


def test_what_is_deleted_goes_in_the_opposite_order_and_what_is_gone_is_no_mistake(admin: Caller, world: World) -> None:
    documents = [
        document("Namespace", "vision-x", "workspace: vision, cluster: aurora"),
        document("Member", "teammate", "workspace: vision, role: viewer"),
        document("Member", "ghost", "workspace: nowhere, role: viewer"),
    ]
    apply(admin, documents[0])
    body = {"files": [{"name": "a", "text": "---\n".join(documents)}]}

    preview = admin.post("manifests/delete/", {**body, "is_dry": True})
    assert acts(preview) == ["deleted", "absent", "deleted"]
    assert world.slice.namespaces.count() == 1
    assert admin.post("manifests/delete/", body).json() == preview.json()
    assert world.slice.namespaces.count() == 0
    assert [each.user.name for each in Membership.objects.filter(slice=world.slice)] == ["owner"]
    assert not ManifestObject.objects.exists()


def test_a_workspace_is_archived_with_its_owner_and_stays_so(admin: Caller, world: World) -> None:
    owner_ = document("Member", "owner", "workspace: vision, role: owner")
    workspace = document("Workspace", "vision", f"project: {world.slice.project.name}")
    apply(admin, f"{document('Workspace', 'vision', f'project: {world.slice.project.name}')}---\n{owner_}")

    answer = admin.post(
        "manifests/delete/",
        {"files": [{"name": "a", "text": f"{owner_}---\n{document('Workspace', 'vision', f'project: {world.slice.project.name}')}"}]},
    )

    assert acts(answer) == ["kept", "archived"]
    assert not ManifestObject.objects.exists()
    (again,) = apply(admin, workspace).json()["results"]
    assert (again["act"], again["note"]) == ("unchanged", "It is archived, so none of its fields changes.")
    assert "vision" not in admin.get("manifests/export/").json()["text"]


def test_a_secret_comes_beside_the_manifest_and_is_told_by_none(admin: Caller, world: World) -> None:
    slack = document("Channel", "ops", "workspace: vision, kind: slack_webhook, secretFrom: ops")
    hook = document("Channel", "hook", "workspace: vision, kind: webhook, target: https://hooks.example.org/egs")
    assert mistakes(apply(admin, slack)) == [(4, "spec.secretFrom", "secret_missing")]
    assert mistakes(apply(admin, slack.replace("secretFrom", "secret"))) == [(4, "spec.secret", "unknown_field")]

    answer = apply(admin, f"{slack}---\n{hook}", secrets={"ops": "https://hooks.slack.com/services/T/B/x"})

    assert acts(answer) == ["created", "created"]
    assert answer.json()["results"][1]["signing_secret"].startswith("egsw_")
    assert "services/T" not in answer.content.decode()
    assert Channel.objects.get(name="ops").sealed
    assert acts(apply(admin, slack)) == ["unchanged"]


def test_a_field_that_cannot_change_or_is_missing_is_named(admin: Caller, world: World) -> None:
    project = document("Workspace", "vision", "project: canary-project")
    assert mistakes(apply(admin, project)) == [(4, "spec.project", "fixed")]
    assert mistakes(apply(admin, document("Supply", "spot", "kind: NODE_POOL")))[0][1].startswith("spec.")
    assert mistakes(apply(admin, document("Member", "teammate", "role: viewer"))) == [(4, "spec.workspace", "invalid_input")]


def test_an_export_is_narrowed_and_holds_no_more_than_its_reader_may_see(
    owner: Caller, outsider: Caller, admin: Caller, world: World
) -> None:
    apply(owner, TRAIN)

    assert "train" not in owner.get("manifests/export/").json()["text"]
    one = owner.get("manifests/export/", kind="gprs,ws", workspace="vision").json()["text"]
    assert [line for line in one.splitlines() if line.startswith("kind")] == ["kind: Workspace", "kind: GPUProvisioningRequest"]
    assert acts(apply(owner, one)) == ["unchanged", "unchanged"]
    theirs = outsider.get("manifests/export/").json()["text"]
    assert not Event.objects.filter(kind=REFUSED).exists()
    assert "vision" not in theirs
    assert "canary-slice" in theirs
    assert "CheckPolicy" not in theirs
    assert admin.get("manifests/export/", workspace="nowhere").json()["text"] == ""
    problem = assert_problem(admin.get("manifests/export/", kind="Workspac"), 400, "invalid_input")
    assert problem["errors"]["kind"] == ["There is no kind Workspac. Did you mean Workspace?"]


def test_who_may_not_change_an_object_neither_labels_nor_keeps_it(teammate: Caller, owner: Caller, admin: Caller, world: World) -> None:
    """Otherwise whoever prunes by that label would delete it for him."""
    member = document("Member", "teammate", "workspace: vision, role: viewer")
    labeled = member.replace("{name: teammate}", "{name: teammate, labels: {set: lab}}")
    project = document("Project", world.slice.project.name).replace("}", ", labels: {set: lab}}")

    assert mistakes(apply(teammate, labeled, manager="ci")) == [(3, "metadata.labels", "not_allowed")]
    assert mistakes(apply(owner, project, manager="ci", is_forced=True)) == [(3, "metadata.labels", "not_allowed")]
    assert acts(apply(teammate, member, manager="ci", is_forced=True)) == ["unchanged"]
    assert not ManifestObject.objects.exists()
    assert acts(apply(owner, labeled, manager="ci")) == ["changed"]
    assert acts(apply(owner, labeled, manager="ci")) == ["unchanged"]
    assert acts(apply(admin, project, manager="ci")) == ["changed"]


def test_nobody_makes_others_forget_their_labels(teammate: Caller, outsider: Caller, owner: Caller, world: World) -> None:
    member = document("Member", "teammate", "workspace: vision, role: viewer")
    assert acts(apply(owner, member.replace("{name: teammate}", "{name: teammate, labels: {set: lab}}"))) == ["changed"]
    files = [{"name": "a.yaml", "text": f"{document('Workspace', 'vision')}---\n{member}"}]

    for caller in (teammate, outsider):
        assert caller.post("manifests/delete/", {"files": files, "is_partial": True}).status_code == 200

    assert ManifestObject.objects.get().labels == {"set": "lab"}


def test_what_somebody_made_anew_is_not_pruned(admin: Caller, world: World) -> None:
    text = document("Budget", "", "workspace: vision, period: week, gpuHours: 9").replace("spec:", "metadata: {labels: {set: lab}}\nspec:")
    assert acts(apply(admin, text)) == ["created"]
    budget = world.slice.budgets.get()
    assert admin.delete(f"budgets/{budget.pk}/").status_code == 204
    assert admin.post("budgets/", {"slice": "vision", "period": "week", "gpu_hours": 7}).status_code == 201

    assert acts(apply(admin, "", prune={"set": "lab"})) == []
    assert world.slice.budgets.exists()
