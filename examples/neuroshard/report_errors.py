# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""The parts of the report about what networks say of samples that they have not seen."""

import math

import paper
import samples
import stages
from markdown import number, table
from samples import mean

# What is learned, and of which samples.
PARTS = (("step", "steps"), ("forward", "exchanges"), ("backward", "exchanges"))


def relative_error(found):
    """The root of the mean squared error over the mean of what was measured."""
    return math.sqrt(mean((one[3] - one[4]) ** 2 for one in found)) / mean(one[3] for one in found)


def rounds(study, part, kind, devices):
    """Two rounds of measurement of the same held-out samples, as `samples.predicted`, of steps the fastest of every other pass and of the
    rest; two empty lists where one is missing."""
    names = stages.passes(study) if kind == "steps" else [f"test_{kind}", f"again_{kind}"]
    found = [samples.predicted(study.folder / f"predicted/{name}_ours.csv", part, devices) for name in names]
    first, second = (samples.of_passes(half[0], half) for half in (found[::2], found[1::2]))
    return (first, second) if first and len(samples.costs(first)[0]) == len(samples.costs(second)[0]) else ([], [])


def two_rounds(study, part, kind, devices):
    """Kendall's tau between two rounds of measurement; NaN where one is missing."""
    first, second = rounds(study, part, kind, devices)
    return samples.kendall_tau(samples.costs(first)[0], samples.costs(second)[0]) if first else math.nan


def errors(report):
    study, folder = report.study, report.study.folder / "predicted"
    rows, drawn = [], {}
    for model in stages.MODELS:
        for devices in study.size["devices"]:
            row = [f"{model}, {devices} devices"]
            for part, kind in PARTS:
                found = stages.held_out(study, kind, model, part, None if part == "step" else devices)
                real, told = samples.costs(found)
                if not real:
                    row += ["-"] * 3
                    continue
                drawn.setdefault(part if part == "step" else f"{part}, {devices} devices", {})[model] = 100 * relative_error(found)
                squares = mean((one[3] - one[4]) ** 2 for one in found)
                row += [f"{number(squares)} ({number(paper.TABLE_2[part].get(devices, math.nan), 2)})",
                        f"{100 * relative_error(found):.1f} %", number(samples.kendall_tau(real, told), 3)]
            rows.append(row)
    again = ["two rounds of measurement"]
    for part, kind in PARTS:
        first, second = rounds(study, part, kind, None if part == "step" else study.size["devices"][0])
        if not first:
            again += ["-"] * 3
            continue
        squares = mean((x[3] - y[3]) ** 2 for x, y in zip(first, second))
        again += [number(squares), f"{100 * math.sqrt(squares) / mean(one[3] for one in first):.1f} %",
                  number(two_rounds(study, part, kind, None if part == "step" else study.size["devices"][0]), 3)]
    if all(cell == "-" for row in rows for cell in row[1:]):
        report.missing("Held-out errors (Table 2)", "fit")
        return
    report.say("## Held-out errors (Table 2)\n\nMean squared errors in ms², of samples of another seed that no network has seen; in "
               "parentheses the paper's, of other costs. Then the root of it over the mean cost, and Kendall's tau of measured and "
               f"predicted. Steps were measured in {study.size['held_out_passes']} passes, of which the fastest counts, exchanges "
               f"{study.size['held_out_exchange_runs']} times each. The last line compares the fastest of every other pass with that of the rest, and two measurements of the "
               f"exchanges of {study.size['devices'][0]} devices: what a measurement is worth.\n")
    parts = [f"{part}: {what}" for part in ("step", "forward", "backward") for what in ("MSE (paper)", "relative", "tau")]
    report.say(table(["networks", *parts], [*rows, again]))
    report.bars("table_2", "Table 2: errors of samples that no network has seen", "root of the mean squared error, % of the mean cost", drawn)
    trained = study.size["devices"]
    rows = []
    for devices in [*trained, *study.size["untrained"]]:
        row = [f"{devices}{'' if devices in trained else ', never trained'}"]
        for part in ("forward", "backward"):
            found = samples.predicted(folder / "test_exchanges_ours.csv", part, devices)
            real, told = samples.costs(found)
            if not real:
                row += ["-"] * 2
                continue
            row += [f"{100 * relative_error(found):.1f} %", number(samples.kendall_tau(real, told), 3)]
        rows.append(row)
    report.say("### Our exchange networks on numbers of devices that they never saw\n")
    report.say(table(["devices", "forward: relative error", "tau", "backward: relative error", "tau"], rows))
    starts(report)


def starts(report):
    """Exchange networks from several starts."""
    study, rows = report.study, []
    devices = study.size["devices"][-1]
    for seed in range(study.size["compared_starts"]):
        row = [seed]
        for part in ("forward", "backward"):
            for model in stages.MODELS:
                found = samples.predicted(study.folder / f"starts/{model}_{seed}.csv", part, devices)
                row.append(f"{100 * relative_error(found):.1f} %" if found else "-")
        rows.append(row)
    if all(cell == "-" for row in rows for cell in row[1:]):
        report.missing("Exchange networks from several starts", "starts")
        return
    report.say(f"### Exchange networks from {len(rows)} starts\n\nHeld-out relative errors on {devices} devices, of one network each.\n")
    report.say(table(["start", *(f"{part}: {model}" for part in ("forward", "backward") for model in stages.MODELS)], rows))
