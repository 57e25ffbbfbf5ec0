"""Jobs of checks as their pods run: the command of each manifest, on this machine, with the tools that a test puts there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from protocol import cluster_names
from worker_agent.cluster.base import Unavailable
from worker_agent.kube.api import objects
from worker_agent.kube.api.client import Missing
from worker_agent.kube.checks import jobs

Object = dict[str, Any]

# nvidia-smi as its documentation has it: each field of a query by name, and an error for one that it does not know.
NVIDIA_SMI = """\
#!{python}
import json, sys
about = json.load(open({about!r}))
if about["fails"]:
    print(about["fails"], file=sys.stderr)
    sys.exit(9)
option, _, fields = sys.argv[1].partition("=")
rows = about[option.removeprefix("--query-")]
for row in rows:
    for field in fields.split(","):
        if field not in row:
            print(f'Field "{{field}}" is not a valid field to query.')
            sys.exit(2)
    print(", ".join(row[field] for field in fields.split(",")))
"""
# all_reduce_perf as far as it is asked here: it says how it was called, and leaves the report that a test has made.
ALL_REDUCE = """\
#!/bin/sh
echo "called as $*; $(env | cut -d= -f1 | sort | tr '\\n' ' ')" >{said}
while [ "$1" != -J ]; do shift; done
cp {report} "$2"
exit {code}
"""


class LocalJobs:
    """It replaces an API server and its nodes. Its `folder` has the tools."""

    def __init__(self, folder: Path) -> None:
        self.programs, self.folder = folder / "bin", folder
        # The address of the pod of each index. All listen on one port: other processes that run these tests have other addresses.
        self._hosts = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}.{{}}"
        self.programs.mkdir()
        self.without: set[int] = set()  # of a gang, the pods that do not come
        self.jobs: dict[str, Object] = {}
        self.pods: list[Object] = []
        self.nodes: dict[str, Object] = {}  # by path
        self._logs: dict[str, str] = {}
        self.are_logs_away = False

    # -- what is there -------------------------------------------------------------------------------------------------

    def put_nvidia_smi(self, *, gpu: list[Object], remapped: list[Object], apps: list[Object], fails: str = "") -> None:
        about = self.folder / "nvidia-smi.json"
        about.write_text(json.dumps({"gpu": gpu, "remapped-rows": remapped, "compute-apps": apps, "fails": fails}))
        self._put("nvidia-smi", NVIDIA_SMI.format(python=sys.executable, about=str(about)))

    def put_all_reduce(self, report: str, *, code: int = 0) -> Path:
        """Returns where it says how it was called."""
        (self.folder / "report.json").write_text(report)
        said = self.folder / "called"
        self._put("all_reduce_perf", ALL_REDUCE.format(said=said, report=self.folder / "report.json", code=code))
        return said

    def _put(self, name: str, text: str) -> None:
        program = self.programs / name
        program.write_text(text)
        program.chmod(0o755)

    # -- as the API server ---------------------------------------------------------------------------------------------

    def get(self, path: str, type_: Any, **params: Any) -> Any:
        if path.startswith("/api/v1/nodes/"):
            if path not in self.nodes:
                raise Missing(f"404: {path}")
            return msgspec.convert(self.nodes[path], type_)
        found: Mapping[str, Object] = {jobs.JOBS: {"items": list(self.jobs.values())}, jobs.PODS: {"items": self.pods}}
        return msgspec.convert(found.get(path, {"items": []}), type_)

    def text(self, path: str, **params: Any) -> str:
        if self.are_logs_away:
            raise Unavailable("502: the kubelet does not answer")
        return self._logs[path]

    def create(self, path: str, body: Object, type_: Any) -> Any:
        count = body["spec"].get("completions", 1)
        started = [(index, self._start(body, index)) for index in range(count) if index not in self.without]
        codes = [self._end(body, index, process) for index, process in started]
        condition = {"type": "Complete" if not any(codes) and len(codes) == count else "Failed", "status": "True"}
        self.jobs[body["metadata"]["name"]] = {**body, "status": {"conditions": [condition]}}
        return msgspec.convert(body, objects.BatchJob)

    def patch(self, path: str, ops: list[Object], type_: Any, **params: Any) -> Any:
        """Adds annotations to a node."""
        annotations = self.nodes[path]["metadata"]["annotations"]
        annotations |= {op["path"].rpartition("/")[2].replace("~1", "/"): op["value"] for op in ops if op["op"] == "add"}
        return self.get(path, type_)

    def delete(self, path: str, **params: Any) -> None:
        self.jobs.pop(path.rpartition("/")[2])

    # -- as the node ---------------------------------------------------------------------------------------------------

    def _start(self, body: Object, index: int) -> subprocess.Popen[str]:
        (container,) = body["spec"]["template"]["spec"]["containers"]
        program, *arguments = container["command"]
        own = {"JOB_COMPLETION_INDEX": str(index), "POD_IP": self._hosts.format(index)}
        env = {"PATH": f"{self.programs}:{os.environ['PATH']}", "TMPDIR": str(self.folder), "SECRET": "of the pod"} | own
        hosts = f"{body['metadata']['name']}-{{}}.egs-checks"
        arguments = [argument.replace(hosts, self._hosts) for argument in arguments]
        command = [sys.executable if program == "python3" else program, *arguments]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def _end(self, body: Object, index: int, process: subprocess.Popen[str]) -> int:
        out, err = process.communicate(timeout=60)
        code, name = process.returncode, f"pod-{len(self.pods)}"
        # The end of the log is the last words of a pod that broke off (FallbackToLogsOnError).
        state = {"exitCode": code, "reason": "Error" if code else "Completed", "message": (out + err)[-2048:] if code else ""}
        labels = body["spec"]["template"]["metadata"]["labels"]
        more = {cluster_names.JOB_OF_POD: body["metadata"]["name"], cluster_names.INDEX_OF_POD: str(index)}
        status = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{"name": "check", "state": {"terminated": state}}],
        }
        about = {"name": name, "namespace": "egs-system", "labels": labels | more}
        self.pods.append({"metadata": about, "spec": {"nodeName": f"node-{index}"}, "status": status})
        self._logs[f"{jobs.PODS}/{name}/log"] = out + err if code else err + out
        return code
