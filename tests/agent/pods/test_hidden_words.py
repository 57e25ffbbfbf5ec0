"""A word of a command line that looks like a secret does not leave the cluster."""

from __future__ import annotations

import pytest

from worker_agent.kube.pods.hidden_words import without_secrets


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--hf-token", "abc123", "--max-tokens", "4096"], ["--hf-token", "(hidden)", "--max-tokens", "4096"]),
        (["--api-key=zzz", "--secret=--x"], ["--api-key=(hidden)", "--secret=(hidden)"]),
        (["--wandb-api-key", "--lr"], ["--wandb-api-key", "--lr"]),
        (
            ["-c", "export DB_PASSWORD=hunter2; run --password 'a b' --tokenizer t"],
            ["-c", "export DB_PASSWORD=(hidden); run --password (hidden) --tokenizer t"],
        ),
        (["https://me:word@registry.example/x"], ["https://(hidden)@registry.example/x"]),
        (["Authorization: Bearer abcdefghijk"], ["Authorization: Bearer (hidden)"]),
        (['{"api_key": "plain", "lr": 3}'], ['{"api_key": (hidden), "lr": 3}']),
        (["hf_abcdefghijklm", "sk-abcdefghijkl"], ["(hidden)", "(hidden)"]),
        (["a" * 20 + "1" * 20], ["(hidden)"]),
        (["-----BEGIN RSA PRIVATE KEY-----\nabc"], ["(hidden)"]),
    ],
)
def test_secrets_are_hidden_and_nothing_else(words: list[str], told: list[str]) -> None:
    assert list(without_secrets(words)) == told


@pytest.mark.parametrize("word", ["--max-num-batched-tokens", "--author", "/mnt/llama-3.1-70b-abcdefghijklmnopqrst0123456789", "8192"])
def test_a_harmless_word_stays_and_hides_none_after_it(word: str) -> None:
    assert list(without_secrets([word, "next"])) == [word, "next"]
