"""Tables of ``kvsim memory`` on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kvsim.units import format_size

if TYPE_CHECKING:
    from kvsim.memory import Term

WIDTH = 118


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "", footer: bool = False
) -> None:
    """Print a table whose first column is text and whose others are numbers.

    Parameters
    ----------
    columns : sequence of str
        Headings.
    rows : iterable of sequence of str
        Cells.
    title : str
        Printed above.
    footer : bool
        The last row is a sum, and set off.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=number > 0)
    body = list(rows)
    for number, row in enumerate(body):
        if footer and number == len(body) - 1:
            table.add_section()
        table.add_row(*row)
    console = Console(highlight=False, markup=False, soft_wrap=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=WIDTH)
    if title:
        console.print(title, style="bold")
    console.print(table)


def print_terms(title: str, terms: Sequence[Term], *, total_name: str = "total", whole: int | None = None) -> None:
    """Print a sum: each term in bytes, in powers of ten and of two, with its share, and the total below.

    Parameters
    ----------
    title : str
        Printed above.
    terms : sequence of Term
        What is added.
    total_name : str
        Name of the sum.
    whole : int or None
        What shares are of; None for the sum.
    """
    total = sum(term.num_bytes for term in terms)
    of = whole or total
    rows = [size_row(term.name, term.num_bytes, of) for term in terms]
    rows.append(size_row(total_name, total, of))
    print_table(("", "bytes", "powers of 10", "powers of 2", "share"), rows, title=title, footer=True)


def size_row(name: str, num_bytes: int, whole: int | None = None) -> tuple[str, ...]:
    """Return the cells of a size: bytes, SI, binary, and its share of the whole where there is one."""
    sizes = (name, f"{num_bytes:,}", format_size(num_bytes, binary=False), format_size(num_bytes))
    return sizes if whole is None else (*sizes, f"{num_bytes / whole:.1%}")
