# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""The report: tables and figures of what a study's folder holds. Numbers of the paper stand beside, and are named as such."""

import json
import os

import report_errors
import report_plans
import report_targets
import samples
from markdown import Page, number, table
from samples import mean


def head(report):
    study = report.study
    known = [json.loads(path.read_text()) for path in sorted((study.folder / "done").glob("*.json"))]
    collected = study.folder / "steps/collected.json"
    machine = json.loads(collected.read_text())["machine"] if collected.exists() else {}
    dates = sorted(one["date"][:10] for one in known)
    seconds = sum(one["seconds"] for one in known)
    hosts = sorted({one["hosts"] for one in known if one["hosts"]})
    ranks = sorted({one["ranks"] for one in known if one["ranks"]})
    report.say("# NeuroShard")
    quick = study.size["pool"] is not None
    rates = sorted({one["rate"] for one in known if one.get("rate")})
    with_torchrec = any(one["words"][0] != "tasks" and "--least-columns" in one["words"] for one in known)
    jobs = max((one.get("jobs", 1) for one in known), default=1)
    who = f"emulated hosts of {' and '.join(rates)}" if ranks == ["testbed"] else " and ".join(ranks) or "ranks"
    lines = [f"Machine: {machine.get('processor', 'not measured yet')}, {os.cpu_count()} processors; steps on {machine.get('threads', '?')} "
             "thread(s).",
             f"Exchanges: between {', '.join(map(str, hosts)) or 'no'} {who}.",
             f"Commit: {', '.join(sorted({one['commit'] for one in known})) or 'none'}; "
             f"{dates[0] + ' to ' + dates[-1] if dates else 'nothing done'}.",
             f"Commands: {len(known)}, {seconds / 60:.1f} minutes in all, of the last run of each. `python3 examples/neuroshard/study.py "
             f"all{' --quick' if quick else ''.join(f' --rate {rate}' for rate in rates)}{' --torchrec PYTHON' if with_torchrec else ''}` "
             "runs them; each is in the folder's `done/` with what it said."
             f"{f' With `--jobs {jobs}`: seconds of searches are of so many at a time, but for those within deadlines.' if jobs > 1 else ''}",
             f"Tables: {'a few tiny ones: the numbers below mean nothing' if quick else '856 synthetic ones in the manner of dlrm_datasets'}. "
             f"Batches of {study.size['batch']} samples."]
    report.say("\n".join(f"- {line}" for line in lines))
    report.say("Costs are of this machine, in ms, and not to be compared with those of the paper's GPUs; ratios, errors and orders are. "
               "Columns named *paper* have the paper's numbers. A cost is that of the slowest device.")
    for title, option in (("steps", "--samples"), ("exchanges", "--exchanges")):
        of = [one for one in known if one["words"][0] == "collect" and option in one["words"]]
        if of:
            rows = [[one["words"][1], one["hosts"] or "-", one["output"].strip().splitlines()[-1].split(": ", 1)[-1]] for one in of]
            report.say(f"Collected {title}, with the noise of those that were measured twice:\n")
            report.say(table(["folder", "devices", "samples"], rows))


def observations(report):
    folder = report.study.folder / "observed"
    dims = sorted(folder.glob("dims_*.plan.json"))
    if not dims:
        report.missing("Observations 1 and 2 (Figures 3 and 10)", "observe")
        return
    report.say("## Observation 1: half of a table's columns against all of them (Figures 3 and 10)")
    series, rows, halves = {}, [], []
    for path in dims:
        name = path.name.removesuffix(".plan.json")
        variants = json.loads((folder / f"{name}.json").read_text())
        costs = [one[0] for devices in samples.measured(folder / f"{name}.csv").values() for one in devices]
        if len(costs) != len(variants):
            continue
        series[name.removeprefix("dims_")] = [(one["dim"], cost) for one, cost in zip(variants, costs)]
        by_dim = {one["dim"]: cost for one, cost in zip(variants, costs)}
        own = [by_dim[dim] / by_dim[2 * dim] for dim in sorted(by_dim) if 2 * dim in by_dim]
        halves += own
        rows.append([name.removeprefix("dims_"), *(number(by_dim[dim]) for dim in sorted(by_dim)), *(number(one, 3) for one in own)])
    ordered = sorted(report.study.size["dims"])
    report.say(table(["table, ms of dim", *ordered, *(f"{a} over {2 * a}" for a in ordered[:-1])], rows))
    report.say(f"Of {len(halves)} halves {sum(one > 0.5 for one in halves)} cost more than half; the mean is {number(mean(halves), 3)} of the "
               "whole. Paper: all do.")
    report.figure("dims", "Steps of one table by dim", "dim", "ms", series, joined=True, log_x=True, log_y=True)
    for what, field in (("rows", "row"), ("pooling", "pooling_factor")):
        swept = {}
        for path in sorted(folder.glob(f"{what}_*.plan.json")):
            name = path.name.removesuffix(".plan.json")
            variants = json.loads((folder / f"{name}.json").read_text())
            costs = [one[0] for devices in samples.measured(folder / f"{name}.csv").values() for one in devices]
            if len(costs) != len(variants):
                continue
            values = [number(one[field], 6) for one in variants]
            report.say(table([f"{name.split('_', 1)[1]}, {field}", *values], [["ms", *map(number, costs)]]))
            swept[name] = [(one[field], cost) for one, cost in zip(variants, costs)]
        if swept:
            report.figure(what, f"Steps of one table by {what}", field, "ms", swept, joined=True, log_x=True, log_y=True)
    points = []
    for path in sorted(folder.glob("subset_*.csv")):
        found = samples.measured(path)
        apart, together = (next((plan for name, plan in found.items() if name.endswith(f".{ending}.json")), None)
                           for ending in ("apart", "together"))
        if apart and together:
            points.append((sum(one[0] for one in apart), together[0][0]))
    if not points:
        report.missing("Observation 2", "observe")
        return
    ratios = [together / apart for apart, together in points]
    slope = sum(a * b for a, b in points) / sum(a * a for a, _ in points)
    off = [abs(b - slope * a) / b for a, b in points]
    report.say(f"## Observation 2: tables together against the sum of each alone (Figure 3, right)\n\n{len(points)} subsets of "
               f"{report.study.size['observed_size']} tables. Together over the sum: {number(min(ratios), 3)} to {number(max(ratios), 3)}, "
               f"mean {number(mean(ratios), 3)}. The best line through 0 is off by {100 * mean(off):.1f} % in the mean, {100 * max(off):.1f} "
               "% at most. Paper: the sum is often larger, and not in proportion.")
    report.figure("together", "Tables together and alone", "sum of each alone, ms", "together, ms", {"subsets": points}, diagonal=True)


def exchanges(report):
    study, series, rows = report.study, {}, []
    for devices in study.size["devices"]:
        lines = samples.read_csv(study.folder / f"exchanges/exchanges_{devices}.csv", skip=1)
        points = []
        for line in lines:
            if line["repeat"] == "1":
                continue
            numbers = {field: [float(one) for one in line[field].split()] for field in ("dims", "start_ms", "forward_ms", "backward_ms")}
            ends = [a + b for a, b in zip(numbers["start_ms"], numbers["forward_ms"])]
            points.append((max(numbers["dims"]), max(numbers["backward_ms"]), max(ends) - max(numbers["start_ms"])))
        if points:
            x, backward, forward = map(list, zip(*points))
            rows.append([devices, len(points), number(samples.pearson(x, backward), 3), number(samples.kendall_tau(x[:500], backward[:500]), 3),
                         number(samples.pearson(x, forward), 3), number(samples.kendall_tau(x[:500], forward[:500]), 3)])
            series[f"{devices} devices, backward"] = list(zip(x, backward))[:200]
            series[f"{devices} devices, forward"] = list(zip(x, forward))[:200]
    if not rows:
        report.missing("Observation 3 (Figure 4)", "collect")
        return
    report.say("## Observation 3: exchanges against the largest dim of a device (Figure 4)\n\nThe largest cost of a device against the "
               "largest sum of dims; of the forward, from the start of the last device on. Kendall's tau of the first 500; the figure has "
               "the first 200. Paper: they correlate positively.\n")
    report.say(table(["devices", "exchanges", "backward: correlation", "tau", "forward: correlation", "tau"], rows))
    report.figure("exchanges", "Exchanges", "largest sum of dims of a device", "largest cost of a device, ms", series)


def write(study, out):
    """Writes the report of what the folder holds."""
    page = Page(study, out)
    for part in (head, report_plans.in_short, report_targets.targets, observations, exchanges, report_errors.errors, *report_plans.PARTS):
        part(page)
    page.write()
