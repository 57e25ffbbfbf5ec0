# `make client` writes this file. Do not edit it.

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from egs_client.aio.pages import AsyncPages
from egs_client.aio.resource import AsyncResource
from egs_client.models import accounts as models
from egs_client.models import shared


class DeviceLogins(AsyncResource):
    async def create(
        self,
        *,
        name: Annotated[str, Meta(min_length=1, max_length=63)],
        scope: Literal["read", "gpr:write", "write", "admin"] | UnsetType = UNSET,
    ) -> models.DeviceLogin:
        """Ask for a code, which a person who is signed in confirms on a page.

        name: What asks, as the person should know it.
        scope: Default: write. The person may grant less.
        """
        return await self.client.call("POST", "device-logins/", body={"name": name, "scope": scope}, kind=models.DeviceLogin)

    async def take(self, *, device_code: Annotated[str, Meta(min_length=1, max_length=100)]) -> shared.NewToken:
        """Take the token once the code is confirmed. Until then the code of the answer is `authorization_pending`; after `slow_down`
        wait 5 s longer each time. `access_denied`, `expired_token` and `invalid_grant` end it.
        """
        return await self.client.call("POST", "device-logins/take/", body={"device_code": device_code}, kind=shared.NewToken)


class Logins(AsyncResource):
    def list(self, *, page_size: int | UnsetType = UNSET) -> AsyncPages[models.Login]:
        """A login is an open session of one of the caller's own browsers.

        page_size: Rows a page.
        """
        return AsyncPages(self.client, "logins/", params={"page_size": page_size}, kind=models.Login)

    async def delete(self, id: str) -> None:
        """End a session at once."""
        await self.client.call("DELETE", f"logins/{self.quoted(id)}/", kind=type(None))


class Roles(AsyncResource):
    def list(self, *, page_size: int | UnsetType = UNSET) -> AsyncPages[models.GroupRole]:
        """People of these groups of identity providers have a role on the platform.

        page_size: Rows a page.
        """
        return AsyncPages(self.client, "roles/", params={"page_size": page_size}, kind=models.GroupRole)

    async def create(
        self,
        *,
        provider: Annotated[str, Meta(min_length=1, max_length=31)],
        group: Annotated[str, Meta(min_length=1, max_length=255)],
        role: Literal["auditor", "admin"],
        idempotency_key: str | None = None,
    ) -> models.GroupRole:
        """People in the group get the role at once, and lose it when they leave the group."""
        return await self.client.call(
            "POST",
            "roles/",
            body={"provider": provider, "group": group, "role": role},
            is_keyed=True,
            key=idempotency_key,
            kind=models.GroupRole,
        )

    async def get(self, id: str) -> models.GroupRole:
        """People of these groups of identity providers have a role on the platform."""
        return await self.client.call("GET", f"roles/{self.quoted(id)}/", kind=models.GroupRole)

    async def delete(self, id: str) -> None:
        """People of these groups of identity providers have a role on the platform."""
        await self.client.call("DELETE", f"roles/{self.quoted(id)}/", kind=type(None))


class SignIn(AsyncResource):
    async def get(self) -> models.SignIn:
        """Tell by which ways a terminal gets a token here. Needs no token."""
        return await self.client.call("GET", "sign-in/", kind=models.SignIn)


class Tokens(AsyncResource):
    def list(self, *, page_size: int | UnsetType = UNSET) -> AsyncPages[shared.Token]:
        """Sorted by created_at (descending), id.

        page_size: Rows a page.
        """
        return AsyncPages(self.client, "tokens/", params={"page_size": page_size}, kind=shared.Token)

    async def create(
        self,
        *,
        name: Annotated[str, Meta(min_length=1, max_length=63)],
        scopes: Annotated[Sequence[Literal["read", "gpr:write", "write", "admin"]], Meta(min_length=1, max_length=8)],
        expires_in_s: Annotated[int, Meta(ge=1, le=31536000)] | UnsetType = UNSET,
        networks: Annotated[Sequence[str], Meta(max_length=20)] | UnsetType = UNSET,
        slices: Annotated[Sequence[str], Meta(max_length=50)] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> shared.NewToken:
        """POST tokens/

        expires_in_s: Default: 90 days.
        networks: Addresses or networks that may use it, e.g. 10.0.0.0/8; none: all.
        slices: Ids of workspaces that it is bound to; none: all of its user's.
        """
        return await self.client.call(
            "POST",
            "tokens/",
            body={"name": name, "expires_in_s": expires_in_s, "networks": networks, "scopes": scopes, "slices": slices},
            is_keyed=True,
            key=idempotency_key,
            kind=shared.NewToken,
        )

    async def get(self, ref: str) -> shared.Token:
        """GET tokens/{ref}/"""
        return await self.client.call("GET", f"tokens/{self.quoted(ref)}/", kind=shared.Token)

    async def delete(self, ref: str) -> None:
        """Revoke the token at once. It stays in the list."""
        await self.client.call("DELETE", f"tokens/{self.quoted(ref)}/", kind=type(None))

    async def rotate(
        self, ref: str, *, overlap_s: Annotated[int, Meta(ge=0, le=604800)] | UnsetType = UNSET, idempotency_key: str | None = None
    ) -> shared.NewToken:
        """Make a new token with the same terms. The old one ends a little later, so that programs can change over without a gap.

        overlap_s: The old token works so long; default: an hour.
        """
        return await self.client.call(
            "POST",
            f"tokens/{self.quoted(ref)}/rotate/",
            body={"overlap_s": overlap_s},
            is_keyed=True,
            key=idempotency_key,
            kind=shared.NewToken,
        )


class Users(AsyncResource):
    def list(
        self, *, page_size: int | UnsetType = UNSET, provider: str | UnsetType = UNSET, subject: str | UnsetType = UNSET
    ) -> AsyncPages[models.User]:
        """Administrators manage people; auditors read them.

        page_size: Rows a page.
        provider: Key of an identity provider.
        subject: What an identity provider calls the person: `sub`. Give the provider, too: two may use the same one.
        """
        return AsyncPages(
            self.client, "users/", params={"page_size": page_size, "provider": provider, "subject": subject}, kind=models.User
        )

    async def create(
        self,
        *,
        name: Annotated[str, Meta(min_length=1, pattern="^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")],
        email: Annotated[str, Meta(min_length=1, max_length=254, pattern="^[^\\x00]*$")] | UnsetType = UNSET,
        role: Literal["member", "auditor", "admin"] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.User:
        """Add a person. Those who come through an identity provider are added when they first sign in.

        name: Letters, digits, dots, dashes and underscores, beginning and ending with a letter or a digit; 63 at most.
        """
        return await self.client.call(
            "POST", "users/", body={"name": name, "email": email, "role": role}, is_keyed=True, key=idempotency_key, kind=models.User
        )

    async def get(self, ref: str) -> models.User:
        """Administrators manage people; auditors read them."""
        return await self.client.call("GET", f"users/{self.quoted(ref)}/", kind=models.User)

    async def update(
        self,
        ref: str,
        *,
        role: Literal["member", "auditor", "admin"] | UnsetType = UNSET,
        is_active: bool | UnsetType = UNSET,
        if_match: str | None = None,
    ) -> models.User:
        """Administrators manage people; auditors read them.

        is_active: False: the person's tokens, sessions and sockets end at once.
        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        return await self.client.call(
            "PATCH", f"users/{self.quoted(ref)}/", body={"role": role, "is_active": is_active}, if_match=if_match, kind=models.User
        )

    async def end_logins(self, ref: str, *, idempotency_key: str | None = None) -> None:
        """End all sessions of the person's browsers. His tokens stay."""
        await self.client.call(
            "POST", f"users/{self.quoted(ref)}/end-logins/", body={}, is_keyed=True, key=idempotency_key, kind=type(None)
        )

    async def groups(
        self,
        ref: str,
        *,
        provider: Annotated[str, Meta(min_length=1, max_length=31)],
        groups: Annotated[Sequence[str], Meta(max_length=1000)],
        idempotency_key: str | None = None,
    ) -> models.User:
        """Say which groups the person is in, as at a sign-in: roles that depend on groups are given and taken at once.

        groups: Replaces the whole list.
        """
        return await self.client.call(
            "POST",
            f"users/{self.quoted(ref)}/groups/",
            body={"provider": provider, "groups": groups},
            is_keyed=True,
            key=idempotency_key,
            kind=models.User,
        )
