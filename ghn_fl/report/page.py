"""The frame of our HTML pages: one file, no address in it, no script, light and dark."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from matplotlib.figure import Figure

from ghn_fl.report.style import inline, variables
from ghn_fl.report.tables import Table


def page(title: str, sections: Iterable[str]) -> str:
    """The whole page; `title` is text, the sections are HTML."""
    body = "\n".join(sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>
{_css()}
</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def section(heading: str, *parts: str) -> str:
    """A part of the page under a heading of text."""
    return f"<section>\n<h2>{unbroken(heading)}</h2>\n" + "\n".join(parts) + "\n</section>"


def unbroken(text: str) -> str:
    """The text for a heading: numbers stay on one line with their percent sign."""
    return escape(text).replace(" %", "&nbsp;%")


def paragraph(text: str, kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    return f"<p{mark}>{escape(text)}</p>"


def picture(figure: Figure, name: str, caption: str) -> str:
    """A figure and, beneath it, what it shows in words."""
    drawn = inline(figure, name, escape(caption, quote=True))
    return f"<figure>\n{drawn}\n<figcaption>{escape(caption)}</figcaption>\n</figure>"


def html_table(table: Table, best: frozenset[tuple[int, int]] = frozenset()) -> str:
    """The table; cells at the places in `best`, (row, column), are set off."""
    kinds = ["" if i < table.names else ' class="number"' for i in range(len(table.header))]
    head = "".join(f"<th{k}>{escape(n)}</th>" for n, k in zip(table.header, kinds, strict=True))
    rows = []
    for y, row in enumerate(table.rows):
        texts = [escape(text) for text in row]
        texts = [f"<strong>{t}</strong>" if (y, x) in best else t for x, t in enumerate(texts)]
        cells = (f"<td{kind}>{text}</td>" for text, kind in zip(texts, kinds, strict=True))
        rows.append(f"<tr>{''.join(cells)}</tr>")
    body = "\n".join(rows)
    return f'<div class="wide"><table>\n<tr>{head}</tr>\n{body}\n</table></div>'


def tiles(facts: Iterable[tuple[str, str]]) -> str:
    """The facts as a row of small boxes."""
    boxes = (f"<div><dt>{escape(n)}</dt><dd>{escape(t)}</dd></div>" for n, t in facts)
    return f'<dl class="tiles">{"".join(boxes)}</dl>'


def folded(heading: str, *parts: str) -> str:
    """Parts that are shown on a click."""
    return f"<details><summary>{escape(heading)}</summary>\n" + "\n".join(parts) + "\n</details>"


def code(text: str) -> str:
    return f"<pre><code>{escape(text)}</code></pre>"


def _css() -> str:
    light = " ".join(f"{name}: {pair[0]};" for name, pair in variables().items())
    dark = " ".join(f"{name}: {pair[1]};" for name, pair in variables().items())
    return f"""\
:root {{ {light} --page: #ffffff; --soft: #57606a; }}
@media (prefers-color-scheme: dark) {{
  :root {{ {dark} --page: #15181d; --soft: #a3abb5; }}
}}
{_RULES}"""


_RULES = """\
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0 0 .4rem; text-wrap: balance; }
h2 { font-size: 1.2rem; line-height: 1.35; margin: 3rem 0 .6rem; text-wrap: balance; }
p { margin: .5rem 0; max-width: 46rem; }
.soft, figcaption { color: var(--soft); }
.note { border-left: 4px solid var(--c4); background: var(--band); padding: .5rem .9rem; }
figure { margin: 1rem 0 0; }
figure svg { display: block; width: 100%; height: auto; }
svg * { stroke-linejoin: round; stroke-linecap: butt; }
figcaption { font-size: .9rem; margin-top: .5rem; max-width: 46rem; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .95rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .4rem 1.1rem .4rem 0; border-bottom: 1px solid var(--faint);
  vertical-align: top; }
th { color: var(--soft); font-weight: 500; }
td:first-child { white-space: nowrap; }
td.number { white-space: nowrap; }
.number { text-align: right; }
.tiles { display: flex; flex-wrap: wrap; gap: .7rem; margin: 1.3rem 0; }
.tiles div { background: var(--band); border-radius: .5rem; padding: .55rem .9rem; }
.tiles dt { color: var(--soft); font-size: .8rem; }
.tiles dd { margin: 0; font-size: 1.05rem; font-weight: 600; }
pre { background: var(--band); border-radius: .5rem; padding: .8rem 1rem; overflow-x: auto;
  font-size: .9rem; }
details { margin: 1rem 0; }
summary { cursor: pointer; color: var(--soft); }
@media print { .tiles div, pre, .note { border: 1px solid var(--faint); } }"""
