"""Shows notebooks of a workspace, and how to open one."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.urls import reverse

from core.pages.parts import ListFoot, Tab
from gpr.jobs.selectors import OVER, notebooks_visible_to
from gpr.jobs.services import NotebookAccess
from gpr.models import Job
from portal_shared.access import PageRequest
from portal_shared.parts.paging import foot_of, page_of, state_of, url_with
from portal_shared.shell import Shell, WorkspaceMark
from portal_user.pages.jobs import JobRow, open_url
from portal_user.pages.requests.listing import may_create
from slices.models import Slice

GROUPS: Final = {"now": "Not over", "": "All"}


@dataclass(frozen=True, slots=True)
class NotebookRow:
    job: JobRow
    home: str  # empty: it is lost at the end
    ends_at: datetime | None
    open_url: str  # empty: it does not run, or it is not the reader's

    @classmethod
    def of(cls, job: Any, request: PageRequest) -> NotebookRow:
        row = JobRow.of(job)
        return cls(
            job=row,
            home=", ".join(sorted(job.volumes)),
            ends_at=None if row.is_over else job.gpr.ends_at,
            open_url=open_url(job, request) if job.gpr.owner_id == request.user.pk else "",
        )


@dataclass(frozen=True, slots=True)
class NotebooksPage:
    shell: Shell
    mark: WorkspaceMark
    rows: tuple[NotebookRow, ...]
    tabs: tuple[Tab, ...]
    foot: ListFoot
    part_url: str
    command: str  # empty: the reader may file none

    @classmethod
    def build(cls, request: PageRequest, slice_: Slice) -> NotebooksPage:
        group, url = state_of(request, GROUPS), reverse("notebooks", args=[slice_.name])
        rows: QuerySet[Any] = notebooks_visible_to(request.user).filter(gpr__slice=slice_)
        if group == "now":
            rows = rows.exclude(state__in=OVER)
        found = page_of(request, rows, ordering=("-created_at", "id"))
        filters = {"state": group}
        may_file = may_create(request, slice_)
        return cls(
            shell=Shell.user(request, page="notebooks", slice_=slice_, may_create=may_file),
            mark=WorkspaceMark.of(slice_),
            rows=tuple(NotebookRow.of(job, request) for job in found.rows),
            tabs=tuple(Tab(label, url_with(url, {"state": key}), is_current=key == group) for key, label in GROUPS.items()),
            foot=foot_of(found, url, filters),
            part_url=url_with(url, {**filters, "cursor": request.GET.get("cursor", ""), "part": "list"}),
            command=f"egs notebook -n {slice_.name} --gpus 1 --hours 4 --open" if may_file else "",
        )


@dataclass(frozen=True, slots=True)
class OpenPage:
    """Shows the way to open a notebook: a link if its cluster has an ingress, else a command. `access` None: not asked for yet."""

    shell: Shell
    name: str
    url: str
    back_url: str
    ends_at: datetime | None
    link: str = ""
    is_far: bool = False  # the link leads through the ingress
    commands: str = ""
    refused: str = ""

    @classmethod
    def of(cls, request: PageRequest, job: Job, *, access: NotebookAccess | None = None, refused: str = "") -> OpenPage:
        gpr = job.gpr
        return cls(
            shell=Shell.user(request, page="notebooks", slice_=gpr.slice),
            name=gpr.name,
            url=reverse("notebook-open", args=[job.pk]),
            back_url=reverse("job", args=[job.pk]),
            ends_at=gpr.ends_at,
            link=_link(access) if access else "",
            is_far=bool(access and access.url),
            commands=_commands(gpr.name, access) if access and not access.url else "",
            refused=refused,
        )


def _link(access: NotebookAccess) -> str:
    return f"{access.url or f'http://127.0.0.1:{access.port}/'}lab?{urlencode({'token': access.token})}"


def _commands(name: str, access: NotebookAccess) -> str:
    forward = f"kubectl -n {access.namespace} port-forward service/{access.service} {access.port}"
    return f"egs notebook open {shlex.quote(name)} --port {access.port}\n{forward}"
