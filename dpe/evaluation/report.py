"""A report as one HTML file that needs nothing else: text, tables, figures, cuts and lattices in, a page out.

What is `Html` has been escaped; everything else is text, and is escaped here. The page has no scripts and
asks for nothing, so it opens from disk. It is light or dark as the reader's screen is, and prints light.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NewType
from xml.etree import ElementTree

from dpe.evaluation.plots import COLOURS, MARKERS
from dpe.evaluation.segmented_text import MARKER
from dpe.evaluation.tables import Table
from dpe.text.files import whole_text_file

Html = NewType("Html", str)
LEAST_DRAWN = 0.005  # probability of an arc off the best path
_CHARACTER, _MARGIN, _LETTERS = 22, 12, 44  # pixels: a letter's width, the rim, the letters' height
_ADAPTED = {"#000000": "currentColor", "#ffffff": "none"}  # to a light or dark page


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    title: str
    blocks: Sequence[Html]


@dataclass(frozen=True)
class ExampleCuts:
    """One sentence, its source, and its pieces by the name of who cut it."""

    source: str
    cuts: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Arc:
    """One piece over the characters `start` to `end` of a word."""

    start: int
    end: int
    probability: float
    is_best: bool


@dataclass(frozen=True)
class WordLattice:
    """A word with the arcs of its pieces."""

    word: str
    arcs: Sequence[Arc]


@dataclass(frozen=True)
class TrainingCurve:
    """A measure over the steps. Curves of one `group` have one colour; `rough` ones are dashed and thin."""

    name: str
    points: Sequence[tuple[float, float]]
    group: int
    rough: bool = False


def write_report(path: Path, title: str, lead: str, sections: Sequence[Section]) -> None:
    """Write the page, whole or not at all."""
    links = "".join(f'<a href="#part-{n}">{escape(one.title)}</a> ' for n, one in enumerate(sections))
    parts = [
        f'<section id="part-{number}">\n<h2>{escape(one.title)}</h2>\n'
        + "\n".join(one.blocks)
        + "\n</section>"
        for number, one in enumerate(sections)
    ]
    page = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(title)}</title>\n<style>\n{_STYLE}</style>\n</head>\n<body>",
        f"<header>\n<h1>{escape(title)}</h1>\n<p>{escape(lead)}</p>\n<nav>{links}</nav>\n</header>\n<main>",
        *parts,
        "</main>\n</body>\n</html>\n",
    ]
    with whole_text_file(path) as file:
        file.write("\n".join(page))


def paragraph(text: str) -> Html:
    return Html(f"<p>{_lines(text)}</p>")


def missing(text: str) -> Html:
    """What is not there, and how to get it."""
    return Html(f'<p class="missing">{_lines(text)}</p>')


def preformatted(text: str) -> Html:
    return Html(f"<pre>{escape(text)}</pre>")


def html_table(table: Table) -> Html:
    """A table that scrolls by itself where the page is too narrow for it."""
    is_left = [column in table.left for column in table.columns]
    head = "".join(map(_heading, table.columns, is_left))
    rows = ("".join(map(_cell, row, is_left)) for row in table.rows)
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    note = f'\n<p class="note">{_lines(table.note)}</p>' if table.note else ""
    title = escape(table.title)
    return Html(
        f'<div class="scroll" role="region" aria-label="{title}" tabindex="0"><table>\n'
        f"<caption>{title}</caption>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table></div>{note}"
    )


def figure(svg: str, *, name: str, caption: str) -> Html:
    """A drawing inside the page. `name` must be the figure's own: it sets its ids apart from all others."""
    root = ElementTree.fromstring(svg)
    _strip(root)
    for element in root.iter():
        element.tag = _local(element.tag)
        element.attrib = {_local(key): _own(value, key, name) for key, value in element.attrib.items()}
    root.attrib |= {"role": "img", "aria-label": caption}
    drawing = ElementTree.tostring(root, encoding="unicode")
    return Html(f"<figure>\n{drawing}\n<figcaption>{escape(caption)}</figcaption>\n</figure>")


def draw_training_curves(curves: Sequence[TrainingCurve], *, ylabel: str) -> str:
    """The curves as SVG; those of one name are in the legend once."""
    import matplotlib as mpl  # noqa: PLC0415  (slow to import)

    mpl.use("Agg")
    from matplotlib.figure import Figure  # noqa: PLC0415

    mpl.rcParams["svg.hashsalt"] = "dpe"  # equal figures are equal files
    drawn = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = drawn.add_subplot(xlabel="step", ylabel=ylabel)
    for curve in curves:
        style = {"linestyle": "--", "linewidth": 1.0} if curve.rough else {"marker": MARKERS[curve.group % 7]}
        steps, values = zip(*curve.points, strict=True)
        axes.plot(steps, values, color=COLOURS[curve.group % 7], label=curve.name, markersize=4, **style)
    axes.locator_params(axis="x", integer=True)
    axes.grid(alpha=0.3)
    handles, names = axes.get_legend_handles_labels()
    once = dict(zip(names, handles, strict=True))
    columns = 2 if sum(len(name) + 6 for name in once) < 70 else 1
    drawn.legend(list(once.values()), list(once), loc="outside upper center", ncols=columns, frameon=False)
    content = io.StringIO()
    drawn.savefig(content, format="svg", metadata={"Date": None})
    return content.getvalue()


def example_cuts(examples: Iterable[ExampleCuts]) -> Html:
    """Sentences with the cuts one below the other; words that are not cut alike by all are marked."""
    return Html("\n".join(map(_example, examples)))


def lattice_picture(words: Sequence[WordLattice], *, caption: str) -> Html:
    """Each word's characters on a line, an arc per piece, as thick as it is probable."""
    pictures = "\n".join(map(_word_picture, words))
    return Html(
        f'<figure>\n<div class="lattices">\n{pictures}\n</div>\n'
        f"<figcaption>{escape(caption)}</figcaption>\n</figure>"
    )


def words_of(pieces: Sequence[str]) -> list[list[str]]:
    """The pieces of each word without the marker: `▁talo ssa ▁ on` gives talo, ssa and on.

    A run of unknown characters may reach over words, and is parted there.
    """
    text = "".join(pieces)
    ends = {0, len(text), *accumulate(map(len, pieces)), *(n for n, c in enumerate(text) if c == MARKER)}
    words: list[list[str]] = []
    for begin, end in pairwise(sorted(ends)):
        part = text[begin:end]
        if part.startswith(MARKER) or not words:
            words.append([])
        if surface := part.removeprefix(MARKER):
            words[-1].append(surface)
    return [word for word in words if word]


def _lines(text: str) -> str:
    return "<br>".join(map(escape, text.split("\n")))


def _heading(column: str, is_left: bool) -> str:
    return f'<th class="{"left" if is_left else "right"}" scope="col">{escape(column)}</th>'


def _cell(text: str, is_left: bool) -> str:
    return f'<td class="left" dir="auto">{escape(text)}</td>' if is_left else f"<td>{escape(text)}</td>"


def _strip(root: ElementTree.Element) -> None:
    """Remove what says nothing (metadata) and what would reach beyond the drawing (style sheets)."""
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in ("metadata", "style"):
                parent.remove(child)


def _local(name: str) -> str:
    """A name without its namespace, which HTML does not have."""
    return name.rpartition("}")[2]


def _own(value: str, key: str, name: str) -> str:
    """An attribute with ids that are the figure's own, and colours that suit a light or dark page."""
    if _local(key) == "id":
        return f"{name}-{value}"
    for colour, adapted in _ADAPTED.items():
        value = value.replace(colour, adapted)
    if _local(key) == "href":
        return value.replace("#", f"#{name}-")
    return value.replace("url(#", f"url(#{name}-")


def _example(example: ExampleCuts) -> str:
    cuts = {name: words_of(pieces) for name, pieces in example.cuts.items()}
    alike = [all(way == ways[0] for way in ways) for ways in zip(*cuts.values(), strict=True)]
    source = f'<tr><th scope="row">source</th><td dir="auto">{escape(example.source)}</td></tr>'
    rows = [
        f'<tr><th scope="row">{escape(name)}</th><td dir="auto">'
        + " ".join(_cut_word(word, same) for word, same in zip(words, alike, strict=True))
        + "</td></tr>"
        for name, words in cuts.items()
    ]
    return '<table class="cuts"><tbody>\n' + "\n".join([source, *rows]) + "\n</tbody></table>"


def _cut_word(pieces: Sequence[str], is_alike: bool) -> str:
    shown = '<b class="cut">+</b>'.join(map(escape, pieces))
    return shown if is_alike else f"<mark>{shown}</mark>"


def _word_picture(lattice: WordLattice) -> str:
    arcs = [arc for arc in lattice.arcs if arc.is_best or arc.probability >= LEAST_DRAWN]
    top = max((_height(arc) for arc in arcs), default=0.0) * 0.75 + 6  # a curve reaches 3/4 of its handles
    width, height = 2 * _MARGIN + _CHARACTER * len(lattice.word), top + _LETTERS
    best = "+".join(lattice.word[arc.start : arc.end] for arc in arcs if arc.is_best)
    content = [
        *(
            _arc(lattice.word, arc, top)
            for arc in sorted(arcs, key=lambda arc: (arc.is_best, arc.probability))
        ),
        *(_letter(character, number, top) for number, character in enumerate(lattice.word)),
        *(_boundary(at, lattice.arcs, top) for at in range(1, len(lattice.word))),
    ]
    return (
        f'<svg class="lattice" width="{width}" height="{height:.0f}" viewBox="0 0 {width} {height:.0f}" '
        f'role="img" aria-label="{escape(lattice.word)}, best cut {escape(best)}">'
        + "".join(content)
        + "</svg>"
    )


def _height(arc: Arc) -> float:
    return 14.0 + 13.0 * (arc.end - arc.start)


def _arc(word: str, arc: Arc, base: float) -> str:
    left, right = (_MARGIN + _CHARACTER * at + inset for at, inset in ((arc.start, 2), (arc.end, -2)))
    top = base - _height(arc)
    return (
        f'<path class="{"best" if arc.is_best else "other"}" stroke-width="{0.7 + 5 * arc.probability:.2f}" '
        f'd="M{left} {base:.1f}C{left} {top:.1f} {right} {top:.1f} {right} {base:.1f}">'
        f"<title>{escape(word[arc.start : arc.end])} {arc.probability:.1%}</title></path>"
    )


def _letter(character: str, number: int, base: float) -> str:
    x = _MARGIN + _CHARACTER * (number + 0.5)
    shade = ' class="soft"' if character == MARKER else ""
    return f'<text{shade} x="{x}" y="{base + 20:.1f}">{escape(character)}</text>'


def _boundary(at: int, arcs: Sequence[Arc], base: float) -> str:
    """The probability of a boundary in percent below the letters, and a tick where the best cut has one."""
    percent = round(100 * sum(arc.probability for arc in arcs if arc.end == at))
    x = _MARGIN + _CHARACTER * at
    tick = (
        f'<path class="tick" d="M{x} {base + 3:.1f}v22"/>'
        if any(a.is_best and a.end == at for a in arcs)
        else ""
    )
    label = f'<text class="percent" x="{x}" y="{base + 38:.1f}">{percent}</text>' if percent else ""
    return tick + label


_STYLE = """
:root {
  --paper: #ffffff; --panel: #f5f6f7; --ink: #1b1f23; --soft: #5a636c; --line: #d5dadf;
  --best: #d55e00; --other: #0072b2; --mark: #fdeee3;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #14171a; --panel: #1d2226; --ink: #e8ebed; --soft: #a3adb6; --line: #3a4249;
    --best: #f0803c; --other: #56b4e9; --mark: #3a2415;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1rem clamp(.75rem, 3vw, 2rem) 3rem;
  background: var(--paper); color: var(--ink); overflow-wrap: break-word;
  font: 16px/1.5 system-ui, "Segoe UI", "Noto Sans", "Liberation Sans", sans-serif; }
h1 { font-size: 1.6rem; margin: .5rem 0; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; padding-top: .5rem; border-top: 1px solid var(--line); }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; }
a { color: var(--other); }
.scroll { overflow-x: auto; margin-top: 1.25rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
caption { text-align: start; font-weight: 600; padding-bottom: .4rem; white-space: nowrap; }
th, td { padding: .25rem .75rem .25rem 0; text-align: right; vertical-align: top; white-space: nowrap; }
th { border-bottom: 1px solid var(--soft); font-weight: 600; }
td { border-bottom: 1px solid var(--line); }
.left, .cuts th, .cuts td { text-align: start; }
.note, figcaption { color: var(--soft); font-size: .85rem; overflow-wrap: anywhere; }
.missing { border-inline-start: 4px solid var(--best); background: var(--panel); padding: .5rem .9rem; }
figure { margin: 1.25rem 0; }
figure > svg { width: 100%; max-width: 42rem; height: auto; display: block;
  fill: currentColor; stroke-linejoin: round; }
.cuts { width: 100%; margin-bottom: 1.25rem; font-size: 1rem; }
.cuts th { width: 1%; border-bottom: 0; color: var(--soft); }
.cuts td { white-space: normal; overflow-wrap: anywhere; border-bottom: 0; }
.cuts tr:last-child > * { border-bottom: 1px solid var(--line); padding-bottom: .6rem; }
.cut { color: var(--best); font-weight: 700; padding: 0 1px; }
mark { background: var(--mark); color: inherit; border-bottom: 2px solid var(--best); padding: 0 2px; }
.lattices { display: flex; flex-wrap: wrap; align-items: end; gap: .5rem; overflow-x: auto; }
.lattice { flex: none; }
.lattice path { fill: none; stroke: var(--other); }
.lattice .best { stroke: var(--best); }
.lattice .other { opacity: .8; }
.lattice .tick { stroke: var(--best); stroke-width: 1.5; }
.lattice text { fill: currentColor; text-anchor: middle; font-size: 17px; }
.lattice .soft { fill: var(--soft); }
.lattice .percent { fill: var(--soft); font-size: 10px; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: .75rem;
  overflow-x: auto; font-size: .85rem; line-height: 1.4; }
@media (max-width: 40rem) {
  .scroll table { font-size: .85rem; }
  .scroll th, .scroll td, caption { white-space: normal; padding-inline-end: .5rem; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 11pt; }
  nav { display: none; }
  figure, tr, .cuts { break-inside: avoid; }
  h2 { break-after: avoid; }
  .scroll, .lattices, pre { overflow: visible; }
  .scroll table { font-size: 8.5pt; }
  .scroll th, .scroll td, caption { white-space: normal; }
  .lattice { max-width: 100%; height: auto; }
  pre { white-space: pre-wrap; }
}
"""
