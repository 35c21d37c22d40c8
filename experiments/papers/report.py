"""
Write one page, HTML without references to other files, of the tables and figures that protocols
have stored.

    python -m experiments.papers.report [FOLDER ...] [--to runs/report.html]

Reads the folders of `experiments.papers`; of two with a protocol of one name, the later one counts.
"""

import base64
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

from experiments.papers import PROTOCOLS
from experiments.protocols.arguments import parser_of

FOLDERS = (Path(__file__).parents[1] / "results", Path("runs/papers"))

_STYLE = """
body { font: 16px/1.45 system-ui, sans-serif; max-width: 1150px; margin: 2em auto; padding: 0 1em; color: #222; }
h1, h2 { font-weight: 600; } h2 { margin-top: 2.5em; border-bottom: 1px solid #bbb; }
table { border-collapse: collapse; font-size: 14px; margin: .5em 0 1em; }
th, td { padding: 2px 10px; text-align: right; white-space: nowrap; } th { border-bottom: 1px solid #888; }
td:first-child, th:first-child { text-align: left; } tr:nth-child(even) td { background: #f5f5f5; }
figure { margin: 1.5em 0; } img { max-width: 100%; } figcaption, .note { color: #555; font-size: 14px; }
details { margin: .5em 0; } nav a { margin-right: .8em; white-space: nowrap; }
"""
_LONG = 25  # lines; a longer table is folded


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page; see ``--help``."""
    parser = parser_of(__doc__, "papers.report")
    parser.add_argument(
        "folders", nargs="*", type=Path, default=list(FOLDERS), help="folders of results"
    )
    parser.option("--to", Path("runs/report.html"), "the page (%(default)s)")
    asked = parser.parse_args(arguments)
    found = stored(asked.folders)
    if not found:
        sys.exit(
            f"No protocol has results in {', '.join(map(str, asked.folders))}: run python -m "
            "experiments.papers."
        )
    asked.to.parent.mkdir(parents=True, exist_ok=True)
    asked.to.write_text(page(found), encoding="utf-8")
    print(f"{asked.to}: {', '.join(folder.name for folder in found)}")


def stored(folders: Sequence[Path]) -> list[Path]:
    """
    Return the folders of protocols with results, in the order of the papers; the small size before
    the published.
    """
    found = {
        path.parent.name: path.parent
        for folder in folders
        for path in sorted(folder.glob("*/title.txt"))
    }
    names = (f"{name}{size}" for name in PROTOCOLS for size in ("", "-full"))
    return [found[name] for name in names if name in found]


def page(protocols: Sequence[Path]) -> str:
    """Return the page."""
    links = " ".join(f'<a href="#{folder.name}">{escape(folder.name)}</a>' for folder in protocols)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Power EP: experiments</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n<h1>The papers' experiments</h1>\n<p>Means ± "
        "standard errors of the runs; published figures stand beside them. Scores are of test "
        "rows and standardized "
        f"targets.</p>\n<nav>{links}</nav>\n{''.join(map(_section, protocols))}</body></html>\n"
    )


def _section(folder: Path) -> str:
    title, *texts = (folder / "title.txt").read_text(encoding="utf-8").strip().split("\n\n")
    size = " (published size)" if folder.name.endswith("-full") else ""
    parts = [
        f'<h2 id="{folder.name}">{escape(title)}{size}</h2>\n{"".join(f"<p>{escape(text)}</p>" for text in texts)}\n'
    ]
    for path in sorted(folder.glob("[0-9][0-9]-*")):
        if path.suffix == ".md":
            try:
                parts.append(_table(path.read_text(encoding="utf-8")))
            except ValueError:
                sys.exit(f"{path} is not a table of a protocol: delete it, and run the protocol.")
        elif path.suffix == ".png":
            caption = (
                path.with_suffix(".txt").read_text(encoding="utf-8").strip().replace("\n\n", ". ")
            )
            image = base64.b64encode(path.read_bytes()).decode()
            alt = escape(caption, quote=True)
            parts.append(
                f'<figure><img alt="{alt}" src="data:image/png;base64,{image}"><figcaption>{escape(caption)}'
                "</figcaption></figure>\n"
            )
    return "".join(parts)


def _table(markdown: str) -> str:
    """Translate a table of `experiments.papers.tables`, with its title and note."""
    title, table, *note = markdown.strip().split("\n\n")
    headings, _, *lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()
    ]
    head = "".join(f"<th>{escape(cell)}</th>" for cell in headings)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>\n" for line in lines
    )
    html = f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table>\n"
    below = "".join(f'<p class="note">{escape(text)}</p>\n' for text in note)
    name = f"<b>{escape(title.strip('*'))}</b>"
    if len(lines) > _LONG:
        return f"<details><summary>{name}, {len(lines)} lines</summary>\n{html}{below}</details>\n"
    return f"<p>{name}</p>\n{html}{below}"


if __name__ == "__main__":
    main()
