# `make client` writes this file. Do not edit it.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from egs_client.models import shared
from egs_client.models import slices as models
from egs_client.sync.pages import Pages
from egs_client.sync.resource import Resource


class Deputies(Resource):
    def list(self, *, page_size: int | UnsetType = UNSET, since: datetime | str | UnsetType = UNSET) -> Pages[models.Deputy]:
        """Sorted by created_at (descending), id.

        page_size: Rows a page.
        """
        return Pages(self.client, "deputies/", params={"page_size": page_size, "since": since}, kind=models.Deputy)

    def create(
        self,
        *,
        user: Annotated[str, Meta(min_length=1, max_length=63, pattern="^[^\\x00]*$")],
        ends_at: datetime | str,
        starts_at: datetime | str | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.Deputy:
        """Name a deputy, who decides for the caller on what waits for approval. Administrators of the platform or of a project may call
        it.

        starts_at: Now by default.
        """
        return self.client.call(
            "POST",
            "deputies/",
            body={"user": user, "starts_at": starts_at, "ends_at": ends_at},
            is_keyed=True,
            key=idempotency_key,
            kind=models.Deputy,
        )

    def get(self, id: str) -> models.Deputy:
        """GET deputies/{id}/"""
        return self.client.call("GET", f"deputies/{self.quoted(id)}/", kind=models.Deputy)

    def delete(self, id: str) -> None:
        """Withdraw the deputy at once."""
        self.client.call("DELETE", f"deputies/{self.quoted(id)}/", kind=type(None))


class Invitations(Resource):
    def list(self, *, page_size: int | UnsetType = UNSET) -> Pages[models.Invitation]:
        """Sorted by created_at (descending), id.

        page_size: Rows a page.
        """
        return Pages(self.client, "invitations/", params={"page_size": page_size}, kind=models.Invitation)

    def get(self, id: str) -> models.Invitation:
        """GET invitations/{id}/"""
        return self.client.call("GET", f"invitations/{self.quoted(id)}/", kind=models.Invitation)

    def accept(self, id: str) -> models.Member:
        """POST invitations/{id}/accept/"""
        return self.client.call("POST", f"invitations/{self.quoted(id)}/accept/", body={}, kind=models.Member)

    def decline(self, id: str) -> None:
        """POST invitations/{id}/decline/"""
        self.client.call("POST", f"invitations/{self.quoted(id)}/decline/", body={}, kind=type(None))


class Me(Resource):
    def get(self) -> models.Me:
        """GET me/"""
        return self.client.call("GET", "me/", kind=models.Me)

    def notices(self) -> models.NoticeSettings:
        """The settings of the caller name kinds that the bell leaves out, muted workspaces, and quiet hours."""
        return self.client.call("GET", "me/notices/", kind=models.NoticeSettings)

    def update_notices(
        self,
        *,
        unwanted_kinds: Annotated[
            Sequence[
                Literal[
                    "approval_wanted",
                    "decision",
                    "started",
                    "mark",
                    "ends_soon",
                    "ended",
                    "promise_moved",
                    "eviction",
                    "node",
                    "changed",
                    "booking",
                    "budget",
                    "workspace",
                    "alert",
                ]
            ],
            Meta(max_length=14),
        ]
        | UnsetType = UNSET,
        muted_slices: Annotated[Sequence[str], Meta(max_length=500)] | UnsetType = UNSET,
        zone: Annotated[str, Meta(min_length=1, max_length=63)] | UnsetType = UNSET,
        quiet_from: Annotated[str, Meta(pattern="^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\\.[0-9]{1,6})?)?$")]
        | UnsetType
        | None = UNSET,
        quiet_until: Annotated[str, Meta(pattern="^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\\.[0-9]{1,6})?)?$")]
        | UnsetType
        | None = UNSET,
        if_match: str | None = None,
    ) -> models.NoticeSettings:
        """The settings of the caller name kinds that the bell leaves out, muted workspaces, and quiet hours.

        muted_slices: Ids or names.
        zone: E.g. Europe/Berlin.
        quiet_from: E.g. 22:00; null: no quiet hours.
        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        return self.client.call(
            "PATCH",
            "me/notices/",
            body={
                "unwanted_kinds": unwanted_kinds,
                "muted_slices": muted_slices,
                "zone": zone,
                "quiet_from": quiet_from,
                "quiet_until": quiet_until,
            },
            if_match=if_match,
            kind=models.NoticeSettings,
        )


class Projects(Resource):
    @cached_property
    def admins(self) -> ProjectsAdmins:
        return ProjectsAdmins(self.client)

    def list(
        self, *, life: Sequence[Literal["archived", "open", "removed"]] | UnsetType = UNSET, page_size: int | UnsetType = UNSET
    ) -> Pages[models.Project]:
        """Sorted by name, id.

        page_size: Rows a page.
        """
        return Pages(self.client, "projects/", params={"life": life, "page_size": page_size}, kind=models.Project)

    def create(
        self,
        *,
        name: Annotated[str, Meta(min_length=1, pattern="^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")],
        idempotency_key: str | None = None,
    ) -> models.Project:
        """POST projects/

        name: Letters, digits, dots, dashes and underscores, beginning and ending with a letter or a digit; 63 at most.
        """
        return self.client.call("POST", "projects/", body={"name": name}, is_keyed=True, key=idempotency_key, kind=models.Project)

    def archive(
        self, project: str, *, drain: bool | UnsetType = UNSET, why: Annotated[str, Meta(min_length=1, max_length=150)] | UnsetType = UNSET
    ) -> models.Closing:
        """Archive the project with all its workspaces.

        drain: End running GPRs at once; default: they run to their ends.
        """
        return self.client.call("POST", f"projects/{self.quoted(project)}/archive/", body={"drain": drain, "why": why}, kind=models.Closing)

    def closing(self, project: str) -> models.Closing:
        """Tells what archiving or removing the project and its workspaces would end, and how far it is."""
        return self.client.call("GET", f"projects/{self.quoted(project)}/closing/", kind=models.Closing)

    def remove(
        self, project: str, *, drain: bool | UnsetType = UNSET, why: Annotated[str, Meta(min_length=1, max_length=150)] | UnsetType = UNSET
    ) -> models.Closing:
        """Remove the project with all its workspaces.

        drain: End running GPRs at once; default: they run to their ends.
        """
        return self.client.call("POST", f"projects/{self.quoted(project)}/remove/", body={"drain": drain, "why": why}, kind=models.Closing)

    def restore(self, project: str) -> models.Closing:
        """Open an archived project again, with the workspaces that were archived with it."""
        return self.client.call("POST", f"projects/{self.quoted(project)}/restore/", body={}, kind=models.Closing)

    def get(self, ref: str) -> models.Project:
        """GET projects/{ref}/"""
        return self.client.call("GET", f"projects/{self.quoted(ref)}/", kind=models.Project)

    def update(
        self,
        ref: str,
        *,
        ends_at: datetime | str | UnsetType | None = UNSET,
        in_league: bool | UnsetType = UNSET,
        if_match: str | None = None,
    ) -> models.Project:
        """Change its end, or whether its slices are in the efficiency league, as administrators of the project may, too. Omitted fields
        stay as they are.

        ends_at: It is archived then with its workspaces, see `closing/`; null: no end.
        in_league: Its slices are compared in the efficiency league.
        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        return self.client.call(
            "PATCH",
            f"projects/{self.quoted(ref)}/",
            body={"ends_at": ends_at, "in_league": in_league},
            if_match=if_match,
            kind=models.Project,
        )


class ProjectsAdmins(Resource):
    def list(self, project: str, *, page_size: int | UnsetType = UNSET) -> Pages[models.ProjectAdmin]:
        """Sorted by user.name, id.

        page_size: Rows a page.
        """
        return Pages(self.client, f"projects/{self.quoted(project)}/admins/", params={"page_size": page_size}, kind=models.ProjectAdmin)

    def create(
        self,
        project: str,
        *,
        user: Annotated[str, Meta(min_length=1, max_length=63, pattern="^[^\\x00]*$")],
        idempotency_key: str | None = None,
    ) -> models.ProjectAdmin:
        """Let a person run the project: he acts as an owner in all its workspaces, and decides on its requests."""
        return self.client.call(
            "POST",
            f"projects/{self.quoted(project)}/admins/",
            body={"user": user},
            is_keyed=True,
            key=idempotency_key,
            kind=models.ProjectAdmin,
        )

    def get(self, project: str, admin: str) -> models.ProjectAdmin:
        """GET projects/{project}/admins/{admin}/"""
        return self.client.call("GET", f"projects/{self.quoted(project)}/admins/{self.quoted(admin)}/", kind=models.ProjectAdmin)

    def delete(self, project: str, admin: str) -> None:
        """DELETE projects/{project}/admins/{admin}/"""
        self.client.call("DELETE", f"projects/{self.quoted(project)}/admins/{self.quoted(admin)}/", kind=type(None))


class Slices(Resource):
    @cached_property
    def groups(self) -> SlicesGroups:
        return SlicesGroups(self.client)

    @cached_property
    def invitations(self) -> SlicesInvitations:
        return SlicesInvitations(self.client)

    @cached_property
    def kubeconfig(self) -> SlicesKubeconfig:
        return SlicesKubeconfig(self.client)

    @cached_property
    def members(self) -> SlicesMembers:
        return SlicesMembers(self.client)

    @cached_property
    def namespaces(self) -> SlicesNamespaces:
        return SlicesNamespaces(self.client)

    @cached_property
    def service_accounts(self) -> SlicesServiceAccounts:
        return SlicesServiceAccounts(self.client)

    def list(
        self, *, life: Sequence[Literal["archived", "open", "removed"]] | UnsetType = UNSET, page_size: int | UnsetType = UNSET
    ) -> Pages[models.Slice]:
        """Sorted by name, id.

        page_size: Rows a page.
        """
        return Pages(self.client, "slices/", params={"life": life, "page_size": page_size}, kind=models.Slice)

    def create(
        self,
        *,
        name: Annotated[str, Meta(min_length=1, pattern="^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")],
        project: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")],
        clusters: Annotated[Sequence[str], Meta(max_length=100)] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.Slice:
        """POST slices/

        name: Letters, digits, dots, dashes and underscores, beginning and ending with a letter or a digit; 63 at most.
        clusters: Where its GPRs may run.
        """
        return self.client.call(
            "POST",
            "slices/",
            body={"name": name, "project": project, "clusters": clusters},
            is_keyed=True,
            key=idempotency_key,
            kind=models.Slice,
        )

    def get(self, ref: str) -> models.Slice:
        """GET slices/{ref}/"""
        return self.client.call("GET", f"slices/{self.quoted(ref)}/", kind=models.Slice)

    def update(
        self,
        ref: str,
        *,
        nodes_approval: Annotated[int, Meta(ge=0, le=2147483647)] | UnsetType | None = UNSET,
        gpus_approval: Annotated[int, Meta(ge=0, le=2147483647)] | UnsetType | None = UNSET,
        duration_approval_s: Annotated[int, Meta(ge=1, le=31622400)] | UnsetType | None = UNSET,
        duration_max_s: Annotated[int, Meta(ge=1, le=31622400)] | UnsetType | None = UNSET,
        priority_approval: Annotated[int, Meta(ge=1, le=300)] | UnsetType | None = UNSET,
        queued_max: Annotated[int, Meta(ge=0, le=2147483647)] | UnsetType | None = UNSET,
        ahead_max_s: Annotated[int, Meta(ge=60, le=31622400)] | UnsetType | None = UNSET,
        shapes: Annotated[Sequence[str], Meta(max_length=100)] | UnsetType | None = UNSET,
        may_evict: bool | UnsetType | None = UNSET,
        may_skip_checks: bool | UnsetType | None = UNSET,
        may_order: bool | UnsetType | None = UNSET,
        idle_timeout_s: Annotated[int, Meta(ge=0, le=31622400)] | UnsetType | None = UNSET,
        may_keep_idle: bool | UnsetType | None = UNSET,
        burst_gain_s: Annotated[int, Meta(ge=0, le=31622400)] | UnsetType | None = UNSET,
        decide_within_s: Annotated[int, Meta(ge=60, le=31622400)] | UnsetType | None = UNSET,
        pods_max: Annotated[int, Meta(ge=0, le=2147483647)] | UnsetType | None = UNSET,
        may_reach_out: bool | UnsetType | None = UNSET,
        kubeconfig_max_s: Annotated[int, Meta(ge=600, le=31622400)] | UnsetType | None = UNSET,
        namespace_patterns: Annotated[Sequence[str], Meta(max_length=100)] | UnsetType | None = UNSET,
        namespaces_max: Annotated[int, Meta(ge=0, le=2147483647)] | UnsetType | None = UNSET,
        clusters: Annotated[Sequence[str], Meta(max_length=100)] | UnsetType = UNSET,
        ends_at: datetime | str | UnsetType | None = UNSET,
        home: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType | None = UNSET,
        if_match: str | None = None,
    ) -> models.Slice:
        """Change the policy, the clusters, the home and the end, for requests from now on. An administrator of its project narrows what
        the project and the platform allow, and adds no cluster.

        nodes_approval: More nodes in one request need approval.
        gpus_approval: More GPUs in one request need approval.
        duration_approval_s: Longer needs approval.
        duration_max_s: Longer is refused.
        priority_approval: A higher priority needs approval.
        queued_max: Requests that may wait at once; more are refused.
        ahead_max_s: A later start, counted from now, is refused.
        shapes: Shapes it may ask for; empty means all.
        may_evict: Its requests may evict others of lower priority without approval.
        may_skip_checks: Its requests may skip the checks of nodes without approval.
        may_order: Nodes may be ordered for its requests from supplies, at their cost.
        idle_timeout_s: A box whose GPUs do nothing for so long is released; 0: never. Asking for longer needs approval.
        may_keep_idle: Members may keep an idle box, which begins its time-out anew.
        burst_gain_s: Requests run outside the preferred cluster only if that saves more than this.
        decide_within_s: What waits longer for approval is rejected.
        pods_max: Pods at once in each of its namespaces.
        may_reach_out: Pods may open connections to other networks, including the internet.
        kubeconfig_max_s: Maximum lifetime of its kubeconfigs.
        namespace_patterns: Namespace names that owners may bind without approval.
        namespaces_max: Maximum number of namespaces, bound or asked for, over all clusters.
        clusters: Replaces the whole list.
        ends_at: It is archived then, see `closing/`; null: no end.
        home: The one of its clusters that it prefers; null: none.
        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        return self.client.call(
            "PATCH",
            f"slices/{self.quoted(ref)}/",
            body={
                "nodes_approval": nodes_approval,
                "gpus_approval": gpus_approval,
                "duration_approval_s": duration_approval_s,
                "duration_max_s": duration_max_s,
                "priority_approval": priority_approval,
                "queued_max": queued_max,
                "ahead_max_s": ahead_max_s,
                "shapes": shapes,
                "may_evict": may_evict,
                "may_skip_checks": may_skip_checks,
                "may_order": may_order,
                "idle_timeout_s": idle_timeout_s,
                "may_keep_idle": may_keep_idle,
                "burst_gain_s": burst_gain_s,
                "decide_within_s": decide_within_s,
                "pods_max": pods_max,
                "may_reach_out": may_reach_out,
                "kubeconfig_max_s": kubeconfig_max_s,
                "namespace_patterns": namespace_patterns,
                "namespaces_max": namespaces_max,
                "clusters": clusters,
                "ends_at": ends_at,
                "home": home,
            },
            if_match=if_match,
            kind=models.Slice,
        )

    def archive(
        self, slice: str, *, drain: bool | UnsetType = UNSET, why: Annotated[str, Meta(min_length=1, max_length=150)] | UnsetType = UNSET
    ) -> models.Closing:
        """Close the workspace until it is restored. It takes no requests from now on; what waits is canceled, and what runs ends first.

        drain: End running GPRs at once; default: they run to their ends.
        """
        return self.client.call("POST", f"slices/{self.quoted(slice)}/archive/", body={"drain": drain, "why": why}, kind=models.Closing)

    def closing(self, slice: str) -> models.Closing:
        """Tells what archiving or removing the workspace would end, and how far it is."""
        return self.client.call("GET", f"slices/{self.quoted(slice)}/closing/", kind=models.Closing)

    def remove(
        self, slice: str, *, drain: bool | UnsetType = UNSET, why: Annotated[str, Meta(min_length=1, max_length=150)] | UnsetType = UNSET
    ) -> models.Closing:
        """Close the workspace for good. When its last box has ended, it loses namespaces, people and quotas; its history stays.

        drain: End running GPRs at once; default: they run to their ends.
        """
        return self.client.call("POST", f"slices/{self.quoted(slice)}/remove/", body={"drain": drain, "why": why}, kind=models.Closing)

    def restore(self, slice: str) -> models.Closing:
        """Open an archived workspace again."""
        return self.client.call("POST", f"slices/{self.quoted(slice)}/restore/", body={}, kind=models.Closing)


class SlicesGroups(Resource):
    def list(self, slice: str, *, page_size: int | UnsetType = UNSET) -> Pages[models.SliceGroup]:
        """Sorted by provider, group, id.

        page_size: Rows a page.
        """
        return Pages(self.client, f"slices/{self.quoted(slice)}/groups/", params={"page_size": page_size}, kind=models.SliceGroup)

    def create(
        self,
        slice: str,
        *,
        provider: Annotated[str, Meta(min_length=1, max_length=31)],
        group: Annotated[str, Meta(min_length=1, max_length=255)],
        role: Literal["owner", "editor", "viewer"],
        idempotency_key: str | None = None,
    ) -> models.SliceGroup:
        """People in the group become members with this role, at once and when they sign in, and lose it when they leave the group."""
        return self.client.call(
            "POST",
            f"slices/{self.quoted(slice)}/groups/",
            body={"provider": provider, "group": group, "role": role},
            is_keyed=True,
            key=idempotency_key,
            kind=models.SliceGroup,
        )

    def get(self, slice: str, id: str) -> models.SliceGroup:
        """GET slices/{slice}/groups/{id}/"""
        return self.client.call("GET", f"slices/{self.quoted(slice)}/groups/{self.quoted(id)}/", kind=models.SliceGroup)

    def delete(self, slice: str, id: str) -> None:
        """DELETE slices/{slice}/groups/{id}/"""
        self.client.call("DELETE", f"slices/{self.quoted(slice)}/groups/{self.quoted(id)}/", kind=type(None))


class SlicesInvitations(Resource):
    def list(self, slice: str, *, page_size: int | UnsetType = UNSET) -> Pages[models.Invitation]:
        """Lists for owners the invitations that nobody has accepted yet, whether or not such a user exists.

        page_size: Rows a page.
        """
        return Pages(self.client, f"slices/{self.quoted(slice)}/invitations/", params={"page_size": page_size}, kind=models.Invitation)

    def delete(self, slice: str, invitation: str) -> None:
        """Lists for owners the invitations that nobody has accepted yet, whether or not such a user exists."""
        self.client.call("DELETE", f"slices/{self.quoted(slice)}/invitations/{self.quoted(invitation)}/", kind=type(None))


class SlicesKubeconfig(Resource):
    def list(self, slice: str, *, page_size: int | UnsetType = UNSET) -> Pages[models.Kubeconfig]:
        """Sorted by asked_at (descending), id.

        page_size: Rows a page.
        """
        return Pages(self.client, f"slices/{self.quoted(slice)}/kubeconfig/", params={"page_size": page_size}, kind=models.Kubeconfig)

    def create(
        self,
        slice: str,
        *,
        cluster: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")],
        duration_s: Annotated[int, Meta(ge=600, le=31622400)] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.Kubeconfig:
        """Ask for a kubeconfig. The cluster's agent makes it within seconds; then `read/` returns it once.

        duration_s: Default: 8 hours, or the workspace's limit if that is less. The cluster may give less: see expires_at.
        """
        return self.client.call(
            "POST",
            f"slices/{self.quoted(slice)}/kubeconfig/",
            body={"cluster": cluster, "duration_s": duration_s},
            is_keyed=True,
            key=idempotency_key,
            kind=models.Kubeconfig,
        )

    def get(self, slice: str, kubeconfig: str) -> models.Kubeconfig:
        """GET slices/{slice}/kubeconfig/{kubeconfig}/"""
        return self.client.call("GET", f"slices/{self.quoted(slice)}/kubeconfig/{self.quoted(kubeconfig)}/", kind=models.Kubeconfig)

    def delete(self, slice: str, kubeconfig: str) -> None:
        """Revoke it. The cluster refuses it within seconds."""
        self.client.call("DELETE", f"slices/{self.quoted(slice)}/kubeconfig/{self.quoted(kubeconfig)}/", kind=type(None))

    def read(self, slice: str, kubeconfig: str) -> models.KubeconfigText:
        """Return the kubeconfig, once and only for the user who asked for it. 409 `kubeconfig_not_made` while the agent makes it: try
        again in a second.
        """
        return self.client.call(
            "POST", f"slices/{self.quoted(slice)}/kubeconfig/{self.quoted(kubeconfig)}/read/", body={}, kind=models.KubeconfigText
        )


class SlicesMembers(Resource):
    def list(self, slice: str, *, page_size: int | UnsetType = UNSET) -> Pages[models.Member]:
        """Sorted by user.name, id.

        page_size: Rows a page.
        """
        return Pages(self.client, f"slices/{self.quoted(slice)}/members/", params={"page_size": page_size}, kind=models.Member)

    def create(
        self,
        slice: str,
        *,
        user: Annotated[str, Meta(min_length=1, max_length=254, pattern="^[^\\x00]*$")],
        role: Literal["owner", "editor", "viewer"],
        idempotency_key: str | None = None,
    ) -> models.Member:
        """Add a member, or change a member's role. Users who share a workspace with the owner become members at once. All others are
        invited by name, id or mail address: the answer then has a null `id`, whether such a user exists or not. Invite people
        without an account by mail address. See `invitations/`.
        """
        return self.client.call(
            "POST",
            f"slices/{self.quoted(slice)}/members/",
            body={"user": user, "role": role},
            is_keyed=True,
            key=idempotency_key,
            kind=models.Member,
        )

    def get(self, slice: str, user: str) -> models.Member:
        """GET slices/{slice}/members/{user}/"""
        return self.client.call("GET", f"slices/{self.quoted(slice)}/members/{self.quoted(user)}/", kind=models.Member)

    def delete(self, slice: str, user: str) -> None:
        """DELETE slices/{slice}/members/{user}/"""
        self.client.call("DELETE", f"slices/{self.quoted(slice)}/members/{self.quoted(user)}/", kind=type(None))


class SlicesNamespaces(Resource):
    def list(self, slice: str, *, page_size: int | UnsetType = UNSET) -> Pages[models.Namespace]:
        """Sorted by name, id.

        page_size: Rows a page.
        """
        return Pages(self.client, f"slices/{self.quoted(slice)}/namespaces/", params={"page_size": page_size}, kind=models.Namespace)

    def create(
        self,
        slice: str,
        *,
        name: Annotated[str, Meta(min_length=1, pattern="^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")],
        cluster: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")],
        may_adopt: bool | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.Namespace:
        """Bind a namespace: its pods may use the slice's nodes, and no other slice may bind it. A name that the policy's
        `namespace_patterns` do not cover stays PENDING until an administrator decides.

        name: Must be the name of a Kubernetes namespace.
        may_adopt: For administrators: take the namespace over with its contents if it exists already.
        """
        return self.client.call(
            "POST",
            f"slices/{self.quoted(slice)}/namespaces/",
            body={"name": name, "cluster": cluster, "may_adopt": may_adopt},
            is_keyed=True,
            key=idempotency_key,
            kind=models.Namespace,
        )

    def get(self, slice: str, namespace: str) -> models.Namespace:
        """GET slices/{slice}/namespaces/{namespace}/"""
        return self.client.call("GET", f"slices/{self.quoted(slice)}/namespaces/{self.quoted(namespace)}/", kind=models.Namespace)

    def delete(self, slice: str, namespace: str) -> None:
        """Unbind it, or withdraw the request for it."""
        self.client.call("DELETE", f"slices/{self.quoted(slice)}/namespaces/{self.quoted(namespace)}/", kind=type(None))

    def adopt(self, slice: str, namespace: str, *, idempotency_key: str | None = None) -> models.Namespace:
        """Let the workspace take over a namespace that existed before, with its contents."""
        return self.client.call(
            "POST",
            f"slices/{self.quoted(slice)}/namespaces/{self.quoted(namespace)}/adopt/",
            body={},
            is_keyed=True,
            key=idempotency_key,
            kind=models.Namespace,
        )

    def approve(self, slice: str, namespace: str, *, idempotency_key: str | None = None) -> models.Namespace:
        """Bind a PENDING namespace."""
        return self.client.call(
            "POST",
            f"slices/{self.quoted(slice)}/namespaces/{self.quoted(namespace)}/approve/",
            body={},
            is_keyed=True,
            key=idempotency_key,
            kind=models.Namespace,
        )

    def refuse(
        self, slice: str, namespace: str, *, why: Annotated[str, Meta(min_length=1, max_length=150)], idempotency_key: str | None = None
    ) -> None:
        """Remove a PENDING namespace. The reason is in the workspace's events.

        why: The reason, which is recorded with the user's name.
        """
        self.client.call(
            "POST",
            f"slices/{self.quoted(slice)}/namespaces/{self.quoted(namespace)}/refuse/",
            body={"why": why},
            is_keyed=True,
            key=idempotency_key,
            kind=type(None),
        )


class SlicesServiceAccounts(Resource):
    @cached_property
    def tokens(self) -> SlicesServiceAccountsTokens:
        return SlicesServiceAccountsTokens(self.client)

    def list(self, slice: str, *, page_size: int | UnsetType = UNSET) -> Pages[models.ServiceAccount]:
        """Programs of a workspace: members see them, owners manage them.

        page_size: Rows a page.
        """
        return Pages(
            self.client, f"slices/{self.quoted(slice)}/service-accounts/", params={"page_size": page_size}, kind=models.ServiceAccount
        )

    def create(
        self,
        slice: str,
        *,
        name: Annotated[str, Meta(min_length=1, pattern="^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")],
        role: Literal["viewer", "editor"],
        idempotency_key: str | None = None,
    ) -> models.ServiceAccount:
        """Make a program's account, whose tokens are made below it. Service accounts of a cluster come by themselves when they file.

        name: The workspace's name and a colon come before it.
        """
        return self.client.call(
            "POST",
            f"slices/{self.quoted(slice)}/service-accounts/",
            body={"name": name, "role": role},
            is_keyed=True,
            key=idempotency_key,
            kind=models.ServiceAccount,
        )

    def get(self, slice: str, account: str) -> models.ServiceAccount:
        """Programs of a workspace: members see them, owners manage them."""
        return self.client.call("GET", f"slices/{self.quoted(slice)}/service-accounts/{self.quoted(account)}/", kind=models.ServiceAccount)

    def update(
        self,
        slice: str,
        account: str,
        *,
        role: Literal["viewer", "editor"] | UnsetType = UNSET,
        is_active: bool | UnsetType = UNSET,
        if_match: str | None = None,
    ) -> models.ServiceAccount:
        """Programs of a workspace: members see them, owners manage them.

        is_active: False: its tokens end to work at once, and its cluster's objects are refused.
        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        return self.client.call(
            "PATCH",
            f"slices/{self.quoted(slice)}/service-accounts/{self.quoted(account)}/",
            body={"role": role, "is_active": is_active},
            if_match=if_match,
            kind=models.ServiceAccount,
        )

    def delete(self, slice: str, account: str, *, if_match: str | None = None) -> None:
        """Delete it: its tokens end at once. Requests and records keep its name.

        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        self.client.call(
            "DELETE", f"slices/{self.quoted(slice)}/service-accounts/{self.quoted(account)}/", if_match=if_match, kind=type(None)
        )


class SlicesServiceAccountsTokens(Resource):
    def list(self, slice: str, account: str, *, page_size: int | UnsetType = UNSET) -> Pages[shared.Token]:
        """Owners of the workspace see and change the tokens of its service accounts. Each is bound to this workspace.

        page_size: Rows a page.
        """
        return Pages(
            self.client,
            f"slices/{self.quoted(slice)}/service-accounts/{self.quoted(account)}/tokens/",
            params={"page_size": page_size},
            kind=shared.Token,
        )

    def create(
        self,
        slice: str,
        account: str,
        *,
        name: Annotated[str, Meta(min_length=1, max_length=63)],
        scopes: Annotated[Sequence[Literal["read", "gpr:write", "write"]], Meta(min_length=1, max_length=8)],
        expires_in_s: Annotated[int, Meta(ge=1, le=31536000)] | UnsetType = UNSET,
        networks: Annotated[Sequence[str], Meta(max_length=20)] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> shared.NewToken:
        """Owners of the workspace see and change the tokens of its service accounts. Each is bound to this workspace.

        expires_in_s: Default: 90 days.
        networks: Addresses or networks that may use it, e.g. 10.0.0.0/8; none: all.
        """
        return self.client.call(
            "POST",
            f"slices/{self.quoted(slice)}/service-accounts/{self.quoted(account)}/tokens/",
            body={"name": name, "expires_in_s": expires_in_s, "networks": networks, "scopes": scopes},
            is_keyed=True,
            key=idempotency_key,
            kind=shared.NewToken,
        )

    def get(self, slice: str, account: str, ref: str) -> shared.Token:
        """Owners of the workspace see and change the tokens of its service accounts. Each is bound to this workspace."""
        return self.client.call(
            "GET", f"slices/{self.quoted(slice)}/service-accounts/{self.quoted(account)}/tokens/{self.quoted(ref)}/", kind=shared.Token
        )

    def delete(self, slice: str, account: str, ref: str) -> None:
        """Revoke the token at once. It stays in the list."""
        self.client.call(
            "DELETE", f"slices/{self.quoted(slice)}/service-accounts/{self.quoted(account)}/tokens/{self.quoted(ref)}/", kind=type(None)
        )

    def rotate(
        self,
        slice: str,
        account: str,
        ref: str,
        *,
        overlap_s: Annotated[int, Meta(ge=0, le=604800)] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> shared.NewToken:
        """Make a new token with the same terms. The old one ends a little later, so that programs can change over without a gap.

        overlap_s: The old token works so long; default: an hour.
        """
        return self.client.call(
            "POST",
            f"slices/{self.quoted(slice)}/service-accounts/{self.quoted(account)}/tokens/{self.quoted(ref)}/rotate/",
            body={"overlap_s": overlap_s},
            is_keyed=True,
            key=idempotency_key,
            kind=shared.NewToken,
        )


class WorkspaceRequests(Resource):
    def list(
        self,
        *,
        page_size: int | UnsetType = UNSET,
        state: Sequence[Literal["APPROVED", "CANCELED", "PENDING", "REFUSED"]] | UnsetType = UNSET,
    ) -> Pages[models.WorkspaceRequest]:
        """Sorted by created_at (descending), id.

        page_size: Rows a page.
        """
        return Pages(self.client, "workspace-requests/", params={"page_size": page_size, "state": state}, kind=models.WorkspaceRequest)

    def create(
        self,
        *,
        name: Annotated[str, Meta(min_length=1, pattern="^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")],
        project: Annotated[str, Meta(min_length=1, pattern="^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")],
        purpose: Annotated[str, Meta(min_length=1, max_length=500)],
        clusters: Annotated[Sequence[str], Meta(max_length=20)] | UnsetType = UNSET,
        namespaces: Annotated[Sequence[str], Meta(max_length=20)] | UnsetType = UNSET,
        people: Mapping[str, Literal["owner", "editor", "viewer"]] | UnsetType = UNSET,
        quota: Mapping[str, int] | UnsetType = UNSET,
        ends_at: datetime | str | UnsetType | None = UNSET,
        idempotency_key: str | None = None,
    ) -> models.WorkspaceRequest:
        """Ask for a workspace. An administrator decides.

        name: Letters, digits, dots, dashes and underscores, beginning and ending with a letter or a digit; 63 at most.
        project: It is made if there is none of this name.
        purpose: The people and the purpose.
        clusters: Names; an administrator may choose others.
        namespaces: Bound in each of the clusters.
        people: Name or mail address -> role. They are added or invited.
        quota: Shape -> guaranteed GPUs.
        ends_at: Until when it is needed; null: without end.
        """
        return self.client.call(
            "POST",
            "workspace-requests/",
            body={
                "name": name,
                "project": project,
                "clusters": clusters,
                "namespaces": namespaces,
                "people": people,
                "quota": quota,
                "ends_at": ends_at,
                "purpose": purpose,
            },
            is_keyed=True,
            key=idempotency_key,
            kind=models.WorkspaceRequest,
        )

    def get(self, id: str) -> models.WorkspaceRequest:
        """GET workspace-requests/{id}/"""
        return self.client.call("GET", f"workspace-requests/{self.quoted(id)}/", kind=models.WorkspaceRequest)

    def delete(self, id: str) -> None:
        """Withdraw a request that waits."""
        self.client.call("DELETE", f"workspace-requests/{self.quoted(id)}/", kind=type(None))

    def approve(
        self,
        id: str,
        *,
        name: Annotated[str, Meta(min_length=1, pattern="^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")] | UnsetType = UNSET,
        project: Annotated[str, Meta(min_length=1, pattern="^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")] | UnsetType = UNSET,
        clusters: Annotated[Sequence[str], Meta(max_length=20)] | UnsetType = UNSET,
        namespaces: Annotated[Sequence[str], Meta(max_length=20)] | UnsetType = UNSET,
        people: Mapping[str, Literal["owner", "editor", "viewer"]] | UnsetType = UNSET,
        quota: Mapping[str, int] | UnsetType = UNSET,
        ends_at: datetime | str | UnsetType | None = UNSET,
        why: Annotated[str, Meta(min_length=1, max_length=150)] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.WorkspaceRequest:
        """Set the workspace up, with what the body changes: all of it, or nothing.

        name: Letters, digits, dots, dashes and underscores, beginning and ending with a letter or a digit; 63 at most.
        project: It is made if there is none of this name.
        clusters: Names; an administrator may choose others.
        namespaces: Bound in each of the clusters.
        people: Name or mail address -> role. They are added or invited.
        quota: Shape -> guaranteed GPUs.
        ends_at: Until when it is needed; null: without end.
        """
        return self.client.call(
            "POST",
            f"workspace-requests/{self.quoted(id)}/approve/",
            body={
                "name": name,
                "project": project,
                "clusters": clusters,
                "namespaces": namespaces,
                "people": people,
                "quota": quota,
                "ends_at": ends_at,
                "why": why,
            },
            is_keyed=True,
            key=idempotency_key,
            kind=models.WorkspaceRequest,
        )

    def refuse(
        self, id: str, *, why: Annotated[str, Meta(min_length=1, max_length=150)], idempotency_key: str | None = None
    ) -> models.WorkspaceRequest:
        """POST workspace-requests/{id}/refuse/"""
        return self.client.call(
            "POST",
            f"workspace-requests/{self.quoted(id)}/refuse/",
            body={"why": why},
            is_keyed=True,
            key=idempotency_key,
            kind=models.WorkspaceRequest,
        )
