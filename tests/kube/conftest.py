"""Two control planes for a whole run of tests, whatever processes run them.

On `cluster` many tests are at work at once, each on nodes and in namespaces of its own (corner.py). `locked` is for what takes policies
off, installs anew, or breaks things: one test after the other, so all of them are of one xdist group.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from tests.kube.cluster import Cluster, programs
from tests.kube.corner import agents_may_keep_their_states
from tests.kube.pods.tenant import Tenant
from tests.kube.shared import shared
from tests.kube.world import World, install, new_world

END_OF_LOCKED = ExitStack()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before xdist looks which tests go together."""
    for item in items:
        if needs_locked(item):
            item.add_marker(pytest.mark.xdist_group("locked"))
    items.sort(key=lambda item: item.path.name == "test_uninstall.py")  # no test finds the world again after it


def needs_locked(item: pytest.Item) -> bool:
    return "locked" in getattr(item, "fixturenames", ())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """`locked` ends with the last test that needs it: at rest a control plane takes a core for two seconds of each minute."""
    yield
    if item is next(filter(needs_locked, reversed(item.session.items)), None):
        END_OF_LOCKED.close()


@pytest.fixture(scope="session")
def folder_of_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in all processes of one run."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def prepared(cluster: Cluster) -> None:
    install(cluster, "--no-agent")
    cluster.apply(*agents_may_keep_their_states())


@pytest.fixture(scope="session")
def cluster(folder_of_run: Path) -> Iterator[Cluster]:
    """The one that EGS_TEST_KUBECONFIG names, made by deploy/kube, or that of this run; EGS is installed there, without its agent."""
    if given := os.environ.get("EGS_TEST_KUBECONFIG"):
        prepared(made := Cluster(Path(given), programs()))
        yield made
        return
    with shared("shared", folder_of_run, prepared) as made:
        yield made


@pytest.fixture(scope="session")
def locked(folder_of_run: Path) -> Iterator[Cluster]:
    """Another one with the same in it, where the agent has its own rights and no more."""
    with END_OF_LOCKED as end:
        yield end.enter_context(shared("locked", folder_of_run, lambda made: install(made, "--no-agent")))


@pytest.fixture
def frail(locked: Cluster) -> Iterator[Cluster]:
    """The same, for agents that keep their state in a corner of it while it is broken."""
    locked.apply(*agents_may_keep_their_states())
    yield locked
    for each in agents_may_keep_their_states():
        locked.delete(each["kind"], each["metadata"]["name"], namespace=each["metadata"]["namespace"])


@pytest.fixture
def tenant(cluster: Cluster) -> Iterator[Tenant]:
    """A namespace and a node of 8 GPUs that nobody else uses."""
    made = Tenant(cluster, f"tenant-{uuid4().hex[:8]}")
    made.move_in()
    yield made
    made.move_out()


@pytest.fixture(scope="session")
def world(locked: Cluster) -> Iterator[World]:
    """It has two workspaces and the people who attack. Tests leave it as they found it."""
    with new_world(locked) as made:
        yield made
