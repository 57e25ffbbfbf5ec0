from __future__ import annotations

from typing import Any, cast

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from accounts.models import ApiToken, User
from accounts.tokens.services import token_authenticate
from core.clock import db_now
from core.request_origin import client_address, signed_in_by


class BearerAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        words = get_authorization_header(request).split()
        if not words or words[0].lower() != b"bearer":
            return None
        token = None
        if len(words) == 2:
            plain, address = words[1].decode("ascii", errors="replace"), client_address(request)
            token = token_authenticate(plain=plain, address=address, now=db_now())
        if token is None:
            raise AuthenticationFailed("This token is malformed, unknown, expired or revoked. Make a new one and try again.")
        user = token.user
        user.narrow_to(token)
        signed_in_by(token_key=token.key_id)
        return user, token

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "accounts.authentication.BearerAuthentication"
    name = "bearer"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "egsu_<key id>_<secret>"}


def actor_of(request: Request) -> User:
    return cast(User, request.user)
