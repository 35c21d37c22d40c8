"""Tables of benchmarks, printed row by row and written to a file."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.protocols import arguments
from experiments.report.columns import markdown as columns_in_markdown

_NARROW = 8  # characters


class Table:
    """A table whose rows are printed when they are added."""

    def __init__(self, title: str, columns: Mapping[str, str]):
        """
        Print title and heading.

        :param columns: name of each column and format of its values, for example ``.2f``, or
            ``<12`` for text.
        """
        self.title, self.rows = title, list[dict[str, Any]]()
        self._columns = columns
        self._widths = {
            name: max(_NARROW, len(name), len(format("", form if form[0] == "<" else "")))
            for name, form in self._columns.items()
        }
        print(f"\n{title}")
        print(self._line({name: name for name in self._columns}), flush=True)

    def add(self, *values: Any) -> None:
        """Print and keep a row; None is left blank."""
        row = dict(zip(self._columns, values, strict=True))
        self.rows.append(row)
        cells = {name: _written(value, self._columns[name]) for name, value in row.items()}
        print(self._line(cells), flush=True)

    def _line(self, cells: Mapping[str, str]) -> str:
        return "  ".join(
            f"{cells[name]:{'<' if form.startswith('<') else '>'}{self._widths[name]}}"
            for name, form in self._columns.items()
        ).rstrip()

    def as_data(self) -> dict[str, Any]:
        """Return title, formats of columns, and rows."""
        return {"title": self.title, "columns": self._columns, "rows": self.rows}


def _written(value: Any, form: str) -> str:
    return "" if value is None else format(value, form).strip()


def markdown(table: Mapping[str, Any]) -> str:
    """Format the data of :meth:`Table.as_data` in Markdown."""
    columns = table["columns"]
    rows = [[_written(row[name], form) for name, form in columns.items()] for row in table["rows"]]
    return f"{table['title']}\n\n{columns_in_markdown([list(columns), *rows])}"


def parser_of(description: str | None) -> arguments.Parser:
    """Return a benchmark's parser with the common option ``--json``."""
    parser = arguments.parser_of(description)
    parser.option("--json", Path, "write the tables to this file")
    return parser


def write(tables: Sequence[Table], path: Path | None) -> None:
    """Write the tables to a file, unless `path` is None."""
    if path is not None:
        path.write_text(
            json.dumps([table.as_data() for table in tables], indent=1) + "\n", encoding="utf-8"
        )
