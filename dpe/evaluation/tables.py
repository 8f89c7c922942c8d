"""Tables on standard output: drawn on a terminal, plain text elsewhere, or Markdown; and results as JSON."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as DrawnTable
from rich.text import Text

from dpe.errors import UserError


@dataclass(frozen=True)
class Table:
    """Cells as they are shown. Columns named in `left` are aligned left, all others right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: frozenset[str] = frozenset()
    note: str = ""


def show(result: Any, tables: Iterable[Table], *, as_json: bool, as_markdown: bool) -> None:
    """A result as its tables, or as JSON."""
    if as_json and as_markdown:
        raise UserError("--json and --markdown cannot be used together.")
    if as_json:
        print(to_json(result))
    else:
        print_tables(tables, as_markdown=as_markdown)


def print_tables(tables: Iterable[Table], *, as_markdown: bool = False) -> None:
    """Print tables one after the other, with an empty line between."""
    for number, table in enumerate(tables):
        if number:
            print()
        if as_markdown:
            print(markdown(table))
        elif sys.stdout.isatty():
            _draw(table)
        else:
            print(plain(table))


def plain(table: Table) -> str:
    """A table as text whose columns line up, also where characters are wide or combining."""
    cells = [list(table.columns), *(list(row) for row in table.rows)]
    widths = [max(cell_len(cell) for cell in column) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        line = ""
        for cell, width, column in zip(row, widths, table.columns, strict=True):
            space = " " * (width - cell_len(cell))
            line += (cell + space if column in table.left else space + cell) + "  "
        lines.append(line.rstrip())
    return "\n".join([table.title, *lines, *([table.note] if table.note else [])])


def markdown(table: Table) -> str:
    """A table for a page of documentation: its title in bold, the note below."""
    rules = [":--" if column in table.left else "--:" for column in table.columns]
    rows = [table.columns, rules, *([cell.replace("|", "\\|") for cell in row] for row in table.rows)]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    note = table.note.replace("\n", "\\\n")  # a backslash keeps the line break
    return "\n\n".join([f"**{table.title}**", lines, *([note] if note else [])])


def to_json(result: Any) -> str:
    """A result (dataclasses, lists, mappings) as JSON; keys that are not strings become strings."""
    return json.dumps(result, default=dataclasses.asdict, ensure_ascii=False, indent=2)


def percent(share: float) -> str:
    """`43.2 %`."""
    return f"{100 * share:.1f} %"


def _draw(table: Table) -> None:
    drawn = DrawnTable(title=Text(table.title), title_justify="left")
    for column in table.columns:
        drawn.add_column(Text(column), justify="left" if column in table.left else "right")
    for row in table.rows:
        drawn.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(drawn, *([Text(table.note)] if table.note else []))


def short_names(paths: Sequence[Path]) -> list[str]:
    """File names where they differ, else whole paths."""
    names = [path.name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]
