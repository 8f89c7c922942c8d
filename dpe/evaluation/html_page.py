"""A report as one HTML file that needs nothing else: text, tables, figures, cuts and lattices in, a page out.

What is `Html` has been escaped; everything else is text, and is escaped here. The page has no scripts and
asks for nothing, so it opens from disk. It is light or dark as the reader's screen is, and prints light.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import NewType
from xml.etree import ElementTree

from dpe.evaluation.tables import Table
from dpe.files import whole_text_file
from dpe.text.words import MARKER, pieces_by_word, split_words

Html = NewType("Html", str)
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


def write_report(path: Path, title: str, lead: str, sections: Sequence[Section]) -> None:
    """Write the page, whole or not at all."""
    links = "".join(f'<a href="#part-{n}">{escape(one.title)}</a> ' for n, one in enumerate(sections))
    parts = [
        f'<section id="part-{number}">\n<h2>{escape(one.title)}</h2>\n'
        + "\n".join(one.blocks)
        + "\n</section>"
        for number, one in enumerate(sections)
    ]
    style = files("dpe.evaluation").joinpath("report.css").read_text(encoding="utf-8")
    page = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>",
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


def example_cuts(examples: Iterable[ExampleCuts]) -> Html:
    """Sentences with the cuts one below the other; words that are not cut alike by all are marked."""
    return Html("\n".join(map(_example, examples)))


def words_of(pieces: Sequence[str]) -> list[list[str]]:
    """The pieces of each word without the marker: `▁talo ssa ▁ on` gives talo, ssa and on.

    A word of which nothing is left is left out.
    """
    words = pieces_by_word(split_words("".join(pieces)), pieces)
    surfaces = ([part for piece in word if (part := piece.removeprefix(MARKER))] for word in words)
    return [word for word in surfaces if word]


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
