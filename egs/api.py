"""The root of the REST API: which viewset serves which path (design: the paths are fixed)."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path
from rest_framework.routers import SimpleRouter

router = SimpleRouter()
urlpatterns: list[URLPattern | URLResolver] = [path("", include(router.urls))]
