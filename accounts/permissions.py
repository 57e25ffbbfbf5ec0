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

ADMINS_ONLY = "Only an administrator may do this, with a token of the scope admin."
BOUND = "This token is bound to workspaces. Use one without a bound for what belongs to you alone."


def has_scope(request: Request, needed: Scope) -> bool:
    return isinstance(request.auth, ApiToken) and bool(IMPLIED_BY[needed] & set(request.auth.scopes))


def refuse_bound(actor: User) -> None:
    """Raises NotAllowed for a token or session that is bound to workspaces."""
    if actor.bound_to:
        raise NotAllowed(BOUND)


class HasScope(BasePermission):
    """Heeds what ApiViewSet says of its actions, and `write_scope`: the scope that its changes need, by default write."""

    message = "This token's scopes do not allow that. Use one with the scope write."

    def has_permission(self, request: Request, view: APIView) -> bool:
        action = getattr(view, "action", None)
        is_for_admins = action in getattr(view, "admin_actions", ())
        if is_for_admins:
            self.message = ADMINS_ONLY
        if not isinstance(request.auth, ApiToken) or not isinstance(request.user, User):
            return False
        if request.auth.slices and getattr(view, "is_personal", False):
            self.message = BOUND
            return False
        only_reads = request.method in SAFE_METHODS or action in getattr(view, "read_actions", ())
        if not has_scope(request, Scope.READ if only_reads else getattr(view, "write_scope", Scope.WRITE)):
            return False
        return not is_for_admins or is_platform_admin(request.user) or (only_reads and is_overseer(request.user))
