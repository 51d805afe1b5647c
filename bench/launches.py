# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""What the comparisons, on the host and on a GPU, make of the launches of a side."""

import os
import statistics
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
QUIET = 0.8  # of the best launch's machine rate


def quiet_seconds(records):
    return sorted(r["seconds"] for r in records if not r["disturbed"]) or sorted(r["seconds"] for r in records)


def faster_quarter(records):
    times = quiet_seconds(records)
    return statistics.mean(times[: -(-len(times) // 4)])


def milliseconds(seconds):
    return f"{seconds * 1e3:.3g}" if seconds < 100 else f"{seconds * 1e3:.0f}"


def commit():
    """That of the sources, `-dirty` where they are changed; a copy without its repository is told it by TESSERA_COMMIT."""
    describe = ["git", "-C", ROOT, "describe", "--always", "--dirty", "--exclude=*"]
    try:
        found = subprocess.run(describe, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        found = ""
    return found or os.environ.get("TESSERA_COMMIT") or "unknown"
