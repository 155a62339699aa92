"""Where the shared traces are, for the tests that read them; they are skipped where there are none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("KVSIM_SHARED", Path(__file__).parents[2] / "shared"))
TRACES = SHARED / "traces"

needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason=f"no shared traces at {TRACES} (set KVSIM_SHARED)")
