# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""What the comparisons, on the host and on a GPU, make of the launches of a side."""

import os
import statistics
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
QUIET = 0.8  # of the best launch's machine rate
MOVED = 0.1  # of a ceiling, by which it may differ before and after the work
OTHERS = 0.1  # of one core, on the average, that may work for others meanwhile


def disturbance(record, best):
    """Why a launch does not count, or "". `best`: the machine's rate in the best launch of the work on that side. `others` is in cores: where a
    work takes all of them, it waits for the one that is shared. A record without `moved` or `others` is not judged by it."""
    if record["machine"] < QUIET * best:
        return "slow"
    if (record.get("others") or 0) > OTHERS:
        return "neighbour"
    return "moved" if (record.get("moved") or 0) > MOVED else ""


def mark_disturbed(records):
    best = max((record["machine"] for record in records), default=0)
    for record in records:
        record["disturbed"] = disturbance(record, best)


def quiet_seconds(records):
    """Of the launches that count; of all where none does."""
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
