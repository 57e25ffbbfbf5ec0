"""The agent reads a request's object, even where the schema of its kind let something pass."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol import cluster_names
from protocol.tenancy.cluster_requests import ClusterRequest, ClusterRequestSpec, ModelDescription, ModelParameter
from worker_agent.kube.api.custom import Custom
from worker_agent.kube.requests.spec import SpecFault, cluster_request_of, spec_of

SPEC = {"shape": "H100-80GB", "duration": "1h"}


def test_the_model_is_carried_with_its_parameters() -> None:
    asked = spec_of({**SPEC, "model": {"name": "llama-3-70b", "parameters": [{"name": "batch", "value": "8"}]}})

    assert isinstance(asked, ClusterRequestSpec)
    assert asked.model == ModelDescription(name="llama-3-70b", parameters=(ModelParameter(name="batch", value="8"),))


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("llama", "`spec.model`"),
        ({"name": 3}, "`spec.model.name`"),
        ({"name": "x" * 254}, "`spec.model.name`"),
        ({"parameters": [{"name": "batch", "value": 8}]}, "`spec.model.parameters[0].value`"),
        ({"parameters": [{"name": "batch", "value": "8" * 257}]}, "`spec.model.parameters[0].value`"),
        ({"parameters": [{"name": str(n)} for n in range(33)]}, "`spec.model.parameters`"),
    ],
)
def test_a_model_that_cannot_be_is_told_with_the_place_in_it(model: Any, says: str) -> None:
    """A condition of the object tells it; the hub hears nothing of it."""
    fault = spec_of({**SPEC, "model": model})

    assert isinstance(fault, SpecFault)
    assert fault.reason == "InvalidSpec"
    assert says in fault.message


@pytest.mark.parametrize(("auto", "template"), [("true", "standard"), ("", "")])
def test_a_request_that_the_agent_made_says_by_which_template_of_the_hub_and_none_of_people_does(auto: str, template: str) -> None:
    marks = {cluster_names.AUTO: auto, cluster_names.HUB_TEMPLATE: "standard"}
    made = msgspec.convert({"metadata": {"name": "p", "namespace": "red", "uid": "u", "annotations": marks}, "spec": SPEC}, Custom)

    claim = cluster_request_of(made, {})

    assert isinstance(claim, ClusterRequest)
    assert (claim.is_auto, claim.template) == (bool(auto), template)
