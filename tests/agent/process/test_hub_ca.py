"""A hub whose certificate is from an authority of its own, as in a private network: the agent goes to it, and to no other."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from protocol.agents.registration import REGISTER_PATH
from tests.e2e.processes import ROOT, wait_for
from worker_agent.__main__ import main
from worker_agent.hub.dialog import Call
from worker_agent.hub.transport import Http, NoAnswer, trust_in

SOON_S = 30.0


@dataclass
class Hub:
    """It serves TLS on this machine. `asked` has the paths of all calls."""

    url: str
    ca: Path
    asked: list[str] = field(default_factory=list)


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder has an authority, a certificate of it for 127.0.0.1, and another authority."""
    made = tmp_path_factory.mktemp("tls")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    for name in ("ca", "other"):
        openssl(made, "req", "-x509", *key, "-keyout", f"{name}.key", "-out", f"{name}.crt", "-days", "2", "-subj", f"/CN={name}")
    (made / "names").write_text("subjectAltName = IP:127.0.0.1\n")
    openssl(made, "req", "-new", *key, "-keyout", "hub.key", "-out", "hub.csr", "-subj", "/CN=hub")
    sign = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names"]
    openssl(made, "x509", "-req", "-in", "hub.csr", *sign, "-out", "hub.crt")
    return made


@pytest.fixture
def hub(folder: Path) -> Iterator[Hub]:
    made = Hub("", folder / "ca.crt")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            made.asked.append(self.path)
            self.send_response(503)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(folder / "hub.crt", folder / "hub.key")
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    made.url = f"https://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield made
    server.shutdown()
    server.server_close()


def post(http: Http) -> int:
    return http.post(Call(path=REGISTER_PATH, body=b"{}", bearer="", timeout_s=5.0))[0]


def test_a_hub_whose_authority_was_named_is_spoken_to(hub: Hub) -> None:
    assert post(Http(hub.url, trust=trust_in(hub.ca))) == 503


@pytest.mark.parametrize("authority", ["none", "other"])
def test_a_hub_that_nobody_vouches_for_is_told_nothing(authority: str, hub: Hub, folder: Path) -> None:
    """It may be somebody else who would like to have the credential."""
    http = Http(hub.url, trust=trust_in(folder / "other.crt") if authority == "other" else None)

    with pytest.raises(NoAnswer, match="CERTIFICATE_VERIFY_FAILED"):
        post(http)

    assert hub.asked == []


@pytest.mark.parametrize("is_by_environment", [False, True])
def test_the_agent_takes_the_authority_as_it_was_started_with(is_by_environment: bool, hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("token")
    command = [sys.executable, "-m", "worker_agent", "--hub", hub.url, "--join-token-file", "token"]
    command += ["--simulate", str(ROOT / "deploy/fleets/demo-b.yaml")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)} | ({"EGS_HUB_CA": str(hub.ca)} if is_by_environment else {})
    agent = subprocess.Popen([*command, *([] if is_by_environment else ["--hub-ca", str(hub.ca)])], cwd=tmp_path, env=env)
    try:
        wait_for("the agent at the hub", lambda: REGISTER_PATH in hub.asked, within_s=SOON_S)
    finally:
        agent.terminate()
        agent.wait(SOON_S)


@pytest.mark.parametrize(
    ("content", "says"), [(None, "cannot be read: No such file or directory"), ("no certificate", "holds no certificates in PEM form")]
)
def test_a_file_of_authorities_that_cannot_be_used_ends_the_agent_before_it_begins(
    content: str | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ca.crt"
    if content is not None:
        file.write_text(content)

    with pytest.raises(SystemExit, match="2"):
        main(["--hub", "https://egs.example.org", "--join-token-file", "token", "--in-cluster", "--hub-ca", str(file)])

    assert f"--hub-ca: {file} {says}" in capsys.readouterr().err
