"""The client brings the port of a pod to this machine without kubectl."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from egs_client.kube.access import Access, ClusterRefused
from tests.client.kubelet import HOST, Kubelet, at_hand, kubelet, lab

FORBIDDEN = b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n" + b'{"kind": "Status", "message": "pods \\"nb-0\\" is forbidden"}'


def kubeconfig(certificate: Path, port: int) -> str:
    cluster = {"server": f"https://{HOST}:{port}/k8s/", "certificate-authority-data": base64.b64encode(certificate.read_bytes()).decode()}
    return yaml.safe_dump({"clusters": [{"cluster": cluster}], "users": [{"user": {"token": "of-the-cluster"}}]})


@contextmanager
def forwarded(own: Kubelet, *, find: Callable[[Access], str] = lambda _: "nb-0", said: list[str] | None = None) -> Iterator[str]:
    with at_hand(Access.of(kubeconfig(own.certificate, own.port)), "vision", find=find, said=said) as url:
        yield url


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Kubelet]:
    with lab() as target, kubelet(tmp_path, target) as made:
        yield made


def test_a_browser_here_reaches_the_pod_through_the_api_server(pod: Kubelet) -> None:
    with forwarded(pod) as url, httpx.Client(base_url=url) as browser:
        assert browser.get("/lab").content == b"/lab" * 20_000
        sent = bytes(range(256)) * 2_000
        assert browser.post("/api/contents", content=sent).content == sent

    assert set(pod.asked) == {"GET /k8s/api/v1/namespaces/vision/pods/nb-0/portforward?ports=8888 HTTP/1.1"}
    assert set(pod.said) == {"Bearer of-the-cluster"}


def test_many_connections_at_once_keep_apart(pod: Kubelet) -> None:
    async def ask(url: str) -> list[bytes]:
        async with httpx.AsyncClient(base_url=url) as browser:
            return [answer.content for answer in await asyncio.gather(*(browser.get(f"/{place}") for place in range(12)))]

    with forwarded(pod) as url:
        assert asyncio.run(ask(url)) == [f"/{place}".encode() * 20_000 for place in range(12)]


def test_what_the_api_server_refuses_is_told_here_and_in_the_browser(pod: Kubelet) -> None:
    said: list[str] = []
    pod.refusal = FORBIDDEN
    with forwarded(pod, said=said) as url:
        answers = [httpx.get(url) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [502, 502]
    assert said == ['The notebook cannot be reached now: pods "nb-0" is forbidden']
    assert "is forbidden" in answers[0].text


def test_a_notebook_without_a_pod_is_told_of_and_comes_back_with_it(pod: Kubelet) -> None:
    pods = ["", "nb-1"]
    with forwarded(pod, find=lambda _: pods.pop(0)) as url:
        assert httpx.get(url).text == "The notebook cannot be reached now: its pod does not run.\n"
        assert httpx.get(f"{url}/lab").status_code == 200

    assert "/pods/nb-1/" in pod.asked[-1]


@pytest.mark.parametrize("text", ["", "[]", "clusters: [{cluster: {server: x, certificate-authority-data: '!'}}]", "a: [", "clusters: 1"])
def test_a_kubeconfig_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(ClusterRefused, match="kubeconfig cannot be used"):
        Access.of(text)
