"""Holds the base of all viewsets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Final, Protocol, TypeVar
from uuid import UUID

from django.db.models import Model
from django.http import HttpRequest
from rest_framework import serializers, viewsets
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response

from core.clock import db_now
from core.rest.deprecations import deprecations_in, deprecations_of, deprecations_tell
from core.rest.filters import GivenFilters, check_parameters
from core.rest.pagination import NEWEST_FIRST
from core.rest.parsers import StrictJsonParser
from core.rest.preconditions import change_if_unchanged, etag_of, takes_if_match
from core.rest.schema import ApiSchema, takes_key

Row = TypeVar("Row", bound=Model)
ETAG_ACTIONS: Final = ("create", "retrieve", "partial_update")


class JsonOnly(BaseContentNegotiation):
    """Answers with JSON whatever the client accepts, since an error 406 would help nobody."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        kind = (request.content_type or "").split(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == kind), None)

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        return renderers[0], renderers[0].media_type


class Handler(Protocol):
    def __call__(self, request: Request, *args: Any, **kwargs: Any) -> Response: ...


class PostOnce(Protocol):
    def __call__(self, view: ApiViewSet[Any], handler: Handler, request: Request, *args: Any, **kwargs: Any) -> Response: ...


class ApiViewSet(viewsets.GenericViewSet[Row]):
    parser_classes = [StrictJsonParser]
    filter_backends = [GivenFilters]
    content_negotiation_class = JsonOnly
    metadata_class = None  # the schema describes the API; OPTIONS would describe it differently
    schema = ApiSchema()
    lookup_value_regex = "[^/]+"

    # Its lists are sorted by these fields, which are together unique and never null.
    ordering: ClassVar[tuple[str, ...]] = NEWEST_FIRST
    # Administrators of the platform alone may take these; auditors may take those that only read.
    admin_actions: ClassVar[tuple[str, ...]] = ()
    # Shows what belongs to a person and to no workspace: a token that is bound to workspaces may not use it.
    is_personal: ClassVar[bool] = False
    # POSTs that change nothing and need only the scope read.
    read_actions: ClassVar[tuple[str, ...]] = ()
    # POSTs without Idempotency-Key, besides read_actions: a repetition is refused or changes nothing.
    keyless_actions: ClassVar[tuple[str, ...]] = ()
    # POSTs that cannot run in the caller's transaction: they call `remember` in their own.
    own_transactions: ClassVar[tuple[str, ...]] = ()
    # The body of a PATCH. Where it is given, its fields make the object's ETag, and PATCH and DELETE take If-Match.
    change_body: ClassVar[type[serializers.Serializer[Any]] | None] = None
    post_once: ClassVar[PostOnce]  # runs every POST that takes a key; egs/api.py sets it

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        if "Transfer-Encoding" in request.headers:
            # DRF takes a chunked body, which has no length, for none, and would silently drop it.
            request.META.setdefault("CONTENT_LENGTH", "-1")
        return super().initialize_request(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        self.deprecations = deprecations_of(self, request.query_params)
        super().initial(request, *args, **kwargs)
        check_parameters(self, request)
        # One time for the whole request, so that all rows of an answer agree.
        self.now: datetime = getattr(request.auth, "checked_at", None) or db_now()
        # For `own_transactions`: stores which object this request's Idempotency-Key made.
        self.remember: Callable[[UUID | None], None] = lambda object_id: None
        if request.method == "POST" and takes_key(self):
            self.post = partial(type(self).post_once, self, self.post)  # type: ignore[has-type]
        if self.change_body and takes_if_match(self) and "If-Match" in request.headers:
            self.heed_if_match(self.change_body)

    def heed_if_match(self, body: type[serializers.Serializer[Any]]) -> None:
        name = str(self.request.method).lower()
        setattr(self, name, partial(change_if_unchanged, self, body, getattr(self, name)))

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        if self.change_body and self.action in ETAG_ACTIONS and 200 <= response.status_code < 300:
            response["ETag"] = etag_of(self.change_body, response.data)
        deprecations_tell(response, getattr(self, "deprecations", ()))
        return super().finalize_response(request, response, *args, **kwargs)

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "now": getattr(self, "now", None)}

    def replay(self, object_id: UUID | None) -> Response:
        """Answer a repeated POST with the present object, or with nothing. Raises NotFound, or Http404."""
        if object_id is None:
            return Response(status=204)
        self.kwargs[self.lookup_url_kwarg or self.lookup_field] = str(object_id)
        answer: Response = self.retrieve(self.request, **self.kwargs)  # type: ignore[attr-defined]
        if self.action == "create":
            answer.status_code = 201
        return answer

    def body(self, kind: type[serializers.BaseSerializer[Any]]) -> dict[str, Any]:
        """Return the validated body. Raises what becomes a 400."""
        serializer = kind(data=self.request.data, context=self.get_serializer_context())
        serializer.is_valid(raise_exception=True)
        self.deprecations += deprecations_in(kind, self.request.data)
        data: dict[str, Any] = serializer.validated_data
        return data
