"""Build HTML as a tree of elements, so that no text of a run is ever read as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element


def element(tag: str, *children: Element | str | None, class_: str | None = None, **attributes: str) -> Element:
    """Build an element.

    Args:
        tag: Its name.
        children: Elements and texts; None is left out.
        class_: Its classes, if any.
        attributes: Its other attributes.

    """
    made, last = Element(tag, {**attributes, **({} if class_ is None else {"class": class_})}), None
    for child in children:
        if isinstance(child, Element):
            made.append(child)
            last = child
        elif child is not None and last is None:
            made.text = (made.text or "") + child
        elif child is not None and last is not None:
            last.tail = (last.tail or "") + child
    return made


def section(title: str, *children: Element | str | None, class_: str | None = None) -> Element:
    """Build a section under a heading."""
    return element("section", element("h2", title), *children, class_=class_)


def bullets(texts: Iterable[str]) -> Element:
    """Build a list."""
    return element("ul", *(element("li", text) for text in texts))


def definitions(pairs: Iterable[tuple[str, str]]) -> Element:
    """Build a list of names and values."""
    return element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in pairs))


def table(
    headings: Sequence[str], rows: Iterable[Element], *, figures: int = 0, class_: str | None = None
) -> Element:
    """Build a table.

    Args:
        headings: Of its columns.
        rows: What `row` gives.
        figures: How many columns, the last ones, are figures, which are aligned to the right.
        class_: Its classes, if any.

    """
    first = len(headings) - figures
    heads = [
        element("th", heading, scope="col", class_="figure" if place >= first else None)
        for place, heading in enumerate(headings)
    ]
    body = element("tbody", *rows)
    for each in body:
        for heading, cell in zip(headings[1:], each[1:], strict=True):
            cell.set("data-label", heading)  # a phone shows the cells below each other, without the headings
    return element("table", element("thead", element("tr", *heads)), body, class_=class_)


def row(first: str, *cells: Element | str, future: bool = False) -> Element:
    """Build a row of a table, whose first cell is its heading; `future` marks what has not happened yet."""
    made = [each if isinstance(each, Element) else element("td", each) for each in cells]
    return element("tr", element("th", first, scope="row"), *made, class_="future" if future else None)


def figure(text: str) -> Element:
    """Build a cell with a figure."""
    return element("td", text, class_="figure")
