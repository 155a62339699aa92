"""The vLLM paper's evaluation, a published figure or table a module, its published numbers beside it.

``reproduce`` runs items of ``ITEMS``; the command line is ``kvsim reproduce``.
"""

from __future__ import annotations

ITEMS = (
    "table1", "fig1", "fig2", "fig3", "fig11", "fig12a", "fig12b", "fig12c", "fig12d", "fig12e", "fig12f", "headline",
    "fig13", "fig18b",
)  # fmt: skip
