"""Shows questions about invitations and names of namespaces."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse

from portal_shared.access import PageRequest
from portal_shared.forms.questions import Question, sent
from portal_shared.forms.service_form import ServiceForm
from portal_shared.shell import Shell
from portal_user.forms import RefusalForm
from portal_user.pages.tenants.access import shell_of
from slices.invitations.services import invitations_of
from slices.models import PENDING, Invitation, Namespace, Role

DECIDED = "This name does not wait for a decision any more."


@dataclass(frozen=True, slots=True)
class InvitationRow:
    slice: str
    project: str
    role: str
    invited_by: str
    at: datetime
    accept_url: str  # both empty: read-only
    decline_url: str

    @classmethod
    def of(cls, row: Invitation, *, may_write: bool) -> InvitationRow:
        accept, decline = (reverse(name, args=[row.pk]) if may_write else "" for name in ("invitation-accept", "invitation-decline"))
        role = str(Role(row.role).label)
        return cls(row.slice.name, row.slice.project.name, role, row.invited_by.name, row.created_at, accept, decline)


def invitation_rows(request: PageRequest) -> tuple[InvitationRow, ...]:
    return tuple(InvitationRow.of(row, may_write=request.may_write) for row in invitations_of(request.user)[:100])


def approve_question(request: PageRequest, row: Namespace) -> Question:
    return Question(
        title=f"Give {row.slice.name} the namespace {row.name}?",
        text=f"The agent of cluster {row.cluster.name} makes it for the workspace. The owners may not choose this name by themselves.",
        points=(
            "Members can read and change everything that is put there later, secrets included.",
            "The agent does not take a name for which something in the cluster waits already.",
        ),
        verb="Approve it",
        url=reverse("namespace-approve", args=[row.slice.name, row.pk]),
        back_url=reverse("access", args=[row.slice.name]),
        form=ServiceForm(sent(request)),
        shell=shell_of(request, row.slice),
        keep="Not now",
        is_plain=True,
        closed="" if row.state == PENDING else DECIDED,
    )


def refuse_question(request: PageRequest, row: Namespace, form: RefusalForm) -> Question:
    return Question(
        title=f"Refuse {row.slice.name} the namespace {row.name}?",
        text=f"The workspace asks for it in cluster {row.cluster.name}. It may ask for another name.",
        verb="Refuse it",
        url=reverse("namespace-refuse", args=[row.slice.name, row.pk]),
        back_url=reverse("access", args=[row.slice.name]),
        form=form,
        shell=shell_of(request, row.slice),
        keep="Not now",
        closed="" if row.state == PENDING else DECIDED,
    )


def accept_question(request: PageRequest, row: Invitation) -> Question:
    return Question(
        title=f"Join {row.slice.name}?",
        text=f"{row.invited_by.name} invited you to this workspace of project {row.slice.project.name} as {Role(row.role).label.lower()}.",
        points=("Its members see your name.",),
        verb="Join it",
        url=reverse("invitation-accept", args=[row.pk]),
        back_url=reverse("workspaces"),
        form=ServiceForm(sent(request)),
        shell=Shell.user(request, page="workspaces"),
        keep="Not now",
        is_plain=True,
    )


def decline_question(request: PageRequest, row: Invitation) -> Question:
    return Question(
        title=f"Decline the invitation to {row.slice.name}?",
        text="It leaves your list, and nobody is told.",
        verb="Decline it",
        url=reverse("invitation-decline", args=[row.pk]),
        back_url=reverse("workspaces"),
        form=ServiceForm(sent(request)),
        shell=Shell.user(request, page="workspaces"),
        keep="Not now",
    )
