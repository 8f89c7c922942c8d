"""The report of a run: one page, whole, harmless and self-contained, whatever the run has and lacks."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from dpe.cli import run as command
from dpe.evaluation.html_page import (
    Arc,
    ExampleCuts,
    Section,
    WordArcs,
    block,
    figure,
    words_of,
    write_report,
)
from dpe.evaluation.plots import TrainingCurve, draw_training_curves, to_svg
from dpe.evaluation.tables import Table
from dpe.experiment.artifacts import Artifacts
from dpe.experiment.recipe import read_recipe, recipe_json, recipe_toml
from dpe.experiment.run import in_order, run_stages
from dpe.experiment.stages import Experiment
from dpe.progress import QUIET, Progress
from dpe.text.corpus import read_lines, write_lines
from dpe.text.learning import VocabularySettings, learn_vocabulary
from dpe.text.vocabulary import Vocabulary
from dpe.training.processes import Session

ROOT = Path(__file__).parents[1]
VOID = {"meta", "br"}
HOSTILE = "<script>alert(\"1\")</script> & <img src=x onerror='go()'>"
RECIPE = """
name = "small"
about = "Says \\"so\\" & <b>more</b>."
source = "en"
target = "fi"
systems = ["bpe", "dpe"]
seeds = [1, 2]
[corpus]
builtin_pairs = 60
[vocabulary]
size = 120
[segmenter]
preset = "tiny"
width = 8
heads = 1
feed_forward = 8
encoder_layers = 1
decoder_layers = 1
epochs = 1
"""


class Page(HTMLParser):
    """Reads a page, and fails where an element is not closed in its turn."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.captions: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.open and self.open[-1] == "caption":
            self.captions.append(data)

    def values(self, name: str) -> list[str]:
        return [value or "" for key, value in self.attributes if key == name]


def read_page(path: Path) -> Page:
    """A page that is harmless, asks for nothing and whose links all lead somewhere inside it."""
    html = path.read_text(encoding="utf-8")
    page = Page(html)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & set(page.tags)
    assert not [key for key, _ in page.attributes if key in ("src", "srcset") or key.startswith("on")]
    ids = page.values("id")
    assert len(set(ids)) == len(ids)
    used = [f"#{target}" for target in re.findall(r"url\((.*?)\)", html)]
    links = page.values("href") + page.values("xlink:href") + [one.replace("##", "#") for one in used]
    assert links
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    return page


def write_page(path: Path, *blocks: Any) -> Page:
    write_report(path, "title", "lead", [Section("one", blocks)])
    return read_page(path)


def record(root: Path, stage: str, *, facts: Any = None) -> Path:
    """The record of a finished stage that was made from nothing."""
    directory = root / stage
    directory.mkdir(parents=True)
    found = {"stage": stage, "signature": f"sign-{stage}", "settings": {}, "needs": {}, "files": {}}
    found |= {"facts": facts or {}, "seconds": 1.5, "finished": True}
    (directory / "artifact.json").write_text(json.dumps(found))
    return directory


def begun_run(root: Path) -> Path:
    """A directory with a recipe only."""
    file = root.parent / "small.toml"
    file.write_text(RECIPE)
    root.mkdir()
    (root / "recipe.json").write_text(json.dumps(recipe_json(read_recipe(file))))
    return root


def scores(bleu: float) -> dict[str, Any]:
    signatures = {"bleu_signature": "nrefs:1|case:mixed", "chrf_signature": "nrefs:1|nc:6"}
    lengths = {"length_ratio": 0.9, "brevity_penalty": 0.8}
    by_length = [{"shortest": 1, "longest": 10, "lines": 2, "bleu": bleu + 0.25}]
    text = {"bleu": bleu, "chrf": bleu + 20, **signatures, **lengths, "by_length": by_length}
    return {"dev": text, "test": text}


def written_run(root: Path) -> Path:
    """All parts but the models, written down here; the source and a recipe's title are hostile."""
    begun_run(root)
    corpus = record(root, "corpus")
    write_lines(corpus / "test.en", [HOSTILE, "the cars"])
    write_lines(corpus / "test.fi", ["taloissa <b>", "autot"])
    write_lines(corpus / "train.fi", ["taloissa autot autot"])
    learned = learn_vocabulary(["taloissa <b>", "autot"] * 9, VocabularySettings(size=20))
    learned.save(record(root, "vocabularies/bpe") / "vocab.model")
    write_lines(record(root, "segmentations/bpe") / "test.pieces", ["▁tal ois sa ▁ <b>", "▁auto t"])
    write_lines(record(root, "segmentations/mixed") / "test.pieces", ["▁talo i ssa ▁<b>", "▁auto t"])
    for system, seed, bleu in (("bpe", 1, 30.0), ("bpe", 2, 32.0), ("dpe", 1, 36.0)):
        record(root, f"scores/{system}/seed-{seed}", facts=scores(bleu))
        directory = record(root, f"translators/{system}/seed-{seed}")
        curve = [{"step": step, "dev_bits": 9.0 - step, "dev_bleu": 3.0 * step} for step in (1, 2)]
        (directory / "training.jsonl").write_text("\n".join(map(json.dumps, curve)) + "\n")
    test = {"metric": "BLEU", "difference": 6.0, "p_value": 0.0123, "signature": "n:1000"}
    record(root, "significance/dpe/bpe/seed-1", facts={"tests": [test, {**test, "metric": "chrF2"}]})
    return root


def made_report(root: Path, out: Path) -> Page:
    assert command(["--quiet", "report", str(root), "--out", str(out)]) == 0
    return read_page(out)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Page:
    directory = tmp_path_factory.mktemp("written")
    return made_report(written_run(directory / "run"), directory / "page.html")


def test_results_have_means_tests_and_signatures(written: Page) -> None:
    assert {"BLEU", "chrF2", "Paired bootstrap on test", "Every seed"} <= set(written.captions)
    assert "31.00 ± 1.41" in written.text  # of 30 and 32
    assert "+5.00" in written.text
    assert "+5.00*" not in written.text  # what was tested is the +6.00 of the first seeds
    assert "0.0123" in written.text
    assert "BLEU: nrefs:1|case:mixed" in written.text
    assert "sign-scores/dpe/seed-1" in written.text


def test_lengths_are_means_of_the_seeds(written: Page) -> None:
    assert {"Lengths of the translations of test", "en→fi: BLEU on test by length"} <= set(written.captions)
    assert "31.25" in written.text  # of 30.25 and 32.25


def test_a_run_scored_by_an_earlier_version_lacks_its_lengths(tmp_path: Path) -> None:
    begun_run(tmp_path / "run")
    facts = {
        text: {key: found[key] for key in found if key != "by_length"} for text, found in scores(3).items()
    }
    record(tmp_path / "run", "scores/bpe/seed-1", facts=facts)
    assert "made by an earlier dpe" in made_report(tmp_path / "run", tmp_path / "page.html").text


def test_every_figure_is_there(written: Page) -> None:
    figures = (
        "translators",
        "dev-bleu",
        "disagreement-DPE",
        "piece-lengths-DPE",
        "line-lengths-DPE",
        "lengths",
    )
    starts = tuple(f"{name}-figure_1" for name in figures)
    assert set(starts) <= set(written.values("id"))
    assert written.tags.count("figcaption") == written.tags.count("figure") >= len(figures)


def test_what_the_run_lacks_is_said(written: Page) -> None:
    assert "Not scored yet: BPE dropout / DPE seed 2;" in written.text
    assert "No segmenter has finished training yet." in written.text


def test_hostile_text_is_shown_and_does_nothing(written: Page) -> None:
    assert HOSTILE in written.text  # as text: `read_page` found no such element
    assert 'Says "so" & <b>more</b>.' in written.text
    assert "onerror" not in [key for key, _ in written.attributes]


def test_hostile_names_are_shown_and_do_nothing(tmp_path: Path) -> None:
    root = written_run(tmp_path / "run")
    recipe = json.loads((root / "recipe.json").read_text())
    first = {"name": recipe["systems"][0], "title": HOSTILE, "source": "bpe", "target": "bpe"}
    recipe["name"], recipe["systems"][0] = HOSTILE, first
    (root / "recipe.json").write_text(json.dumps(recipe))
    page = made_report(root, tmp_path / "page.html")
    assert page.text.count(f"{HOSTILE}: en→fi") == 2  # title and heading
    assert f"Save the recipe below as {HOSTILE}.toml" in page.text
    assert page.text.count(HOSTILE) > 10  # in the tables of every section with systems


HOSTILE_BLOCKS = {
    "paragraph": lambda: block("paragraph", f"{HOSTILE}\n{HOSTILE}"),
    "missing": lambda: block("missing", HOSTILE),
    "preformatted": lambda: block("preformatted", HOSTILE),
    "table": lambda: block("tables", [Table(HOSTILE, [HOSTILE], [[HOSTILE]], frozenset({HOSTILE}), HOSTILE)]),
    "examples": lambda: block("examples", [ExampleCuts(HOSTILE, {HOSTILE: ["▁" + HOSTILE], "b": [HOSTILE]})]),
    "lattice": lambda: block("lattices", [WordArcs(HOSTILE, [Arc(0, len(HOSTILE), 1.0, True)])], HOSTILE),
    "figure": lambda: figure(
        draw_training_curves([TrainingCurve(HOSTILE, [(1, 2.0)], 0)], ylabel=HOSTILE),
        name="own",
        caption=HOSTILE,
    ),
}


@pytest.mark.parametrize("kind", HOSTILE_BLOCKS)
def test_every_block_escapes_what_it_is_given(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_report(path, HOSTILE, HOSTILE, [Section(HOSTILE, [HOSTILE_BLOCKS[kind]()])])
    page = read_page(path)
    assert (
        page.text.count(HOSTILE) > 5
    )  # the page's own title, heading, lead, link and section, and the block's


def test_only_words_that_differ_are_marked(tmp_path: Path) -> None:
    cuts = {"A": ["▁tal", "ossa", "▁on", "▁", "auto"], "B": ["▁talo", "ssa", "▁on", "▁auto"]}
    examples = block("examples", [ExampleCuts("the house", cuts)])
    marked = re.findall("<mark>(.*?)</mark>", examples)
    assert [re.sub("<.*?>", "", one) for one in marked] == ["tal+ossa", "talo+ssa"]
    assert "tal+ossa on auto" in " ".join(write_page(tmp_path / "page.html", examples).text.split())


def test_pieces_are_parted_at_words() -> None:
    assert words_of(["▁talo", "ssa", "▁", "on", "☃▁☃", "▁"]) == [["talo", "ssa"], ["on", "☃"], ["☃"]]
    assert words_of([]) == []


def test_arcs_are_as_thick_as_probable_and_improbable_ones_are_left_out(tmp_path: Path) -> None:
    arcs = [Arc(0, 2, 0.2, False), Arc(0, 1, 0.8, True), Arc(1, 3, 0.8, True), Arc(2, 3, 0.001, False)]
    lattice = block("lattices", [WordArcs("<a&", arcs)], "arcs")
    page = write_page(tmp_path / "page.html", lattice)
    widths = dict(re.findall(r'class="(best|other)" stroke-width="([\d.]+)"', lattice))
    assert float(widths["best"]) > float(widths["other"])
    assert page.tags.count("title") == 1 + 3  # the page's own, and one for each arc that is drawn
    assert "<a 20.0%" in page.text
    assert page.values("aria-label")[-1] == "<a&, best segmentation <+a&"
    assert re.findall(r'class="percent".*?>(\d+)<', lattice) == ["80", "20"]


def test_figures_of_one_page_share_no_id_and_no_style(tmp_path: Path) -> None:
    curve = TrainingCurve("x < y", [(1, 2.0), (2, 1.0)], 0)
    drawings = {name: draw_training_curves([curve], ylabel="bits") for name in ("a", "b")}
    assert "<style" in to_svg(drawings["a"])  # of matplotlib: it would reach the whole page
    figures = [figure(drawing, name=name, caption="c") for name, drawing in drawings.items()]
    page = write_page(tmp_path / "page.html", *figures)
    assert page.tags.count("svg") == 2
    assert page.tags.count("style") == 1


def test_tables_are_tables(tmp_path: Path) -> None:
    table = Table("<t>", ["a", "b"], [["1", HOSTILE], ["2", "x"]], frozenset({"b"}), "one\n<two>")
    page = write_page(tmp_path / "page.html", block("tables", [table]))
    assert page.captions == ["<t>"]
    assert [page.tags.count(tag) for tag in ("table", "tr", "th", "td")] == [1, 3, 2, 4]
    assert HOSTILE in page.text
    assert "<two>" in page.text


def test_a_run_that_has_only_begun_has_a_report(tmp_path: Path) -> None:
    root = begun_run(tmp_path / "run")
    assert command(["--quiet", "report", str(root)]) == 0
    text = read_page(root / "report.html").text
    for lack in (
        "BPE / BPE seed 1",
        "No model has been trained",
        "none is compared with BPE",
        "Nothing has been tra",
    ):
        assert lack in text
    assert str(tmp_path) not in text


def test_a_failed_report_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_page(path, block("paragraph", "before"))
    before = path.read_bytes()
    with pytest.raises(UnicodeEncodeError):
        write_report(path, "title", "lead", [Section("half of a pair: \ud800", [])])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_run_is_refused_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["report", str(tmp_path)]) == 2
    assert "is not a run of dpe" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["demo.toml", "paper/ro-en.toml"])
def test_the_recipe_of_the_report_is_the_recipe(name: str, tmp_path: Path) -> None:
    recipe = read_recipe(ROOT / "recipes" / name)
    other = replace(recipe.systems[-1], name="other", title='with "quotes"')
    recipe = replace(recipe, systems=(*recipe.systems, other))
    (tmp_path / "again.toml").write_text(recipe_toml(recipe), encoding="utf-8")
    assert read_recipe(tmp_path / "again.toml") == recipe


def test_a_trained_segmenter_has_a_lattice_and_morphology_and_can_be_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "small.toml"
    file.write_text(RECIPE)
    experiment = Experiment(read_recipe(file), tmp_path / "run", Session(device="cpu"))
    begun_run(tmp_path / "run")
    stages = in_order([experiment.segmentation("mixed"), experiment.distillation("mixed")])
    run_stages(stages, Artifacts(experiment.root), Progress(QUIET))
    page = made_report(experiment.root, tmp_path / "page.html")
    assert "lattice" in page.values("class")
    assert "morphology-figure_1" in page.values("id")
    assert "segmenters-figure_1" in page.values("id")
    assert any(caption.startswith("Morphology: ") for caption in page.captions)
    distilled = Vocabulary.load(experiment.root / "distilled" / "mixed" / "distilled.model")
    cut = list(read_lines(experiment.root / "distilled" / "mixed" / "test.pieces"))
    plain = read_lines(experiment.root / "corpus" / "test.fi")
    assert cut == [" ".join(distilled.encode(line)) for line in plain]
    assert "DPE, distilled" in page.text
    pieces = experiment.root / "segmentations" / "mixed" / "test.pieces"
    lines = [" ".join(line.replace(" ", "")) for line in list(read_lines(pieces))]
    write_lines(pieces, lines)  # cut at every character, unlike BPE
    capsys.readouterr()
    assert command(["show", str(experiment.root), "--sentences", "2"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("source  ") == 2
    assert "3 best segmentations of: " in shown
    rows = {line.split("  ")[0] for line in shown.splitlines()}
    assert {"BPE", "BPE dropout", "longest match", "DPE", "DPE, distilled"} <= rows


def test_a_run_with_a_language_model_alone_can_be_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, root = tmp_path / "small.toml", tmp_path / "run"
    file.write_text(RECIPE)
    for systems, code in (('["bpe"]', 2), ('["bpe", "lm-dpe"]', 0)):
        recipe = read_recipe(file, [f"systems={systems}"])
        experiment = Experiment(recipe, root, Session(device="cpu"))
        names = [system.segmenter for system in recipe.systems if system.segmenter]
        stages = in_order([experiment.corpus, *map(experiment.segmentation, names)])
        run_stages(stages, Artifacts(root), Progress(QUIET))
        (root / "recipe.json").write_text(json.dumps(recipe_json(recipe)))
        assert command(["show", str(root)]) == code
    shown = capsys.readouterr()
    assert "has no system with a segmenter" in shown.err
    assert "LM DPE" in shown.out
