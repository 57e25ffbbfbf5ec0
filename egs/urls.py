"""All addresses: the API under /api/v1/, its schema and docs, health."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView

urlpatterns: list[URLPattern | URLResolver] = [
    path("", RedirectView.as_view(pattern_name="docs")),
    path("", include("inventory.agent_views")),
    path("api/v1/", include("egs.api")),
    path("api/schema/", SpectacularAPIView.as_view(), name="schema"),
    path("api/docs/", SpectacularSwaggerView.as_view(url_name="schema"), name="docs"),
]
handler400 = "egs.rest.problems.bad_request"
handler404 = "egs.rest.problems.page_not_found"
handler500 = "egs.rest.problems.server_error"
