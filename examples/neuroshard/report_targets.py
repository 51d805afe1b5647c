# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""What the library aims at in these experiments, and what was found."""

import math

import report_plans
import samples
import stages
from markdown import number, percent, table
from report_errors import PARTS, relative_error, two_rounds
from samples import mean

# Devices -> seconds of the published search, and cost of the library's over the published one's within a second, dims up to the largest.
SECONDS = {4: 0.06, 8: 0.12}
RATIOS = {4: 0.983, 8: 0.968}
WITHIN = {4: 0.992, 8: 0.982}  # the same within `deadlines_ms`
FEW = {"optimal": 0.95, "above": 0.005}  # of plans of few tables: how many are the best, and how much more another may cost
MANY = {"seconds": 60, "mib": 1024}
MEASURED = {"strongest": 0.15, "least": -0.01}  # over the strongest baseline: in the hardest settings, in all
REAL_SHARE = 2 / 3  # of what a search gains on networks
HELD_OUT = {"error": 0.05, "tau": 0.95, "of two rounds": 0.98}


def simulated(study):
    """Tasks solved, seconds of the published search, and the library's search against it."""
    for model in stages.MODELS:
        solved, settings, wanted = 0, 0, [one for one in stages.settings(study) if model in stages.simulating_models(study, one[1])]
        for devices, dim in stages.settings(study):
            tasks = samples.compared(study.folder / f"simulated/{devices}x{dim}_{model}.csv")
            if not tasks:
                continue
            settings += 1
            solved += len(tasks) == study.size["tasks"] and all(methods["plan"][0] is not None for methods in tasks.values())
            if dim != stages.most_dims(study)[-1] or devices not in SECONDS:
                continue
            who = f"{devices} devices, dims up to {dim}, {report_plans.NAMES[model]}"
            seconds = mean(methods["published"][1] for methods in tasks.values())
            if model == "published":
                yield f"seconds of the published search, {who}", f"{SECONDS[devices]} at most", number(seconds, 3), seconds <= SECONDS[devices]
        if settings:
            yield (f"settings whose tasks the library's search solves all, with no device over its limit, {report_plans.NAMES[model]}", "all",
                   f"{solved} of {len(wanted)}", solved == len(wanted))


def searched(study):
    """The searches alone."""
    for devices in RATIOS:
        for model, ms, csv in stages.deadlines(study, devices) if devices in study.size["devices"] else []:
            if of := report_plans.within_deadline(study, csv):
                (ratio, costlier, seconds), aim = of, (RATIOS if ms == stages.SECOND else WITHIN)[devices]
                yield (f"cost of the library's search over the published one's, {devices} devices, dims up to {stages.most_dims(study)[-1]}, "
                       f"{report_plans.NAMES[model]}", f"{aim} at most within {ms / 1000:g} s, never costlier",
                       f"{number(ratio)} in {number(seconds, 3)} s, costlier {costlier}",
                       ratio <= aim and costlier == 0 and seconds <= 1.02 * ms / 1000)
    if of := report_plans.over_best(study):
        best, worst = sum(one <= 1 + 1e-5 for one in of) / len(of), max(of) - 1
        yield (f"plans of up to {study.size['few_tables']} whole tables that are the best there are, {study.size['devices'][0]} devices, our "
               f"networks", f"{100 * FEW['optimal']:.0f} % at least, others {100 * FEW['above']} % above at most",
               f"{100 * best:.0f} % of {len(of)}, others {100 * worst:.2f} %", best >= FEW["optimal"] and worst <= FEW["above"])
    if known := study.done("search many"):
        yield (f"{study.size['many_tables']} tables on {study.size['many_devices']} devices, counted bytes",
               f"a plan in {MANY['seconds']} s and {MANY['mib']} MiB at most",
               "none found" if known["failed"] else f"{known['seconds']:.0f} s, {known['most_mib']} MiB",
               not known["failed"] and known["seconds"] <= MANY["seconds"] and known["most_mib"] <= MANY["mib"])


def measured(study):
    """Table 1, measured, and how much of a gain is real."""
    found = report_plans.measured_tasks(study)
    of = {setting: report_plans.over_strongest(tasks, "plan on ours") for setting in stages.settings(study)
          if (tasks := report_plans.common_tasks(study, *setting, found)[1])}
    first, last = stages.most_dims(study)[-1], study.size["devices"][-1]
    for devices, dim in of:
        if dim == first or (devices == last and dim in report_plans.most_of(study)):
            yield (f"measured, how much more the strongest baseline costs than the library's plan, {devices} devices, dims up to {dim}",
                   f"{percent(MEASURED['strongest'])} at least", percent(of[devices, dim]), of[devices, dim] >= MEASURED["strongest"])
    if of:
        least = math.nan if any(map(math.isnan, of.values())) else min(of.values())
        yield (f"the least of {len(of)} of {len(stages.settings(study))} settings", f"{percent(MEASURED['least'])} at least", percent(least),
               len(of) == len(stages.settings(study)) and least >= MEASURED["least"])
    for devices in study.size["devices"]:
        if both := report_plans.gains_of_table_1(study, devices, "ours"):
            told, real = (mean(one) for one in zip(*both))
            yield (f"measured part of the gain that our networks predict, {devices} devices", f"{number(REAL_SHARE, 2)} at least",
                   number(real / told, 2) if told > 1e-6 else "-", told > 1e-6 and real / told >= REAL_SHARE)


def held_out(study):
    """Errors of our networks on samples that they have not seen."""
    for devices in study.size["devices"]:
        for part, kind in PARTS:
            of = stages.held_out(study, kind, "ours", part, None if part == "step" else devices)
            if not of or (part == "step" and devices != study.size["devices"][0]):
                continue
            error, tau = relative_error(of), samples.kendall_tau(*samples.costs(of))
            between = two_rounds(study, part, kind, None if part == "step" else devices)
            least = min(HELD_OUT["tau"], HELD_OUT["of two rounds"] * between) if between == between else HELD_OUT["tau"]
            who = part if part == "step" else f"{part}, {devices} devices"
            yield f"held-out error, {who}", f"{100 * HELD_OUT['error']:.0f} % at most", f"{100 * error:.1f} %", error <= HELD_OUT["error"]
            yield f"held-out tau, {who}", f"{number(least, 3)} at least", number(tau, 3), tau >= least
    devices = study.size["devices"][-1]
    for part in ("forward", "backward"):
        errors = {model: [relative_error(of) for seed in range(study.size["compared_starts"])
                          if (of := samples.predicted(study.folder / f"starts/{model}_{seed}.csv", part, devices))] for model in stages.MODELS}
        if all(errors.values()):
            worst, best = max(errors["ours"]), min(errors["published"])
            yield (f"our exchange network's worst start, {part}, {devices} devices", f"{100 * best:.1f} % at most (the published one's best)",
                   f"{100 * worst:.1f} %", worst <= best)
    for devices in study.size["untrained"]:
        for part in ("forward", "backward"):
            real, told = samples.costs(samples.predicted(study.folder / "predicted/test_exchanges_ours.csv", part, devices))
            if real:
                tau = samples.kendall_tau(real, told)
                yield f"tau of {devices} devices, never trained, {part}", f"{HELD_OUT['tau']} at least", number(tau, 3), tau >= HELD_OUT["tau"]


def targets(page):
    """What is aimed at, and what is reached."""
    rows = [[what, aim, found, "yes" if reached and not math.isnan(reached) else "no"]
            for part in (simulated, searched, measured, held_out) for what, aim, found, reached in part(page.study)]
    if rows:
        reached = sum(row[-1] == "yes" for row in rows)
        page.say(f"## What is aimed at\n\n{reached} of {len(rows)} are reached. `bench/plan/search_bench.cpp` measures the searches alone "
                 "without a study.\n")
        page.say(table(["what", "aim", "found", "reached"], rows))
