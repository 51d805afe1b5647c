# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""Checks of the study: of its statistics by numbers worked out by hand, and of all its stages, tiny, in a folder of their own."""

import json
import math
import pathlib
import shutil
import sys
import tempfile
import xml.etree.ElementTree

import charts
import report
import report_plans
import samples
import stages


def statistics():
    tau = samples.kendall_tau
    assert tau([1, 2, 3, 4], [10, 20, 30, 40]) == 1 and tau([1, 2, 3], [3, 2, 1]) == -1
    assert math.isclose(tau([1, 2, 3, 4], [1, 3, 2, 4]), 4 / 6)  # one of six pairs is the other way round
    assert math.isclose(tau([1, 1, 2], [1, 2, 3]), 2 / math.sqrt(2 * 3))  # a tie counts for neither
    assert math.isnan(tau([1, 1], [1, 2])) and math.isnan(samples.pearson([1, 1], [1, 2])) and math.isnan(samples.mean([]))
    assert math.isclose(samples.pearson([1, 2, 3], [2, 4, 6]), 1) and math.isclose(samples.pearson([1, 2, 3], [1, 0, 1]), 0)
    # Ranks of sample 7: the slowest of each; the repeat is left out.
    rows = [(7, False, 0, 1.0, 5.0), (7, False, 1, 3.0, 4.0), (2, False, 0, 9.0, 8.0), (7, True, 0, 99.0, 99.0)]
    assert samples.costs(rows) == ([9.0, 3.0], [8.0, 5.0])
    # The fastest of the passes that have the same; what no pass has is left out.
    passes = [[(7, False, 0, one, 0.0)] for one in (1.0, 9.0, 2.0)]
    assert samples.of_passes(rows[:2], passes) == [(7, False, 0, 1.0, 5.0)] and samples.of_passes(rows, [[], []]) == []
    assert samples.slowest([(1, 2, 3), (4, 0, 1)]) == 6
    tasks = [{"a": 4.0, "b": 3.0, "s": 2.0}, {"a": None, "b": 5.0, "s": 4.0}, {"a": 1.0, "b": None, "s": None},
             {"a": None, "b": None, "s": 1.0}]
    assert math.isclose(report_plans.improvement(tasks, ["a", "b"], "s"), (3 + 5) / (2 + 4) - 1)
    assert math.isnan(report_plans.improvement(tasks[2:], ["a", "b"], "s"))


def figures():
    for series in ({}, {"a": [(1, 1)]}, {"a <&>": [(1, 2), (10, 300)], "b": [(0, -1), (5, 7)]}):
        for log in (False, True):
            drawn = xml.etree.ElementTree.fromstring(charts.chart("t", "x", "y", series, joined=True, log_x=log, log_y=log, diagonal=log))
            shown = sum((x > 0 and y > 0) or not log for points in series.values() for x, y in points)
            circles = drawn.findall("{http://www.w3.org/2000/svg}circle")
            assert len(circles) == shown + len(series), (series, log)
    svg = "{http://www.w3.org/2000/svg}"
    for groups in ({}, {"a": {}}, {"a <&>": {"x": 2.0, "y": -1.0}, "b": {"y": math.nan, "z": 0.0}}):
        drawn = xml.etree.ElementTree.fromstring(charts.bars("t", "%", groups))
        values = [value for of in groups.values() for value in of.values() if math.isfinite(value)]
        widths = [float(bar.get("width")) for bar in drawn.findall(f"{svg}rect") if bar.get("width") != "100%"]
        assert len(widths) == len(values), groups
        assert not values or math.isclose(widths[0], 2 * widths[1], abs_tol=0.2), widths
        assert len(drawn.findall(f"{svg}circle")) == len({one for of in groups.values() for one in of})


# Stands for a Python with TorchRec: it finds no plan of the first of several files.
STAND_IN = """
import json, pathlib, sys
words = sys.argv[2:]
devices = int(words[words.index("--devices") + 1])
last = pathlib.Path(words[-1])
files = words[:words.index("--devices")]
last.mkdir(parents=True, exist_ok=True) if "--out-dir" in words else None
for file in files[len(files) > 1:]:
    tables = json.loads(pathlib.Path(file).read_text())
    plan = json.dumps({"shards": [{"table": t, "rank": t % devices} for t in range(len(tables))]})
    (last / pathlib.Path(file).name if "--out-dir" in words else last).write_text(plan)
if len(files) > 1:
    print("no plan")
    sys.exit(1)
"""


def all_stages(make_study):
    """All stages, then the report; again, which does nothing; then without what a stage did."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="neuroshard"))
    try:
        study, out = make_study(folder), folder / "report.md"
        study.torchrec = folder / "stand_in"
        study.torchrec.write_text(f"#!{sys.executable}{STAND_IN}")
        study.torchrec.chmod(0o755)
        for stage in stages.STAGES.values():
            stage(study)
        done = {path.name: path.stat().st_mtime_ns for path in (folder / "done").iterdir()}
        report.write(study, out)
        text = out.read_text()
        assert "Missing" not in text, text
        assert "| torchrec |" in text
        aims = text.split("## What is aimed at")[1].split("\n## ")[0]
        rows = [line.strip("| ").split(" | ") for line in aims.splitlines() if line.startswith("| ")][1:]
        assert rows and {row[-1] for row in rows} <= {"yes", "no"}, aims
        assert f"{sum(row[-1] == 'yes' for row in rows)} of {len(rows)} are reached" in aims
        for what in ("held-out error, step", "settings whose tasks", "our exchange network's worst start", "strongest baseline costs"):
            assert any(what in row[0] for row in rows), what
        for devices, dim in stages.settings(study):
            tasks = samples.compared(folder / f"simulated/{devices}x{dim}_published_torchrec.csv")
            assert len(tasks) == study.size["tasks"] and sum(of["torchrec"][0] is None for of in tasks.values()) >= 1
        assert any(("torchrec", "torchrec") in costs for _, _, _, costs in report_plans.measured_tasks(study))
        drawn = [line.split("](")[1].rstrip(")") for line in text.splitlines() if line.startswith("![")]
        assert len(drawn) == len(set(drawn)) >= 8, drawn
        for name in drawn:
            xml.etree.ElementTree.parse(folder / name)
        for stage in stages.STAGES.values():
            stage(study)
        assert done == {path.name: path.stat().st_mtime_ns for path in (folder / "done").iterdir()}
        # Kept sums change seconds, and nothing else.
        devices = study.size["devices"][0]
        costs = [report_plans.of_compare(folder / f"ablated/{devices}_{name}.csv")[0] for name in ("full", "without_kept_sums")]
        assert costs[0] == costs[1], costs
        for part, stage in (("measured", "measure"), ("simulated", "simulate"), ("predicted", "fit"), ("observed", "observe"),
                            ("scale", "scale"), ("starts", "starts"), ("searches", "searches"),
                            ("steps_of_ranks", "step")):
            shutil.move(folder / part, folder / "aside")
            report.write(study, out)
            assert f"study.py {stage}` has not done" in out.read_text(), part
            shutil.move(folder / "aside", folder / part)
        report.write(study, out)
        assert out.read_text() == text
        # Another number makes another report.
        path = sorted((folder / "measured").glob("*task*[0-9].csv"))[0]
        lines = path.read_text().splitlines()
        fields = lines[1].split(",")
        other = ",".join([*fields[:2], str(1000 + float(fields[2])), *fields[3:-1]])
        with_line = lambda line: path.write_text("\n".join([lines[0], line, *lines[2:]]) + "\n")
        with_line(f"{other},{fields[-1]}")
        try:
            report.write(study, out)
            raise AssertionError("an altered line was taken")
        except SystemExit as refused:
            assert str(refused) == f"{path}: line 2 was altered", refused
        with_line(samples.with_checksum(other).rstrip())
        report.write(study, out)
        assert out.read_text() != text
        assert json.loads((folder / "done/pool.json").read_text())["words"][0] == "tasks"
    finally:
        shutil.rmtree(folder)


def run(make_study):
    statistics()
    figures()
    all_stages(make_study)
    print("selftest passed")
