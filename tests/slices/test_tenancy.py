"""Rules keep tenants apart and let administrators mend workspaces."""

from __future__ import annotations

import pytest

from core.errors import Conflict
from protocol.assignments import Phase
from slices.models import Membership, Namespace, Role
from slices.namespaces.services import namespace_bind, namespace_unbind
from slices.services import member_remove, member_set
from tests.builders import NOW, agent_says, hold, make_cluster, make_gpr, make_slice, make_user, nodes_of

pytestmark = pytest.mark.django_db


def test_the_last_owner_stays_while_there_are_other_members() -> None:
    slice_, owner, editor = make_slice(make_cluster()), make_user("owner"), make_user("editor")
    member_set(slice_=slice_, user=owner, role=Role.OWNER, actor=None, now=NOW)
    member_set(slice_=slice_, user=editor, role=Role.EDITOR, actor=None, now=NOW)

    with pytest.raises(Conflict):
        member_remove(slice_=slice_, user=owner, actor=owner, now=NOW)
    with pytest.raises(Conflict):
        member_set(slice_=slice_, user=owner, role=Role.VIEWER, actor=owner, now=NOW)

    assert Membership.objects.get(user=owner).role == Role.OWNER


def test_the_last_member_stays_too() -> None:
    """A workspace that nobody is in could only be mended by an administrator."""
    owner = make_user("owner")
    slice_ = make_slice(make_cluster(), owner=owner)

    with pytest.raises(Conflict):
        member_remove(slice_=slice_, user=owner, actor=owner, now=NOW)

    assert Membership.objects.get().user == owner


def test_a_namespace_stays_bound_while_its_workspace_holds_nodes_there() -> None:
    """Its pods may still run in it: nobody else may bind it before the exit is over."""
    cluster = make_cluster(nodes=1)
    slice_, admin = make_slice(cluster), make_user(is_admin=True)
    namespace = namespace_bind(slice_=slice_, cluster=cluster, name="team", actor=None, now=NOW)
    (row,) = hold(make_gpr(slice_), *nodes_of(cluster))

    with pytest.raises(Conflict):
        namespace_unbind(namespace=namespace, actor=admin, now=NOW)
    assert Namespace.objects.get() == namespace

    agent_says(row, Phase.RELEASED, now=NOW)
    namespace_unbind(namespace=namespace, actor=admin, now=NOW)
    assert not Namespace.objects.exists()
