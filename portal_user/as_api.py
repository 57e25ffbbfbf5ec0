"""What a form asks for, as the API takes it: the code beside the form is the very request that the form sends."""

from __future__ import annotations

import json
from typing import Any

from rest_framework.utils.encoders import JSONEncoder

from gpr.models import Gpr
from gpr.requests.spec import DEFAULTS, PLAIN_FIELDS, GprSpec


def creation_body(spec: GprSpec) -> dict[str, Any]:
    """Fields that have their defaults are left out, or with a template those that it gives."""
    template = spec.template
    without = {**DEFAULTS, **(template.asked if template else {})}
    given = {name: value for name in PLAIN_FIELDS if (value := getattr(spec, name)) != without.get(name)}
    names = [cluster.name for cluster in spec.clusters]
    clusters = {"clusters": names} if names != ([template.cluster.name] if template and template.cluster else []) else {}
    return _as_json({"slice": spec.slice.name, **({"template": template.name} if template else {}), **given, **clusters})


def change_body(spec: GprSpec, gpr: Gpr) -> dict[str, Any]:
    """Fields that stay as they are are left out; the version says what they are."""
    given = {name: value for name in PLAIN_FIELDS if (value := getattr(spec, name)) != getattr(gpr, name)}
    names = [cluster.name for cluster in spec.clusters]
    clusters = {"clusters": names} if set(names) != {cluster.name for cluster in gpr.clusters.all()} else {}
    return _as_json({**given, **clusters, "version": gpr.version})


def _as_json(body: dict[str, Any]) -> dict[str, Any]:
    """As the API reads it."""
    read: dict[str, Any] = json.loads(json.dumps(body, cls=JSONEncoder))
    return read
