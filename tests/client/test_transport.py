"""The SDK asks again while the server is away, asks for one effect, and raises errors that say what to do."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.http import HttpRequest

from egs.api import path_not_found
from egs_client import __version__, errors
from egs_client.aio.client import AsyncClient
from egs_client.sync.client import Client
from egs_client.sync.watch import gpr_end, gpr_wait
from tests.e2e.client.hub import Egs
from tests.e2e.processes import free_port

Answer = tuple[int, dict[str, str], Any]
PROJECT: dict[str, Any] = {"id": "1", "name": "perception", "created_at": "2026-01-01T00:00:00Z", "life": "open"}
PROJECT |= {"closed_at": None, "is_drained": False, "settled_at": None, "ends_at": None, "in_league": True}
AWAY: Answer = (503, {}, {"code": "unavailable", "title": "Temporarily not available", "detail": "Later."})


class Server:
    """Answers in turn what a test has laid out, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                outer.asked.append((self.command, self.path, dict(self.headers)))
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, headers, body = outer.answers.pop(0)
                if status == 0:
                    self.close_connection = True  # it breaks before the answer
                    return
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PATCH = do_DELETE = _answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.stop()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url, "egsu_x", patience_s=5) as made:
        yield made


def test_a_creation_is_sent_again_with_the_same_key_until_an_answer_comes(server: Server, client: Client) -> None:
    server.answers = [(0, {}, b""), AWAY, (201, {}, PROJECT)]

    assert client.projects.create(name="perception").name == "perception"

    keys = {headers["Idempotency-Key"] for _, _, headers in server.asked}
    assert (len(server.asked), len(keys)) == (3, 1)


STALE: Answer = (409, {}, {"code": "stale_version", "title": "", "detail": "Somebody has changed it."})


def matched(server: Server) -> list[str | None]:
    """The If-Match of each change."""
    return [headers.get("If-Match") for verb, _, headers in server.asked if verb in {"PATCH", "DELETE"}]


def test_a_change_is_for_the_state_that_was_read_last_under_whichever_name(server: Server, client: Client) -> None:
    first, second, third = ((200, {"ETag": tag}, PROJECT) for tag in ('"1"', 'W/"2"', '"3"'))
    rows: Answer = (200, {}, {"next": None, "previous": None, "results": [PROJECT]})
    server.answers = [first, first, second, third, STALE, rows, first, first, first]

    client.projects.update("perception", ends_at=None)  # not read yet
    client.projects.get("perception")
    client.projects.update("1", ends_at=None)
    client.projects.update("perception", ends_at=None)
    with pytest.raises(errors.StaleVersion):
        client.projects.update("perception", ends_at=None)
    client.projects.list().all()  # shows another state, perhaps
    client.projects.update("perception", ends_at=None)
    client.projects.update("perception", ends_at=None, if_match="*")
    client.projects.update("perception", ends_at=None, if_match='"own"')

    assert matched(server) == [None, '"1"', '"2"', '"3"', None, "*", '"own"']


def test_a_change_whose_answer_was_lost_is_not_told_as_another_s(server: Server, client: Client) -> None:
    server.answers = [(200, {"ETag": '"1"'}, PROJECT), (0, {}, b""), STALE]
    client.projects.get("perception")

    with pytest.raises(errors.AnswerLost, match="perhaps by this very change"):
        client.projects.update("perception", ends_at=None)


@pytest.mark.parametrize("error", [errors.WrongState, errors.StaleVersion])
def test_a_request_that_starts_while_it_is_being_canceled_is_released(error: type[errors.Problem]) -> None:
    """The server's answer when its own reading of the request is overtaken, which no test can order there."""
    states = iter(["QUEUED", "PROVISIONING"])
    ended: Any = SimpleNamespace(state="EXITING")

    def delete(id: str, *, if_match: str) -> None:
        raise error(status=409, code="", title="", detail="")

    gprs = SimpleNamespace(get=lambda id: SimpleNamespace(state=next(states)), delete=delete, release=lambda id: ended)

    assert gpr_end(SimpleNamespace(gprs=gprs), "1") is ended  # type: ignore[arg-type]


def test_it_waits_as_long_as_retry_after_says(server: Server, client: Client) -> None:
    pauses: list[float] = []
    client.on_pause = lambda pause_s, cause: pauses.append(pause_s)
    server.answers = [(429, {"Retry-After": "1"}, {"code": "throttled", "title": "", "detail": ""}), (200, {}, PROJECT)]

    client.projects.get("perception")

    assert pauses == [1.0]


def test_a_full_queue_is_an_error_at_once(server: Server, client: Client) -> None:
    server.answers = [(429, {}, {"code": "queue_full", "title": "Full", "detail": "Cancel one.", "queued_max": 100})]

    with pytest.raises(errors.QueueFull, match="Cancel one") as caught:
        client.projects.get("perception")

    assert (caught.value.code, caught.value.extra) == ("queue_full", {"queued_max": 100})


def test_a_repeated_deletion_takes_what_is_gone_for_done(server: Server, client: Client) -> None:
    server.answers = [(0, {}, b""), (404, {}, {"code": "not_found", "title": "Not found", "detail": "There is no such token."})]

    client.tokens.delete("laptop")

    assert not server.answers


# The hub answers this to an unknown address of the API.
NO_PATH = json.loads(path_not_found(HttpRequest(), "robots/").content)["detail"]


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ((401, {}, {"code": "not_authenticated", "title": "", "detail": "Sign in."}), errors.NotSignedIn, "Sign in"),
        ((400, {}, {"code": "invalid_input", "title": "", "detail": "x", "errors": {"name": ["No."]}}), errors.InvalidInput, "x"),
        ((409, {}, {"code": "stale_version", "title": "", "detail": "Changed."}), errors.StaleVersion, "Changed"),
        ((500, {}, {"code": "internal", "title": "", "detail": "Ours."}), errors.ServerFault, "Ours"),
        ((200, {}, b"<html>"), errors.UnexpectedAnswer, "right address"),
        ((404, {}, b"<html>"), errors.UnexpectedAnswer, "right address"),
        ((302, {"Location": "https://egs.example"}, b""), errors.UnexpectedAnswer, "https://egs.example"),
        ((200, {"EGS-Version": "0.9"}, {"id": "1"}), errors.UnexpectedAnswer, "version 0.9"),
        ((404, {}, {"code": "not_found", "title": "", "detail": NO_PATH}), errors.UnknownOperation, "install"),
    ],
)
def test_each_refusal_has_its_own_error_that_says_what_to_do(
    server: Server, client: Client, answer: Answer, kind: type[Exception], words: str
) -> None:
    server.answers = [answer]

    with pytest.raises(kind, match=words):
        client.projects.get("perception")


@pytest.mark.parametrize(
    ("version", "answer"),
    [
        ("0.0.9", (404, {"code": "not_found", "title": "", "detail": NO_PATH})),
        ("9.0", (200, {"next": None, "previous": None, "results": [{"id": "1"}]})),
    ],
)
def test_the_command_tells_an_older_or_newer_server_and_exits_with_a_code_of_its_own(
    version: str, answer: tuple[int, Any], server: Server, tmp_path: Path
) -> None:
    server.answers = [(answer[0], {"EGS-Version": version}, answer[1])]

    told = Egs(tmp_path, {"EGS_URL": server.url, "EGS_TOKEN": "egsu_x"}).run("gpr", "list", code=12)

    assert f"It has version {version}, this client {__version__}: install the client that belongs to it." in told


def test_what_a_newer_server_says_besides_is_left_alone(server: Server, client: Client) -> None:
    server.answers = [(200, {}, {**PROJECT, "color": "blue"})]

    assert client.projects.get("perception").name == "perception"


def test_a_list_goes_on_from_page_to_page_whatever_address_the_server_thinks_it_has(server: Server, client: Client) -> None:
    second = {**PROJECT, "name": "foundation"}
    server.answers = [
        (200, {}, {"next": "http://inner:8000/api/v1/projects/?cursor=a%3D%3D&page_size=1", "previous": None, "results": [PROJECT]}),
        (200, {}, {"next": None, "previous": None, "results": [second]}),
    ]

    assert [project.name for project in client.projects.list(page_size=1)] == ["perception", "foundation"]
    assert server.asked[1][1] == "/api/v1/projects/?page_size=1&cursor=a%3D%3D"


ROWS = {"next": None, "previous": None, "results": [PROJECT]}
NO_ROOM: Answer = (429, {}, {"code": "too_many_held", "title": "", "detail": "Ask without wait_s."})
UNKNOWN: Answer = (400, {}, {"code": "invalid_input", "title": "", "detail": "", "errors": {"wait_s": ["There is no such filter here."]}})


def test_it_lets_the_server_hold_a_call_until_there_is_something_new(server: Server, client: Client) -> None:
    server.answers = [(200, {"ETag": '"1"'}, ROWS), (304, {"ETag": '"1"'}, b""), (200, {"ETag": '"2"'}, ROWS)]
    news, etag = client.projects.list(page_size=5), ""

    answers = []
    for _ in range(3):
        rows, etag = news.news(etag, wait_s=20)
        answers.append(rows and [row.name for row in rows])

    assert (answers, etag) == ([["perception"], None, ["perception"]], '"2"')
    asked = [(path.partition("?")[2], headers.get("If-None-Match")) for _, path, headers in server.asked]
    assert asked == [("page_size=5", None), *[("page_size=5&wait_s=15", '"1"')] * 2], "half of its patience with an answer"


@pytest.mark.parametrize("refusal", [NO_ROOM, UNKNOWN])
def test_it_asks_again_and_again_where_the_server_holds_no_call(refusal: Answer, server: Server, client: Client) -> None:
    """It has no room, or it is an older one, or was replaced by one."""
    server.answers = [(200, {}, ROWS), (200, {"ETag": '"1"'}, ROWS), refusal, (200, {"ETag": '"1"'}, ROWS)]
    etag = ""

    for _ in range(3):
        rows, etag = client.projects.list().news(etag, wait_s=20)
        assert rows

    assert (etag, [path.partition("?")[2] for _, path, _ in server.asked]) == ("", ["", "", "wait_s=15", ""])


@pytest.mark.parametrize(
    "follow", [lambda client: next(client.watch_gpr("1")), lambda client: gpr_wait(client, "1")], ids=["watch", "wait"]
)
def test_who_follows_a_request_reads_its_newest_events_alone(follow: Callable[[Client], object], server: Server, client: Client) -> None:
    gone: Answer = (404, {}, {"code": "not_found", "title": "", "detail": "It is gone."})
    server.answers = [(200, {"ETag": '"1"'}, {"next": "http://inner/?cursor=a", "previous": None, "results": []}), gone]

    with pytest.raises(errors.NotFound):
        follow(client)

    assert [path.partition("?")[0] for _, path, _ in server.asked] == ["/api/v1/events/", "/api/v1/gprs/1/"]


async def test_the_async_half_does_the_same(server: Server) -> None:
    server.answers = [AWAY, (200, {}, {"next": None, "previous": None, "results": [PROJECT]})]

    async with AsyncClient(server.url, "egsu_x") as client:
        assert [project.name async for project in client.projects.list()] == ["perception"]


def test_a_server_that_is_away_is_told_with_its_address() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with Client(url, "egsu_x", patience_s=0.1) as client, pytest.raises(errors.Unreachable, match=url):
        client.me.get()


@pytest.mark.parametrize(
    ("url", "is_told"), [("http://egs.example.com", True), ("https://egs.example.com", False), ("http://localhost:8000", False)]
)
def test_a_token_that_goes_over_a_network_without_tls_is_told_of(url: str, is_told: bool, caplog: pytest.LogCaptureFixture) -> None:
    with Client(url, "egsu_secret"):
        pass

    assert ("has no TLS, so others can read your token" in caplog.text) is is_told
    assert "egsu_secret" not in caplog.text
