"""A picture as a list of shapes, written as SVG or painted as PNG.

Charts are built once, from lines, boxes and labels in named colours. SVG takes the colours from CSS
variables of the page, so that one picture fits a light and a dark page; PNG takes the light ones. PNG needs
Pillow (the extra `plots`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from elasticdl.errors import UserError
from elasticdl.extras import install_command

# Light colours; the page defines dark ones under the same names.
LIGHT = {
    "ink": "#1c2430",
    "muted": "#5d6b7c",
    "grid": "#dde3ea",
    "paper": "#ffffff",
    "series0": "#0b7285",
    "series1": "#e8590c",
    "series2": "#7048e8",
    "series3": "#2b8a3e",
    "series4": "#c2255c",
    "series5": "#846200",
}
DARK = {
    "ink": "#e6ebf1",
    "muted": "#9aa8b8",
    "grid": "#2f3945",
    "paper": "#161c24",
    "series0": "#3bc9db",
    "series1": "#ffa94d",
    "series2": "#b197fc",
    "series3": "#69db7c",
    "series4": "#f783ac",
    "series5": "#ffd43b",
}
_SERIES = 6
Point = tuple[float, float]


def series_colour(number: int) -> str:
    return f"series{number % _SERIES}"


@dataclass(frozen=True, kw_only=True)
class Stroke:
    """An open line."""

    points: Sequence[Point]
    colour: str
    width: float = 1.0
    dashed: bool = False


@dataclass(frozen=True, kw_only=True)
class Box:
    x: float
    y: float
    width: float
    height: float
    colour: str
    opacity: float = 1.0
    # Shown where the pointer rests (SVG only).
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class Label:
    x: float
    y: float
    text: str
    colour: str = "ink"
    size: float = 12.0
    # start, middle or end.
    anchor: str = "start"
    bold: bool = False


Shape = Stroke | Box | Label


@dataclass(kw_only=True)
class Drawing:
    width: float
    height: float
    title: str = ""
    shapes: list[Shape] = field(default_factory=list)


def to_svg(drawing: Drawing) -> str:
    """Returns the picture as an SVG element for a page that defines the colours."""
    parts = [
        f'<svg viewBox="0 0 {drawing.width:g} {drawing.height:g}" role="img" '
        f'aria-label="{escape(drawing.title, quote=True)}" xmlns="http://www.w3.org/2000/svg">'
    ]
    parts += [_svg_shape(shape) for shape in drawing.shapes]
    parts.append("</svg>")
    return "\n".join(parts)


def to_standalone_svg(drawing: Drawing) -> str:
    """Returns the picture as a file of its own, with colours for light and dark surroundings."""
    light = "".join(f"--{name}:{value};" for name, value in LIGHT.items())
    dark = "".join(f"--{name}:{value};" for name, value in DARK.items())
    style = (
        f"<style>svg{{{light}background:var(--paper);font-family:system-ui,sans-serif}}"
        f"@media(prefers-color-scheme:dark){{svg{{{dark}}}}}</style>"
    )
    head, _, rest = to_svg(drawing).partition("\n")
    return f"{head}\n{style}\n{rest}\n"


def _svg_shape(shape: Shape) -> str:
    if isinstance(shape, Stroke):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
        dash = ' stroke-dasharray="4 3"' if shape.dashed else ""
        return (
            f'<polyline points="{points}" fill="none" stroke="var(--{shape.colour})" '
            f'stroke-width="{shape.width:g}" stroke-linejoin="round"{dash}/>'
        )
    if isinstance(shape, Box):
        hint = f"<title>{escape(shape.hint)}</title>" if shape.hint else ""
        opacity = f' opacity="{shape.opacity:.2f}"' if shape.opacity < 1 else ""
        return (
            f'<rect x="{shape.x:.1f}" y="{shape.y:.1f}" width="{max(shape.width, 0.1):.1f}" '
            f'height="{shape.height:.1f}" fill="var(--{shape.colour})"{opacity}>{hint}</rect>'
        )
    weight = ' font-weight="600"' if shape.bold else ""
    return (
        f'<text x="{shape.x:.1f}" y="{shape.y:.1f}" font-size="{shape.size:g}" text-anchor="{shape.anchor}" '
        f'fill="var(--{shape.colour})"{weight}>{escape(shape.text)}</text>'
    )


def write_png(drawings: Sequence[Drawing], path: Path, *, scale: int = 2) -> None:
    """Paints pictures below each other into one PNG file."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise UserError(
            "A PNG picture needs Pillow.", hint=f"{install_command('plots')}; --html works without it."
        ) from None
    width = int(max(drawing.width for drawing in drawings) * scale)
    height = int(sum(drawing.height for drawing in drawings) * scale)
    image = Image.new("RGB", (width, height), LIGHT["paper"])
    painter = ImageDraw.Draw(image)
    top = 0.0
    for drawing in drawings:
        for shape in drawing.shapes:
            if isinstance(shape, Stroke):
                points = [(x * scale, (y + top) * scale) for x, y in shape.points]
                painter.line(points, fill=LIGHT[shape.colour], width=max(1, round(shape.width * scale)))
            elif isinstance(shape, Box):
                corner = (shape.x * scale, (shape.y + top) * scale)
                far = ((shape.x + max(shape.width, 0.5)) * scale, (shape.y + shape.height + top) * scale)
                painter.rectangle([corner, far], fill=_blend(LIGHT[shape.colour], shape.opacity))
            else:
                font = ImageFont.load_default(size=shape.size * scale)
                anchor = {"start": "ls", "middle": "ms", "end": "rs"}[shape.anchor]
                place = (shape.x * scale, (shape.y + top) * scale)
                painter.text(place, shape.text, fill=LIGHT[shape.colour], font=font, anchor=anchor)
        top += drawing.height
    try:
        image.save(path, format="PNG")
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}.") from None


def _blend(colour: str, opacity: float) -> tuple[int, int, int]:
    """The colour on white paper."""
    channels = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    red, green, blue = (round(255 + (channel - 255) * opacity) for channel in channels)
    return red, green, blue
