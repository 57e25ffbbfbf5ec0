"""The agent's copy of a cluster's objects: whole from the first moment on, as the API server has them, whatever breaks in between."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import msgspec
import pytest

from protocol.nodes.inventory import NodeView
from tests.e2e.processes import wait_for
from tests.effort import repeats
from tests.kube.api.outage import without
from tests.kube.api.proxy import Proxy
from tests.kube.cluster import SOON_S, Cluster, clusters
from tests.kube.pods.tenant import Tenant
from tests.kube.site import access_as_admin
from worker_agent.kube.api import mirror as mirrors
from worker_agent.kube.api.client import Api
from worker_agent.kube.api.mirror import Mirror
from worker_agent.kube.api.objects import HasMeta, Meta, Node, Pod
from worker_agent.kube.nodes.view import node_view

T = TypeVar("T", bound=HasMeta)


class Thing(msgspec.Struct, frozen=True):
    metadata: Meta


class Place:
    """A namespace, whose config maps cost nothing to make, and the copies of them."""

    def __init__(self, cluster: Cluster) -> None:
        self.name = f"place-{uuid4().hex[:8]}"
        self.path = f"/api/v1/namespaces/{self.name}/configmaps"
        self.cluster = cluster
        self.api = Api(access_as_admin(cluster))
        self.notes: list[tuple[str, dict[str, object]]] = []
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}})

    def make(self, name: str, **labels: str) -> Thing:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}
        return self.api.create(self.path, body, Thing)

    def change(self, name: str, word: str) -> Thing:
        return self.api.patch(f"{self.path}/{name}", [{"op": "add", "path": "/metadata/labels", "value": {"word": word}}], Thing)

    def delete(self, name: str) -> None:
        self.api.delete(f"{self.path}/{name}")

    def truth(self) -> dict[str, str]:
        """Returns what the server lists: name and version."""
        listed = self.cluster.list("configmaps", namespace=self.name)
        return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in listed}

    @contextmanager
    def mirror(self, api: Api | None = None) -> Iterator[Mirror[Thing]]:
        with running(Mirror(api=api or self.api, path=self.path, type_=Thing, note=self.note)) as made:
            yield made

    def note(self, event: str, fields: dict[str, object]) -> None:
        self.notes.append((event, fields))

    def noted(self, event: str) -> list[str]:
        return [str(fields["why"]) for told, fields in self.notes if told == event]


@contextmanager
def running(mirror: Mirror[T]) -> Iterator[Mirror[T]]:
    mirror.start()
    try:
        yield mirror
    finally:
        mirror.stop()


def shown(mirror: Mirror[Thing]) -> dict[str, str]:
    return {name: obj.metadata.resourceVersion for (_, name), obj in mirror.objects().items()}


def wait_until_true(mirror: Mirror[Thing], place: Place) -> None:
    """The copy is what kubectl lists."""
    wait_for("the truth", lambda: mirror.is_whole and shown(mirror) == place.truth(), within_s=SOON_S)


@pytest.fixture
def place(cluster: Cluster) -> Iterator[Place]:
    made = Place(cluster)
    yield made
    made.api.close()


@pytest.fixture
def proxy(place: Place) -> Iterator[Proxy]:
    made = Proxy(access_as_admin(place.cluster))
    yield made
    made.stop()


@pytest.fixture
def through_proxy(proxy: Proxy) -> Iterator[Api]:
    api = Api(proxy.access)
    yield api
    api.close()


def test_it_begins_with_all_that_kubectl_lists(place: Place) -> None:
    for number in range(5):
        place.make(f"thing-{number}")
    wait_for("what each namespace has", lambda: "kube-root-ca.crt" in place.truth(), within_s=SOON_S)

    with place.mirror() as mirror:
        assert mirror.wait_whole(SOON_S)

        assert shown(mirror) == place.truth()
        assert mirror.silent_for_s < SOON_S


def test_what_is_made_changed_and_deleted_arrives(place: Place) -> None:
    with place.mirror() as mirror:
        mirror.wait_whole(SOON_S)
        serial = mirror.serial
        place.make("kept")
        place.make("changed")
        place.make("deleted")
        place.change("changed", "new")
        place.delete("deleted")
        wait_until_true(mirror, place)

        assert mirror.serial > serial
        assert mirror.objects()[place.name, "changed"].metadata.label("word") == "new"
        assert (place.name, "deleted") not in mirror.objects()


def test_nodes_and_pods_are_copied_as_they_are_and_the_hub_could_be_told_of_them(tenant: Tenant) -> None:
    api = Api(access_as_admin(tenant.cluster))
    changed = threading.Event()
    all_nodes = Mirror(api=api, path="/api/v1/nodes", type_=Node, note=print_note, on_change=changed.set)
    all_pods = Mirror(api=api, path="/api/v1/pods", type_=Pod, note=print_note)
    with running(all_nodes) as nodes, running(all_pods) as pods:
        tenant.run("worker", gpus=2, labels={"who": "me"})
        pod = wait_for("the pod", lambda: running_pod(pods, tenant.name, "worker"), within_s=SOON_S)
        view = wait_for("the node", lambda: ready_view(nodes, tenant.node_name), within_s=SOON_S)
    api.close()

    assert changed.is_set()
    assert (pod.spec.nodeName, pod.metadata.label("who")) == (tenant.node_name, "")  # what the agent does not read is not kept
    assert (view.shape, len(view.gpus), view.zone) == ("H100-80GB", 8, "zone-1")
    assert [gpu.uuid for gpu in view.gpus] == [f"{view.uid}-{index}" for index in range(8)]


def running_pod(pods: Mirror[Pod], namespace: str, name: str) -> Pod | None:
    pod = pods.objects().get((namespace, name))
    return pod if pod and pod.status.phase == "Running" else None


def ready_view(nodes: Mirror[Node], name: str) -> NodeView | None:
    node = nodes.objects().get(("", name))
    view = node_view(node) if node else None
    return view if isinstance(view, NodeView) and view.ready else None


def print_note(event: str, fields: dict[str, object]) -> None:
    """Seen where a test fails."""
    print(event, fields)  # noqa: T201


def test_the_answer_of_an_own_write_is_seen_at_once_and_an_old_answer_never(place: Place, proxy: Proxy, through_proxy: Api) -> None:
    with place.mirror(through_proxy) as mirror:
        mirror.wait_whole(SOON_S)
        proxy.stall()
        made = place.make("thing")
        changed = place.change("thing", "new")

        mirror.learn(changed)
        mirror.learn(made)

        assert mirror.objects()[place.name, "thing"] == changed
        place.delete("thing")
        proxy.resume()
        wait_until_true(mirror, place)
        mirror.learn(changed)
        assert (place.name, "thing") not in mirror.objects()


def test_a_selector_holds_for_the_beginning_and_for_what_follows(place: Place) -> None:
    place.make("mine", team="a")
    place.make("theirs", team="b")
    mine = Mirror(api=place.api, path=place.path, type_=Thing, note=place.note, params={"labelSelector": "team=a"})
    with running(mine) as mirror:
        mirror.wait_whole(SOON_S)
        assert set(shown(mirror)) == {"mine"}

        place.make("mine-too", team="a")
        place.change("mine", "teamless")
        wait_for("both changes", lambda: set(shown(mirror)) == {"mine-too"}, within_s=SOON_S)


def test_a_stream_that_breaks_goes_on_where_it_was(place: Place, proxy: Proxy, through_proxy: Api) -> None:
    with place.mirror(through_proxy) as mirror:
        mirror.wait_whole(SOON_S)
        proxy.asked.clear()
        proxy.lines_each = 1
        for number in range(4):
            place.make(f"thing-{number}")
        wait_until_true(mirror, place)

    assert not [asked for asked in proxy.watches if "sendInitialEvents" in asked]
    assert {asked["limit"] for asked in proxy.asked if "limit" in asked} == {"1"}  # nor is all listed
    assert place.noted("watch_broke")
    assert not place.noted("watch_begins_anew")


@pytest.mark.parametrize("seed", range(repeats(5)))
def test_no_delete_is_missed_however_often_the_stream_breaks(place: Place, proxy: Proxy, through_proxy: Api, seed: int) -> None:
    """Each connection lets a few lines through, and sometimes none of what happened since is known any more."""
    dice = random.Random(seed)
    alive: list[str] = []
    with place.mirror(through_proxy) as mirror:
        for number in range(60):
            proxy.lines_each = dice.choice([1, 2, 3, 5, 8])
            proxy.expires = dice.choice(["", "", "", "", "event", "status"])
            if alive and dice.random() < 0.5:
                place.delete(alive.pop(dice.randrange(len(alive))))
            else:
                alive.append(place.make(f"thing-{number}").metadata.name)
        # Whoever begins anew needs the whole beginning.
        proxy.lines_each, proxy.expires = 100, ""
        wait_until_true(mirror, place)


@pytest.mark.parametrize("how", ["event", "status"])
def test_when_the_past_is_forgotten_what_was_deleted_goes_and_the_copy_is_never_seen_half(
    place: Place, proxy: Proxy, through_proxy: Api, how: str
) -> None:
    for number in range(5):
        place.make(f"thing-{number}")
    with place.mirror(through_proxy) as mirror:
        mirror.wait_whole(SOON_S)
        before = mirror.objects()
        proxy.is_away = True
        for number in range(3):
            place.delete(f"thing-{number}")
        proxy.expires, proxy.lines_each, proxy.breaks_lists, proxy.is_away = how, 2, True, False
        # The new beginning breaks off in its midst, again and again, however it is made.
        wait_for("a new beginning", lambda: place.noted("watch_begins_anew"), within_s=SOON_S)
        begun = len(proxy.asked)
        wait_for("three more", lambda: len(proxy.asked) > begun + 3, within_s=SOON_S)
        assert mirror.is_whole
        assert mirror.objects() is before
        proxy.expires, proxy.lines_each, proxy.breaks_lists = "", float("inf"), False
        wait_until_true(mirror, place)


def test_what_was_seen_in_a_beginning_that_broke_off_is_not_believed(place: Place, proxy: Proxy, through_proxy: Api) -> None:
    """It may be gone by the time of the next one."""
    for number in range(5):
        place.make(f"thing-{number}")
    proxy.lines_each, proxy.breaks_lists = 3, True
    with place.mirror(through_proxy) as mirror:
        wait_for("some beginnings", lambda: len(place.noted("watch_broke")) > 2, within_s=SOON_S)
        assert not mirror.is_whole
        assert not mirror.objects()
        place.delete("thing-0")
        proxy.lines_each, proxy.breaks_lists = float("inf"), False
        mirror.wait_whole(SOON_S)

        assert shown(mirror) == place.truth()


def test_a_connection_that_is_dead_and_does_not_say_so_is_left(
    place: Place, proxy: Proxy, through_proxy: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirrors, "SILENCE_S", 1.0)
    with place.mirror(through_proxy) as mirror:
        mirror.wait_whole(SOON_S)
        proxy.stall()
        place.make("meanwhile")
        wait_for("another connection", lambda: place.noted("watch_broke"), within_s=SOON_S)
        proxy.resume()
        wait_until_true(mirror, place)

    assert any("ReadTimeout" in why for why in place.noted("watch_broke"))


def test_a_server_that_cannot_begin_a_watch_with_all_there_is_is_listed_by_pages(
    place: Place, proxy: Proxy, through_proxy: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirrors, "PAGE_COUNT", 2)
    proxy.refuses_initial = True
    for number in range(5):
        place.make(f"thing-{number}")
    with place.mirror(through_proxy) as mirror:
        wait_until_true(mirror, place)
        assert len([asked for asked in proxy.asked if "continue" in asked]) >= 2

        place.make("later")
        place.delete("thing-3")
        wait_until_true(mirror, place)
        assert not place.notes

        proxy.expires, proxy.lines_each = "status", 0
        place.make("last")
        wait_for("a new beginning", lambda: place.noted("watch_begins_anew"), within_s=SOON_S)
        proxy.expires, proxy.lines_each = "", float("inf")
        wait_until_true(mirror, place)
    assert len([asked for asked in proxy.asked if "sendInitialEvents" in asked]) == 1


def test_while_there_is_no_server_it_shows_what_it_knew_and_says_since_when(place: Place, proxy: Proxy, through_proxy: Api) -> None:
    place.make("thing")
    with place.mirror(through_proxy) as mirror:
        mirror.wait_whole(SOON_S)
        proxy.is_away = True
        place.delete("thing")
        wait_for("the break", lambda: place.noted("watch_broke"), within_s=SOON_S)
        silent_s = mirror.silent_for_s

        assert (place.name, "thing") in mirror.objects()
        assert mirror.silent_for_s > silent_s
        proxy.is_away = False
        wait_until_true(mirror, place)


def test_an_object_that_cannot_be_read_hides_no_other(place: Place) -> None:
    class Numbered(msgspec.Struct, frozen=True):
        metadata: Meta
        data: dict[str, int] = {}

    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "text"}, "data": {"number": "one"}}
    place.api.create(place.path, body, Thing)
    place.make("empty")
    with running(Mirror(api=place.api, path=place.path, type_=Numbered, note=place.note)) as mirror:
        mirror.wait_whole(SOON_S)

        assert "empty" in {name for _, name in mirror.objects()}
        assert "text" not in {name for _, name in mirror.objects()}
    assert place.noted("object_unreadable")


def test_stopping_ends_its_thread_while_the_server_has_nothing_to_say(place: Place) -> None:
    with place.mirror() as mirror:
        mirror.wait_whole(SOON_S)

    assert not [each for each in threading.enumerate() if place.path in each.name]
    assert not place.notes


@pytest.fixture
def own_place(locked: Cluster) -> Iterator[Place]:
    """It lies in a cluster that may be broken."""
    made = Place(locked)
    yield made
    made.api.close()


def test_what_is_deleted_while_the_api_server_restarts_vanishes(own_place: Place) -> None:
    """Its memory of the past begins anew with it: so do we."""
    for number in range(5):
        own_place.make(f"thing-{number}")
    proxy = Proxy(access_as_admin(own_place.cluster))
    through_proxy = Api(proxy.access)
    with own_place.mirror(through_proxy) as mirror:
        wait_until_true(mirror, own_place)
        proxy.is_away = True
        for number in range(3):
            own_place.delete(f"thing-{number}")
            own_place.make(f"new-{number}")
        with without(own_place.cluster, "kube-apiserver"):
            assert {f"thing-{number}" for number in range(5)} <= set(shown(mirror))
        proxy.is_away = False
        wait_until_true(mirror, own_place)
    through_proxy.close()
    proxy.stop()

    assert any("410" in why for why in own_place.noted("watch_begins_anew"))


@pytest.fixture
def place_of_its_own(tmp_path: Path) -> Iterator[Place]:
    """It lies in a cluster that nobody else uses."""
    with clusters("restored", folder=tmp_path / "kube") as (cluster,):
        made = Place(cluster)
        yield made
        made.api.close()


@pytest.mark.soak  # quickly: the restart above, and the past that is forgotten
def test_after_a_restore_from_a_backup_what_was_made_since_vanishes(place_of_its_own: Place, tmp_path: Path) -> None:
    """The server's versions go back: a watch from a version that is still to come would say nothing, and that forever."""
    place = place_of_its_own
    data, backup = place.cluster.folder / "etcd", tmp_path / "etcd"
    place.make("before")
    with place.mirror() as mirror:
        with without(place.cluster, "etcd", "kube-apiserver"):
            shutil.copytree(data, backup)
        wait_until_true(mirror, place)
        for number in range(20):
            place.make(f"since-{number}")
        wait_until_true(mirror, place)
        with without(place.cluster, "etcd", "kube-apiserver"):
            shutil.rmtree(data)
            shutil.copytree(backup, data)
            assert (place.name, "since-0") in mirror.objects()
        wait_until_true(mirror, place)

    assert (place.name, "since-0") not in mirror.objects()
    assert (place.name, "before") in mirror.objects()
    assert place.noted("watch_begins_anew")
