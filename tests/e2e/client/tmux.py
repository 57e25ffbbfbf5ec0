"""A real terminal of 80 columns: tmux, with a shell in which a person types."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import uuid
from collections.abc import Sequence
from typing import Self

from tests.e2e.client.hub import EGS, Egs
from tests.e2e.processes import START_S, program, wait_for

PROMPT = "$"


class Tmux:
    """A context manager: its end closes the terminal."""

    def __init__(self, egs: Egs) -> None:
        self._tmux = [program("tmux"), "-u", "-f", os.devnull, "-L", f"egs-{uuid.uuid4().hex}"]
        commands = egs.home / "bin"
        commands.mkdir()
        (commands / "egs").write_text(f'#!/bin/sh\nexec {shlex.join(EGS)} "$@"\n')
        (commands / "egs").chmod(0o755)
        env = egs.environment()
        del env["COLUMNS"]
        self._env = {**env, "PATH": f"{commands}:{env['PATH']}", "LC_ALL": "C.UTF-8"}
        settings = egs.home / "bashrc"
        settings.write_text(f"PS1='{PROMPT} '\n")
        self._run("new-session", "-d", "-x", "80", "-y", "50", shlex.join(["bash", "--noprofile", "--rcfile", str(settings)]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._run("kill-server")

    def type(self, line: str, *, then: Sequence[tuple[str, str]] = ()) -> None:
        """Types a line, and an answer, if there is one, after each pattern that has to come; ends when the shell asks for the next line."""
        self._wait_for(rf"^\{PROMPT}$")
        count = self.shown().count(f"\n{PROMPT} ")
        self._send(line)
        for pattern, answer in then:
            self._wait_for(pattern)
            if answer:
                self._send(answer)
        wait_for(line, lambda: self._has_next_prompt(count + 1), within_s=START_S)

    def shown(self) -> str:
        """Returns all since the start, with the lines that the terminal has broken joined again."""
        lines = self._run("capture-pane", "-p", "-J", "-S", "-").rstrip().splitlines()
        return "".join(f"\n{line.rstrip()}" for line in lines)

    def _has_next_prompt(self, count: int) -> bool:
        text = self.shown()
        return text.count(f"\n{PROMPT} ") == count and text.endswith(f"\n{PROMPT}")

    def _wait_for(self, pattern: str) -> None:
        wait_for(pattern, lambda: re.search(pattern, self.shown(), re.MULTILINE), within_s=START_S)

    def _send(self, text: str) -> None:
        self._run("send-keys", "-l", text)
        self._run("send-keys", "Enter")

    def _run(self, *arguments: str) -> str:
        return subprocess.run([*self._tmux, *arguments], env=self._env, capture_output=True, text=True, check=True).stdout
