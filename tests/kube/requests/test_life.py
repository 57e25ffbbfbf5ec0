"""GPRs that were filed on the pages leave events in their workspaces' namespaces and on their nodes, on a real API server."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from protocol.tenancy.life_marks import LifeMark
from tests.kube.cluster import Cluster
from tests.kube.site import Site, moved_in
from worker_agent.hub import link

BEGUN_S = time.time() - 300
LIFE = (
    *(("QUEUED", 0), ("PROVISIONING", 0), ("ACTIVE", 0), ("ACTIVE", 25), ("ACTIVE", 50), ("ACTIVE", 75)),
    *(("EXITING", 0), ("FAILED", 0)),
)
REASONS = ["Queued", "Provisioning", "Provisioned", "Passed25Percent", "Passed50Percent", "Passed75Percent", "Exiting", "Failed"]


@pytest.fixture
def site(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(link, "LIFE_EVERY_S", 0.0)  # each time that it is told: what an agent did not ask for it does not hear
    with moved_in(cluster) as made:
        yield made


def life_of(site: Site, slice_: str, gpr: str = "train") -> tuple[LifeMark, ...]:
    return tuple(
        LifeMark(
            id=f"{gpr}-{number}",
            gpr_id=f"{gpr}-{site.key}",
            gpr_name=gpr,
            slice=slice_,
            at_s=BEGUN_S + number,
            state=state,
            percent=percent,
            message=f"{state} {percent}",
            nodes=() if state == "QUEUED" else (site.node_names[0],),
        )
        for number, (state, percent) in enumerate(LIFE)
    )


def told(site: Site, namespace: str) -> list[tuple[str, str, str]]:
    """Returns the events of the namespace, or in `default` those of the node, the earliest first."""
    name = namespace if namespace != "default" else site.node_names[0]
    found = [each for each in site.cluster.list("events", namespace=namespace) if each["involvedObject"]["name"] == name]
    found = [each for each in found if each["message"].startswith("GPR train: ") and not each["reason"].startswith("Egs")]
    return [(each["reason"], each["type"], each["message"]) for each in sorted(found, key=lambda each: str(each["firstTimestamp"]))]


def test_each_mark_of_a_gpr_is_an_event_of_its_namespaces_and_nodes_once(site: Site) -> None:
    red, blue = site.make_slice("red"), site.make_slice("blue")
    site.until("namespaces seen", lambda: site.driver.namespace_uid(red))
    life = life_of(site, red)
    site.tell(life=life[:4])
    site.until("the first half", lambda: len(told(site, red)) == 4)

    site.tell(life=life)
    site.until("all of the node", lambda: len(told(site, "default")) == len(LIFE) - 1)
    site.stop()
    site.start()
    site.tell(life=(*life, *life_of(site, red, "last")[:1]))  # to an agent that remembers nothing
    site.until("one mark more", lambda: "GPR last: QUEUED 0" in [each["message"] for each in site.cluster.list("events", namespace=red)])

    assert [reason for reason, _, _ in told(site, red)] == REASONS
    assert [reason for reason, _, _ in told(site, "default")] == REASONS[1:]
    assert told(site, red)[-1] == ("Failed", "Warning", "GPR train: FAILED 0")
    assert told(site, blue) == []
    described = site.cluster.kubectl("describe", "node", site.node_names[0])
    assert "GPR train: ACTIVE 50" in described


def test_a_mark_that_the_api_server_had_no_time_for_is_told_later_and_once(site: Site) -> None:
    red = site.make_slice("red")
    site.stop()
    site.trouble = "calls fail"
    site.start()
    site.until("namespaces seen", lambda: site.driver.namespace_uid(red))

    site.tell(life=life_of(site, red))

    site.until("all of them", lambda: len(told(site, red)) == len(LIFE) and len(told(site, "default")) == len(LIFE) - 1)
    assert [reason for reason, _, _ in told(site, red)] == REASONS
