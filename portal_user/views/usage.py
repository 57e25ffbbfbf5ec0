from __future__ import annotations

from uuid import UUID

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from core.errors import NotFound
from gpr.usage.selectors import projects_run_by
from portal_shared.access import PageRequest, needs_write, signed_in
from portal_shared.forms.questions import Question, decide, sent
from portal_shared.shell import Shell
from slices.services import project_set_league


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def league_switch(request: PageRequest, pk: UUID) -> HttpResponse:
    project = next((each for each in projects_run_by(request.user) if each.pk == pk), None)
    if project is None:
        raise NotFound("project")
    goes_in = not project.in_league

    def switch() -> str:
        project_set_league(project=project, in_league=goes_in, actor=request.user, now=request.now)
        return f"{project.name} is {'in' if goes_in else 'out of'} the efficiency league"

    title = f"{'Put' if goes_in else 'Take'} project {project.name} {'into' if goes_in else 'out of'} the league?"
    text = (
        "Its members see the place of their own workspaces in it; administrators see all of them."
        if goes_in
        else "Nobody sees places of its workspaces any more. Usage and costs stay as they are."
    )
    verb = f"{'Put in' if goes_in else 'Take out'} {project.name}"
    shell = Shell.user(request, page="usage")
    question = Question(
        title, text, verb, reverse("league-switch", args=[pk]), reverse("usage"), form=forms.Form(sent(request)), shell=shell, is_plain=True
    )
    return decide(request, question, switch, topics=("usage",))
