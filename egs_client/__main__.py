"""Starts the command `egs`."""

from __future__ import annotations

from egs_client.cli import early


def run() -> None:
    early.begin()
    from egs_client.cli.main import run

    run()


if __name__ == "__main__":
    run()
