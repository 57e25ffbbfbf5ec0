# `make client` writes this file. Do not edit it.

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from egs_client.models import journal as models
from egs_client.sync.pages import Pages
from egs_client.sync.resource import Resource


class Audit(Resource):
    def list(
        self,
        *,
        actor: str | UnsetType = UNSET,
        address: str | UnsetType = UNSET,
        gpr: str | UnsetType = UNSET,
        kind: str | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        request: str | UnsetType = UNSET,
        since: datetime | str | UnsetType = UNSET,
        slice: str | UnsetType = UNSET,
        text: str | UnsetType = UNSET,
        token: str | UnsetType = UNSET,
        until: datetime | str | UnsetType = UNSET,
    ) -> Pages[models.Audit]:
        """Sorted by id (descending).

        actor: Id or name.
        gpr: Id.
        kind: Beginning of the kind, e.g. `gpr.`.
        page_size: Rows a page.
        request: The X-Request-Id of an answer.
        slice: Id or name.
        text: Part of the message.
        token: The public key id of a token.
        """
        return Pages(
            self.client,
            "audit/",
            params={
                "actor": actor,
                "address": address,
                "gpr": gpr,
                "kind": kind,
                "page_size": page_size,
                "request": request,
                "since": since,
                "slice": slice,
                "text": text,
                "token": token,
                "until": until,
            },
            kind=models.Audit,
        )

    def export(
        self,
        *,
        actor: str | UnsetType = UNSET,
        address: str | UnsetType = UNSET,
        gpr: str | UnsetType = UNSET,
        kind: str | UnsetType = UNSET,
        request: str | UnsetType = UNSET,
        since: datetime | str | UnsetType = UNSET,
        slice: str | UnsetType = UNSET,
        text: str | UnsetType = UNSET,
        token: str | UnsetType = UNSET,
        until: datetime | str | UnsetType = UNSET,
    ) -> str:
        """Export all records that match the filters as JSON lines, the oldest first.

        actor: Id or name.
        gpr: Id.
        kind: Beginning of the kind, e.g. `gpr.`.
        request: The X-Request-Id of an answer.
        slice: Id or name.
        text: Part of the message.
        token: The public key id of a token.
        """
        return self.client.text(
            "GET",
            "audit/export/",
            params={
                "actor": actor,
                "address": address,
                "gpr": gpr,
                "kind": kind,
                "request": request,
                "since": since,
                "slice": slice,
                "text": text,
                "token": token,
                "until": until,
            },
        )


class Channels(Resource):
    @cached_property
    def deliveries(self) -> ChannelsDeliveries:
        return ChannelsDeliveries(self.client)

    def list(self, *, page_size: int | UnsetType = UNSET) -> Pages[models.Channel]:
        """Shows the caller's own channels and those of workspaces that the caller manages.

        page_size: Rows a page.
        """
        return Pages(self.client, "channels/", params={"page_size": page_size}, kind=models.Channel)

    def create(
        self,
        *,
        name: Annotated[str, Meta(min_length=1, max_length=63)],
        kind: Literal["mail", "slack_webhook", "slack_bot", "webhook"],
        notice_kinds: Annotated[
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
        digest: Literal["none", "hourly", "daily"] | UnsetType = UNSET,
        secret: Annotated[str, Meta(min_length=1, max_length=500)] | UnsetType = UNSET,
        slice: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[^\\x00]*$")] | UnsetType = UNSET,
        target: Annotated[str, Meta(min_length=1, max_length=500)] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.NewChannel:
        """Shows the caller's own channels and those of workspaces that the caller manages.

        notice_kinds: Default: all.
        secret: The URL of a Slack webhook, or the token of a bot.
        slice: A workspace that the caller manages. Default: the caller himself.
        target: Mail address, URL of a webhook, or channel of a Slack bot; none otherwise.
        """
        return self.client.call(
            "POST",
            "channels/",
            body={
                "notice_kinds": notice_kinds,
                "digest": digest,
                "secret": secret,
                "name": name,
                "kind": kind,
                "slice": slice,
                "target": target,
            },
            is_keyed=True,
            key=idempotency_key,
            kind=models.NewChannel,
        )

    def get(self, id: str) -> models.Channel:
        """Shows the caller's own channels and those of workspaces that the caller manages."""
        return self.client.call("GET", f"channels/{self.quoted(id)}/", kind=models.Channel)

    def update(
        self,
        id: str,
        *,
        notice_kinds: Annotated[
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
        digest: Literal["none", "hourly", "daily"] | UnsetType = UNSET,
        secret: Annotated[str, Meta(min_length=1, max_length=500)] | UnsetType = UNSET,
        name: Annotated[str, Meta(min_length=1, max_length=63)] | UnsetType = UNSET,
        target: Annotated[str, Meta(min_length=1, max_length=500)] | UnsetType = UNSET,
        is_on: bool | UnsetType = UNSET,
        if_match: str | None = None,
    ) -> models.Channel:
        """Shows the caller's own channels and those of workspaces that the caller manages.

        notice_kinds: Default: all.
        secret: The URL of a Slack webhook, or the token of a bot.
        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        return self.client.call(
            "PATCH",
            f"channels/{self.quoted(id)}/",
            body={"notice_kinds": notice_kinds, "digest": digest, "secret": secret, "name": name, "target": target, "is_on": is_on},
            if_match=if_match,
            kind=models.Channel,
        )

    def delete(self, id: str, *, if_match: str | None = None) -> None:
        """Shows the caller's own channels and those of workspaces that the caller manages.

        if_match: the ETag of the state that is meant; * for any. Default: that of the last reading, if there was one.
        """
        self.client.call("DELETE", f"channels/{self.quoted(id)}/", if_match=if_match, kind=type(None))

    def confirm(self, id: str, *, code: Annotated[str, Meta(min_length=1, max_length=20)]) -> models.Channel:
        """Confirm a mail address by the code that was sent there."""
        return self.client.call("POST", f"channels/{self.quoted(id)}/confirm/", body={"code": code}, kind=models.Channel)

    def replace_key(self, id: str, *, idempotency_key: str | None = None) -> models.NewChannel:
        """Replace the key of a webhook's signatures. EGS signs messages with both keys for a day."""
        return self.client.call(
            "POST", f"channels/{self.quoted(id)}/replace-key/", body={}, is_keyed=True, key=idempotency_key, kind=models.NewChannel
        )

    def test(self, id: str) -> models.Delivery:
        """Send a test message. Its delivery tells how it went."""
        return self.client.call("POST", f"channels/{self.quoted(id)}/test/", body={}, kind=models.Delivery)


class ChannelsDeliveries(Resource):
    def list(self, channel_pk: str, *, page_size: int | UnsetType = UNSET) -> Pages[models.Delivery]:
        """Sorted by created_at (descending), id.

        page_size: Rows a page.
        """
        return Pages(self.client, f"channels/{self.quoted(channel_pk)}/deliveries/", params={"page_size": page_size}, kind=models.Delivery)

    def get(self, channel_pk: str, id: str) -> models.Delivery:
        """GET channels/{channel_pk}/deliveries/{id}/"""
        return self.client.call("GET", f"channels/{self.quoted(channel_pk)}/deliveries/{self.quoted(id)}/", kind=models.Delivery)

    def retry(self, channel_pk: str, id: str) -> models.Delivery:
        """Send it again, with the same id."""
        return self.client.call(
            "POST", f"channels/{self.quoted(channel_pk)}/deliveries/{self.quoted(id)}/retry/", body={}, kind=models.Delivery
        )


class Notices(Resource):
    def list(
        self,
        *,
        kind: Sequence[
            Literal[
                "alert",
                "approval_wanted",
                "booking",
                "budget",
                "changed",
                "decision",
                "ended",
                "ends_soon",
                "eviction",
                "mark",
                "node",
                "promise_moved",
                "started",
                "workspace",
            ]
        ]
        | UnsetType = UNSET,
        page_size: int | UnsetType = UNSET,
        unread: bool | UnsetType = UNSET,
    ) -> Pages[models.Notice]:
        """Shows the caller's own notices, the newest first.

        page_size: Rows a page.
        """
        return Pages(self.client, "notices/", params={"kind": kind, "page_size": page_size, "unread": unread}, kind=models.Notice)

    def read_all(self) -> models.ReadAll:
        """Shows the caller's own notices, the newest first."""
        return self.client.call("POST", "notices/read-all/", body={}, kind=models.ReadAll)

    def get(self, id: str) -> models.Notice:
        """Shows the caller's own notices, the newest first."""
        return self.client.call("GET", f"notices/{self.quoted(id)}/", kind=models.Notice)

    def read(self, id: str) -> models.Notice:
        """Shows the caller's own notices, the newest first."""
        return self.client.call("POST", f"notices/{self.quoted(id)}/read/", body={}, kind=models.Notice)
