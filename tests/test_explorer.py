"""The explorer's answers, against brute force over the edges it shows, and its refusals."""

from __future__ import annotations

import itertools
import json
import math
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from dpe import Segmenter, UserError
from dpe.commands.explore import address, listen, names_of
from dpe.explorer.answers import Explorer
from dpe.explorer.messages import LARGEST_N_BEST, LONGEST_TEXT
from dpe.explorer.server import LONGEST_REQUEST, is_own_name, make_app
from dpe.segmenter.scored_edges import MOST_OTHERS
from dpe.text.bpe import BpeDropout
from dpe.text.corpus import Pair
from dpe.text.draws import Draw
from dpe.text.unigram import Unigram
from tests.segmenters import PAIRS, learned_vocabulary, save_segmenter

ROOT = Path(__file__).parents[1]
SOURCE, TARGET = PAIRS[0]
EXAMPLES = [Pair(*pair) for pair in PAIRS[:2]]
Json = dict[str, Any]


@pytest.fixture(scope="module")
def segmenters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Segmenter]:
    place, vocabulary = tmp_path_factory.mktemp("explorer"), learned_vocabulary()
    return {
        "first": Segmenter.load(save_segmenter(place / "first", vocabulary)),
        "second": Segmenter.load(save_segmenter(place / "second", vocabulary, seed=2)),
        "lm": Segmenter.load(save_segmenter(place / "lm", vocabulary, source=False)),
        "unigram": Segmenter.load(save_segmenter(place / "unigram", learned_vocabulary(type="unigram"))),
    }


@pytest.fixture(scope="module")
def client(segmenters: dict[str, Segmenter]) -> TestClient:
    return TestClient(make_app(Explorer(segmenters, EXAMPLES)), base_url="http://127.0.0.1:8000")


def ask(client: TestClient, **question: Any) -> Json:
    response = client.post("/api/segment", json={"source": SOURCE, "target": TARGET} | question)
    assert response.status_code == 200, response.text
    answer: Json = response.json()
    return answer


def cuts_of(word: Json) -> Iterator[tuple[Json, ...]]:
    """Every way through a word's lattice, as its edges."""

    def walk(position: int) -> Iterator[tuple[Json, ...]]:
        if position == len(word["word"]):
            yield ()
        for edge in word["edges"]:
            if edge["start"] == position:
                for rest in walk(edge["end"]):
                    yield (edge, *rest)

    return walk(0)


def score_of(cut: tuple[Json, ...]) -> float:
    return sum(edge["score"] for edge in cut)


def short_words(answer: Json) -> list[Json]:
    found = [word for word in answer["words"] if len(word["word"]) <= 12]
    assert found
    return found


def test_edge_and_boundary_probabilities_are_those_of_all_cuts(client: TestClient) -> None:
    for word in short_words(ask(client)):
        cuts = list(cuts_of(word))
        total = math.fsum(math.exp(score_of(cut)) for cut in cuts)
        for edge in word["edges"]:
            weight = math.fsum(math.exp(score_of(cut)) for cut in cuts if edge in cut)
            assert edge["probability"] == pytest.approx(weight / total, abs=1e-9)
            assert edge["piece"] == word["word"][edge["start"] : edge["end"]]
        for position, boundary in enumerate(word["boundaries"], start=1):
            ending = (edge["probability"] for edge in word["edges"] if edge["end"] == position)
            assert boundary == pytest.approx(math.fsum(ending), abs=1e-9)
        shares = [math.exp(score_of(cut)) / total for cut in cuts]
        assert word["entropy"] == pytest.approx(-math.fsum(p * math.log(p) for p in shares if p), abs=1e-7)


def test_best_path_is_the_best_of_all_cuts(client: TestClient) -> None:
    for word in short_words(ask(client)):
        cuts = list(cuts_of(word))
        best = max(cuts, key=score_of)
        assert tuple(edge for edge in word["edges"] if edge["on_best_path"]) == best
        assert word["best"] == [edge["piece"] for edge in best]
        total = math.fsum(math.exp(score_of(cut)) for cut in cuts)
        assert word["best_probability"] == pytest.approx(math.exp(score_of(best)) / total)


def test_n_best_are_the_best_of_all_sentence_cuts(client: TestClient) -> None:
    answer = ask(client, target="talo on", n_best=LARGEST_N_BEST)
    ways = list(itertools.product(*map(cuts_of, answer["words"])))
    scores = sorted((sum(map(score_of, way)) for way in ways), reverse=True)
    listed = answer["n_best"]
    assert len(listed) == min(LARGEST_N_BEST, len(ways))
    total = math.fsum(map(math.exp, scores))
    for cut, score in zip(listed, scores, strict=False):
        assert cut["probability"] == pytest.approx(math.exp(score) / total)
        assert "".join(itertools.chain(*cut["words"])) == answer["normalized"]


def test_agrees_with_the_segmenter(client: TestClient, segmenters: dict[str, Segmenter]) -> None:
    for name in ("first", "second"):
        answer = ask(client, segmenter=name)
        best = segmenters[name].best(SOURCE, TARGET)
        assert tuple(itertools.chain(*answer["n_best"][0]["words"])) == best.pieces
        assert answer["n_best"][0]["score"] == pytest.approx(best.score, abs=1e-4)
        assert answer["log_probability"] == pytest.approx(best.log_partition, abs=1e-4)
        posterior = segmenters[name].posterior(SOURCE, TARGET)
        assert answer["entropy"] == pytest.approx(posterior.entropy, abs=1e-4)


def test_own_cut_beside_it(client: TestClient, segmenters: dict[str, Segmenter]) -> None:
    answer = ask(client)
    own = [word["own_cut"] for word in answer["words"]]
    assert list(itertools.chain(*own)) == segmenters["first"].vocabulary.encode(TARGET)
    assert answer["own_cut_method"] == "BPE"
    for word in answer["words"]:
        assert word["differs"] == (word["best"] != word["own_cut"])


def test_source_is_cut_by_the_draw_asked_for(client: TestClient, segmenters: dict[str, Segmenter]) -> None:
    plain = ask(client)["source_words"]
    assert list(itertools.chain(*plain)) == segmenters["first"].vocabulary.encode(SOURCE)
    dropout = BpeDropout(segmenters["first"].vocabulary, dropout=0.5)
    drawn = [ask(client, source_dropout=0.5, draw=draw)["source_words"] for draw in (1, 2)]
    for draw, words in zip((1, 2), drawn, strict=True):
        assert list(itertools.chain(*words)) == dropout.cut(SOURCE, Draw(epoch=draw))
    assert drawn[0] != drawn[1] != plain


def test_over_a_unigram_vocabulary_the_source_is_sampled(
    client: TestClient, segmenters: dict[str, Segmenter]
) -> None:
    vocabulary = segmenters["unigram"].vocabulary
    plain = ask(client, segmenter="unigram")
    assert list(itertools.chain(*plain["source_words"])) == vocabulary.encode(SOURCE)
    assert plain["own_cut_method"] == "unigram"
    own = [word["own_cut"] for word in plain["words"]]
    assert list(itertools.chain(*own)) == vocabulary.encode(TARGET)
    for draw in (1, 2):
        answer = ask(client, segmenter="unigram", source_alpha=0.3, draw=draw)
        sampled = Unigram(vocabulary, alpha=0.3).cut(SOURCE, Draw(epoch=draw))
        assert list(itertools.chain(*answer["source_words"])) == sampled != vocabulary.encode(SOURCE)
        assert (answer["source_alpha"], answer["draw"]) == (0.3, draw)


def test_segmenter_without_a_source(client: TestClient) -> None:
    answer = ask(client, segmenter="lm", source=None)
    assert answer["source_words"] is None
    assert "".join(word["word"] for word in answer["words"]) == answer["normalized"]


def test_unknown_text_is_shown_as_it_is(client: TestClient) -> None:
    answer = ask(client, target="talo 👩‍👧 שלום <b>")
    assert answer["unknown_characters"] > 0
    assert "".join(itertools.chain(*answer["n_best"][0]["words"])) == "▁talo▁👩‍👧▁שלום▁<b>"
    unknown = [edge for word in answer["words"] for edge in word["edges"] if edge["unknown"]]
    assert {edge["piece"] for edge in unknown} >= set("👩👧שלום")


@pytest.mark.parametrize("target", ["talossa" * 285, "a" * LONGEST_TEXT, "talo on " * 249])
def test_longest_text_stays_bounded(
    client: TestClient, segmenters: dict[str, Segmenter], target: str
) -> None:
    answer = ask(client, target=target, n_best=LARGEST_N_BEST)
    others = [edge for word in answer["words"] for edge in word["edges"] if not edge["on_best_path"]]
    left_out = sum(word["edges_left_out"] for word in answer["words"])
    assert len(others) == MOST_OTHERS if left_out else len(others) <= MOST_OTHERS
    for word in answer["words"]:
        path = [edge for edge in word["edges"] if edge["on_best_path"]]
        assert "".join(edge["piece"] for edge in path) == word["word"]
    ids = segmenters["first"].vocabulary.ids
    text, longest = answer["words"][0]["word"], max(map(len, ids))
    matching = sum(
        text[start:end] in ids
        for start in range(len(text))
        for end in range(start + 1, min(start + longest, len(text)) + 1)
    )
    assert len(answer["words"][0]["edges"]) + answer["words"][0]["edges_left_out"] == matching


MISTAKES: list[tuple[Json, int, str]] = [
    ({"target": ""}, 400, "The target is empty"),
    ({"target": "  "}, 400, "The target is empty"),
    ({"source": " "}, 400, "The source is empty"),
    ({"target": "a" * (LONGEST_TEXT + 1)}, 413, "The target has 2,001 characters; give at most 2,000."),
    ({"source": "a" * 10_000}, 413, "The source has 10,000 characters"),
    ({"target": "\ufdfa" * 1_500}, 413, "The normalised target has"),  # NFKC makes 18 characters of one
    ({"target": "one\ntwo"}, 400, "line break"),
    ({"target": "a" * LONGEST_REQUEST}, 413, "bytes; give shorter texts"),
    ({"source": None}, 400, "trained with a source"),
    ({"segmenter": "lm"}, 400, "trained without a source; give none"),
    ({"segmenter": "other"}, 400, "There is no segmenter 'other'; choose one of first, second, lm, unigram."),
    ({"n_best": LARGEST_N_BEST + 1}, 400, "n_best: Input should be less than or equal to 20."),
    ({"n_best": 0}, 400, "n_best"),
    ({"source_dropout": 1.5}, 400, "source_dropout"),
    ({"source_alpha": -0.1}, 400, "source_alpha"),
    ({"source_alpha": 0.1}, 400, "source_alpha samples from a unigram vocabulary"),
    ({"segmenter": "unigram", "source_dropout": 0.1}, 400, "source_dropout needs a bpe vocabulary"),
    ({"draw": -1}, 400, "draw"),
    ({"target": 7}, 400, "target: Input should be a valid string."),
    ({"target": "\ud800"}, 400, "contains half of a surrogate pair"),
    ({"colour": "red"}, 400, "colour"),
]


@pytest.mark.parametrize(("change", "status", "says"), MISTAKES, ids=[m[2][:30] for m in MISTAKES])
def test_mistakes_are_answered_in_one_sentence(
    client: TestClient, change: Json, status: int, says: str
) -> None:
    import json

    body = json.dumps({"source": SOURCE, "target": TARGET} | change)  # escapes the lone surrogate
    response = client.post("/api/segment", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == status
    assert list(response.json()) == ["error"]
    assert says in response.json()["error"]
    assert "\n" not in response.json()["error"]


def test_only_json_is_read(client: TestClient) -> None:
    """What a form or a script of another site may send without being asked back is refused."""
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        response = client.post("/api/segment", content=b'{"target": "a"}', headers={"Content-Type": kind})
        assert response.status_code == 400
    assert client.post("/api/segment", content=b"{").status_code == 400
    assert client.post("/api/segment", content=iter([b"{}"])).status_code == 411  # sent without its length


def test_no_other_site_may_read_the_answers(client: TestClient) -> None:
    headers = {"Origin": "http://other.example", "Access-Control-Request-Method": "POST"}
    response = client.options("/api/segment", headers=headers)
    assert response.status_code == 405
    response = client.get("/api/setup", headers=headers)
    assert not [name for name in response.headers if name.startswith("access-control")]


@pytest.mark.parametrize("path", ["/", "/static/explorer.js", "/api/setup", "/openapi.json", "/none"])
def test_every_answer_has_the_security_headers(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("host", "own", "welcome"),
    [
        ("127.0.0.1:8000", "127.0.0.1", True),
        ("localhost:8000", "127.0.0.1", True),
        ("LOCALHOST", "127.0.0.1", True),
        ("[::1]:8000", "::1", True),
        ("192.168.1.7:8000", "0.0.0.0", True),
        ("my-machine:8000", "my-machine", True),
        ("evil.example", "127.0.0.1", False),
        ("127.0.0.1.evil.example:8000", "127.0.0.1", False),
        ("[evil]:8000", "127.0.0.1", False),
        ("", "127.0.0.1", False),
    ],
)
def test_host_has_to_be_this_machine(host: str, own: str, welcome: bool) -> None:
    assert is_own_name(host, own) is welcome


def test_foreign_host_is_refused(client: TestClient) -> None:
    response = client.get("/api/setup", headers={"Host": "evil.example"})
    assert response.status_code == 400
    assert response.json() == {"error": "This page answers at localhost and at its --host, not at this name."}


def test_schema_describes_question_and_answer(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    operation = schema["paths"]["/api/segment"]["post"]
    body = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    assert body.endswith("/Question")
    assert {"200", "400", "413"} <= set(operation["responses"])
    shown = schema["components"]["schemas"]
    assert set(shown["Edge"]["properties"]) == set(ask(client)["words"][0]["edges"][0])
    assert set(shown["Answer"]["properties"]) == set(ask(client))


def test_page_loads_nothing_from_the_network(client: TestClient) -> None:
    for path in (ROOT / "dpe" / "explorer" / "static").iterdir():
        text = client.get(f"/static/{path.name}").text.replace("http://www.w3.org/2000/svg", "")
        assert "http" not in text.replace("http-equiv", ""), path.name
        assert "innerHTML" not in text, path.name
    assert client.get("/docs").status_code == 404  # FastAPI's own would load scripts


def test_setup_tells_what_there_is(client: TestClient, segmenters: dict[str, Segmenter]) -> None:
    setup = client.get("/api/setup").json()
    assert [info["name"] for info in setup["segmenters"]] == list(segmenters)
    assert [info["has_source"] for info in setup["segmenters"]] == [True, True, False, True]
    assert [info["can_drop"] for info in setup["segmenters"]] == [True, True, False, False]
    assert [info["can_sample"] for info in setup["segmenters"]] == [False, False, False, True]
    assert [(e["source"], e["target"]) for e in setup["examples"]] == PAIRS[:2]


def test_explorer_needs_a_segmenter() -> None:
    with pytest.raises(UserError, match="No segmenter"):
        Explorer({})


def test_names_are_short_where_they_can_be() -> None:
    assert names_of([Path("runs/a/segmenter")]) == ["segmenter"]
    assert names_of([Path("runs/a"), Path("other/b")]) == ["a", "b"]
    assert names_of([Path("a/s"), Path("b/s")]) == ["a/s", "b/s"]
    with pytest.raises(UserError, match="given twice"):
        names_of([Path("a/s"), Path("a/s")])


def test_taken_port_is_a_sentence() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert address(listener) == f"http://127.0.0.1:{port}/"
        with pytest.raises(UserError, match=rf"port {port}: .* choose another --port"):
            listen("127.0.0.1", port)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_numbers_of_the_new_kind_are_written_as_browsers_read_them() -> None:
    try:
        listener = listen("::1", 0)
    except UserError as error:
        pytest.skip(str(error))
    with listener:
        assert address(listener).startswith("http://[::1]:")


def test_missing_extra_is_one_sentence(tmp_path: Path) -> None:
    code = "raise ModuleNotFoundError(\"No module named 'fastapi'\", name='fastapi')"
    (tmp_path / "fastapi.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "dpe", "explore", "--segmenter", "nowhere"],
        capture_output=True, text=True, check=False, cwd=ROOT,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": ""},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "dpe: The explorer needs its extra packages: pip install '.[explore]'\n"


def test_the_command_serves_and_ends_with_code_0(tmp_path: Path) -> None:
    directory = save_segmenter(tmp_path / "lm", learned_vocabulary(), source=False)
    command = [sys.executable, "-m", "dpe", "explore", "--segmenter", directory, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stderr
        try:
            found = re.search(r"http://127\.0\.0\.1:\d+/", server.stderr.readline())
            assert found
            with urllib.request.urlopen(found[0] + "api/setup") as answer:
                assert json.load(answer)["segmenters"][0]["name"] == "lm"
            server.send_signal(signal.SIGINT)
            assert server.wait(timeout=240) == 0
            assert server.stderr.read() == ""
        finally:
            server.kill()
