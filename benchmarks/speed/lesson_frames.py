"""How fast the lesson page draws: 2,000 steps of a 1,000-block pool in headless Chromium.

    python benchmarks/speed/lesson_frames.py

Prints the time between frames while it plays at 60 steps a second, and the time that drawing one step takes.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np

from kvsim.allocators import make_allocator
from kvsim.generate import load_workload
from kvsim.lesson import make_page, record
from kvsim.lesson.recording import Recording
from kvsim.lesson.scenarios import Lesson
from kvsim.requests import RequestStream
from kvsim.scheduler import Scheduler

STEPS, BLOCKS, BLOCK_SIZE = 2000, 1000, 16
SWITCHES = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


def main() -> None:
    """Record, open, play, print."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("no Chromium here: nothing to measure")
    lesson = Lesson("long", "2,000 steps of 1,000 blocks", "lesson.own_idea", (run("max"), run("paged")))
    page = make_page([lesson])
    print(f"{len(lesson.times_ns):,} steps, {len(page.encode()) / 1e6:.2f} MB")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.html"
        path.write_text(page, encoding="utf-8")
        for width, height in ((1920, 1080), (375, 812)):
            gaps, draws = play(chromium, path.as_uri(), width, height)
            print(f"{width} x {height}: {line('frames', gaps)}; {line('drawing a step', draws)}")


def run(allocator: str) -> Recording:
    """Record a backlog of ShareGPT requests for 2,000 iterations."""
    stream = load_workload("sharegpt").sample(num_requests=400, backlog=True, seed=0)
    pool = make_allocator(allocator, capacity=BLOCKS * BLOCK_SIZE, max_model_len=2048, block_size=BLOCK_SIZE)
    backlog = RequestStream(np.zeros_like(stream.prompt), stream.prompt, stream.output)
    return record(backlog, pool, scheduler=Scheduler(), stop_at_s=STEPS - 0.5)


def play(chromium: str, address: str, width: int, height: int) -> tuple[list[float], list[float]]:
    """Play all steps; return ms between frames, and ms to draw each of 400 steps."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=chromium, args=SWITCHES)
        page = browser.new_page(viewport={"width": width, "height": height})
        page.goto(address)
        draws: list[float] = page.evaluate("""() => Array.from({length: 400}, (_, i) => {
            const before = performance.now();
            lesson.seek(i * 5);
            return performance.now() - before;
        })""")
        page.evaluate("lesson.seek(0); lesson.setSpeed(60); lesson.page.frames = []; lesson.play()")
        page.wait_for_function("lesson.page.step === lesson.page.lesson.last", timeout=120_000)
        times: list[float] = page.evaluate("lesson.page.frames")
        browser.close()
    return [after - before for before, after in pairwise(times)], draws


def line(what: str, ms: list[float]) -> str:
    """Median and 95th percentile."""
    return f"{what}: median {statistics.median(ms):.1f} ms, 95 % below {np.percentile(ms, 95):.1f} ms ({len(ms):,})"


if __name__ == "__main__":
    main()
