#!/usr/bin/env python3
# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""Studies NeuroShard's claims ("Pre-train and Search", MLSys 2023) on this machine by the program plan_tables; writes a page of tables.

    cmake --build build/release --target plan_tables
    python3 examples/neuroshard/study.py all              # every stage, then the report; hours
    python3 examples/neuroshard/study.py collect fit      # some stages
    python3 examples/neuroshard/study.py report           # what the folder holds, as bench/results/neuroshard.md
    python3 examples/neuroshard/study.py all --quick      # all of it, tiny, within a minute: that it works, and no more
    python3 examples/neuroshard/study.py --selftest       # which checks that, and the statistics

Each stage leaves what it did in a folder, and goes on where it was cut off; running/ has what present commands say. With --jobs, fits and
searches, which measure nothing but their own seconds, run several at a time. Devices are hosts of the emulated cluster of
bench/testbed/hosts.sh, one rank each, which needs root and Open MPI; with --ranks threads they are threads of a process. Steps of all
devices are measured in one process, one after the other, so that devices do not take each other's processor. On a machine that others use,
look at the noise that the report states.
"""

import argparse
import concurrent.futures
import contextlib
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import report  # noqa: E402
import selftest  # noqa: E402
import stages  # noqa: E402

GIB = 1 << 30
# What is collected, searched and measured. The paper's sizes are in its Section 4 and Appendix F.
REAL = {
    "batch": 2048, "devices": [4, 8], "untrained": [2, 3, 6], "pool": None, "samples": 10_000, "exchanges": 1000, "held_out": 500,
    "held_out_exchanges": 100, "dims": [4, 8, 16, 32, 64, 128], "device_bytes": 4 * GIB, "slack_bytes": GIB, "least_tables": {2: 5, 4: 10, 8: 20},
    "most_tables": {2: 29, 4: 59, 8: 119}, "least_placed": 10, "most_placed": 120, "counts": [100, 1000, 10_000], "epochs": 1000, "starts": 4,
    "compared_starts": 5, "fit_batch": 512, "tasks": 100, "evaluations": 200_000, "measured_tasks": 3, "swept_tasks": 20, "collect_passes": 3,
    "collect_runs": 1, "held_out_runs": 5, "held_out_passes": 5, "step_tasks": 3, "step_runs": 20, "step_rounds": 3, "plan_runs": 2,
    "plan_rounds": 5, "runs": 5, "rounds": 5, "exchange_runs": 5, "held_out_exchange_runs": 10, "exchange_rounds": 5, "exchange_warm_up": 1,
    "observed_tables": 6, "observed_subsets": 50, "observed_size": 10, "observed_dim": 16, "scale_devices": 128,
    "scale_tables": 850, "scale_tasks": 2, "scale_evaluations": 100_000, "log_sessions": 4000, "deadlines_ms": {4: 100, 8: 200}, "few_tasks": 20,
    "few_tables": 12, "many_tables": 2000, "many_devices": 1024, "many_deadline_ms": 40_000, "many_evaluations": 10**12,
    "swept": {"candidates": [1, 2, 5, 10, 20], "beams": [1, 2, 3, 5], "steps": [0, 2, 5, 10, 20], "grid": [2, 3, 6, 11, 21]},
}
QUICK = {
    "batch": 64, "devices": [2, 3], "untrained": [4], "pool": 24, "samples": 24, "exchanges": 24, "held_out": 12, "held_out_exchanges": 8,
    "dims": [4, 8], "device_bytes": 400_000, "slack_bytes": 40_000, "least_tables": {2: 4, 3: 5}, "most_tables": {2: 8, 3: 8},
    "least_placed": 4, "most_placed": 12, "counts": [12, 24], "epochs": 5, "starts": 2, "compared_starts": 2, "fit_batch": 16,
    "tasks": 3, "evaluations": 100, "measured_tasks": 1, "swept_tasks": 2, "collect_passes": 2, "collect_runs": 1,
    "held_out_runs": 1, "held_out_passes": 2, "step_tasks": 1, "step_runs": 2, "step_rounds": 1, "plan_runs": 1, "plan_rounds": 1,
    "runs": 1, "rounds": 1, "exchange_runs": 1, "held_out_exchange_runs": 1, "exchange_rounds": 1, "exchange_warm_up": 0,
    "observed_tables": 1, "observed_subsets": 2, "observed_size": 3, "observed_dim": 4,
    "scale_devices": 6, "scale_tables": 20, "scale_tasks": 1, "scale_evaluations": 100, "log_sessions": 20,
    "deadlines_ms": {2: 20, 3: 20}, "few_tasks": 2, "few_tables": 5, "many_tables": 30, "many_devices": 8, "many_deadline_ms": 60_000,
    "many_evaluations": 2000,
    "swept": {"candidates": [1, 2], "beams": [1], "steps": [0, 1], "grid": [2, 3]},
}


class Study:
    """A folder of results, and how they come about: each is a command of plan_tables, done once."""

    def __init__(self, folder, program, size, ranks, rate, threads, torchrec=None, settings=(), jobs=1):
        self.jobs = jobs  # how many fits and searches run at a time
        self.folder, self.program, self.size, self.ranks, self.rate, self.threads = folder, program, size, ranks, rate, threads
        self.settings = settings  # of Table 1, (devices, largest dim), that are simulated and measured; none named: all
        self.torchrec = torchrec  # the Python that has it, or None
        self.hosts_up = 0
        (folder / "done").mkdir(parents=True, exist_ok=True)

    def done(self, name):
        """What is known of a command that was done: its words, seconds, date and output; None: it was not."""
        path = self.folder / "done" / (name.replace("/", "_") + ".json")
        return json.loads(path.read_text()) if path.exists() else None

    def write(self, name, text):
        """Writes a file of the folder, whole or not at all."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.write_text(text)
        part.replace(path)

    def once(self, name, *words, hosts=0, may_fail=(), tool=()):
        """Runs plan_tables in the folder, unless it was done. With `hosts`, as a rank on each emulated host. Returns what is known of it.
        It may fail with a message that has one of the texts of `may_fail`. `tool`: another program, with its first words."""
        if found := self.done(name):
            return found
        command = [*map(str, tool or [self.program]), *map(str, words)]
        if hosts and self.ranks == "testbed":
            self.up(hosts)
            command = ["bash", str(ROOT / "bench/testbed/hosts.sh"), "run", str(hosts), "1", *command]
        print(f"{name}: {' '.join(map(str, words))}", flush=True)
        start = time.monotonic()
        running = self.folder / "running" / (name.replace("/", "_") + ".log")  # for who waits
        running.parent.mkdir(exist_ok=True)
        with open(running, "w") as log, tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=errors)
            try:
                _, status, used = os.wait4(process.pid, 0)
            except BaseException:
                process.kill()
                process.wait()
                raise
            process.returncode = code = os.waitstatus_to_exitcode(status)
            errors.seek(0)
            error = errors.read()
        output = running.read_text()
        running.unlink()
        if code != 0 and not any(text in output + error for text in may_fail):
            sys.exit(f"{name}: {' '.join(command)}\n{output[-2000:]}{error[-2000:]}")
        known = {"words": [str(word) for word in words], "hosts": hosts, "ranks": self.ranks if hosts else "",
                 "rate": self.rate if hosts and self.ranks == "testbed" else "", "failed": code != 0, "jobs": self.jobs,
                 # `most_mib`: of the command, or of this process where that has more.
                 "seconds": round(time.monotonic() - start, 3), "most_mib": used.ru_maxrss // 1024,
                 "date": datetime.datetime.now().isoformat(timespec="seconds"), "output": output, "error": error, "commit": commit()}
        self.write(f"done/{name.replace('/', '_')}.json", json.dumps(known, indent=1))
        return known

    def together(self, calls):
        """Calls functions whose commands measure nothing but their own seconds, `jobs` at a time."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as threads:
            running = [threads.submit(call) for call in calls]
            try:
                for one in concurrent.futures.as_completed(running):
                    one.result()
            finally:
                for one in running:
                    one.cancel()

    @contextlib.contextmanager
    def beside(self, *words):
        """Runs plan_tables until the block ends, which it must not do before."""
        other = subprocess.Popen([str(self.program), *map(str, words)], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield
            if other.poll() is not None:
                sys.exit(f"plan_tables {' '.join(map(str, words))}: ended with {other.returncode} before what ran beside it")
        finally:
            other.kill()
            other.wait()

    def output(self, *words):
        """What plan_tables prints; None where it fails."""
        result = subprocess.run([str(self.program), *map(str, words)], cwd=self.folder, capture_output=True, text=True)
        return result.stdout if result.returncode == 0 else None

    def up(self, hosts):
        if self.hosts_up != hosts:
            self.down()
            subprocess.run(["bash", str(ROOT / "bench/testbed/hosts.sh"), "up", str(hosts), self.rate], check=True)
            self.hosts_up = hosts

    def down(self):
        if self.hosts_up:
            subprocess.run(["bash", str(ROOT / "bench/testbed/hosts.sh"), "down", str(self.hosts_up)], check=True)
            self.hosts_up = 0

    def rank_words(self, hosts, collects):
        """Who exchanges, in plan_tables' words."""
        if self.ranks == "testbed":
            return ["--ranks", "mpi"]
        return ["--ranks", f"threads:{hosts}"] if collects else []

    def mkdir(self, name):
        (self.folder / name).mkdir(parents=True, exist_ok=True)


def commit():
    """The commit of the source, with + where it was changed."""
    git = shutil.which("git")
    if not git:
        return "unknown"
    head = subprocess.run([git, "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run([git, "-C", ROOT, "status", "--porcelain", "-uno"], capture_output=True, text=True)
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "") if head.returncode == 0 else "unknown"


def same_size(folder, size):
    """Refuses a folder of another size."""
    path, text = folder / "size.json", json.dumps(size, indent=1)
    if path.exists() and json.loads(path.read_text()) != json.loads(text):
        sys.exit(f"{path}: the folder holds a study of another size; take another --folder")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def setting(text):
    """(4, 128) of 4x128."""
    devices, dim = map(int, text.split("x"))
    return devices, dim


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*stages.STAGES, "report", "all"]
    parser.add_argument("stage", nargs="*", metavar="STAGE", help=", ".join(names))
    parser.add_argument("--folder", type=pathlib.Path, help="of the results; build/neuroshard, or build/neuroshard-quick")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/examples/plan_tables", help="plan_tables")
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    parser.add_argument("--ranks", choices=["testbed", "threads"], help="who exchanges; testbed, or threads where --quick")
    parser.add_argument("--rate", default="400mbit", help="of the emulated links")
    parser.add_argument("--torchrec", type=pathlib.Path, metavar="PYTHON",
                        help="a Python with TorchRec, whose planner then plans too; give it to all stages")
    parser.add_argument("--settings", type=setting, nargs="+", default=(), metavar="DEVICESxDIM",
                        help="simulate and measure these settings of Table 1 alone, as 4x128 8x64")
    parser.add_argument("--threads", type=int, default=1, help="of plan_tables, and of the steps that are measured")
    parser.add_argument("--jobs", type=int, default=1, help="fits and searches at a time")
    parser.add_argument("--out", type=pathlib.Path, help="the report; bench/results/neuroshard.md, or report.md of the folder where --quick")
    parser.add_argument("--selftest", action="store_true", help="check the study itself, all of it tiny, in a folder that is removed")
    given = parser.parse_args()
    program = given.program.resolve()
    if (given.selftest or set(given.stage) - {"report"}) and not os.access(program, os.X_OK):
        sys.exit(f"{program}: no such program; build target plan_tables, or give --program")
    if given.selftest:
        return selftest.run(lambda folder: Study(folder, program, QUICK, "threads", given.rate, given.threads, jobs=2))
    if not given.stage or set(given.stage) - set(names):
        parser.error(f"a stage, or --selftest: {', '.join(names)}")
    if given.jobs < 1:
        parser.error("--jobs: at least 1")
    size = QUICK if given.quick else REAL
    folder = (given.folder or ROOT / ("build/neuroshard-quick" if given.quick else "build/neuroshard")).resolve()
    out = (given.out or (folder / "report.md" if given.quick else ROOT / "bench/results/neuroshard.md")).resolve()
    if unknown := set(given.settings) - {(devices, dim) for devices in size["devices"] for dim in size["dims"]}:
        parser.error("no settings of Table 1: " + ", ".join("x".join(map(str, one)) for one in sorted(unknown)))
    same_size(folder, size)
    study = Study(folder, program, size, given.ranks or ("threads" if given.quick else "testbed"), given.rate, given.threads,
                  given.torchrec and given.torchrec.absolute(), given.settings, given.jobs)
    wanted = names[:-1] if "all" in given.stage else given.stage
    with contextlib.ExitStack() as stack:
        stack.callback(study.down)
        for name in names:
            if name in wanted and name in stages.STAGES:
                stages.STAGES[name](study)
    if "report" in wanted:
        report.write(study, out)
        print(out)


if __name__ == "__main__":
    main()
