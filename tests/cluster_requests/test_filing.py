"""An object in a cluster becomes a GPR: whose, what of, once, and why not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from accounts.models import PlatformRole, User
from accounts.policy import Verb, may
from gpr.cluster_requests.services import cluster_requests_take
from gpr.models import ClusterRequestRecord as ClaimRow
from gpr.models import Gpr, GprState, Job
from gpr.notices.services import requesters_of
from gpr.requests.editing import gpr_cancel
from gpr.requests.inputs import spec_of_create
from gpr.requests.services import gpr_submit
from gpr.requests.spec import NAME_MAX_CHARS
from journal.models import Event
from journal.notices.kinds import NoticeKind, Rule, To, rule_of
from planner.engine import plan
from protocol.agents.transport import Code
from protocol.tenancy.cluster_requests import (
    CLUSTER_REQUESTS_MAX,
    CLUSTER_REQUESTS_PATH,
    ClusterRequestVerdict,
    JobAsk,
    ModelDescription,
    ModelParameter,
)
from protocol.tenancy.workspaces import BindingState
from slices.models import KubeconfigState, Membership, Namespace, Role, ServiceAccount, Slice
from slices.selectors import own_slice_ids
from slices.service_accounts.services import service_account_change
from slices.services import member_set
from tests import factories
from tests.builders import SHAPE, make_slice, make_user, spec
from tests.cluster_requests.stage import ClusterRequestStage, account, asks, claim, gone, neighbor, other_cluster
from tests.slices.kubeconfigs import made, ready_namespace

pytestmark = pytest.mark.django_db

TAKEN, REFUSED, LATER = ClusterRequestVerdict.TAKEN, ClusterRequestVerdict.REFUSED, ClusterRequestVerdict.LATER


# -- what is filed -------------------------------------------------------------------------------------------------------


def test_an_object_becomes_a_request_of_its_namespaces_workspace_in_its_cluster(stage: ClusterRequestStage) -> None:
    answer = stage.claim("train")

    gpr = Gpr.objects.get()
    assert (answer.verdict, answer.gpr_id, answer.generation) == (TAKEN, str(gpr.pk), 1)
    assert (gpr.name, gpr.slice, gpr.state, gpr.nodes, gpr.duration_s, gpr.shape) == ("train", stage.slice, "QUEUED", 1, 3600, SHAPE)
    assert list(gpr.clusters.all()) == [stage.cluster]
    assert gpr.promise.promised_start_at >= stage.now


def test_every_word_of_the_object_is_asked_for(stage: ClusterRequestStage) -> None:
    start_at = stage.now + timedelta(hours=2)
    gpr = stage.filed(
        "train",
        nodes=2,
        duration="1h30m",
        gpus_per_node=2,
        min_gpu_memory_gib=40,
        priority=150,
        earliest_start_at=start_at.isoformat(),
        node_type="hgx",
        evictable=False,
        requeue_on_failure=False,
        run_checks=False,
        model=ModelDescription(name="llama-3-70b", parameters=(ModelParameter(name="batch", value="8"), ModelParameter(name="tuned"))),
        workspace=stage.slice.name,
    )

    assert gpr.model == {"name": "llama-3-70b", "parameters": {"batch": "8", "tuned": ""}}
    assert (gpr.nodes, gpr.duration_s, gpr.gpus_per_node, gpr.min_gpu_memory_gib, gpr.priority) == (2, 5400, 2, 40, 150)
    assert (gpr.earliest_start_at, gpr.node_type) == (start_at, "hgx")
    assert (gpr.evictable, gpr.requeue_on_failure, gpr.run_checks) == (False, False, False)


def test_an_object_names_another_request_of_its_workspace_after_which_it_starts(stage: ClusterRequestStage) -> None:
    """One that is not there yet may come; one of another workspace is as if it were not there, whoever owns both."""
    foreign = make_slice(stage.cluster, owner=stage.owner, project=stage.slice.project, at=stage.now)
    gpr_submit(actor=stage.owner, spec=spec(foreign, name="prep"), now=stage.now)
    asked = claim("train", after="prep", after_condition="success")
    early = stage.claims(asked)[0]
    assert (early.verdict, early.reason) == (ClusterRequestVerdict.LATER, "not_now")
    assert "no one request prep yet" in early.message

    first = stage.filed("prep")
    then = Gpr.objects.get(pk=stage.claims(asked)[0].gpr_id)
    assert (then.after, then.after_condition) == (first, "success")
    changed = stage.claims(claim("train", generation=2, after="prep", after_condition="success", duration="30m"))[0]

    assert (changed.verdict, Gpr.objects.get(pk=then.pk).duration_s) == (TAKEN, 1800)


def test_what_the_object_does_not_say_is_as_everywhere(stage: ClusterRequestStage) -> None:
    gpr = stage.filed("train", nodes=None)

    assert (gpr.nodes, gpr.priority, gpr.gpus_per_node, gpr.evictable, gpr.requeue_on_failure, gpr.run_checks) == (
        1,
        101,
        None,
        True,
        True,
        True,
    )


def test_the_same_object_is_filed_once_however_often_it_is_claimed(stage: ClusterRequestStage) -> None:
    first = stage.claim("train")
    event_count = Event.objects.count()

    assert stage.claim("train") == first
    assert stage.claims(claim("train"), claim("train")) == (first, first)
    assert (Gpr.objects.count(), ClaimRow.objects.count(), Event.objects.count()) == (1, 1, event_count)


def test_an_object_that_is_made_anew_under_its_name_is_another_request(stage: ClusterRequestStage) -> None:
    first, second = stage.filed("train", uid="uid-1"), stage.filed("train", uid="uid-2")

    assert first.pk != second.pk


def test_the_same_uid_of_another_cluster_is_another_object(stage: ClusterRequestStage) -> None:
    stage.filed("train")
    cluster, agent = other_cluster(stage.now)
    slice_ = make_slice(cluster, owner=make_user(), at=stage.now)
    ready_namespace(slice_, cluster, at=stage.now)

    (answer,) = agent.claims(claim("train"), at=stage.now)

    assert answer.verdict == TAKEN
    assert Gpr.objects.get(pk=answer.gpr_id).slice == slice_


def test_a_long_name_is_cut_to_what_a_request_may_be_called(stage: ClusterRequestStage) -> None:
    name = "a" * (NAME_MAX_CHARS - 1) + "-" + "b" * 100

    assert stage.filed(name, uid="uid-1").name == "a" * (NAME_MAX_CHARS - 1)


def test_many_objects_of_one_person_are_one_plan(stage: ClusterRequestStage, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = []

    def counted(*arguments: Any, **named: Any) -> Any:
        planned.append(1)
        return plan(*arguments, **named)

    monkeypatch.setattr("gpr.allocation.stored_plan.plan", counted)

    answers = stage.claims(*(claim(f"train-{number}") for number in range(12)))

    assert {answer.verdict for answer in answers} == {TAKEN}
    assert [Gpr.objects.get(pk=answer.gpr_id).name for answer in answers] == [f"train-{number}" for number in range(12)]
    assert len(planned) == 1


def test_the_events_tell_of_which_object_and_by_whom_it_was_made(stage: ClusterRequestStage) -> None:
    gpr = stage.filed("train", requester="ci")

    event = Event.objects.get(kind="gpr.claimed", gpr_id=gpr.pk)
    assert event.message == f"train was filed as object train/train of cluster {stage.cluster.name}, made by ci."
    assert (event.slice_id, event.cluster_id, event.actor) == (stage.slice.pk, stage.cluster.pk, stage.owner)


# -- for whom ------------------------------------------------------------------------------------------------------------


def member(stage: ClusterRequestStage, role: Role) -> User:
    user = make_user(at=stage.now)
    member_set(slice_=stage.slice, user=user, role=role, actor=None, now=stage.now)
    return user


def test_who_made_it_by_his_kubeconfig_owns_the_request(stage: ClusterRequestStage) -> None:
    editor = member(stage, Role.EDITOR)

    assert stage.filed("train", requester=stage.kubeconfig(editor)).owner == editor
    older = stage.kubeconfig(editor).replace(":egs-accounts:", ":train:")  # where an older installation kept the account
    assert stage.filed("train-b", requester=older).owner == editor


def test_a_viewer_may_look_only_here_too(stage: ClusterRequestStage) -> None:
    answer = stage.claim("train", requester=stage.kubeconfig(member(stage, Role.VIEWER)))

    assert (answer.verdict, answer.reason) == (REFUSED, "not_allowed")
    assert not Gpr.objects.exists()


def test_the_role_of_now_counts_and_not_that_of_when_the_object_was_made(stage: ClusterRequestStage) -> None:
    editor = member(stage, Role.EDITOR)
    requester = stage.kubeconfig(editor)
    member_set(slice_=stage.slice, user=editor, role=Role.VIEWER, actor=None, now=stage.now)

    assert stage.claim("train", requester=requester).reason == "not_allowed"


@pytest.mark.parametrize("requester", ["", "kubernetes-admin", "system:serviceaccount:egs-system:egs-agent", "egs-"])
def test_what_egs_makes_itself_and_what_unknown_people_make_is_the_first_owners(requester: str, stage: ClusterRequestStage) -> None:
    member(stage, Role.OWNER)

    assert stage.filed("train", requester=requester).owner == stage.owner


FLUX = "system:serviceaccount:flux-system:kustomize-controller"


def test_a_service_account_of_the_cluster_counts_as_itself(stage: ClusterRequestStage) -> None:
    """It is no owner: it may change what it filed, and nothing else. Owners hear of it once, and are told what happens to its requests."""
    by_hand = stage.submit(name="by-hand")
    gpr, again = stage.filed("train", requester=FLUX), stage.filed("tune", requester=FLUX)

    program = gpr.owner
    assert (program.name, again.owner) == (f"{stage.slice.name}:flux-system.kustomize-controller@{stage.cluster.name}"[:63], program)
    assert (may(program, Verb.CHANGE, gpr), may(program, Verb.CHANGE, by_hand), may(program, Verb.MANAGE, stage.slice)) == (
        True,
        False,
        False,
    )
    assert (may(stage.owner, Verb.CHANGE, gpr), may(member(stage, Role.EDITOR), Verb.CHANGE, gpr)) == (True, False)
    met = Event.objects.get(kind="slice.service_account_met")
    assert (FLUX in met.message, rule_of(met)) == (True, Rule(NoticeKind.WORKSPACE, To.OWNERS))
    event = Event.objects.get(kind="gpr.claimed", gpr_id=gpr.pk)
    assert (event.actor, requesters_of([event])) == (program, {event.pk: [stage.owner.pk]})


@pytest.mark.parametrize("requester", ["system:serviceaccount:theirs:ci", "system:serviceaccount:train:default"])
def test_a_service_account_is_the_same_name_and_another_program_in_another_workspace(requester: str, stage: ClusterRequestStage) -> None:
    slice_, _ = neighbor(stage)
    (here,) = stage.claims(claim("here", requester=requester))
    (there,) = stage.claims(claim("there", namespace="theirs", requester=requester))

    programs = [Gpr.objects.get(pk=answer.gpr_id).owner for answer in (here, there)]
    assert programs[0] != programs[1]
    assert [list(own_slice_ids(program).values_list("pk", flat=True)) for program in programs] == [[stage.slice.pk], [slice_.pk]]


def test_owners_look_after_what_a_service_account_may_do(stage: ClusterRequestStage) -> None:
    account = ServiceAccount.objects.get(user=stage.filed("train", requester=FLUX).owner)

    service_account_change(account=account, role=Role.VIEWER, actor=stage.owner, now=stage.now)
    assert stage.claim("as-viewer", requester=FLUX).reason == "not_allowed"
    service_account_change(account=account, role=Role.EDITOR, is_active=False, actor=stage.owner, now=stage.now)
    refused = stage.claim("disabled", requester=FLUX)
    assert (refused.reason, "disabled" in refused.message) == ("not_allowed", True)
    assert stage.claim("train", generation=2, requester=FLUX, duration="30m").reason == "not_allowed"
    service_account_change(account=account, is_active=True, actor=stage.owner, now=stage.now)
    assert stage.claim("again", requester=FLUX).verdict == TAKEN


def test_a_workspace_meets_no_more_service_accounts_than_it_may_have(stage: ClusterRequestStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slices.service_accounts.services.MOST", 1)
    first, second = (stage.claim(name, requester=f"system:serviceaccount:ci:{name}") for name in ("a", "b"))

    assert (first.verdict, second.verdict, second.reason) == (TAKEN, REFUSED, "conflict")
    assert not User.objects.filter(name__contains=":ci.b").exists()


def test_a_kubeconfig_of_another_workspace_counts_as_its_person_who_has_to_be_a_member(stage: ClusterRequestStage) -> None:
    slice_, stranger = neighbor(stage)
    foreign = account(made(slice_, stage.cluster, stranger, at=stage.now))

    answer = stage.claim("train", requester=foreign)
    assert (answer.verdict, answer.reason, stranger.name in answer.message) == (REFUSED, "not_allowed", False)
    member_set(slice_=stage.slice, user=stranger, role=Role.EDITOR, actor=None, now=stage.now)
    assert stage.filed("train", requester=foreign).owner == stranger


def test_an_account_counts_as_a_kubeconfig_in_its_own_namespace_only(stage: ClusterRequestStage) -> None:
    """Anybody who may make accounts in another namespace could call one so."""
    editor = member(stage, Role.EDITOR)
    requester = stage.kubeconfig(editor)

    posing = stage.filed("train", requester=requester.replace(":egs-accounts:", ":other:")).owner
    assert (posing.is_service, posing == editor) == (True, False)
    unknown = stage.claim("tune", requester="system:serviceaccount:egs-accounts:egs-nobody")
    assert (unknown.verdict, unknown.reason) == (REFUSED, "not_allowed")


def test_by_a_kubeconfig_that_was_revoked_nothing_is_filed(stage: ClusterRequestStage) -> None:
    answer = stage.claim("train", requester=stage.kubeconfig(member(stage, Role.EDITOR), state=KubeconfigState.REVOKED))

    assert (answer.verdict, answer.reason) == (REFUSED, "not_allowed")
    assert "revoked" in answer.message


def test_a_kubeconfig_that_has_run_out_since_was_good_when_the_object_was_made(stage: ClusterRequestStage) -> None:
    editor = member(stage, Role.EDITOR)

    assert stage.filed("train", requester=stage.kubeconfig(editor, state=KubeconfigState.EXPIRED)).owner == editor


def test_nobody_files_for_who_may_not_sign_in_any_more(stage: ClusterRequestStage) -> None:
    editor = member(stage, Role.EDITOR)
    requester = stage.kubeconfig(editor, state=KubeconfigState.EXPIRED)
    User.objects.filter(pk=editor.pk).update(is_active=False)

    assert stage.claim("train", requester=requester).reason == "not_allowed"


def test_a_workspace_without_an_owner_is_told_what_to_do(stage: ClusterRequestStage) -> None:
    Membership.objects.all().delete()

    answer = stage.claim("train")

    assert (answer.verdict, answer.reason) == (REFUSED, "no_owner")
    assert "administrator" in answer.message


# -- from where ----------------------------------------------------------------------------------------------------------


def test_a_namespace_that_is_bound_to_nothing_files_nothing(stage: ClusterRequestStage) -> None:
    answer = stage.claim("train", namespace="elsewhere")

    assert (answer.verdict, answer.reason, answer.gpr_id) == (REFUSED, "namespace_not_bound", "")
    assert not Gpr.objects.exists()


def test_a_namespace_that_is_bound_in_another_cluster_is_not_bound_here(stage: ClusterRequestStage) -> None:
    _, agent = other_cluster(stage.now)

    (answer,) = agent.claims(claim("train"), at=stage.now)

    assert answer.reason == "namespace_not_bound"


@pytest.mark.parametrize(
    ("state", "verdict", "reason"), [(BindingState.WAITING, LATER, "not_now"), (BindingState.CONFLICT, REFUSED, "namespace_not_bound")]
)
def test_a_namespace_that_is_not_ready_files_nothing(
    state: BindingState, verdict: ClusterRequestVerdict, reason: str, stage: ClusterRequestStage
) -> None:
    Namespace.objects.update(state=state)

    answer = stage.claim("train")

    assert (answer.verdict, answer.reason) == (verdict, reason)
    assert not Gpr.objects.exists()


def test_another_workspace_is_refused_alike_whether_it_is_there_or_not(stage: ClusterRequestStage) -> None:
    neighbor(stage)

    there, not_there = (stage.claim(name, workspace=name) for name in ("canary", "nobodys"))

    assert (there.verdict, there.reason) == (not_there.verdict, not_there.reason) == (REFUSED, "other_workspace")
    assert there.message.replace("canary", "nobodys") == not_there.message
    assert not Gpr.objects.exists()


# -- what is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"nodes": 0}, "nodes"),
        ({"nodes": 2**53 - 1}, "nodes"),
        ({"duration": ""}, "duration"),
        ({"duration": "soon"}, "duration"),
        ({"duration": "999999d"}, "duration"),
        ({"duration": "9" * 32}, "duration"),
        ({"duration": "P1Y"}, "duration"),
        ({"gpus_per_node": 2**53 - 1}, "gpusPerNode"),
        ({"min_gpu_memory_gib": 2**53 - 1}, "minGpuMemoryGiB"),
        ({"priority": 0}, "priority"),
        ({"priority": 2**53 - 1}, "priority"),
        ({"shape": "nothing"}, "shape"),
        ({"shape": ""}, "shape"),
        ({"earliest_start_at": "0001-01-01T00:00:00+14:00"}, "earliestStartAt"),
        ({"earliest_start_at": "9999-12-31T23:59:59-12:00"}, "earliestStartAt"),
        ({"earliest_start_at": "tomorrow"}, "earliestStartAt"),
        ({"idle_timeout": "2m"}, "idleTimeout"),
        ({"within": "galaxy"}, "within"),
        ({"early_release": True}, "earlyRelease"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_by_its_name_in_the_object_and_stops_no_other(
    changes: dict[str, Any], word: str, stage: ClusterRequestStage
) -> None:
    before, bad, after = stage.claims(claim("before"), claim("bad", **changes), claim("after"))

    assert (before.verdict, bad.verdict, after.verdict) == (TAKEN, REFUSED, TAKEN)
    assert bad.reason == "invalid_input"
    assert bad.message.startswith(f"{word}: "), bad.message
    assert set(Gpr.objects.values_list("name", flat=True)) == {"before", "after"}
    assert ClaimRow.objects.count() == 2


@pytest.mark.parametrize(
    "spoil",
    [
        lambda body: body["spec"].update(nodes=-1),
        lambda body: body["spec"].update(nodes="many"),
        lambda body: body["spec"].update(priority=10**30),
        lambda body: body["spec"].update(shape="a\nb"),
        lambda body: body["spec"].update(duration="1" * 1000),
        lambda body: body.update(name="x" * 300),
        lambda body: body.update(requester="x" * 300),
        lambda body: body.update(spec=None),
        lambda body: body.pop("name"),
    ],
)
def test_what_cannot_even_be_read_is_refused_alone(spoil: Callable[[dict[str, Any]], object], stage: ClusterRequestStage) -> None:
    bodies = [msgspec.to_builtins(claim(name)) for name in ("before", "bad", "after")]
    spoil(bodies[1])

    reply = post(stage, bodies)

    assert [(answer["uid"], answer["verdict"]) for answer in reply] == [
        ("uid-before", "TAKEN"),
        ("uid-bad", "REFUSED"),
        ("uid-after", "TAKEN"),
    ]
    assert reply[1]["reason"] == "invalid_input"
    assert reply[1]["message"]


def test_what_has_no_uid_has_no_answer_and_stops_no_other(stage: ClusterRequestStage) -> None:
    bodies: list[Any] = [msgspec.to_builtins(claim("before")), {}, 7, msgspec.to_builtins(claim("after"))]

    assert [answer["uid"] for answer in post(stage, bodies)] == ["uid-before", "uid-after"]


def post(stage: ClusterRequestStage, bodies: list[Any]) -> list[dict[str, Any]]:
    message = msgspec.json.encode({"session_epoch": stage.agent.session_epoch, "claims": bodies})
    reply = stage.agent.post(CLUSTER_REQUESTS_PATH, message, at=stage.now)
    assert reply.status == 200, reply.body
    answers: list[dict[str, Any]] = reply.body["answers"]
    return answers


def test_one_that_fails_for_whatever_reason_is_asked_for_again_and_stops_no_other(
    stage: ClusterRequestStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(data: dict[str, Any], *, actor: User) -> Any:
        if data["name"] == "bad":
            raise RuntimeError("a mistake of ours")
        return spec_of_create(data, actor=actor)

    monkeypatch.setattr("gpr.cluster_requests.filing.spec_of_create", faulty)

    answers = stage.claims(claim("before"), claim("bad"), claim("after"))

    assert [answer.verdict for answer in answers] == [TAKEN, LATER, TAKEN]
    assert "mistake" not in answers[1].message
    assert Gpr.objects.count() == 2


def test_what_could_never_start_is_refused_with_the_most_that_could(stage: ClusterRequestStage) -> None:
    answer = stage.claim("train", nodes=7)

    assert (answer.verdict, answer.reason) == (REFUSED, "can_never_start")
    assert "2 nodes" in answer.message
    assert not Gpr.objects.exists()


def test_what_was_refused_is_tried_anew_when_it_is_claimed_again(stage: ClusterRequestStage) -> None:
    """Roles, policies and nodes change: its agent asks again in a while."""
    Namespace.objects.update(state=BindingState.CONFLICT)
    assert stage.claim("train").verdict == REFUSED
    Namespace.objects.update(state=BindingState.READY)

    assert stage.claim("train").verdict == TAKEN


def test_what_exceeds_the_policy_waits_for_approval(stage: ClusterRequestStage) -> None:
    gpr = stage.filed("train", duration="8d")

    assert gpr.state == GprState.PENDING_APPROVAL


def test_a_message_of_too_many_is_refused_whole(stage: ClusterRequestStage) -> None:
    reply = stage.agent.try_claims(*(claim(f"train-{number}") for number in range(CLUSTER_REQUESTS_MAX + 1)), at=stage.now)

    assert (reply.status, reply.code) == (400, "agent_malformed")
    assert not Gpr.objects.exists()


# -- requests for pods that wait -----------------------------------------------------------------------------------------


def test_no_request_is_made_for_pods_that_another_of_their_workspace_will_let_in(stage: ClusterRequestStage) -> None:
    by_hand = stage.submit(name="by-hand")

    answer = stage.claim("auto", is_auto=True)
    assert (answer.verdict, answer.reason, answer.gpr_id) == (LATER, "not_now", "")
    assert "by-hand" in answer.message

    gpr_cancel(gpr=by_hand, actor=stage.owner, now=stage.now)
    assert stage.claim("auto", is_auto=True).verdict == TAKEN


def test_one_that_an_agent_files_by_a_template_shows_it_as_one_filed_by_hand_does(stage: ClusterRequestStage) -> None:
    template = factories.template(stage.slice, name="standard")
    factories.template(neighbor(stage)[0], name="of-others")

    assert stage.filed("auto", is_auto=True, template="standard").template == template
    assert stage.filed("gone", is_auto=True, template="of-others").template is None
    assert stage.filed("own", is_auto=True).template is None


def test_an_object_may_name_a_template_of_its_workspace_or_of_the_platform_and_keeps_what_it_took(stage: ClusterRequestStage) -> None:
    factories.template(None, name="standard", asked={"shape": SHAPE, "nodes": 2, "duration_s": 7200, "priority": 90})
    factories.template(neighbor(stage)[0], name="of-others", asked={"shape": SHAPE})
    named: dict[str, Any] = {"template": "standard", "shape": "", "nodes": None, "duration": ""}

    gpr = stage.filed(**named, gpus_per_node=4)

    assert (gpr.shape, gpr.nodes, gpr.gpus_per_node, gpr.duration_s, gpr.priority) == (SHAPE, 2, 4, 7200, 90)
    assert gpr.template is not None
    own = factories.template(stage.slice, name="standard", asked={"shape": SHAPE, "nodes": 1, "duration_s": 60})
    assert stage.filed("second", **named).template == own
    gpr.template.delete()
    answer = stage.claim(generation=2, **named, gpus_per_node=4)
    assert (answer.verdict, answer.message) == (TAKEN, "")
    assert stage.claim(generation=3, **{**named, "duration": "3h"}, gpus_per_node=4).verdict == TAKEN
    gpr.refresh_from_db()
    assert (gpr.nodes, gpr.duration_s) == (2, 3 * 3600)
    unknown = stage.claim("third", **{**named, "template": "of-others"})
    assert (unknown.verdict, unknown.reason) == (REFUSED, "template_not_found")
    runs = {"image": "a/b:1", "retries": 3}
    factories.template(stage.slice, name="training", asked={"shape": SHAPE, "nodes": 1, "duration_s": 60}, job=runs)
    asked = JobAsk(command=("torchrun", "train.py"))
    job = Job.objects.get(gpr=stage.filed("job", **{**named, "template": "training"}, job=asked))
    assert (job.image, job.retries, job.command) == ("a/b:1", 3, ["torchrun", "train.py"])


def test_an_object_says_when_it_is_released_for_idleness(stage: ClusterRequestStage) -> None:
    assert stage.filed("by-hand", idle_timeout="30m").idle_timeout_s == 1800


def test_one_that_was_filed_as_an_object_by_hand_counts_as_well(stage: ClusterRequestStage) -> None:
    stage.filed("by-hand")

    assert stage.claim("auto", is_auto=True).verdict == LATER


def test_requests_for_different_pods_stand_side_by_side(stage: ClusterRequestStage) -> None:
    stage.filed("auto-1", is_auto=True)

    assert stage.claim("auto-2", is_auto=True).verdict == TAKEN


def test_one_that_runs_in_another_cluster_lets_no_pods_in_here(stage: ClusterRequestStage) -> None:
    cluster, _ = other_cluster(stage.now)
    stage.slice.clusters.add(cluster)
    stage.agent.sync(at=stage.now)
    gpr = stage.submit(name="by-hand", shape="", min_gpu_memory_gib=40)
    gpr.clusters.set([cluster])

    assert stage.claim("auto", is_auto=True).verdict == TAKEN


def test_one_of_another_workspace_lets_no_pods_in(stage: ClusterRequestStage) -> None:
    slice_, _ = neighbor(stage)
    stage.owner.role = PlatformRole.ADMIN
    stage.submit(slice_, name="canary")

    assert stage.claim("auto", is_auto=True).verdict == TAKEN


# -- who may speak -------------------------------------------------------------------------------------------------------


def test_an_agent_that_was_superseded_files_nothing(stage: ClusterRequestStage) -> None:
    old_epoch = stage.agent.session_epoch
    stage.agent.boot, stage.agent.session_epoch = "boot-2", 0
    stage.agent.sync(at=stage.now)

    reply = stage.agent.try_claims(claim("train"), at=stage.now, epoch=old_epoch)

    assert (reply.status, reply.code) == (409, Code.SUPERSEDED)
    assert not Gpr.objects.exists()


def test_who_has_no_credential_files_nothing(stage: ClusterRequestStage) -> None:
    message = {"session_epoch": stage.agent.session_epoch, "claims": [msgspec.to_builtins(claim("train"))]}

    reply = stage.agent.post(CLUSTER_REQUESTS_PATH, msgspec.json.encode(message), at=stage.now, bearer="egsa_nothing")

    assert (reply.status, reply.code) == (401, Code.BAD_TOKEN)
    assert not Gpr.objects.exists()


def test_an_object_that_never_was_may_be_gone(stage: ClusterRequestStage) -> None:
    (answer,) = stage.claims(gone("train"))

    assert (answer.verdict, answer.gpr_id) == (TAKEN, "")
    assert not ClaimRow.objects.exists()


def test_one_message_may_tell_of_an_object_that_it_is_there_and_that_it_is_gone(stage: ClusterRequestStage) -> None:
    filed, canceled = stage.claims(claim("train"), gone("train"))

    assert (filed.verdict, canceled.verdict) == (TAKEN, TAKEN)
    assert Gpr.objects.get().state == GprState.CANCELED


def test_nothing_of_others_is_in_any_answer(stage: ClusterRequestStage) -> None:
    slice_, stranger = neighbor(stage)
    stage.agent.sync(at=stage.now)
    cluster_requests_take(cluster=stage.cluster, requests=[claim("canary-gpr", namespace="theirs", nodes=2)], now=stage.now)

    answers = stage.claims(
        claim("a"), claim("b", nodes=9), claim("c", namespace="theirs", workspace=stage.slice.name), claim("d", shape="x")
    )

    text = " ".join(answer.message for answer in answers)
    assert slice_.name not in text
    assert stranger.name not in text
    assert asks().shape in text


def test_an_object_whose_workspace_has_a_full_queue_is_told_so_and_tried_again(stage: ClusterRequestStage) -> None:
    Slice.objects.update(queued_max=1)
    first = stage.claim("first")
    second = stage.claim("second")
    assert (first.verdict, second.verdict, second.reason) == (TAKEN, LATER, "queue_full")
    assert "may wait at once" in second.message

    gpr_cancel(gpr=Gpr.objects.get(), actor=stage.owner, now=stage.now)
    assert stage.claim("second").verdict == TAKEN
