"""Shows a form's request as an API call."""

from __future__ import annotations

import json
from typing import Any

from rest_framework.utils.encoders import JSONEncoder

from gpr.jobs.spec import FIELDS, JobSpec
from gpr.models import Gpr, GprTemplate
from gpr.requests.spec import DEFAULTS, PLAIN_FIELDS, GprSpec


def creation_body(spec: GprSpec) -> dict[str, Any]:
    """Omits defaults and values that the template gives."""
    template = spec.template
    without = {**DEFAULTS, **(template.asked if template else {})}
    given = {name: value for name in PLAIN_FIELDS if (value := getattr(spec, name)) != without.get(name)}
    names = [cluster.name for cluster in spec.clusters]
    clusters = {"clusters": names} if names != ([template.cluster.name] if template and template.cluster else []) else {}
    return _as_json({"slice": spec.slice.name, **({"template": template.name} if template else {}), **given, **clusters})


def job_body(what: JobSpec, template: GprTemplate | None) -> dict[str, Any]:
    """Omits defaults and values that the template gives."""
    unsaid = JobSpec(**(template.job if template else {}))
    given = {name: getattr(what, name) for name in FIELDS if getattr(what, name) != getattr(unsaid, name)}
    return {"manifest" if name == "objects_wanted" else name: value for name, value in given.items()}


def change_body(spec: GprSpec, gpr: Gpr) -> dict[str, Any]:
    """Omits unchanged fields."""
    given = {name: value for name in PLAIN_FIELDS if (value := getattr(spec, name)) != getattr(gpr, name)}
    names = [cluster.name for cluster in spec.clusters]
    clusters = {"clusters": names} if set(names) != {cluster.name for cluster in gpr.clusters.all()} else {}
    return _as_json({**given, **clusters, "version": gpr.version})


def _as_json(body: dict[str, Any]) -> dict[str, Any]:
    plain = {name: value.pk if isinstance(value, Gpr) else value for name, value in body.items()}
    read: dict[str, Any] = json.loads(json.dumps(plain, cls=JSONEncoder))
    return read
