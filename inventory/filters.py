from __future__ import annotations

from django_filters import rest_framework as filters

from core.rest.filters import ReferenceFilter


class CheckPolicyFilter(filters.FilterSet):
    cluster = ReferenceFilter("cluster")
    shape = filters.CharFilter()
