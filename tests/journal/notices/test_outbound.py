"""EGS can be made to send something to nobody whom only EGS could reach."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import httpcore
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from core import outbound
from core.outbound import ANSWER_MAX_BYTES, NotSent, post, url_fault
from tests.journal.notices.receivers import HttpReceiver, http_receiver

LOCAL = [ip_network("127.0.0.0/8")]


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    with http_receiver() as told:
        yield told


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records where connections would go; it makes none."""
    made: list[str] = []

    def connect(self: Any, host: str, port: int, **_: Any) -> Any:
        made.append(host)
        raise httpcore.ConnectError("test")

    monkeypatch.setattr(httpcore.SyncBackend, "connect_tcp", connect)
    return made


def name_means(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[str]:
    """The name resolves to these addresses, one after the other. Returns what was asked."""
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (answers[min(len(asked), len(answers)) - 1], port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "127.8.8.8",
            "0.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "168.63.129.16",
            "192.0.0.192",
        ),
        *("224.0.0.1", "255.255.255.255", "::1", "::", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::7f00:1", "fe80::1", "fc00::1"),
        *("fd00:ec2::254", "ff02::1", "ff0e::1", "64:ff9b::7f00:1", "2002:7f00:1::", "198.18.0.1", "192.0.2.1"),
    ],
)
def test_nothing_is_sent_to_an_address_inside_whether_it_is_written_out_or_behind_a_name(
    address: str, monkeypatch: pytest.MonkeyPatch, connections: list[str], settings: Any
) -> None:
    settings.EGS_OUTBOUND_ALLOW = []
    host = f"[{address}]" if ":" in address else address
    assert "inside this network" in url_fault(f"https://{host}/x")

    name_means(monkeypatch, address)
    with pytest.raises(NotSent, match="inside this network") as refused:
        post("https://innocent.example/", body=b"", headers={})

    assert refused.value.is_final
    assert connections == []


def test_one_bad_address_of_a_name_is_enough_to_refuse_it(monkeypatch: pytest.MonkeyPatch, connections: list[str]) -> None:
    monkeypatch.setattr(outbound, "resolve", lambda host, port: [ip_address("1.1.1.1"), ip_address("127.0.0.1")])

    with pytest.raises(NotSent, match="inside"):
        post("https://innocent.example/", body=b"", headers={})

    assert connections == []


def test_a_name_that_changes_its_answer_gains_nothing(monkeypatch: pytest.MonkeyPatch, connections: list[str]) -> None:
    asked = name_means(monkeypatch, "1.1.1.1", "127.0.0.1")

    with pytest.raises(NotSent, match="The connection failed"):
        post("https://rebinding.example/", body=b"", headers={})

    assert asked == ["rebinding.example"]
    assert connections == ["1.1.1.1"]


@pytest.mark.parametrize(
    "url",
    [
        *(
            "ftp://host.example/",
            "file:///etc/passwd",
            "https:///x",
            "https://user:pw@host.example/",
            "https://host.example/#x",
            "host.example",
        ),
        *("https://host.example/\nX: y", "https://höst.example/", "https://host.example:99999/", "https://host.example\\@127.0.0.1/", ""),
        f"https://host.example/{'x' * 500}",
    ],
)
def test_what_is_no_plain_address_is_refused(url: str) -> None:
    assert url_fault(url)


@pytest.mark.parametrize("host", ["0x7f000001", "2130706433", "127.1", "0177.0.0.1"])
def test_other_ways_to_write_loopback_lead_nowhere(host: str, connections: list[str], settings: Any) -> None:
    settings.EGS_OUTBOUND_ALLOW = []
    with pytest.raises(NotSent):
        post(f"https://{host}/", body=b"", headers={})

    assert connections == []


def test_plain_http_needs_a_network_that_is_allowed(monkeypatch: pytest.MonkeyPatch, receiver: HttpReceiver, settings: Any) -> None:
    settings.EGS_OUTBOUND_ALLOW = []
    assert url_fault("http://1.1.1.1/").startswith("EGS sends nothing without https.")
    with pytest.raises(NotSent):
        post(receiver.url, body=b"", headers={})

    settings.EGS_OUTBOUND_ALLOW = LOCAL
    assert url_fault(receiver.url) == ""
    assert post(f"{receiver.url}/x?y=1", body=b"hello", headers={"X-One": "1"}).status == 200
    assert (receiver.posts[0].path, receiver.posts[0].body) == ("/x?y=1", b"hello")
    assert receiver.posts[0].headers["Host"] == receiver.url.removeprefix("http://")


def test_a_redirect_is_not_followed_and_a_long_answer_is_not_read(receiver: HttpReceiver, settings: Any) -> None:
    settings.EGS_OUTBOUND_ALLOW = LOCAL
    receiver.answer = (302, {"Location": f"{receiver.url}/secret"}, b"")
    assert post(receiver.url, body=b"", headers={}).status == 302
    assert [each.path for each in receiver.posts] == ["/"]

    receiver.answer = (200, {}, b"x" * (ANSWER_MAX_BYTES + 1))
    with pytest.raises(NotSent, match="longer than 64 KiB"):
        post(receiver.url, body=b"", headers={})


def test_a_receiver_that_trickles_its_answer_does_not_hold_the_sender(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.EGS_OUTBOUND_ALLOW = LOCAL
    monkeypatch.setattr(outbound, "TIMEOUT_S", 0.3)
    began_s = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as server:
        peer: list[socket.socket] = []

        def trickle() -> None:
            peer.append(server.accept()[0])
            try:
                while True:
                    peer[0].send(b"H")
                    time.sleep(0.05)
            except OSError:
                pass

        threading.Thread(target=trickle, daemon=True).start()
        with pytest.raises(NotSent):
            post(f"http://127.0.0.1:{server.getsockname()[1]}/", body=b"", headers={})
        peer[0].close()

    assert time.monotonic() - began_s < 2


def certificate(name: str, folder: Path) -> Path:
    """A key and a certificate of this name, which signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key()).serial_number(1)
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = folder / f"{name}.pem"
    path.write_bytes(secret + made.sign(key, SHA256()).public_bytes(Encoding.PEM))
    return path


def test_over_tls_the_name_of_the_url_is_asked_for_and_its_certificate_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.EGS_OUTBOUND_ALLOW = LOCAL
    pem = certificate("hook.example", tmp_path)
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_side.load_cert_chain(pem)
    asked: list[str | None] = []
    server_side.sni_callback = lambda _, name, __: asked.append(name)
    monkeypatch.setattr(outbound, "_tls", lambda _: ssl.create_default_context(cafile=pem))
    monkeypatch.setattr(outbound, "resolve", lambda host, port: [ip_address("127.0.0.1")])

    with http_receiver(tls=server_side) as receiver:
        port = receiver.url.rpartition(":")[2]
        assert post(f"https://hook.example:{port}/x", body=b"", headers={}).status == 200
        with pytest.raises(NotSent, match="The connection failed"):
            post(f"https://other.example:{port}/x", body=b"", headers={})

    assert asked == ["hook.example", "other.example"]
    assert [each.headers["Host"] for each in receiver.posts] == [f"hook.example:{port}"]
