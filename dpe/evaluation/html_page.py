"""A report as one HTML file that needs nothing else: text, tables, figures, segmentations and lattices.

The markup is in templates/, which escape everything that they are given; `Html` is what a template made. The
page has no scripts and asks for nothing, so it opens from disk. It is light or dark as the reader's screen
is, and prints light.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NewType
from xml.etree import ElementTree

from jinja2 import Environment, PackageLoader, StrictUndefined

from dpe.evaluation.plots import to_svg
from dpe.files import whole_text_file
from dpe.text.words import MARKER, pieces_by_word, split_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Html = NewType("Html", str)
LEAST_DRAWN = 0.005  # probability of an arc off the best path
_TEMPLATES = Environment(
    loader=PackageLoader("dpe.evaluation"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
_BLOCKS: Any = _TEMPLATES.get_template("blocks.html").module
_ADAPTED = {"#000000": "currentColor", "#ffffff": "none"}  # to a light or dark page


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    title: str
    blocks: Sequence[Html]


@dataclass(frozen=True)
class ExampleCuts:
    """One sentence, its source, and its pieces by the name of the segmenter."""

    source: str
    cuts: Mapping[str, Sequence[str]]

    @cached_property
    def words(self) -> dict[str, list[list[str]]]:
        """The pieces of each word without markers, by segmenter."""
        return {name: words_of(pieces) for name, pieces in self.cuts.items()}

    @cached_property
    def differing(self) -> list[bool]:
        """Of each word: whether the segmenters differ on it."""
        return [any(way != ways[0] for way in ways) for ways in zip(*self.words.values(), strict=True)]


@dataclass(frozen=True)
class Arc:
    """One piece over the characters `start` to `end` of a word."""

    start: int
    end: int
    probability: float
    is_best: bool

    @property
    def handle(self) -> int:
        """How far above the letters its control points are."""
        return 14 + 13 * (self.end - self.start)


@dataclass(frozen=True)
class WordArcs:
    """A word with the arcs of its pieces."""

    word: str
    arcs: Sequence[Arc]

    @property
    def drawn(self) -> list[Arc]:
        """The arcs worth drawing, the best path on top."""
        arcs = [arc for arc in self.arcs if arc.is_best or arc.probability >= LEAST_DRAWN]
        return sorted(arcs, key=lambda arc: (arc.is_best, arc.probability))

    @property
    def arcs_height(self) -> float:
        return 0.75 * max((arc.handle for arc in self.drawn), default=0)  # a curve reaches 3/4 of its handles

    @property
    def best(self) -> list[str]:
        """The pieces of the best path."""
        return [self.word[arc.start : arc.end] for arc in self.arcs if arc.is_best]

    def boundaries(self) -> Iterator[tuple[int, int, bool]]:
        """Each position inside the word, its probability in percent, and whether it is on the best path."""
        for at in range(1, len(self.word)):
            ending = [arc for arc in self.arcs if arc.end == at]
            percent = round(100 * sum(arc.probability for arc in ending))
            yield at, percent, any(arc.is_best for arc in ending)


def write_report(path: Path, title: str, lead: str, sections: Sequence[Section]) -> None:
    """Write the page, whole or not at all."""
    page = _TEMPLATES.get_template("report.html").render(title=title, lead=lead, sections=sections)
    with whole_text_file(path) as file:
        file.write(page + "\n")


def block(
    kind: Literal["paragraph", "missing", "preformatted", "tables", "examples", "lattices"], *content: object
) -> Html:
    """Content as the macro of this name in templates/blocks.html shows it."""
    return Html(getattr(_BLOCKS, kind)(*content))


def figure(drawing: Figure, *, name: str, caption: str) -> Html:
    """A drawing inside the page. `name` must be the figure's own: it sets its ids apart from all others."""
    root = ElementTree.fromstring(to_svg(drawing))
    for parent in list(root.iter()):
        for child in list(parent):  # metadata says nothing; a style sheet would reach the whole page
            if _local(child.tag) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _local(element.tag)
        element.attrib = {_local(key): _own(value, key, name) for key, value in element.attrib.items()}
    root.attrib |= {"role": "img", "aria-label": caption}
    return Html(_BLOCKS.figure(ElementTree.tostring(root, encoding="unicode"), caption))


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


def words_of(pieces: Sequence[str]) -> list[list[str]]:
    """The pieces of each word without the marker: `▁talo ssa ▁ on` gives talo, ssa and on.

    A word of which nothing is left is left out.
    """
    words = pieces_by_word(split_words("".join(pieces)), pieces)
    surfaces = ([part for piece in word if (part := piece.removeprefix(MARKER))] for word in words)
    return [word for word in surfaces if word]
