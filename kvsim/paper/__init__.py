"""The vLLM paper's evaluation, a published figure or table a module, its published numbers beside it.

``reproduce`` runs items of ``ITEMS``; the command line is ``kvsim reproduce``.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvsim.errors import unknown

ITEMS = (
    "table1", "fig1", "fig2", "fig3", "fig11", "fig12a", "fig12b", "fig12c", "fig12d", "fig12e", "fig12f", "headline",
    "fig13", "fig18b",
)  # fmt: skip


def chosen_items(names: Sequence[str]) -> list[str]:
    """Return the items that names mean, in the paper's order: all without any, and ``fig12`` for its panels.

    Raises
    ------
    ConfigError
        A name is not known; the nearest is offered.
    """
    wanted: set[str] = set()
    for name in names:
        found = [item for item in ITEMS if item == name or (name == "fig12" and item.startswith("fig12"))]
        if not found:
            raise unknown("item", name, (*ITEMS, "fig12"))
        wanted.update(found)
    return [item for item in ITEMS if not names or item in wanted]
