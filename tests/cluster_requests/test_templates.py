"""The hub tells an agent the templates by which it makes requests for waiting pods."""

from __future__ import annotations

from typing import Any

import pytest

from gpr.models import GprTemplate
from inventory.models import Cluster
from protocol.agents.listings import set_digest
from protocol.agents.sync import SyncReply
from protocol.tenancy.cluster_requests import AutoTemplate, ClusterRequestSpec
from slices.models import Slice
from slices.namespaces.services import namespace_unbind
from tests import factories
from tests.builders import SHAPE, make_cluster, make_slice
from tests.cluster_requests.stage import ClusterRequestStage
from tests.inventory.agent import Agent
from tests.slices.kubeconfigs import ready_namespace

pytestmark = pytest.mark.django_db


def told(stage: ClusterRequestStage, agent: Agent | None = None) -> tuple[AutoTemplate, ...]:
    templates = (agent or stage.agent).sync(at=stage.now, have_templates="").templates
    assert templates is not None
    return templates


def default(of: Slice, name: str = "standard", *, cluster: Cluster | None = None, auto: bool = True, **asked: Any) -> GprTemplate:
    return factories.template(of, name=name, cluster=cluster, asked=asked, is_default=True, auto=auto)


def test_the_default_of_a_workspace_that_says_auto_is_told_in_the_words_of_a_claim(stage: ClusterRequestStage) -> None:
    default(stage.slice, shape=SHAPE, gpus_per_node=4, duration_s=9000, idle_timeout_s=1800, evictable=False)
    factories.template(stage.slice, name="no-default", auto=True)

    spec = ClusterRequestSpec(shape=SHAPE, gpus_per_node=4, duration="2h30m", idle_timeout="30m", evictable=False)
    assert told(stage) == (AutoTemplate(id=str(stage.slice.pk), name="standard", spec=spec),)


@pytest.mark.parametrize(("own_is_auto", "names"), [(True, ["own"]), (False, [])])
def test_the_default_of_the_cluster_goes_before_that_of_the_workspace_also_where_it_does_not_say_auto(
    own_is_auto: bool, names: list[str], stage: ClusterRequestStage
) -> None:
    elsewhere = make_cluster()
    stage.slice.clusters.add(elsewhere)
    ready_namespace(stage.slice, elsewhere, at=stage.now)
    default(stage.slice, "of-all")
    default(stage.slice, "own", cluster=stage.cluster, auto=own_is_auto)

    assert [template.name for template in told(stage)] == names
    assert [template.name for template in told(stage, Agent.joined(elsewhere, at=stage.now))] == ["of-all"]


def test_a_cluster_hears_nothing_of_workspaces_that_have_no_namespace_in_it(stage: ClusterRequestStage) -> None:
    default(make_slice(stage.cluster), "of-others")

    assert told(stage) == ()


def test_who_has_the_list_is_not_sent_it_again_until_it_changes(stage: ClusterRequestStage) -> None:
    default(stage.slice)
    reply = stage.agent.sync(at=stage.now, have_templates="")

    def again(reply: SyncReply) -> SyncReply:
        return stage.agent.sync(at=stage.now, have_templates=reply.templates_digest, known_generation=reply.generation)

    same = again(reply)
    assert (same.templates, same.templates_digest) == (None, reply.templates_digest)

    (namespace,) = stage.slice.namespaces.all()
    namespace_unbind(namespace=namespace, actor=stage.owner, now=stage.now)

    new = again(reply)
    assert (new.templates, new.templates_digest) == ((), set_digest([]))


def test_an_agent_that_knows_of_no_templates_is_told_of_none(stage: ClusterRequestStage) -> None:
    default(stage.slice)

    assert stage.agent.sync(at=stage.now).templates is None
