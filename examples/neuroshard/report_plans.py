# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""The parts of the report about plans: what they cost by the models, and measured."""

import json
import math
import statistics

import paper
import samples
import stages
from markdown import number, percent, table
from samples import mean


NAMES = {"published": "published networks", "ours": "our networks"}


def predicted_cost(study, plan):
    """What the model that a plan was searched on predicts of it, shards of a table on one device being one; None where there is no plan."""
    path = study.folder / plan
    return json.loads(path.read_text())["found"]["cost_ms"] if path.exists() else None


def measured_tasks(study):
    """[(devices, dim, task, {(method, model): measured cost})] of all settings."""
    found = []
    for devices, dim in stages.settings(study):
        for path in sorted((study.folder / "measured").glob(f"{devices}x{dim}_task_*.csv")):
            if path.name.endswith(".steps.csv"):
                continue
            costs = {}
            for plan, of_devices in samples.measured(path).items():
                method, model = plan.rsplit("/", 1)[-1].removesuffix(".json").removeprefix(path.stem + "_").split("_", 1)
                costs[method, model] = samples.slowest(of_devices)
            found.append((devices, dim, path.stem.removeprefix(f"{devices}x{dim}_"), costs))
    return found


def scatter(page):
    """Figure 8, left."""
    study, series, rows = page.study, {}, []
    for model in stages.MODELS:
        points = []
        for devices, dim, task, costs in measured_tasks(study):
            for (method, own), cost in costs.items():
                if method == "again":  # a copy of another
                    continue
                plan = stages.plan_file(devices, dim, task, method, model)
                if (own == model or method in (*stages.HEURISTICS, "random")) and (told := predicted_cost(study, plan)) is not None:
                    points.append((told, cost))
        if points:
            series[model] = points
            told, real = map(list, zip(*points))
            rows.append([model, len(points), f"{100 * math.sqrt(mean((a - b) ** 2 for a, b in points)) / mean(real):.1f} %",
                         percent(mean(told) / mean(real) - 1), number(samples.pearson(told, real), 3),
                         number(samples.kendall_tau(told, real), 3)])
    if not rows:
        page.missing("Predicted and measured costs of plans (Figure 8, left)", "measure")
        return
    page.say("## Predicted and measured costs of plans (Figure 8, left)\n")
    page.say(table(["networks", "plans", "root mean square error over mean", "mean error", "correlation", "tau"], rows))
    page.figure("scatter", "Plans", "predicted, ms", "measured, ms", series, log_x=True, log_y=True, diagonal=True)


def counts(page):
    """Figure 8, middle and right."""
    study, rows, series, of_plans = page.study, [], {}, {}
    devices, dim = study.size["devices"][0], stages.most_dims(study)[-1]
    plans = {task: costs for d, m, task, costs in measured_tasks(study) if (d, m) == (devices, dim)}
    for model in stages.MODELS:
        for count in study.size["counts"]:
            ending = f"_{count}" if count != study.size["counts"][-1] else ""
            row = [model, count]
            for part, kind in (("step", "steps"), ("forward", "exchanges"), ("backward", "exchanges")):
                found = stages.held_out(study, kind, model + ending, part, None if part == "step" else devices)
                if not found:
                    row.append("-")
                    continue
                error = math.sqrt(mean((one[3] - one[4]) ** 2 for one in found)) / mean(one[3] for one in found)
                row.append(f"{100 * error:.1f} %")
                series.setdefault(f"{model}, {part}", []).append((count, 100 * error))
            search = {"published": "published", "ours": "plan"}[model]
            own = [costs[search, model + ending] for costs in plans.values() if (search, model + ending) in costs]
            row.append(number(mean(own)) if own and len(own) == len(plans) else "-")
            if row[-1] != "-":
                of_plans.setdefault(f"{search} on {model}", []).append((count, mean(own)))
            rows.append(row)
    if not series:
        page.missing("Numbers of samples (Figure 8, middle and right)", "fit")
        return
    page.say("## Numbers of samples (Figure 8, middle and right)\n\nErrors of held-out samples relative to the mean cost, exchanges of "
             f"{devices} devices; and the mean measured cost of the plans that were searched on the networks (published search on published "
             f"ones, ours on ours), {len(plans)} tasks of dims up to {dim}. Exchanges are as many as samples, at most all. Paper: all get "
             "better with more samples, and the plans of 100 samples are already very good.\n")
    page.say(table(["networks", "samples", "step", "forward", "backward", "plans, ms"], rows))
    page.figure("samples", "Errors by number of samples", "samples", "relative error, %", series, joined=True, log_x=True, log_y=True)
    if of_plans:
        page.figure("sample_plans", "Plans by number of samples", "samples", "measured cost, ms", of_plans, joined=True, log_x=True)


def simulated(page):
    """Table 1, by the models."""
    study = page.study
    for model in stages.MODELS:
        rows, drawn = [], {}
        settings = [one for one in stages.settings(study) if model in stages.simulating_models(study, one[1])]
        for devices, dim in settings:
            tasks = samples.compared(*(study.folder / f"simulated/{devices}x{dim}_{model}{of}.csv" for of in ("", "_torchrec")))
            if not tasks:
                continue
            row = [f"{devices}, {dim}"]
            names = list(next(iter(tasks.values())))
            for name in names:
                costs = [methods[name][0] for methods in tasks.values()]
                solved = [cost for cost in costs if cost is not None]
                row.append(number(mean(solved)) + (f" ({len(solved)})" if len(solved) < len(costs) else "") if solved else "-")
            costs = [{name: cost for name, (cost, _) in methods.items()} for methods in tasks.values()]
            over_heuristics, over_whole = ({name: improvement(costs, baselines, name) for name in ("published", "plan")}
                                           for baselines in (stages.BASELINES, [*stages.HEURISTICS, *stages.WHOLE]))
            measured_there = paper.TABLE_1.get((devices, dim), math.nan)
            row += [percent(one) for one in (*over_heuristics.values(), *over_whole.values(), measured_there)]
            drawn[f"{devices} devices, {dim}"] = {name: 100 * one
                                                  for name, one in {**over_heuristics, "paper, measured": measured_there}.items()}
            both = [(of["published"][0], of["plan"][0]) for of in tasks.values()]
            both = [pair for pair in both if None not in pair]
            row.append(f"{number(ratio_of(both), 4)}, costlier {sum(b > a for a, b in both)}")
            row.append(", ".join(number(mean(of[name][1] for of in tasks.values()), 3) for name in ("published", "plan")))
            rows.append(row)
        if not rows:
            page.missing(f"Table 1 by {NAMES[model]}", "simulate")
            continue
        page.say(f"## Table 1 by {NAMES[model]}\n\nMean predicted ms of the tasks that a method solved; in parentheses how many, where not "
                 f"all {study.size['tasks']}. The improvement is that over the best heuristic of each task, of which TorchRec's planner is "
                 "one where it was asked, and over the best placement of whole tables, of the tasks that both solve; *paper*: over its "
                 "strongest baseline, measured. The last columns: what the library's search costs in parts of the published one's, over the tasks "
                 "that both solve, and on how many it costs more; seconds of a task.\n")
        say_settings(page, len(rows), len(settings))
        page.say(table(["devices, dims up to", *names, "published over heuristics", "plan over heuristics", "published over whole tables",
                        "plan over whole tables", "paper", "plan over published: cost, tasks", "seconds: published, plan"], rows))
        page.bars(f"table_1_{model}", f"Table 1 by {NAMES[model]}: how much more the best heuristic costs than the search", "%", drawn)


def ratio_of(pairs):
    """The sum of second numbers over that of first ones; NaN where there are none."""
    return sum(b for _, b in pairs) / sum(a for a, _ in pairs) if pairs else math.nan


def say_settings(page, there, of):
    if there < of:
        page.say(f"Missing: {of - there} of {of} settings.\n")


def improvement(tasks, baselines, name):
    """How much more the best of the baselines costs than a method, over the tasks that both solve. tasks: [{method: cost or None}]."""
    pairs = [(min(costs), of[name]) for of in tasks if of.get(name) is not None
             and (costs := [of[one] for one in baselines if of.get(one) is not None])]
    return sum(a for a, _ in pairs) / sum(b for _, b in pairs) - 1 if pairs else math.nan


SEARCHED = [*(f"{method} on {model}" for model in stages.MODELS for method in stages.SEARCHES), *(f"{method} on ours" for method in stages.OF_OURS)]


def measured_setting(study, devices, dim, found):
    """The measured costs of each task of a setting, by what a report calls the plans, and "best", that of the best heuristic."""
    named = []
    for d, m, _, costs in found:
        if (d, m) == (devices, dim):
            of = {**{method: cost for (method, _), cost in costs.items() if method in stages.BASELINES},
                  **{f"{method} on {model}": cost for (method, model), cost in costs.items()}}
            of["best"] = min((of[name] for name in stages.BASELINES if name in of), default=None)
            named.append(of)
    return named


def common_tasks(study, devices, dim, found):
    """The tasks of a setting that all searches, and a heuristic, solve."""
    named = measured_setting(study, devices, dim, found)
    return named, [of for of in named if all(of.get(name) is not None for name in ["best", *SEARCHED])]


def strongest(tasks):
    """The heuristic or planner that costs least in the mean of tasks that it solves all, as the paper has it: (mean cost, name)."""
    return min(((mean(of[name] for of in tasks), name) for name in stages.BASELINES if all(name in of for of in tasks)),
               default=(math.nan, "none"))


def over_strongest(tasks, name):
    """How much more the strongest baseline costs than another method, both in the mean of the tasks."""
    return strongest(tasks)[0] / mean(of[name] for of in tasks) - 1


def measured(page):
    """Table 1, measured."""
    study, costs, gains, drawn, found = page.study, [], [], {}, measured_tasks(page.study)
    for devices, dim in stages.settings(study):
        named, tasks = common_tasks(study, devices, dim, found)
        if not tasks:
            continue
        setting, (least, name) = f"{devices}, {dim}", strongest(tasks)
        costs.append([setting, f"{len(tasks)} of {len(named)}", f"{number(least)} ({name})",
                      *(number(mean(of[one] for of in tasks)) for one in ["best", *SEARCHED])])
        drawn[f"{devices} devices, {dim}"] = {**{one: 100 * over_strongest(tasks, one) for one in SEARCHED},
                                              "paper": 100 * paper.TABLE_1.get((devices, dim), math.nan)}
        gains.append([setting, *(f"{percent(over_strongest(tasks, one))} ({percent(improvement(tasks, ['best'], one))})" for one in SEARCHED),
                      percent(paper.TABLE_1.get((devices, dim), math.nan))])
    if not costs:
        page.missing("Table 1, measured", "measure")
        return
    page.say("## Table 1, measured\n\nThe first of the tasks that most of the methods find plans for. Plans of a task were measured in turns, "
             "with the same ids; the fastest rounds count. *search on networks* names the search, then the networks that it searched on; "
             f"*cautious* is the library's search by means plus {stages.CAUTION} standard deviation over networks. Milliseconds in the mean of tasks. The "
             "strongest baseline is the one of the heuristics and TorchRec's planner that costs least in the mean; the paper has AutoShard and "
             "DreamShard too, whose place *whole-even-compute* and *whole* take here, the best there are for what "
             "these lower. *best of each task* takes the best measured of them task by task, the luck of its measurement with it.\n")
    say_settings(page, len(costs), len(stages.settings(study)))
    page.say(table(["devices, dims up to", "tasks", "strongest baseline", "best of each task", *SEARCHED], costs))
    page.say("How much more the strongest baseline costs; in parentheses, the best baseline of each task, in the mean of tasks.\n")
    page.say(table(["devices, dims up to", *SEARCHED, "paper"], gains))
    page.bars("table_1_measured", "Table 1, measured: how much more the strongest baseline costs than the search", "%", drawn)


def in_short(page):
    """What the page says, in a few lines."""
    study, found, lines = page.study, measured_tasks(page.study), []
    tasks = {setting: common for setting in stages.settings(study) if (common := common_tasks(study, *setting, found)[1])}
    for name in SEARCHED:
        if tasks:
            of = {setting: over_strongest(common, name) for setting, common in tasks.items()}
            hardest = [f"{devices} devices, {dim}: {percent(of[devices, dim])}" for devices, dim in of if dim in most_of(study)]
            lines.append(f"Measured, how much more the strongest baseline costs than *{name}*: {'; '.join(hardest)}. Mean of all {len(of)} settings "
                         f"{percent(mean(of.values()))}, least {percent(min(of.values()))}.")
    for devices in study.size["devices"]:
        for model in stages.MODELS:
            if both := gains_of_table_1(study, devices, model):
                lines.append(f"How much more plans of the published search cost than the library's, on {NAMES[model]} of {devices} devices: "
                             f"predicted {percent(mean(told for told, _ in both))}, "
                             f"measured {percent(mean(real for _, real in both))} ({len(both)} tasks).")
    if lines:
        page.say("In short:\n\n" + "\n".join(f"- {line}" for line in lines))


def most_of(study):
    """The two largest dims."""
    return stages.most_dims(study)[-2:]


def gains_of_table_1(study, devices, model):
    """[(predicted, measured)] of the tasks of Table 1: how much more the published search's plan costs than the library's."""
    found = []
    for d, dim, task, costs in measured_tasks(study):
        told = [predicted_cost(study, stages.plan_file(d, dim, task, method, model)) for method in stages.SEARCHES]
        real = [costs.get((method, model)) for method in stages.SEARCHES]
        if d == devices and None not in told and None not in real:
            found.append((told[0] / told[1] - 1, real[0] / real[1] - 1))
    return found


def gain(page):
    """Whether what a better search gains on networks is there in measurements."""
    study, rows = page.study, []
    for devices in study.size["devices"]:
        for model in stages.MODELS:
            if found := gains_of_table_1(study, devices, model):
                told, real = map(list, zip(*found))
                rows.append([f"{devices}, {model}", len(told), percent(mean(told)), percent(mean(real)), percent(statistics.median(real)),
                             f"{sum(one > 0 for one in real)} of {len(real)}",
                             number(mean(real) / mean(told), 2) if mean(told) > 1e-6 else "-"])
    if not rows:
        page.missing("Is the gain of search real?", "measure")
        return
    page.say("## Is the gain of search real?\n\nThe library's search against the published one, both on the same networks: how much more the "
             "published one's plans cost by these networks, and measured. A search finds a network's errors too.\n")
    page.say(table(["devices, networks", "tasks", "predicted gain", "measured gain", "median", "measured gain above 0",
                    "share that is real"], rows))
    twice = [abs(costs["again", model] / costs["plan", model] - 1) for _, _, _, costs in measured_tasks(study) for model in stages.MODELS
             if ("again", model) in costs]
    if twice:
        page.say(f"A plan and a copy of it, measured in turns as others, differ by {100 * mean(twice):.1f} % in the mean of {len(twice)} "
                 f"tasks, {100 * max(twice):.1f} % at most.")


def whole_steps(page):
    """Steps of ranks that run at once."""
    study, rows, apart_ms, whole_ms = page.study, [], [], []
    for path in sorted((study.folder / "steps_of_ranks").glob("task_*[0-9].csv")):
        apart, beside, whole = (samples.measured(one) for one in (study.folder / f"measured/step_{path.stem}.csv",
                                                                  path.with_name(f"{path.stem}_beside.csv"), path))
        for plan in whole:
            if plan in apart and plan in beside:
                costs = [predicted_cost(study, plan), samples.slowest(apart[plan]), samples.slowest(whole[plan])]
                compute = [max(one[0] for one in of[plan]) for of in (apart, beside, whole)]
                rows.append([path.stem, plan.removesuffix(".json").removeprefix(f"steps_of_ranks/{path.stem}_"), *map(number, costs),
                             number(costs[2] / costs[1], 3), *map(number, compute)])
                apart_ms.append(costs[1])
                whole_ms.append(costs[2])
    if not rows:
        page.missing("Whole steps of two ranks", "step")
        return
    page.say(f"## Whole steps of two ranks\n\nPlans of {stages.STEP_DEVICES} devices, dims up to {stages.most_dims(study)[-1]}: predicted by our "
             "networks; measured as above, device by device and exchange by exchange; and in steps of `sharded_tables`, "
             "each rank on a processor of its own, with other ids in each step. Milliseconds of the slower rank, lookups, updates, vectors and "
             f"gradients. Measured apart and whole: tau {number(samples.kendall_tau(apart_ms, whole_ms), 3)}, correlation "
             f"{number(samples.pearson(apart_ms, whole_ms), 3)}.\n")
    page.say(table(["task", "plan", "predicted", "measured apart", "whole steps", "whole over apart", "compute: apart",
                    "beside another process that computes", "in whole steps"], rows))


def of_compare(path, name="published"):
    """Cost of the tasks that were solved, share that was, and seconds of a search."""
    tasks = samples.compared(path)
    costs = {task: methods[name][0] for task, methods in tasks.items()}
    return costs, mean(methods[name][1] for methods in tasks.values())


def ablation(page):
    """Tables 3 and 7."""
    study, rows, drawn = page.study, [], {}
    for devices in study.size["devices"]:
        found = {name: of_compare(study.folder / f"ablated/{devices}_{name.replace(' ', '_')}.csv") for name in stages.ABLATIONS}
        if not all(costs for costs, _ in found.values()):
            continue
        common = [task for task in found["full"][0] if all(costs[task] is not None for costs, _ in found.values())]
        for name, (costs, seconds) in found.items():
            solved = [cost for cost in costs.values() if cost is not None]
            cost, success, took = paper.TABLES_3_7.get(devices, {}).get(name, (math.nan, math.nan, math.nan))
            of_full = paper.TABLES_3_7.get(devices, {}).get("full", (math.nan,))[0]
            drawn[f"{devices} devices, {name}"] = {"here": mean(costs[task] for task in common) / mean(found["full"][0][task] for task in common),
                                                   "paper": math.nan if cost is None else cost / of_full}
            rows.append([devices, name, number(mean(solved)), number(mean(costs[task] for task in common)),
                         f"{100 * len(solved) / len(costs):.1f} %",
                         number(seconds, 3), f"{number(cost)}, {100 * success:.1f} %, {took} s" if success == success else "-"])
    if not rows:
        page.missing("What parts of the search give (Tables 3 and 7)", "ablate")
        return
    page.say("## What parts of the search give (Tables 3 and 7)\n\nThe published search on published networks, dims up to "
             f"{stages.most_dims(study)[-1]}, predicted ms. Our search keeps sums of representations where theirs has a cache of predictions; "
             "without them it adds up all of a device's tables anew.\n")
    page.say(table(["devices", "search", "ms of what it solved", "ms of what all solve", "solved", "seconds", "paper: ms, solved, seconds"],
                   rows))
    page.bars("tables_3_7", "Tables 3 and 7: cost of what all solve", "times the full search's", drawn)


def bounds(page):
    """Figure 9."""
    study, rows, drawn = page.study, [], {}
    letters = {"candidates": "N", "beams": "K", "steps": "L", "grid": "M"}
    for option, values in study.size["swept"].items():
        points = []
        found = {value: of_compare(study.folder / f"ablated/{option}_{value}.csv") for value in values}
        found = {value: one for value, one in found.items() if one[0]}
        common = [task for task in next(iter(found.values()), ({}, 0))[0] if all(costs[task] is not None for costs, _ in found.values())]
        for value, (costs, seconds) in found.items():
            cost = mean(costs[task] for task in common)
            solved = sum(one is not None for one in costs.values())
            rows.append([letters[option], value, number(cost), f"{solved} of {len(costs)}", number(seconds, 3)])
            if cost == cost:
                points.append((value, cost))
        if points:
            drawn[option] = points
    if not rows:
        page.missing("Bounds of the search (Figure 9)", "ablate")
        return
    page.say(f"## Bounds of the search (Figure 9)\n\nThe published search on published networks, {study.size['devices'][0]} devices, others "
             "as in the paper; mean predicted ms of the tasks that are solved with all values of a bound. Paper: larger values are better "
             "and take longer.\n")
    page.say(table(["bound", "value", "ms", "solved", "seconds"], rows))
    for option, points in drawn.items():
        letter = letters[option]
        page.figure(f"bound_{letter}", f"Cost by {letter} ({option})", letter, "predicted, ms", {"ms": points}, joined=True)


def scale(page):
    """Table 4's protocol."""
    study, costs = page.study, {}
    for path in sorted((study.folder / "scale").glob("task_*[0-9].csv")):
        own = {name: (predicted_cost(study, f"scale/{path.stem}{of}.json"), 0) for name, of in (("published", "_published"), ("plan", ""))}
        for methods in samples.compared(path, path.with_name(f"{path.stem}_torchrec.csv")).values():
            for name, (cost, _) in {**methods, **own}.items():
                costs.setdefault(name, []).append(cost)
    if not costs:
        page.missing("Many devices (Table 4)", "scale")
        return
    cutting = "the published search and TorchRec's planner cut" if "torchrec" in costs else "the published search cuts"
    page.say(f"## Many devices (Table 4)\n\n{study.size['scale_tables']} tables on {study.size['scale_devices']} devices, predicted by our "
             "networks, which were not trained for so many devices; nothing is measured here. The baselines place the shards that our plan "
             f"cuts, as in the paper; {cutting} tables anew.\n")
    ours = costs["plan"]
    rows, drawn = [], {}
    for name, of in costs.items():
        both = [(a, b) for a, b in zip(of, ours) if a is not None]
        drawn[name] = {"here": sum(a for a, _ in both) / sum(b for _, b in both) if both else math.nan,
                       "paper": paper.TABLE_4.get(name, math.nan) / paper.TABLE_4["plan"]}
        rows.append([name, f"{len(both)} of {len(of)}", number(mean(a for a, _ in both)),
                     *(number(one, 3) for one in drawn[name].values())])
    page.say(table(["method", "solved", "ms", "over plan", "paper: over NeuroShard"], rows))
    page.bars("table_4", "Table 4: cost on many devices", "times our plan's; paper: times NeuroShard's", drawn)


def within_deadline(study, csv):
    """What the library's search costs in parts of the published one's where it has little time, over the tasks that both solve; on how many it
    costs more, or finds nothing where the published one does; and its mean seconds. None: not searched."""
    tasks = [(of["published"][0], *of["plan"]) for of in samples.compared(study.folder / csv).values()]
    both = [(published, plan) for published, plan, _ in tasks if None not in (published, plan)]
    costlier = sum(published is not None and (plan is None or plan > published) for published, plan, _ in tasks)
    return (ratio_of(both), costlier, mean(seconds for _, _, seconds in tasks)) if tasks else None


def over_best(study):
    """What the library's plans of few whole tables cost in parts of the best there are, task by task; infinite where it finds none."""
    tasks = samples.compared(study.folder / "searches/few.csv").values()
    return [math.inf if of["whole"][0] is None else of["whole"][0] / of["exhaustive"][0] for of in tasks if of["exhaustive"][0] is not None]


def searches(page):
    """The searches alone."""
    study, size = page.study, page.study.size
    found, known = over_best(study), study.done("search many")
    rows = [[devices, model, f"{ms / 1000:g}", number(of[0]), of[1], number(of[2], 3)]
            for devices in size["devices"] for model, ms, csv in stages.deadlines(study, devices) if (of := within_deadline(study, csv))]
    if not found or not known or not rows:
        page.missing("Searches alone", "searches")
        return
    page.say("## Searches alone\n\nWhat the library's search costs in parts of the published one's, which takes its own time, on the same "
             f"networks, dims up to {stages.most_dims(study)[-1]}; on how many tasks it costs more; and its mean seconds. A search stops within "
             f"its deadline or after {size['evaluations']} plans.\n")
    page.say(table(["devices", "networks", "deadline, s", "cost over the published search's", "costlier", "seconds"], rows))
    page.say(f"Of {len(found)} tasks of up to {size['few_tables']} whole tables on {size['devices'][0]} devices, by our networks, the library's "
             f"search finds the best plan of all that there are in {sum(one <= 1 + 1e-5 for one in found)}; the worst of its plans costs "
             f"{100 * (max(found) - 1):.2f} % more.\n")
    very_many = f"{size['many_tables']} tables on {size['many_devices']} devices, by counted bytes"
    if known["failed"]:
        page.say(f"{very_many}: no plan was found.")
        return
    many = json.loads((study.folder / "searches/many.json").read_text())
    page.say(f"{very_many}, with at most {size['many_deadline_ms'] / 1000:g} seconds for the search: {known['seconds']:.1f} s and at most "
             f"{known['most_mib']} MiB in all, {many['shards']} shards, {many['evaluations']} plans compared, {number(many['cost_ms'])} ms.")


def recd(page):
    """Plans of profiles with and without deduplication."""
    study = page.study
    found = samples.measured(study.folder / "measured/recd.csv")
    shards = {}
    for name in ("without", "with"):
        path = study.folder / f"recd/plan_{name}.json"
        if path.exists():
            shards[name] = {(s["table"], s["first_row"], s["first_column"], s["rows"], s["columns"], s["rank"])
                            for s in json.loads(path.read_text())["shards"]}
    if len(shards) < 2 or len(found) < 2:
        page.missing("Deduplication (RecD) and plans", "recd")
        return
    held = {name: {frozenset(shard[:-1] for shard in of if shard[-1] == rank) for rank in {shard[-1] for shard in of}}
            for name, of in shards.items()}
    rows = []
    for name in ("without", "with"):
        plan = f"recd/plan_{name}.json"
        known = study.done(f"show {plan}")
        rows.append([name, len(shards[name]), number(predicted_cost(study, plan)), known["output"].split(" ms", 1)[0] if known else "-",
                     number(samples.slowest(found[plan]))])
    profiles = {name: {one["name"]: one for one in json.loads((study.folder / f"recd/{name}.json").read_text())} for name in shards}
    page.say("## Deduplication (RecD) and plans\n\nA log of sessions; the user and two lists stay in a session. A plan was searched for with "
             "the profile that ignores repeats, and with the one that knows them. The plans "
             + (f"differ: {len(held['with'] - held['without'])} of {len(held['with'])} devices hold what none holds in the other plan.\n"
                if held["with"] != held["without"] else "are the same, whatever the devices' numbers.\n"))
    page.say(table(["profile without or with deduplication", "shards", "predicted ms by its own profile",
                    "predicted ms where there is deduplication", "measured ms where there is"], rows))
    of_tables = [[name, number(one["bags"], 6), number(one["distinct_bags"], 6)] for name, one in profiles["with"].items()]
    page.say(table(["table", "bags", "distinct bags"], of_tables))
    drawn = {f"profile {name} deduplication": {"predicted by it": row[2], "predicted where there is": row[3], "measured where there is": row[4]}
             for name, row in zip(("without", "with"), rows)}
    page.bars("recd", "RecD: plans of both profiles", "ms", {name: {what: float(ms) for what, ms in of.items() if ms != "-"}
                                                             for name, of in drawn.items()})


PARTS = (scatter, counts, simulated, measured, gain, whole_steps, ablation, bounds, searches, scale, recd)
