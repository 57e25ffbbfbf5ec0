"""Requests that are objects, on a real API server: carried to the hub once, kept to, and told in their status how they stand."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest

from protocol.tenancy.cluster_requests import ClusterRequest, ClusterRequestSpec, ModelDescription, ModelParameter
from tests.kube.cluster import MUTATING, Cluster, KubeError, Object
from tests.kube.requests.counter import SPEC, Answer, Counter, later, refused, request, taken, template
from tests.kube.world import install
from worker_agent.kube.requests import spec as asking
from worker_agent.kube.requests import status as request_status
from worker_agent.kube.requests import sync as requests
from worker_agent.kube.requests.sync import in_turns

# Each day: tests/agent/requests, tests/cluster_requests, and test_life.py
pytestmark = pytest.mark.rotates

T0 = 1_800_000_000.0
T0_TEXT = "2027-01-15T08:00:00Z"


@pytest.fixture
def counter(cluster: Cluster) -> Iterator[Counter]:
    made = Counter(cluster)
    yield made
    made.leave()


def test_a_request_is_told_to_the_hub_once_and_its_status_says_that_it_waits(counter: Counter) -> None:
    counter.make(request())

    counter.until("its state", lambda: counter.status().get("state") == "QUEUED")

    counter.for_a_while()
    (claim,) = counter.claims()
    assert claim.spec == ClusterRequestSpec(shape="H100-80GB", nodes=2, duration="8h30m")
    assert (claim.uid, claim.generation, claim.requester, claim.is_auto) == (counter.uid(), 1, noted_requester(counter), False)
    status = counter.status()
    assert status | {"conditions": []} == {
        "observedGeneration": 1,
        "gprID": f"gpr-{counter.uid()[:8]}",
        "state": "QUEUED",
        "message": "It waits.",
        "position": 1,
        "shape": "H100-80GB",
        "nodeCount": 2,
        "conditions": [],
    }
    assert {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]} == {
        "Accepted": ("True", "Accepted"),
        "Provisioned": ("False", "Queued"),
        "Finished": ("False", "Queued"),
        "Current": ("True", "Taken"),
    }


def noted_requester(counter: Counter) -> str:
    """Nobody notes them where there are no mutating policies."""
    return "admin" if counter.cluster.has(MUTATING) else ""


def test_all_that_can_be_asked_for_reaches_the_hub(counter: Counter) -> None:
    counter.make(
        request(
            workspace="vision",
            minGpuMemoryGiB=40,
            nodes=3,
            gpusPerNode=4,
            duration="2d",
            priority=150,
            earliestStartAt="2027-01-15T08:00:00Z",
            after="prep",
            afterCondition="success",
            nodeType="hgx",
            rdma=True,
            within="rack",
            idleTimeout="30m",
            evictable=False,
            mayEvict=True,
            requeueOnFailure=False,
            runChecks=False,
            model={"name": "llama-3-70b", "parameters": [{"name": "batch", "value": "8"}]},
        )
    )

    counter.until("the claim", counter.claims)

    assert counter.claims()[0].spec == ClusterRequestSpec(
        workspace="vision",
        min_gpu_memory_gib=40,
        nodes=3,
        gpus_per_node=4,
        duration="2d",
        priority=150,
        earliest_start_at="2027-01-15T08:00:00Z",
        after="prep",
        after_condition="success",
        node_type="hgx",
        rdma=True,
        within="rack",
        idle_timeout="30m",
        evictable=False,
        may_evict=True,
        requeue_on_failure=False,
        run_checks=False,
        model=ModelDescription(name="llama-3-70b", parameters=(ModelParameter(name="batch", value="8"),)),
    )


def waiting(counter: Counter, condition: str) -> subprocess.Popen[bytes]:
    command = [str(counter.cluster.programs / "kubectl"), "--kubeconfig", str(counter.cluster.kubeconfig), "--namespace", counter.namespace]
    return subprocess.Popen([*command, "wait", f"--for=condition={condition}", "gpr/train", "--timeout=60s"], stdout=subprocess.DEVNULL)


def test_kubectl_wait_goes_on_when_the_nodes_are_there_and_when_it_is_over(counter: Counter) -> None:
    counter.make(request())
    counter.until("its state", lambda: counter.status().get("state") == "QUEUED")
    provisioned, finished = waiting(counter, "Provisioned"), waiting(counter, "Finished")
    counter.for_a_while(2.0)
    assert (provisioned.poll(), finished.poll()) == (None, None)

    counter.state(state="ACTIVE", position=None, started_s=T0, ends_s=T0 + 60, nodes=("node-1", "node-2"), message="")
    counter.until("the wait for it", lambda: provisioned.poll() is not None)
    assert (provisioned.returncode, finished.poll()) == (0, None)
    status = counter.status()
    assert (status["startTime"], status["endTime"], status["nodes"]) == (T0_TEXT, "2027-01-15T08:01:00Z", ["node-1", "node-2"])
    assert "position" not in status

    counter.state(state="COMPLETED", end_reason="EXPIRED", is_ended=True, nodes=(), message="The booked time was over.")
    counter.until("the wait for its end", lambda: finished.poll() is not None)
    assert finished.returncode == 0
    assert counter.condition("Provisioned") == ("False", "Completed")
    assert counter.status()["endReason"] == "EXPIRED"


def test_kubectl_get_shows_how_it_stands(counter: Counter) -> None:
    counter.make(request())
    counter.until("its state", lambda: counter.status().get("state") == "QUEUED")
    counter.state(estimated_start_s=T0, promised_start_s=T0, ends_s=T0 + 60)
    counter.until("its estimate", lambda: counter.status().get("estimatedStartTime"))

    header, row = counter.kubectl("get", "gpr").splitlines()

    assert header.split() == ["NAME", "STATE", "SHAPE", "NODES", "POSITION", "STARTS", "ENDS", "AGE"]
    assert row.split()[:-1] == ["train", "QUEUED", "H100-80GB", "2", "1", T0_TEXT, "2027-01-15T08:01:00Z"]


def test_a_transition_time_moves_only_with_its_condition(counter: Counter) -> None:
    counter.make(request())
    counter.until("its state", lambda: counter.status().get("state") == "QUEUED")
    before = {each["type"]: each["lastTransitionTime"] for each in counter.status()["conditions"]}
    time.sleep(1.1)

    counter.state(state="ACTIVE", position=None)
    counter.until_condition("Provisioned", "True", "Provisioned")

    after = {each["type"]: each["lastTransitionTime"] for each in counter.status()["conditions"]}
    assert {type_ for type_ in after if after[type_] != before[type_]} == {"Provisioned"}


# --- refusals


def test_a_refused_request_says_why_and_is_not_told_again_until_it_changes(counter: Counter) -> None:
    counter.answer = refused("invalid_input", "shape: No cluster of workspace vision has this shape.")
    counter.make(request())

    counter.until_condition("Accepted", "False", "InvalidInput")

    counter.for_a_while()
    assert len(counter.claims()) == 1
    status = counter.status()
    assert (status["state"], status["message"]) == ("REFUSED", "shape: No cluster of workspace vision has this shape.")
    assert "gprID" not in status

    counter.answer = taken
    counter.change({"priority": 200})
    counter.until_condition("Accepted", "True", "Accepted")
    assert [claim.generation for claim in counter.claims()] == [1, 2]


def test_what_may_pass_is_asked_again_in_a_while_also_by_an_agent_that_starts_anew(
    counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_status, "PASSING_S", 1.5)
    counter.answer = refused("can_never_start", "No cluster has so many nodes.")
    counter.make(request())
    counter.until_condition("Accepted", "False", "CanNeverStart")

    counter.until("another try", lambda: len(counter.claims()) == 2)
    counter.stop()
    counter.start()
    counter.answer = taken

    counter.until_condition("Accepted", "True", "Accepted")


def test_later_is_asked_again_after_a_while(counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_status, "LATER_S", 1.5)
    counter.answer = later("The workspace is being bound.")
    counter.make(request())
    counter.until_condition("Accepted", "Unknown", "Later")
    assert counter.status()["message"] == "The workspace is being bound."
    assert len(counter.claims()) == 1
    counter.answer = taken

    counter.until_condition("Accepted", "True", "Accepted")

    assert len(counter.claims()) == 2


def test_a_request_in_a_namespace_of_no_workspace_is_not_carried_and_says_so(counter: Counter) -> None:
    """Also where the namespace calls itself bound: what counts is what the agent itself has done."""
    counter.bound[counter.namespace] = ""
    counter.make(request())

    counter.until_condition("Accepted", "False", "NamespaceNotBound")

    assert counter.claims() == []
    counter.bound[counter.namespace] = counter.slice_id
    counter.until_condition("Accepted", "True", "Accepted")


def test_before_the_namespaces_are_known_nothing_is_said_of_them(counter: Counter) -> None:
    counter.is_settled = False
    counter.bound[counter.namespace] = ""
    counter.make(request())

    counter.for_a_while(1.0)

    assert counter.status() == {}


# --- changes


def test_a_change_is_told_and_a_change_that_is_refused_leaves_the_request_as_it_was(counter: Counter) -> None:
    counter.make(request())
    counter.until_condition("Current", "True", "Taken")
    gpr_id = counter.status()["gprID"]

    counter.change({"duration": "9h"})
    counter.until("the change", lambda: counter.status()["observedGeneration"] == 2)
    assert counter.claims()[-1].spec.duration == "9h"
    counter.answer = refused("over_policy", "In workspace vision one may take 24h at most.", gpr_id=gpr_id)
    counter.change({"duration": "99d"})

    counter.until_condition("Current", "False", "OverPolicy")

    assert counter.condition("Accepted") == ("True", "Accepted")
    assert (counter.status()["state"], counter.status()["observedGeneration"]) == ("QUEUED", 3)
    assert counter.status()["gprID"] == gpr_id


def test_nodes_are_given_back_early_and_that_is_final(counter: Counter) -> None:
    counter.make(request())
    counter.until_condition("Current", "True", "Taken")

    counter.change({"earlyRelease": True})

    counter.until_condition("Finished", "True", "Canceled")
    assert counter.claims()[-1].spec.early_release
    with pytest.raises(KubeError, match="earlyRelease cannot be taken back"):
        counter.change({"earlyRelease": False})


def test_a_change_after_the_end_is_answered_and_not_told(counter: Counter) -> None:
    counter.make(request())
    counter.until_condition("Current", "True", "Taken")
    counter.state(state="COMPLETED", is_ended=True, position=None)
    counter.until_condition("Finished", "True", "Completed")
    told = len(counter.claims())

    counter.change({"priority": 3})

    counter.until_condition("Current", "False", "Ended")
    assert len(counter.claims()) == told
    assert counter.status()["state"] == "COMPLETED"


CHANGES: list[Object] = [
    {"nodes": 3},
    {"rdma": True},
    {"shape": None, "minGpuMemoryGiB": 10},
    {"workspace": "other"},
    {"template": "other"},
    {"earliestStartAt": "2027-01-15T08:00:00Z"},
    {"after": "prep"},
    {"model": {"name": "llama-3-70b"}},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_all_else_of_a_request_cannot_be_changed(change: Object, counter: Counter) -> None:
    counter.make(request())

    with pytest.raises(KubeError, match="only priority, duration and earlyRelease can be changed; delete it and make a new one"):
        counter.change(change)


WRONG: list[tuple[Object, str]] = [
    ({"nodes": 1, "duration": "1h"}, "name a shape, or say minGpuMemoryGiB"),
    ({"shape": "H100-80GB"}, "say for how long, such as duration: 8h30m"),
    ({**SPEC, "duration": "soon"}, "spec.duration"),
    ({**SPEC, "nodes": 0}, "spec.nodes"),
    ({**SPEC, "nodes": 10**12}, "spec.nodes"),
    ({**SPEC, "priority": 301}, "spec.priority"),
    ({**SPEC, "within": "room"}, "rack"),
    ({**SPEC, "nodez": 3}, 'unknown field "spec.nodez"'),
    ({**SPEC, "earliestStartAt": "tomorrow"}, "spec.earliestStartAt"),
    ({**SPEC, "model": "llama-3-70b"}, "spec.model"),
    ({**SPEC, "model": {"name": "m" * 254}}, "spec.model.name"),
    ({**SPEC, "model": {"parameters": [{"name": "batch", "value": 8}]}}, r"spec.model.parameters\[0\].value"),
    ({**SPEC, "model": {"parameters": [{"name": f"p{n}"} for n in range(33)]}}, "spec.model.parameters"),
]


@pytest.mark.parametrize(("spec", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_cannot_be_is_refused_when_it_is_made(spec: Object, said: str, counter: Counter) -> None:
    with pytest.raises(KubeError, match=said):
        counter.make(request(**spec))


def test_a_request_that_is_replaced_by_its_first_words_keeps_who_made_it(counter: Counter) -> None:
    counter.make(request())

    counter.cluster.replace(request(**{**SPEC, "priority": 9}), namespace=counter.namespace)

    assert counter.found()["metadata"].get("annotations", {}).get("egs.io/requester", "") == noted_requester(counter)
    counter.until_condition("Current", "True", "Taken")


# --- templates


def test_a_request_takes_in_its_template_and_keeps_it_when_that_changes_or_goes(counter: Counter) -> None:
    counter.make(template(shape="H100-80GB", nodes=2, duration="1h", priority=50), request(template="standard", nodes=4))
    counter.until_condition("Current", "True", "Taken")
    assert counter.claims()[0].spec == ClusterRequestSpec(shape="H100-80GB", nodes=4, duration="1h", priority=50)
    assert (counter.status()["shape"], counter.status()["nodeCount"]) == ("H100-80GB", 4)

    counter.delete("gprt", "standard")
    counter.change({"priority": 60})

    counter.until("the change", lambda: counter.status()["observedGeneration"] == 2)
    assert counter.claims()[-1].spec == ClusterRequestSpec(shape="H100-80GB", nodes=4, duration="1h", priority=60)
    assert counter.condition("Current") == ("True", "Taken")


def test_a_request_waits_for_a_template_that_is_not_there_yet(counter: Counter) -> None:
    """The hub may have it where the namespace has none."""
    counter.answer = lambda claim: refused("template_not_found", "There is none.")(claim) if claim.template else taken(claim)
    counter.make(request(template="standard"))
    counter.until_condition("Accepted", "False", "TemplateNotFound")
    assert (counter.claims()[0].template, counter.claims()[0].spec) == ("standard", ClusterRequestSpec())

    counter.make(template())

    counter.until_condition("Accepted", "True", "Accepted")
    assert (counter.claims()[-1].template, counter.claims()[-1].spec.shape) == ("", "H100-80GB")


# --- what goes


def test_a_deleted_request_is_told_as_gone_once(counter: Counter) -> None:
    counter.make(request())
    counter.until_condition("Current", "True", "Taken")
    uid = counter.uid()

    counter.delete("gpr", "train")
    counter.until("that it is gone", lambda: [claim for claim in counter.told if claim.is_gone])
    counter.states[uid] = counter.states[uid].__class__(id=uid, gpr_id="g", state="EXITING")
    counter.for_a_while()

    (gone,) = [claim for claim in counter.told if claim.is_gone]
    assert (gone.uid, gone.namespace, gone.name) == (uid, counter.namespace, "train")


def test_one_that_went_while_no_agent_was_there_is_gone_too_by_its_uid(counter: Counter) -> None:
    counter.make(request())
    counter.until_condition("Current", "True", "Taken")
    uid = counter.uid()
    counter.stop()
    counter.delete("gpr", "train")
    counter.make(request())  # another one of the same name

    counter.start()

    counter.until("that it is gone", lambda: any(claim.is_gone and claim.uid == uid for claim in counter.told))
    counter.until_condition("Current", "True", "Taken")
    assert [claim.is_gone for claim in counter.told if claim.uid == counter.uid()] == [False]


def test_a_request_that_somebody_holds_with_a_finalizer_is_gone_when_it_is_deleted(counter: Counter) -> None:
    body = request()
    body["metadata"]["finalizers"] = ["example.org/hold"]
    counter.make(body)
    counter.until_condition("Current", "True", "Taken")

    counter.delete("gpr", "train", waits=False)

    counter.until("that it is gone", lambda: [claim for claim in counter.told if claim.is_gone])
    counter.patch("gpr", "train", {"metadata": {"finalizers": None}})


def test_with_its_namespace_a_request_is_gone(counter: Counter) -> None:
    counter.make(request())
    counter.until_condition("Current", "True", "Taken")

    counter.cluster.delete("namespace", counter.namespace)

    counter.until("that it is gone", lambda: [claim for claim in counter.told if claim.is_gone])


def test_while_the_api_server_does_not_answer_nothing_is_gone(counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    counter.make(request())
    counter.until_condition("Current", "True", "Taken")
    counter.delete("gpr", "train")
    monkeypatch.setattr(requests, "REQUESTS_PATH", "/apis/egs.io/v1alpha1/no-such-kind")

    counter.for_a_while(2.0)

    assert not [claim for claim in counter.told if claim.is_gone]
    assert counter.noted("requests_unlisted")


def test_with_the_kind_deleted_nothing_is_gone_and_the_agent_works_on_when_it_is_back(locked: Cluster) -> None:
    """All objects are deleted with it first, while the kind is still served: here for as long as somebody holds one of them."""
    counter, held = Counter(locked), request("held")
    held["metadata"]["finalizers"] = ["example.org/hold"]
    counter.make(request(), held)
    counter.until_condition("Current", "True", "Taken")
    counter.until_condition("Current", "True", "Taken", "held")

    counter.cluster.delete("crd", "gpuprovisioningrequests.egs.io")
    try:
        counter.until("that the object went", lambda: counter.cluster.get("gpr", "train", namespace=counter.namespace) is None)
        counter.for_a_while(4.0)
        counter.patch("gpr", "held", {"metadata": {"finalizers": None}})
        counter.cluster.delete("crd", "gpuprovisioningrequests.egs.io", waits=True)
        counter.for_a_while(4.0)
        assert not [claim for claim in counter.told if claim.is_gone]
        # Said once for each way in which the watch was tried, not again and again.
        broken = [fields for fields in counter.noted("watch_broke") if "404" in str(fields["why"])]
        assert len(broken) <= 1
    finally:
        install(counter.cluster, "--no-agent")

    counter.make(request("anew"))
    counter.until_condition("Accepted", "True", "Accepted", "anew")
    counter.leave()


def test_where_the_kinds_or_the_rights_are_not_installed_the_agent_says_so_once_and_works_on(
    counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter.stop()
    monkeypatch.setattr(requests, "REQUESTS_PATH", "/apis/egs.io/v1alpha1/no-such-kind")

    counter.start()
    counter.for_a_while(4.0)

    # On a busy machine the watch of the pods may break as well.
    broken = [fields["path"] for fields in counter.noted("watch_broke") if fields["path"] != "/api/v1/pods"]
    assert broken == ["/apis/egs.io/v1alpha1/no-such-kind"]
    assert counter.told == []


# --- an agent that starts again, a hub that is away


def test_an_agent_that_starts_again_tells_nothing_twice_and_writes_nothing_anew(counter: Counter) -> None:
    counter.make(request())
    counter.until_condition("Current", "True", "Taken")
    before = counter.found()
    counter.stop()

    counter.start()
    counter.for_a_while(1.5)

    assert len(counter.claims()) == 1
    assert counter.found() == before


def test_a_change_made_while_no_agent_was_there_is_told(counter: Counter) -> None:
    counter.make(request())
    counter.until_condition("Current", "True", "Taken")
    counter.stop()
    counter.change({"priority": 7})

    counter.start()

    counter.until("the change", lambda: counter.status()["observedGeneration"] == 2)
    assert counter.claims()[-1].spec.priority == 7


def test_while_the_hub_is_away_a_new_request_says_that_nobody_has_answered(counter: Counter) -> None:
    counter.is_away = True
    counter.make(request())

    counter.until_condition("Accepted", "Unknown", "Asking")

    assert counter.status()["state"] == "NEW"
    counter.is_away = False
    counter.until_condition("Accepted", "True", "Accepted")


@pytest.mark.parametrize("answer", [taken, refused("over_policy", "It was too long.", gpr_id="g")], ids=["as it was", "not as changed"])
def test_what_ended_while_the_agent_was_away_for_long_is_finished_all_the_same(answer: Answer, counter: Counter) -> None:
    """The hub tells of it no more, and knows it still."""
    counter.make(request())
    counter.until_condition("Current", "True", "Taken")
    counter.stop()
    counter.states.clear()
    counter.is_forgetful, counter.answer = True, answer

    counter.start()

    counter.until_condition("Finished", "True", "Ended")
    assert (counter.status()["state"], len(counter.claims())) == ("ENDED", 2)


# --- much, and large


def test_one_whose_namespace_the_hub_has_given_to_others_does_not_look_as_if_it_ran_for_ever(counter: Counter) -> None:
    counter.make(request())
    counter.until("its claim", counter.claims)
    counter.state(state="ACTIVE", position=None, nodes=("node-1",))
    counter.until_condition("Provisioned", "True", "Provisioned")

    counter.states.clear()
    counter.answer = refused("namespace_not_bound", "This namespace is bound to no workspace.")
    counter.stop()
    counter.start()

    counter.until_condition("Finished", "True", "Ended")
    assert counter.condition("Provisioned")[0] == "False"
    assert "nodes" not in counter.status()


def test_each_namespace_gets_its_turn_however_many_requests_another_has() -> None:
    many = [ClusterRequest(uid=f"a{number}", namespace="a", name=f"a{number}") for number in range(5)]
    few = [ClusterRequest(uid="b0", namespace="b", name="b0"), ClusterRequest(uid="c0", namespace="c", name="c0")]

    assert [claim.uid for claim in in_turns([*many, *few])] == ["a0", "b0", "c0", "a1", "a2", "a3", "a4"]


def test_annotations_as_large_as_they_may_be_are_no_burden(counter: Counter) -> None:
    body = request()
    body["metadata"]["annotations"] = {"example.org/note": "x" * 200_000}
    counter.make(body)

    counter.until_condition("Accepted", "True", "Accepted")

    assert counter.found()["metadata"]["annotations"]["example.org/note"] == "x" * 200_000


def test_a_mib_of_annotations_is_refused_on_the_spot_and_leaves_what_was_there_as_it_is(counter: Counter) -> None:
    """The API server refuses it: it takes a quarter of that with any object."""
    body, refused_as = request(), r"annotations: Too long: m.* 262144 bytes"
    large = {**body, "metadata": {**body["metadata"], "annotations": {"example.org/note": "x" * 2**20}}}
    with pytest.raises(KubeError, match=refused_as):
        counter.make(large)
    counter.make(body)
    counter.until_condition("Accepted", "True", "Accepted")

    with pytest.raises(KubeError, match=refused_as):
        counter.cluster.replace(large, namespace=counter.namespace)

    counter.pass_()
    assert "example.org/note" not in counter.found()["metadata"].get("annotations", {})
    assert len(counter.told) == 1


def test_many_requests_are_told_in_the_order_in_which_they_were_made_and_written_a_few_at_a_time(counter: Counter) -> None:
    bodies = [{**request(), "metadata": {"name": f"r-{number:03}", "namespace": counter.namespace}} for number in range(130)]
    counter.cluster.create(*bodies)

    counter.until("all claims", lambda: len(counter.told) == 130)

    def states() -> list[str]:
        items = counter.cluster.list("gpr", namespace=counter.namespace)
        return [each.get("status", {}).get("state", "") for each in items]

    counter.until("all states", lambda: states() == ["QUEUED"] * 130)
    counter.for_a_while()
    assert len(counter.told) == 130


def test_a_busy_queue_does_not_make_the_agent_write_all_the_time(counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MINOR_EVERY_S", 60.0)
    counter.make(request())
    counter.until_condition("Current", "True", "Taken")
    version = counter.found()["metadata"]["resourceVersion"]

    for position in range(2, 12):
        counter.state(position=position, estimated_start_s=T0 + position)
        counter.for_a_while(0.2)

    assert counter.found()["metadata"]["resourceVersion"] == version
    counter.state(state="ACTIVE", position=None)
    counter.until_condition("Provisioned", "True", "Provisioned")


def test_words_that_no_hub_can_read_are_said_on_the_spot() -> None:
    unknown = asking.spec_of({**SPEC, "nodez": 3})
    absurd = asking.spec_of({**SPEC, "nodes": "many"})

    assert isinstance(unknown, asking.SpecFault)
    assert unknown.message.startswith("EGS knows no field nodez.")
    assert isinstance(absurd, asking.SpecFault)
    assert "spec.nodes" in absurd.message


# --- events


def told_events(counter: Counter) -> list[tuple[str, str, str]]:
    found = counter.cluster.list("events", namespace=counter.namespace)
    about = [each for each in found if each["involvedObject"]["kind"] == "GPUProvisioningRequest"]
    return [(each["reason"], each["type"], each["message"]) for each in about]


def test_each_mark_of_its_life_is_an_event_once(counter: Counter) -> None:
    counter.make(request())
    counter.until_condition("Current", "True", "Taken")
    counter.state(promised_start_s=T0)
    counter.until("the promise", lambda: counter.status().get("promisedStartTime"))
    counter.state(promised_start_s=T0 + 60)
    counter.until("the new promise", lambda: counter.status().get("promisedStartTime") == "2027-01-15T08:01:00Z")
    counter.state(state="PROVISIONING", position=None, promised_start_s=None)
    counter.until_condition("Provisioned", "False", "Provisioning")
    began_s = time.time() - 1000
    for mark, length_s in ((25, 3600), (50, 1800), (75, 1200)):
        counter.state(state="ACTIVE", started_s=began_s, ends_s=began_s + length_s)
        counter.until(f"{mark} %", lambda reason=f"Passed{mark}Percent": reason in [told for told, _, _ in told_events(counter)])
    counter.state(state="EXITING")
    counter.until_condition("Provisioned", "False", "Exiting")
    counter.state(state="FAILED", is_ended=True, message="Node node-1 failed.")
    counter.until("the end", lambda: any(reason == "Failed" for reason, _, _ in told_events(counter)))

    told = told_events(counter)

    assert sorted(reason for reason, _, _ in told) == sorted(
        [
            *("Queued", "PromiseMoved", "Provisioning", "Provisioned", "Passed25Percent", "Passed50Percent", "Passed75Percent"),
            *("Exiting", "Failed"),
        ]
    )
    assert {reason for reason, type_, _ in told if type_ == "Warning"} == {"PromiseMoved", "Failed"}
    assert ("Failed", "Warning", "Node node-1 failed.") in told
    described = counter.kubectl("describe", "gpr", "train")
    assert "Its promised start moved from 2027-01-15T08:00:00Z to 2027-01-15T08:01:00Z." in described


def test_a_refusal_is_an_event(counter: Counter) -> None:
    counter.answer = refused("over_policy", "In workspace vision one may take 24h at most.")
    counter.make(request())

    counter.until("the refusal", lambda: told_events(counter))

    assert told_events(counter) == [("Refused", "Warning", "In workspace vision one may take 24h at most.")]
