from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from accounts.models import IMPLIED_BY, ApiToken, Scope, User
from accounts.policy import is_overseer, is_platform_admin
from core.errors import NotAllowed

if TYPE_CHECKING:
    # DRF's views import their default permissions, and so this module.
    from rest_framework.views import APIView


BOUND = "This token is bound to workspaces. Use one without a bound for what belongs to you alone."


def has_scope(request: Request, needed: Scope) -> bool:
    return isinstance(request.auth, ApiToken) and bool(IMPLIED_BY[needed] & set(request.auth.scopes))


def refuse_bound(actor: User) -> None:
    """Raises NotAllowed for a token or session that is bound to workspaces."""
    if actor.bound_to:
        raise NotAllowed(BOUND)


class HasScope(BasePermission):
    """`read_actions` of a view are POSTs that need only scope read; `write_scope` is what its changes need, by default write.

    A view that `is_personal` shows what belongs to no workspace: a token that is bound to workspaces may not use it.
    """

    message = "This token's scopes do not allow that. Use one with the scope write."

    def has_permission(self, request: Request, view: APIView) -> bool:
        if not isinstance(request.auth, ApiToken):
            return False
        if request.auth.slices and getattr(view, "is_personal", False):
            self.message = BOUND
            return False
        needed = Scope.READ if self.only_reads(request, view) else getattr(view, "write_scope", Scope.WRITE)
        return has_scope(request, needed)

    @staticmethod
    def only_reads(request: Request, view: APIView) -> bool:
        return request.method in SAFE_METHODS or getattr(view, "action", None) in getattr(view, "read_actions", ())


class IsAdmin(HasScope):
    """Auditors may read what is for administrators."""

    message = "Only an administrator may do this, with a token of the scope admin."

    def has_permission(self, request: Request, view: APIView) -> bool:
        if not super().has_permission(request, view) or not isinstance(request.user, User):
            return False
        return is_platform_admin(request.user) or (self.only_reads(request, view) and is_overseer(request.user))
