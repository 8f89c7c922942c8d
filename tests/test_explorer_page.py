"""The explorer's page in a real browser: Debian's Chromium, never a downloaded one.

To renew the picture in docs/ with a trained segmenter (its pairs are those of the built-in corpus):

    DPE_SCREENSHOT=docs/explorer.png DPE_SCREENSHOT_SEGMENTER=DIR pytest tests/test_explorer_page.py
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, expect, sync_playwright

from tests.segmenters import PAIRS, learned_vocabulary, save_segmenter

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium is installed (Debian: apt-get install chromium)"
)
ROOT = Path(__file__).parents[1]
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
SOURCE, TARGET = next(pair for pair in PAIRS if len(pair[1].split()) == 5)
HOSTILE = "<script>alert(1)</script> <img src=x onerror=alert(2)> \"'`{{1}}\\ &lt; %s"


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place, vocabulary = tmp_path_factory.mktemp("page"), learned_vocabulary()
    return [
        save_segmenter(place / "first", vocabulary),
        save_segmenter(place / "second", vocabulary, seed=2),
        save_segmenter(place / "lm", vocabulary, source=False),
        save_segmenter(place / "unigram", learned_vocabulary(type="unigram")),
    ]


@contextmanager
def served(directories: list[Path]) -> Iterator[str]:
    """The address of a page that the command serves."""
    options = [option for path in directories for option in ("--segmenter", str(path))]
    command = [sys.executable, "-m", "dpe", "explore", *options, "--port", "0", "--device", "cpu"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stderr is not None
        try:
            said = server.stderr.readline()
            match = re.search(r"http://127\.0\.0\.1:\d+/", said)
            assert match, said + server.stderr.read()
            yield match[0]
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def address(directories: list[Path]) -> Iterator[str]:
    with served(directories) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Watch:
    """What must never happen on the page: dialogs, errors, refused or foreign loads."""

    def __init__(self, page: Page, address: str) -> None:
        self.seen: list[str] = []
        page.on("dialog", self._dialog)
        page.on("pageerror", lambda error: self.seen.append(f"error: {error}"))
        page.on("console", self._console)
        page.on("request", lambda r: None if r.url.startswith(address) else self.seen.append(r.url))

    def _dialog(self, dialog: Dialog) -> None:
        self.seen.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _console(self, message: ConsoleMessage) -> None:
        # The browser notes every refused question (400, 413); the page answers those with a sentence.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.seen.append(f"console: {message.text}")


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.set_default_timeout(10_000)
    watch = Watch(page, address)
    page.goto(address)
    expect(page.locator(".lattice").first).to_be_visible()  # the first example is answered at once
    yield page
    assert watch.seen == []
    context.close()


def enter(page: Page, source: str, target: str) -> None:
    """Type a pair and wait for what comes of it."""
    page.locator("#source").fill(source)
    page.get_by_label("Target").fill(target)
    with page.expect_response("**/api/segment"):
        page.get_by_role("button", name="Segment", exact=True).click()
    expect(page.locator("#results")).to_have_attribute("aria-busy", "false")


def joined(page: Page, selector: str) -> list[str]:
    """The words in a list of cuts, each put together from its pieces."""
    return [
        "".join(word.locator(".piece").all_text_contents())
        for word in page.locator(f"{selector} .pieces").all()
    ]


def test_typed_pair_is_cut(page: Page) -> None:
    enter(page, SOURCE, TARGET)
    words = [f"▁{word}" for word in TARGET.split()]
    assert joined(page, ".gloss li > span:nth-of-type(2)") == words  # the best cut
    assert joined(page, ".gloss li > span:last-of-type") == words  # BPE below it
    expect(page.locator(".lattice")).to_have_count(len(words))
    rows = page.get_by_role("region", name="Most probable segmentations").locator("tbody tr")
    expect(rows).to_have_count(5)
    expect(page.locator("#status")).to_contain_text("5 words")
    marked = page.locator(".gloss li.differs")
    expect(page.locator("#status")).to_contain_text(f"{marked.count()} segmented differently from BPE")
    expect(page.locator(".lattice.differs")).to_have_count(marked.count())


def test_hovering_an_arc_tells_about_its_piece(page: Page) -> None:
    enter(page, SOURCE, TARGET)
    figure = page.locator(".lattice").first
    figure.scroll_into_view_if_needed()
    resting = figure.locator(".detail").inner_text()
    assert "entropy" in resting
    arc = figure.locator(".edge").filter(has=page.locator(".line.best")).first
    label = arc.get_attribute("aria-label") or ""
    piece, _, chance, score = label.split(", ")[:4]
    x, y = arc.locator(".line").evaluate(
        """line => {
             const middle = line.getPointAtLength(line.getTotalLength() / 2);
             const top = middle.matrixTransform(line.getScreenCTM());
             return [top.x, top.y];
           }"""
    )
    page.mouse.move(x, y)
    expect(figure.locator(".detail")).to_contain_text(f"{piece} (best path)")
    expect(figure.locator(".detail")).to_contain_text(f"{chance} · {score}")
    page.mouse.move(0, 0)
    expect(figure.locator(".detail")).to_have_text(re.sub(r"\s*\n\s*", "", resting))


def test_arcs_are_as_thick_as_probable_and_the_best_path_is_told_apart(page: Page) -> None:
    enter(page, SOURCE, TARGET)
    best = page.locator(".lattices .line.best").first
    other = page.locator(".lattices .line.other").first
    look = "e => [getComputedStyle(e).stroke, getComputedStyle(e).strokeDasharray]"
    (colour, dashes), (other_colour, other_dashes) = best.evaluate(look), other.evaluate(look)
    assert colour != other_colour
    assert dashes != other_dashes
    for arc in page.locator(".lattices .edge").all():
        label = arc.get_attribute("aria-label") or ""
        chance = re.search(r"probability (?:below )?([\d.]+)", label)
        assert chance is not None
        width = float(arc.locator(".line").get_attribute("stroke-width") or 0)
        least = 1.5 if "best path" in label else 1.0
        assert width == pytest.approx(least + 5.5 * float(chance[1]), abs=0.03)


def test_keyboard_goes_from_piece_to_piece(page: Page) -> None:
    enter(page, SOURCE, TARGET)
    figure = page.locator(".lattice").first
    expect(figure.locator('.edge[tabindex="0"]')).to_have_count(1)  # one stop for the whole lattice
    figure.locator('.edge[tabindex="0"]').focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "End", "Home"):
        page.keyboard.press(key)
        label = page.evaluate("document.activeElement.getAttribute('aria-label')")
        expect(figure.locator(".detail bdi")).to_have_text(label.split(", ")[0])
    page.keyboard.press("Tab")
    assert not figure.evaluate("figure => figure.contains(document.activeElement)")


def test_slider_cuts_the_source_anew(page: Page) -> None:
    enter(page, SOURCE, TARGET)
    page.get_by_label("Dropout p").select_option("0.5")
    plain = page.locator(".column .line-of-words").first.inner_text()
    page.get_by_role("slider").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(page.get_by_text("What the re-segmented source changes")).to_be_visible()
    expect(page.get_by_role("slider")).to_have_attribute("aria-valuetext", "draw 3, p = 0.5")
    line = page.locator(".column .line-of-words").first
    expect(line).not_to_have_text(plain)
    assert "".join(joined(page, ".column > div:nth-child(2) .word")) == "▁" + SOURCE.replace(" ", "▁")
    recut = line.locator(".word.differs").count()
    assert recut > 0
    expect(page.locator(".changes")).to_contain_text(
        f"{recut} of {len(SOURCE.split())} source words segmented differently"
    )
    page.keyboard.press("Home")
    expect(page.locator(".changes")).to_have_count(0)


def test_the_source_is_sampled_from_a_unigram_vocabulary(page: Page) -> None:
    enter(page, SOURCE, TARGET)
    expect(page.locator("#alpha")).to_be_disabled()
    page.get_by_label("unigram (").check()
    page.get_by_label("first (").uncheck()
    expect(page.locator("#dropout")).to_be_disabled()
    page.locator("#alpha").select_option("0.1")
    page.get_by_role("slider").focus()
    with page.expect_request(lambda asked: '"source_alpha":0.1' in (asked.post_data or "")):
        page.keyboard.press("ArrowRight")
    expect(page.get_by_role("slider")).to_have_attribute("aria-valuetext", "draw 1, alpha = 0.1")
    expect(page.get_by_text("What the re-segmented source changes")).to_be_visible()


def test_two_sources_and_two_segmenters_stand_side_by_side(page: Page) -> None:
    enter(page, SOURCE, TARGET)
    page.get_by_label("Compare with a second source").check()
    page.get_by_label("Second source B").fill("the dog was old.")
    expect(page.locator(".column")).to_have_count(2)
    page.get_by_label("second (").check()
    page.get_by_label("lm (").check()
    expect(page.locator(".column h2")).to_have_text(
        ["first, source A", "first, source B", "second, source A", "second, source B", "lm"]
    )
    expect(page.get_by_role("heading", name="Between the columns")).to_be_visible()
    page.get_by_label("first (").uncheck()
    page.get_by_label("second (").uncheck()
    expect(page.locator(".column h2")).to_have_text(["lm"])
    expect(page.get_by_role("slider")).to_be_disabled()


def test_example_is_picked(page: Page) -> None:
    page.get_by_label("Example").select_option(index=3)
    target = page.get_by_label("Target").input_value()
    expect(page.locator(".lattice")).to_have_count(len(target.split()))
    page.get_by_label("Target").fill("talo")
    expect(page.locator(".lattice")).to_have_count(1)
    expect(page.get_by_label("Example")).to_have_value("")


def test_hostile_text_is_text(page: Page) -> None:
    enter(page, HOSTILE, HOSTILE)
    words = [f"▁{word}" for word in HOSTILE.split()]
    assert joined(page, ".gloss li > span:nth-of-type(2)") == words
    assert page.locator("script").count() == 1  # the page's own
    assert page.locator("img, iframe, [onerror]").count() == 0


def test_too_long_text_is_a_sentence(page: Page) -> None:
    enter(page, SOURCE, "a" * 10_000)
    expect(page.get_by_role("alert")).to_contain_text("The target has 10,000 characters; give at most 2,000.")
    expect(page.locator(".lattice")).to_have_count(0)
    enter(page, SOURCE, "talo on")
    expect(page.get_by_role("alert")).to_be_hidden()
    expect(page.locator(".lattice")).to_have_count(2)


def test_many_words_are_drawn_a_part_at_a_time(page: Page) -> None:
    enter(page, SOURCE, "talo " * 99 + "a" * 200)
    expect(page.locator(".lattice")).to_have_count(60)
    page.get_by_role("button", name="Draw more (40 words left)").click()
    expect(page.locator(".lattice")).to_have_count(100)
    assert page.evaluate(
        "document.documentElement.scrollWidth <= innerWidth"
    )  # a long word scrolls in its box


def test_right_to_left_text_runs_to_the_left(page: Page) -> None:
    enter(page, SOURCE, "שלום عالم 👩‍👧 talo")
    expect(page.locator(".lattice")).to_have_count(4)
    boxes = [figure.bounding_box() for figure in page.locator(".gloss li.word").all()]
    places = [box["x"] for box in boxes if box is not None]
    assert places == sorted(places, reverse=True)
    letters = page.locator(".lattice").first.locator(".character")
    xs = [float(letter.get_attribute("x") or 0) for letter in letters.all()]
    assert len(xs) == 4
    assert xs == sorted(xs, reverse=True)
    latin = page.locator(".lattice").nth(3).locator(".character")
    xs = [float(letter.get_attribute("x") or 0) for letter in latin.all()]
    assert xs == sorted(xs)


def test_everything_has_a_name(page: Page) -> None:
    """Every control has a label, every table its headers."""
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('input, select, textarea, button')]
               .filter(e => !(e.labels && e.labels.length) && !e.textContent.trim()).map(e => e.id)"""
    )
    assert unnamed == []
    for table in page.locator("table").all():
        assert table.locator("thead th[scope=col]").count() > 1
        assert table.locator("tbody th[scope=row]").count() == table.locator("tbody tr").count()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_a_phone(browser: Browser, address: str, scheme: str) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(address)
    expect(page.locator(".lattice").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    ink, paper = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    brightness = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (ink, paper)]
    assert (brightness[0] < brightness[1]) == (scheme == "light")
    context.close()


def test_picture_of_the_page(browser: Browser, directories: list[Path], tmp_path: Path) -> None:
    trained = os.environ.get("DPE_SCREENSHOT_SEGMENTER")
    picture = Path(os.environ.get("DPE_SCREENSHOT") or tmp_path / "explorer.png")
    with served([Path(trained)] if trained else directories[:1]) as address:
        page = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme="light")
        page.goto(address)
        expect(page.locator(".lattice").first).to_be_visible()
        page.locator(".edge", has=page.locator(".other:not(.faint)")).first.focus()
        page.screenshot(path=picture, full_page=True)
        page.close()
    assert picture.read_bytes().startswith(b"\x89PNG")
