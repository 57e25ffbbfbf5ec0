"""Each level of policies sets what it wants and inherits the rest; every change makes a version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.clock import db_now
from core.errors import Conflict, InvalidInput, StaleState
from slices.models import Policy, Project, Slice
from slices.policies.selectors import BUILT_IN, policy_views
from slices.policies.services import policy_change, policy_of
from slices.policies.terms import TERMS
from tests import factories
from tests.builders import make_cluster, make_user

pytestmark = pytest.mark.django_db

# Some of all kinds; none of them contradicts another.
VALUES: dict[str, list[Any]] = {
    "nodes_approval": [1, 2, 4],
    "duration_approval_s": [600, 3600],
    "may_evict": [True, False],
    "may_skip_checks": [True, False],
    "priority_approval": [100, 300],
    "namespace_patterns": [["a-*"], []],
}
NAMES = sorted(VALUES)
CHANGES = st.tuples(
    st.integers(0, 4),  # the platform, two projects, a workspace of each
    st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3), min_size=1, max_size=3),
)


@settings(max_examples=25, deadline=None)
@given(changes=st.lists(CHANGES, max_size=8))
def test_what_holds_for_a_workspace_is_set_by_the_nearest_that_sets_it_now_and_at_every_version(changes: list[Any]) -> None:
    projects = [factories.project(), factories.project()]
    slices = [factories.make_slice(of=project) for project in projects]
    owners: list[Project | Slice | None] = [None, *projects, *slices]
    own: list[dict[str, Any]] = [dict(policy_of(owner).terms) for owner in owners]
    for at, picked in changes:
        # One index beyond the values means inherited.
        terms = {name: (VALUES[name] + [None] * 4)[index] for name, index in picked.items()}
        policy_change(policy=policy_of(owners[at]), terms=terms, actor=None, now=db_now())
        own[at] = {name: value for name, value in {**own[at], **terms}.items() if value is not None}

    for index, slice_ in enumerate(slices):
        slice_.refresh_from_db()
        (view,) = policy_views([policy_of(slice_)])
        for line in view.lines:
            name = line.term.name
            levels = [("slice", own[3 + index]), ("project", own[1 + index]), ("platform", own[0])]
            source, value = next(((kind, terms[name]) for kind, terms in levels if name in terms), (BUILT_IN, line.term.default))
            assert (getattr(slice_, name), line.value, line.source) == (value, value, source)
        above = Policy.objects.filter(pk__in=[policy_of(owner).pk for owner in (None, projects[index], slice_)])
        assert slice_.policy_version <= max(policy.version for policy in above)
    for policy in map(policy_of, owners):
        versions = list(policy.versions.order_by("pk"))
        assert [row.before for row in versions[1:]] == [row.terms for row in versions[:-1]]
        assert policy.terms == (versions[-1].terms if versions else {})
    policy_change(policy=policy_of(None), terms=dict.fromkeys(NAMES), actor=None, now=db_now())


def test_every_term_is_a_column_of_a_workspace_and_a_new_workspace_inherits_from_its_project() -> None:
    project = factories.project()
    policy_change(policy=policy_of(None), terms={"nodes_approval": 7, "queued_max": 9}, actor=None, now=db_now())
    policy_change(policy=policy_of(project), terms={"nodes_approval": 3}, actor=None, now=db_now())

    made = factories.make_slice(of=project, name="vision")

    made.refresh_from_db()
    assert (made.nodes_approval, made.queued_max, made.namespace_patterns) == (3, 9, ["vision", "vision-*"])
    assert all(hasattr(made, name) for name in TERMS)


def test_a_version_says_who_changed_what_from_what_and_why() -> None:
    slice_, admin = factories.make_slice(), make_user(is_admin=True)
    policy = policy_of(slice_)
    policy_change(policy=policy, terms={"nodes_approval": 4}, actor=admin, now=db_now(), why="Release week.")
    policy_change(policy=policy, terms={"nodes_approval": None, "may_evict": True}, actor=admin, now=db_now())
    before = policy.version

    newest, older, _ = policy.versions.all()

    assert (older.made_by, older.why, older.before.get("nodes_approval"), older.terms["nodes_approval"]) == (
        admin,
        "Release week.",
        None,
        4,
    )
    assert (newest.pk, newest.before["nodes_approval"], newest.terms.get("nodes_approval")) == (before, 4, None)
    slice_.refresh_from_db()
    assert (slice_.nodes_approval, slice_.may_evict, slice_.policy_version) == (16, True, before)
    policy_change(policy=policy, terms={"may_evict": True}, actor=admin, now=db_now())
    assert policy.version == before  # nothing changed
    with pytest.raises(StaleState):
        policy_change(policy=policy, terms={"may_evict": False}, actor=admin, now=db_now(), version=before - 1)


def test_a_change_above_that_contradicts_a_workspaces_own_policy_is_refused_and_names_it() -> None:
    slice_ = factories.make_slice(make_cluster(), name="vision")
    policy_change(policy=policy_of(slice_), terms={"duration_approval_s": 7200}, actor=None, now=db_now())

    with pytest.raises(InvalidInput) as refused:
        policy_change(policy=policy_of(slice_.project), terms={"duration_max_s": 3600}, actor=None, now=db_now())

    assert "workspace vision" in str(refused.value.extra["errors"])
    assert not policy_of(slice_.project).terms


def test_a_project_without_workspaces_whose_policy_contradicts_that_of_the_platform_says_so_to_its_first_workspace() -> None:
    project = factories.project()
    policy_change(policy=policy_of(project), terms={"duration_max_s": 3600}, actor=None, now=db_now())

    with pytest.raises(Conflict) as refused:
        factories.make_slice(of=project, name="vision")

    assert project.name in refused.value.detail
    assert "beyond the longest duration" in refused.value.detail
