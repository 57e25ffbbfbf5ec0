"""Shows the policy that holds in a workspace, or what a project sets, for those who work there."""

from __future__ import annotations

from dataclasses import dataclass

from django.urls import reverse

from portal_shared.access import PageRequest
from portal_shared.parts.policies import PolicyPanel
from portal_shared.shell import Shell
from slices.models import Policy, Slice


@dataclass(frozen=True, slots=True)
class PolicyPage:
    shell: Shell
    panel: PolicyPanel
    above_url: str  # of the project's policy, for who runs it

    @classmethod
    def build(cls, request: PageRequest, policy: Policy, slice_: Slice | None, *, sees_project: bool) -> PolicyPage:
        above = reverse("project-policy", args=[slice_.project.name]) if slice_ and sees_project else ""
        shell = Shell.user(request, page="policy", slice_=slice_)
        return cls(shell, PolicyPanel.build(policy, request.user), above)
