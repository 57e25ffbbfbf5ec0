from __future__ import annotations

from csp.decorators import csp_update
from django.conf import settings
from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from portal_shared.login import login, logout
from portal_shared.setup import setup

# Only Swagger UI needs inline styles.
swagger = csp_update({"style-src": ["'self'", "'unsafe-inline'"]})

oidc_urls: list[URLPattern] = []
if settings.EGS_OIDC_PROVIDERS:
    from accounts.oidc import views as oidc

    oidc_urls = [
        path("login/<slug:key>/", oidc.sign_in, name="oidc-sign-in"),
        path("login/<slug:key>/link/", oidc.link, name="oidc-link"),
        path("login/<slug:key>/callback/", oidc.callback, name="oidc-callback"),
        path("login/<slug:key>/backchannel-logout/", oidc.backchannel_logout, name="oidc-backchannel-logout"),
    ]

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/", include("egs.api")),  # first, since it has the most calls
    path("login/", login, name="login"),
    path("setup/", setup, name="setup"),
    path("logout/", logout, name="logout"),
    *oidc_urls,
    path("", include("portal_user.urls")),
    path("admin/", include("portal_admin.urls")),
    path("", include("egs.agent_urls")),
    path("", include("egs.health")),
    path("api/schema/", SpectacularAPIView.as_view(), name="schema"),
    path("api/docs/", swagger(SpectacularSwaggerSplitView.as_view(url_name="schema")), name="docs"),
]
if settings.DEBUG:
    from portal_shared.styleguide import styleguide

    urlpatterns.append(path("styleguide/", styleguide, name="styleguide"))
handler400 = "portal_shared.errors.bad_request"
handler403 = "portal_shared.errors.forbidden"
handler404 = "portal_shared.errors.page_not_found"
handler500 = "portal_shared.errors.server_error"
