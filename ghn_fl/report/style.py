"""One look for all figures: palette, fonts, and a figure as SVG text.

The colours are those of Okabe and Ito, told apart with every common colour blindness. A page in
dark mode swaps each for the brighter one beside it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

# name -> (on a light page, on a dark page)
INK = ("#24292f", "#e6e8eb")
FAINT = ("#d5d9de", "#3b4048")
BAND = ("#eef1f4", "#23272e")
PALETTE = (
    ("#0072b2", "#58aeea"),  # blue
    ("#d55e00", "#ff8f50"),  # vermilion
    ("#009e73", "#2fc79c"),  # green
    ("#cc79a7", "#e7a3c9"),  # purple
    ("#e69f00", "#f5c04a"),  # orange
    ("#56b4e9", "#a5dcff"),  # sky
)
LINES = ("-", "--", ":", "-.")  # a second sign beside colour
MARKERS = ("o", "s", "^", "D")
COLOUR_MAP = "cividis"  # even steps of lightness, for every eye and in grey print

STYLE: Any = {  # matplotlib's own type lists every setting by name
    "axes.axisbelow": True,
    "axes.edgecolor": INK[0],
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": INK[0],
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "axes.titlepad": 8,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.dpi": 100,
    "figure.facecolor": "none",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "grid.color": FAINT[0],
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "ghnfl",  # the same figure is the same text
    "text.color": INK[0],
    "text.parse_math": False,  # a $ in a name is a $
    "xtick.color": INK[0],
    "ytick.color": INK[0],
    "xtick.major.width": 0.8,
    "ytick.major.width": 0.8,
}
WIDTH = 9.6  # inches


def colour(index: int) -> str:
    return PALETTE[index % len(PALETTE)][0]


def line(index: int) -> str:
    """A line style that differs whenever the colour has come round again."""
    return LINES[index // len(PALETTE) % len(LINES)]


def marker(index: int) -> str:
    """A sign for points that does so, too."""
    return MARKERS[index // len(PALETTE) % len(MARKERS)]


def styled(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    """The drawing function, with this file's style while it draws."""
    wrapped: Callable[..., Figure] = matplotlib.rc_context(STYLE)(draw)
    return wrapped


def svg(figure: Figure) -> str:
    """The figure as a standalone SVG text, the same for the same figure."""
    file = io.BytesIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context(STYLE):
        figure.savefig(file, format="svg", metadata=nothing)
    text = file.getvalue().decode()
    return re.sub(r"font-family: [^;]*;", "font-family: sans-serif;", text[text.index("<svg") :])


def pdf(figure: Figure) -> bytes:
    """The figure as a PDF for print, the same for the same figure."""
    file = io.BytesIO()
    with matplotlib.rc_context({**STYLE, "pdf.fonttype": 42}):  # fonts that printers accept
        figure.savefig(file, format="pdf", metadata={"CreationDate": None})
    return file.getvalue()


def inline(figure: Figure, name: str, label: str) -> str:
    """The figure for an HTML page: no address in it, own ids, colours that follow the page.

    Args:
        figure: What to show.
        name: Makes the ids in the page differ from those of its other figures.
        label: What a person hears who cannot see it; already escaped.
    """
    text = svg(figure)
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
    text = re.sub(r' id="([^"]*)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", text)
    text = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", text)
    for variable, (light, _) in variables().items():
        text = text.replace(light, f"var({variable})")
    size = r' width="[^"]*" height="[^"]*"'
    return re.sub(size, f' role="img" aria-label="{label}"', text, count=1)


def variables() -> dict[str, tuple[str, str]]:
    """The page's CSS variables: each colour, light and dark."""
    palette = {f"--c{i}": pair for i, pair in enumerate(PALETTE)}
    return {"--ink": INK, "--faint": FAINT, "--band": BAND, **palette}


# an axis may leave room above 100 %, but nothing can be there
percent_axis = FuncFormatter(lambda value, _: f"{100 * value:.4g} %" if value < 1 + 1e-9 else "")
byte_axis = FuncFormatter(lambda value, _: byte_text(value))
count_axis = FuncFormatter(lambda value, _: f"{value:,.0f}")


def byte_text(count: float) -> str:
    """A number of bytes for people.

    >>> byte_text(1_250_000)
    '1.25 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.4g} TB"


def time_text(seconds: float) -> str:
    """A duration for people.

    >>> time_text(619.4), time_text(0.25), time_text(0.00303), time_text(7322)
    ('10 min 19 s', '0.25 s', '3.03 ms', '2 h 2 min')
    """
    if 0 < seconds < 0.1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def percent_text(fraction: float | None, digits: int = 1) -> str:
    """A fraction as a percentage; a dash where there is none.

    >>> percent_text(0.9904), percent_text(0.9904, 2), percent_text(None)
    ('99.0 %', '99.04 %', '–')
    """
    return "–" if fraction is None else f"{100 * fraction:.{digits}f} %"
