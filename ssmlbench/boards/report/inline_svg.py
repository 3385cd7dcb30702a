"""matplotlib's SVG as an inline element: theme colours, no style attributes, no other elements.

Only elements and attributes on the lists below are kept, so that the page's content policy can forbid
everything else. An `<img>` with a data URI would need no cleaning, but it was tried and is worse: in
Chromium a drawing inside an image stays dark when a reader in dark mode prints, its text cannot be
selected, and the figures take twice the bytes.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from ssmlbench.boards.report.style import GRID, HUES, INK, MUTED

ELEMENTS = {"svg", "g", "path", "defs", "clipPath", "rect", "use", "text", "tspan"}
ATTRIBUTES = {
    "clip-path", "d", "fill", "fill-opacity", "font-size", "font-style", "font-weight", "height",
    "href", "id", "opacity", "stroke", "stroke-dasharray", "stroke-dashoffset", "stroke-linecap",
    "stroke-linejoin", "stroke-opacity", "stroke-width", "text-anchor", "transform", "viewBox",
    "width", "x", "y",
}  # fmt: skip
COLOURS = {
    INK: "currentColor",
    "#000000": "currentColor",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    **{hue: f"var(--hue-{i + 1})" for i, hue in enumerate(HUES)},
}
"""Our colours → the page's variables, which follow the reader's theme."""

_NUMBER = re.compile(r"-?\d+\.\d{2,}")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_FONT_SIZE = re.compile(r"([\d.]+)px")


def for_page(svg: bytes, label: str, prefix: str) -> str:
    """Return the drawing as an inline element with `label` as text alternative; ids start with `prefix`."""
    root = ET.fromstring(svg)
    _keep_allowed(root)
    used = {target for element in root.iter() for target in _targets(element)}
    for element in root.iter():
        if element.get("id") in used:
            element.set("id", prefix + element.attrib["id"])
        else:
            element.attrib.pop("id", None)
        if "href" in element.attrib:
            element.set("href", f"#{prefix}{element.attrib['href'].removeprefix('#')}")
        if "clip-path" in element.attrib:
            clip = element.attrib["clip-path"]
            element.set("clip-path", _REFERENCE.sub(rf"url(#{prefix}\1)", clip))
    root[:] = [kept for child in root for kept in _unwrapped(child)]
    for name in ("width", "height"):
        root.set(name, root.get(name, "").removesuffix("pt"))
    # matplotlib sets these in a style sheet; both are inherited.
    root.attrib |= {"stroke-linejoin": "round", "stroke-linecap": "butt"}
    root.attrib |= {"role": "img", "aria-label": label}
    return ET.tostring(root, encoding="unicode")


def _targets(element: ET.Element) -> list[str]:
    found = _REFERENCE.findall(element.get("clip-path", ""))
    return [*found, element.attrib["href"][1:]] if "href" in element.attrib else found


def _keep_allowed(element: ET.Element) -> None:
    element.tag = element.tag.rpartition("}")[2]
    attributes = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
    attributes |= _presentation(attributes.pop("style", ""))
    element.attrib.clear()
    for name, value in attributes.items():
        if name in ATTRIBUTES and not (name == "href" and not value.startswith("#")):
            element.set(name, _shortened(name, value))
    if element.tag not in ("text", "tspan"):
        element.text = None
    element.tail = None
    for child in list(element):
        if not isinstance(child.tag, str) or child.tag.rpartition("}")[2] not in ELEMENTS:
            element.remove(child)
        else:
            _keep_allowed(child)


def _shortened(name: str, value: str) -> str:
    """The page's colour for ours; numbers to one decimal, no needless spaces."""
    if name in ("fill", "stroke"):
        return COLOURS.get(value.lower(), value)
    if "opacity" in name or name == "id":
        return value
    value = _NUMBER.sub(lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), value)
    return re.sub(r"\s*([A-Za-z])\s*", r"\1", value) if name == "d" else value


def _unwrapped(element: ET.Element) -> list[ET.Element]:
    """The element, or its children if it is a group without attributes, or nothing if it is empty."""
    children = [kept for child in element for kept in _unwrapped(child)]
    element[:] = children
    if element.tag == "g" and not element.attrib:
        return children
    return [element] if children or element.tag not in ("g", "defs") else []


def _presentation(style: str) -> dict[str, str]:
    """`fill: none; font: 9px 'DejaVu Sans'` as attributes; the page chooses the font's family."""
    attributes = {}
    for declaration in style.split(";"):
        name, _, value = (part.strip() for part in declaration.partition(":"))
        if name == "font":
            size = _FONT_SIZE.search(value)
            attributes["font-size"] = size[1] if size else "9"
        elif name:
            attributes[name] = value
    return attributes
