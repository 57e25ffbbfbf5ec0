"""Reads a workload's framework, division of work, and model from its pods. It is pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from protocol.pods import PodSeen

WORDS_OF_KIND: Final = {
    **{"PyTorchJob": "PyTorch", "TFJob": "TensorFlow", "JAXJob": "JAX", "MPIJob": "MPI"},
    **{"RayCluster": "Ray", "RayJob": "Ray"},
}
# The first that occurs counts: servers before trainers, and both before the libraries that they are made of.
WORDS_OF_TEXT: Final = (
    ("vllm", "vLLM"),
    ("sglang", "SGLang"),
    ("text-generation-inference", "TGI"),
    ("tritonserver", "Triton"),
    ("dynamo", "Dynamo"),
    ("nemo", "NeMo"),
    ("megatron", "Megatron"),
    ("deepspeed", "DeepSpeed"),
    ("accelerate", "Accelerate"),
    ("jupyter", "Jupyter"),
    ("torchrun", "PyTorch"),
    ("pytorch", "PyTorch"),
    ("tensorflow", "TensorFlow"),
    ("jax", "JAX"),
    ("ray", "Ray"),
    ("mpirun", "MPI"),
)
# Options and variables that divide work, by what pages call them.
DIVIDED_BY: Final = {
    "tensor-parallel-size": "tensor",
    "tp": "tensor",
    "tensor-model-parallel-size": "tensor",
    "pipeline-parallel-size": "pipeline",
    "pp": "pipeline",
    "pipeline-model-parallel-size": "pipeline",
    "data-parallel-size": "data",
    "dp": "data",
    "expert-parallel-size": "expert",
    "context-parallel-size": "context",
    "nnodes": "nodes",
    "num-machines": "nodes",
    "nproc-per-node": "processes a node",
    "num-processes": "processes",
    "world-size": "processes",
}
MODEL_OPTIONS: Final = frozenset({"model", "model-id", "model-name", "model-name-or-path", "model-path", "served-model-name", "base-model"})
_OPTION: Final = re.compile(r"--?([A-Za-z][\w.-]*)(?:=(.*))?\Z", re.DOTALL)
_NUMBER_MAX: Final = 1_000_000
NAME_MAX_CHARS: Final = 256


def configuration_of(pod: PodSeen) -> dict[str, Any]:
    return {
        "gpus": pod.gpu_count,
        "image": pod.image,
        "arguments": list(pod.arguments),
        "requests": dict(pod.requests),
        "parallelism": parallelism_of(pod.arguments, pod.variables),
    }


def framework_of(pod: PodSeen) -> str:
    for owner in reversed(pod.owners):
        if owner.kind in WORDS_OF_KIND:
            return WORDS_OF_KIND[owner.kind]
    text = " ".join((pod.image.rpartition("/")[2], pod.image, *pod.arguments[:3])).lower()
    return next((word for found, word in WORDS_OF_TEXT if re.search(rf"(?<![a-z]){found}", text)), "")


def model_of(pod: PodSeen) -> str:
    """Its label counts before its options, and these before its variables."""
    options = (value for name, value in _options(pod.arguments) if name in MODEL_OPTIONS and value)
    variables = (pod.variables[name] for name in ("MODEL_NAME", "MODEL_ID") if pod.variables.get(name))
    return (pod.model or next(options, "") or next(variables, ""))[:NAME_MAX_CHARS]


def parallelism_of(arguments: Sequence[str], variables: Mapping[str, str]) -> dict[str, int]:
    told = [*((name.lower().replace("_", "-"), value) for name, value in variables.items()), *_options(arguments)]
    return {DIVIDED_BY[name]: int(value) for name, value in told if name in DIVIDED_BY and _is_count(value)}


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields each option with its value; also those within a line for a shell."""
    words = [word for argument in arguments for word in (argument.split() if " " in argument else [argument])]
    for place, word in enumerate(words):
        if found := _OPTION.match(word):
            following = next((each for each in words[place + 1 : place + 2] if not each.startswith("-")), "")
            yield found[1].lower().replace("_", "-"), following if found[2] is None else found[2]


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 0 < int(text[:7]) <= _NUMBER_MAX and len(text) <= 7
