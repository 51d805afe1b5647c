# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""The stages of the study. Each runs commands of plan_tables that were not done yet; what they write is in the study's folder."""

import collections
import functools
import json
import pathlib
import random

import samples

PEER = pathlib.Path(__file__).resolve().parents[2] / "bench/peers/torchrec_plan.py"
HEURISTICS = ["greedy-size", "greedy-dim", "greedy-lookup", "greedy-size-lookup", "greedy-log-rows-lookup"]
BASELINES = [*HEURISTICS, "torchrec"]
WHOLE = ["whole-even-compute", "whole"]  # the best that AutoShard's and DreamShard's learned policies could find
MODELS = ["published", "ours"]
SEARCHES = ["published", "plan"]
# Of our networks, measured beside them: the best whole tables, and what a search finds that adds a deviation to what networks disagree about.
OF_OURS = [*WHOLE, "cautious"]
CAUTION = 1


def most_dims(study):
    """The largest dims of Table 1's settings."""
    return study.size["dims"]


def settings(study):
    return [(devices, dim) for devices in study.size["devices"] for dim in most_dims(study)]


def wanted_settings(study):
    """Those that were asked for."""
    return [one for one in settings(study) if not study.settings or one in study.settings]


def simulating_models(study, dim):
    """The models that search all tasks of settings of this largest dim: our networks, which take longer, in the hardest ones alone."""
    return [one for one in MODELS if one != "ours" or dim == most_dims(study)[-1]]


def measured_methods():
    """The plans that are measured: method, and the model that it searches on. The heuristics ask none."""
    return [*((method, "published") for method in HEURISTICS), *((method, "ours") for method in OF_OURS),
            *((method, model) for model in MODELS for method in SEARCHES)]


def limits(study, devices):
    evaluations = study.size["scale_evaluations" if devices == study.size["scale_devices"] else "evaluations"]
    return ["--devices", devices, "--bytes-per-device", study.size["device_bytes"], "--weights-alone", "--evaluations", evaluations,
            "--threads", study.threads]


def model_words(model):
    return ["--model", f"models/{model}"]


def tables(study, name):
    return json.loads((study.folder / name).read_text())


def pool(study):
    """The pool of tables, of a batch of the study's size."""
    size = study.size
    if size["pool"] is None:
        study.once("pool", "tasks", "--pool", "pool.json", "--batch", size["batch"])
    elif not (study.folder / "pool.json").exists():
        # A thousandth of the rows of some tables with few reads, so that all that is tiny.
        study.once("pool", "tasks", "--pool", "whole_pool.json")
        few = sorted(tables(study, "whole_pool.json"), key=lambda one: one["pooling_factor"])[:size["pool"]]
        for one in few:
            one["bags"] = one["distinct_bags"] = size["batch"]
            one["row"] = max(100, one["row"] // 1000, 2 * round(size["batch"] * one["pooling_factor"]))
        study.write("pool.json", json.dumps(few))


def collect(study):
    """Samples to learn from, others to test on, of steps in several passes, and exchanges of numbers of devices that are not learned from."""
    pool(study)
    size = study.size
    drawn = ["--pool", "pool.json", "--dims", ",".join(map(str, size["dims"])), "--batches", size["batch"], "--threads", study.threads]
    # Caches are flushed before each run of a step: the first is as cold as others.
    of_steps = [*drawn, "--warm-up", 0, "--limit-bytes", size["device_bytes"]]
    # Exchanges move dims: memory limits none of them.
    of_exchanges = [*drawn, "--warm-up", size["exchange_warm_up"], "--limit-bytes", "1024TB", "--least-placed", size["least_placed"],
                    "--most-placed", size["most_placed"]]
    # All steps are measured in passes, minutes apart, of which the fastest counts, as of the plans that are measured: what slows a machine for a
    # while would be taken for the cost of tables. Passes that models learn from and those that they are tested on are measured in turns.
    learned, tested = (collections.deque(one) for one in (learned_passes(study), passes(study)))
    while learned or tested:
        from_learned = len(learned) * size["held_out_passes"] >= len(tested) * size["collect_passes"]
        folder = (learned if from_learned else tested).popleft()
        seed, count, runs = (0, size["samples"], size["collect_runs"]) if from_learned else (1, size["held_out"], size["held_out_runs"])
        study.once(f"collect {folder}", "collect", folder, "--samples", count, "--seed", seed, "--runs", runs, *of_steps)
    trained, untrained = size["devices"], size["untrained"]
    few, tested = size["held_out_exchanges"], size["held_out_exchange_runs"]
    for folder, seed, count, runs, of_devices in (("exchanges", 0, size["exchanges"], size["exchange_runs"], trained),
                                                  ("test_exchanges", 1, few, tested, [*trained, *untrained]),
                                                  ("again_exchanges", 1, few, tested, trained)):
        for devices in of_devices:
            study.once(f"collect {folder} {devices}", "collect", folder, "--exchanges", count, "--seed", seed, "--runs", runs,
                       *of_exchanges, *study.rank_words(devices, True), hosts=devices)


def learned_passes(study):
    """The folders of the steps that models learn from, the same in each."""
    return ["steps", *(f"steps_again_{one}" for one in range(2, study.size["collect_passes"] + 1))]


def passes(study):
    """The folders of the held-out steps, the same in each."""
    return ["test_steps", "again_steps", *(f"steps_of_pass_{one}" for one in range(3, study.size["held_out_passes"] + 1))]


def held_out(study, kind, ending, part, devices):
    """What networks predict of held-out samples, and what was measured of them: of steps the fastest of all passes."""
    folder = study.folder / "predicted"
    found = samples.predicted(folder / f"test_{kind}_{ending}.csv", part, devices)
    if kind != "steps":
        return found
    return samples.of_passes(found, [samples.predicted(folder / f"{one}_ours.csv", part, devices) for one in passes(study)])


def counts(study):
    """Numbers of samples that models learn from, without the largest, which has the models' own names."""
    return study.size["counts"][:-1]


def training(study):
    """Words of `fit` that all networks share."""
    size = study.size
    first, *again = learned_passes(study)
    return [first, *(["--fastest", "--again", *again] if again else []), "--exchanges-of", "exchanges", "--epochs", size["epochs"], "--batch",
            size["fit_batch"], "--threads", study.threads]


def predict(study, model):
    """What networks predict of the samples to test on."""
    for folder in ("test_steps", "test_exchanges"):
        study.once(f"predict {folder} {model}", "predict", folder, *model_words(model), "--threads", study.threads, "--out",
                   f"predicted/{folder}_{model}.csv")


def fit(study):
    """Both kinds of networks, learned from all samples and from fewer; then what they predict of the samples to test on."""
    study.mkdir("models")
    study.mkdir("predicted")

    def one(model, count):
        some = [] if count == study.size["counts"][-1] else ["--samples", count, "--exchanges", count]
        name = f"{model}_{count}" if some else model
        words = ["--starts", study.size["starts"], "--out"] if model == "ours" else ["--published"]
        study.once(f"fit {name}", "fit", *training(study), *some, *words, f"models/{name}")
        predict(study, name)

    # Those that take longest first.
    study.together([functools.partial(one, model, count) for model in reversed(MODELS) for count in reversed(study.size["counts"])])
    for folder in (*passes(study)[1:], "again_exchanges"):
        study.once(f"predict {folder} ours", "predict", folder, *model_words("ours"), "--threads", study.threads, "--out",
                   f"predicted/{folder}_ours.csv")


def starts_of_exchanges(study):
    """Exchange networks of both kinds from several starts, each alone: whether a start matters. Steps are few, since nobody asks for them."""
    size, few = study.size, ["--samples", study.size["counts"][0]]
    study.mkdir("starts")

    def one(seed, model, words):
        name = f"starts/{model}_{seed}"
        study.once(f"fit start {model} {seed}", "fit", *training(study), *few, "--seed", seed, *words, name)
        study.once(f"predict start {model} {seed}", "predict", "test_exchanges", "--model", name, "--threads", study.threads, "--out",
                   f"{name}.csv")

    study.together([functools.partial(one, seed, model, words) for seed in range(size["compared_starts"])
                    for model, words in (("published", ["--published"]), ("ours", ["--starts", 1, "--out"]))])


def tasks(study, devices, dim, count=None, name=None, seed=0, **other):
    """A folder of tasks."""
    size = study.size
    name = name or f"tasks/{devices}x{dim}"
    study.once(f"tasks {name}", "tasks", "--tables", "pool.json", "--out", name, "--tasks", count or size["tasks"], "--devices", devices,
               *(["--seed", seed] if seed else []), "--most-dim", dim, "--least-tables",
               other.get("least", size["least_tables"].get(devices)), "--most-tables", other.get("most", size["most_tables"].get(devices)),
               "--bytes-per-device", size["device_bytes"], "--slack-bytes", size["slack_bytes"])
    return name


def torchrec(study, name, devices, files, *where):
    """Plans of TorchRec's planner (bench/peers/torchrec_plan.py)."""
    study.once(name, *files, "--devices", devices, "--bytes-per-device", study.size["device_bytes"], "--weights-alone", "--least-columns",
               ",".join(map(str, study.size["dims"])), *where, tool=[study.torchrec, PEER], may_fail=["no plan"])


def simulate_torchrec(study, devices, dim, folder):
    """What TorchRec's plans of a folder of tasks cost by the models, as `compare` writes it."""
    files, out = sorted((study.folder / folder).glob("task_*.json")), f"torchrec/{devices}x{dim}"
    torchrec(study, f"torchrec {devices}x{dim}", devices, files, "--out-dir", out)
    for model in simulating_models(study, dim):
        csv = f"simulated/{devices}x{dim}_{model}_torchrec.csv"
        if not (study.folder / csv).exists():
            both = [(f"{folder}/{file.name}", f"{out}/{file.name}") for file in files]
            write_torchrec(study, csv, {task: shown_cost(study, devices, task, plan, model) for task, plan in both})


def shown_cost(study, devices, task, plan, model):
    """What a model predicts of a plan, as text; empty where there is none."""
    if not (study.folder / plan).exists():
        return ""
    told = study.output("show", task, plan, *limits(study, devices)[:5], *model_words(model))
    return told.split(" ms", 1)[0] if told else ""


def write_torchrec(study, csv, costs):
    study.write(csv, "task,method,cost_ms,seconds\n" + "".join(f"{task},torchrec,{cost},nan\n" for task, cost in costs.items()))


def simulate(study):
    """Table 1 by the models: all methods on all tasks, of each setting. Models of fewer samples search one setting (Figure 8)."""
    study.mkdir("simulated")
    of = [(devices, dim, tasks(study, devices, dim)) for devices, dim in reversed(wanted_settings(study))]

    def one(devices, dim, folder, model):
        study.once(f"simulate {devices}x{dim} {model}", "compare", folder, *limits(study, devices), *model_words(model), "--csv",
                   f"simulated/{devices}x{dim}_{model}.csv")

    # Our networks take longest.
    calls = [functools.partial(one, *setting, model) for model in reversed(MODELS) for setting in of
             if model in simulating_models(study, setting[1])]
    if study.torchrec:
        calls += [functools.partial(simulate_torchrec, study, *setting) for setting in of]
    study.together(calls)


def plan_file(devices, dim, task, method, model):
    return f"plans/{devices}x{dim}_{task}_{method}_{model}.json"


def chosen_tasks(study, devices, dim):
    """The first tasks that the most of the methods find plans for, by the published networks. What random placements find counts for
    nothing: they fit the tasks alone that are easy for all."""
    tasks_of = samples.compared(study.folder / f"simulated/{devices}x{dim}_published.csv")
    found = {task.rsplit("/", 1)[-1].removesuffix(".json"): sum(cost is not None for name, (cost, _) in methods.items() if name != "random")
             for task, methods in tasks_of.items()}
    return sorted(sorted(found), key=lambda name: -found[name])[:study.size["measured_tasks"]]


# What plan_tables says where there is no plan, or none was found.
NO_PLAN = ("no plan", "no device has room", "would hold more than it may", "is too large for a device", "all devices together are too small")


def search(study, devices, task_file, plan, method, model):
    """Finds a plan and its report beside it. Returns whether there was one."""
    words = ["--method", "plan", "--caution", CAUTION] if method == "cautious" else ["--method", method]
    known = study.once(f"search {plan}", "search", task_file, *limits(study, devices), *model_words(model), *words, "--out", plan, "--report",
                       plan.replace(".json", ".report.json"), may_fail=NO_PLAN)
    return not known["failed"]


def words_of_steps(study, devices, task_file, plans, rounds, out):
    return ["measure", task_file, *plans, "--devices", devices, "--threads", study.threads, "--warm-up", 0, "--runs",
            study.size["plan_runs"], "--rounds", rounds, "--no-exchanges", "--out", out]


def measure_plans(study, name, devices, task_file, plans):
    """Measures plans in turns: steps in one process, then exchanges between ranks."""
    size = study.size
    study.mkdir("measured")
    steps, out = f"measured/{name}.steps.csv", f"measured/{name}.csv"
    study.once(f"measure steps {name}", *words_of_steps(study, devices, task_file, plans, size["plan_rounds"], steps), "--fastest")
    study.once(f"measure exchanges {name}", "measure", task_file, *plans, "--devices", devices, "--threads", study.threads, "--fastest",
               "--warm-up", size["exchange_warm_up"], "--runs", size["exchange_runs"], "--rounds", size["exchange_rounds"], "--compute", steps,
               "--out", out, *study.rank_words(devices, False), hosts=devices)


def plans_of(study, devices, dim, task):
    """Finds the plans of a task that are measured, by all methods, and for Figure 8 by models that learned from fewer samples."""
    few = [(method, f"{model}_{count}") for count in counts(study) for method, model in (("published", "published"), ("plan", "ours"))]
    hardest = dim == most_dims(study)[-1] and devices == study.size["devices"][0]
    task_file = f"tasks/{devices}x{dim}/{task}.json"
    plans = []
    for method, model in measured_methods() + ([("random", "published"), *few] if hardest else []):
        plan = plan_file(devices, dim, task, method, model)
        if search(study, devices, task_file, plan, method, model):
            plans.append(plan)
    if study.torchrec:
        plan = plan_file(devices, dim, task, "torchrec", "torchrec")
        torchrec(study, f"search {plan}", devices, [task_file], "--out", plan)
        plans += [plan] if (study.folder / plan).exists() else []
    # A plan beside its own copy: how far measurements of the same differ.
    own, again = (plan_file(devices, dim, task, method, "ours") for method in ("plan", "again"))
    if own in plans:
        study.write(again, (study.folder / own).read_text())
        plans.append(again)
    # What the heuristics' plans cost by the other models.
    for model in MODELS[1:]:
        for method in (*HEURISTICS, *(["random"] if hardest else [])):
            search(study, devices, task_file, plan_file(devices, dim, task, method, model), method, model)
    return plans


def measure(study):
    """Table 1 by measurement: plans of some tasks of each setting."""
    study.mkdir("plans")
    of = [(devices, dim, task) for devices, dim in wanted_settings(study) for task in chosen_tasks(study, devices, dim)]
    study.together([functools.partial(plans_of, study, *one) for one in of])
    for devices, dim, task in of:
        measure_plans(study, f"{devices}x{dim}_{task}", devices, f"tasks/{devices}x{dim}/{task}.json", plans_of(study, devices, dim, task))


STEP_DEVICES = 2
STEP_METHODS = ["greedy-lookup", *SEARCHES]


def step(study):
    """Whole steps of ranks that have a processor each, beside the same plans measured apart."""
    size, dim, model = study.size, most_dims(study)[-1], "ours"
    study.mkdir("steps_of_ranks")
    folder = tasks(study, STEP_DEVICES, dim, size["step_tasks"], f"tasks/steps_{STEP_DEVICES}x{dim}")
    for task in sorted((study.folder / folder).glob("task_*.json")):
        task_file, name = f"{folder}/{task.name}", f"steps_of_ranks/{task.stem}"
        both = [(method, f"{name}_{method}.json") for method in STEP_METHODS]
        plans = [plan for method, plan in both if search(study, STEP_DEVICES, task_file, plan, method, model)]
        if not plans:
            continue
        measure_plans(study, f"step_{task.stem}", STEP_DEVICES, task_file, plans)
        # The same steps while another process does them too, as ranks do: processors share caches, memory and more. Medians count, since the
        # fastest rounds would be those when the other did something else.
        of_rounds = lambda rounds, out: words_of_steps(study, STEP_DEVICES, task_file, plans, rounds, f"{name}_{out}.csv")
        with study.beside(*of_rounds(10_000, "other")):
            study.once(f"measure beside {task.stem}", *of_rounds(size["plan_rounds"], "beside"))
        study.once(f"measure whole {task.stem}", "measure", task_file, *plans, "--devices", STEP_DEVICES, "--whole-steps", "--fastest",
                   "--warm-up", 2, "--runs", size["step_runs"], "--rounds", size["step_rounds"], "--out", f"{name}.csv",
                   *study.rank_words(STEP_DEVICES, False), hosts=STEP_DEVICES)


ABLATIONS = {"full": [], "without beam": ["--steps", 0], "without grid": ["--grid", 0], "without kept sums": ["--no-sums"]}


def ablate(study):
    """Tables 3 and 7, and Figure 9: the published search with parts left out, and with other bounds."""
    study.mkdir("ablated")
    dim = most_dims(study)[-1]
    calls = []

    def later(name, devices, folder, csv, *words):
        calls.append(functools.partial(study.once, name, "compare", folder, *limits(study, devices), *model_words("published"), "--methods",
                                       "published", "--csv", f"ablated/{csv}.csv", *words))

    for devices in study.size["devices"]:
        folder = tasks(study, devices, dim)
        for name, words in ABLATIONS.items():
            later(f"ablate {devices} {name}", devices, folder, f"{devices}_{name.replace(' ', '_')}", *words)
    devices = study.size["devices"][0]
    folder = tasks(study, devices, dim, study.size["swept_tasks"], f"tasks/swept_{devices}x{dim}")
    for option, values in study.size["swept"].items():
        for value in values:
            later(f"sweep {option} {value}", devices, folder, f"{option}_{value}", f"--{option}", value)
    study.together(calls)


def scale(study):
    """Table 4's protocol: many tables on many devices; the baselines place the shards that our plan cuts."""
    size = study.size
    devices, dim = size["scale_devices"], most_dims(study)[-1]
    folder = tasks(study, devices, dim, size["scale_tasks"], f"tasks/scale_{devices}", least=size["scale_tables"], most=size["scale_tables"])
    for task in sorted((study.folder / folder).glob("task_*.json")):
        plan = f"scale/{task.stem}.json"
        study.mkdir(f"scale/{task.stem}")
        if not search(study, devices, f"{folder}/{task.name}", plan, "plan", "ours"):
            continue
        search(study, devices, f"{folder}/{task.name}", f"scale/{task.stem}_published.json", "published", "ours")
        whole = json.loads(task.read_text())
        shards = [{**whole[s["table"]], "name": f"{whole[s['table']]['name']}/{s['first_column']}", "dim": s["columns"]}
                  for s in json.loads((study.folder / plan).read_text())["shards"]]
        study.write(f"scale/{task.stem}/shards.json", json.dumps(shards))
        study.once(f"scale {task.stem}", "compare", f"scale/{task.stem}", *limits(study, devices), *model_words("ours"), "--methods",
                   ",".join(["random", *HEURISTICS, *WHOLE]), "--csv", f"scale/{task.stem}.csv")
        if study.torchrec:
            of, plan = f"{folder}/{task.name}", f"scale/{task.stem}_torchrec.json"
            torchrec(study, f"search {plan}", devices, [of], "--out", plan)
            cost = shown_cost(study, devices, of, plan, "ours")
            write_torchrec(study, f"scale/{task.stem}_torchrec.csv", {f"scale/{task.stem}/shards.json": cost})


SECOND = 1000  # ms


def deadlines(study, devices):
    """The deadlines of searches: [(model, ms, the file of what was found)]."""
    both = [(model, SECOND) for model in MODELS]
    return [(model, ms, f"searches/within_{devices}_{model}_{ms}.csv") for model, ms in [("published", study.size["deadlines_ms"][devices]), *both]]


def searches(study):
    """The searches alone: within deadlines, beside all plans of few tables, and of very many tables on very many devices."""
    size, dim = study.size, most_dims(study)[-1]
    study.mkdir("searches")
    for devices in size["devices"]:
        for model, deadline, csv in deadlines(study, devices):
            study.once(f"search within {devices} {model} {deadline}", "compare", tasks(study, devices, dim), *limits(study, devices),
                       *model_words(model), "--methods", "published,plan", "--deadline", deadline, "--csv", csv)
    devices = size["devices"][0]
    few = tasks(study, devices, dim, size["few_tasks"], "tasks/few", least=min(4, size["few_tables"]), most=size["few_tables"])
    study.once("search few", "compare", few, *limits(study, devices), *model_words("ours"), "--methods", "whole,exhaustive", "--csv",
               "searches/few.csv")
    devices, count = size["many_devices"], size["many_tables"]
    many = tasks(study, devices, dim, 1, "tasks/many", least=count, most=count)
    study.once("search many", "search", f"{many}/task_0000.json", "--devices", devices, "--bytes-per-device", size["device_bytes"],
               "--weights-alone", "--roofline", "--evaluations", size["many_evaluations"], "--deadline", size["many_deadline_ms"], "--threads",
               study.threads, "--report", "searches/many.json", may_fail=NO_PLAN)


def on_own_device(count):
    """A plan of whole tables, each on a device of its own."""
    return json.dumps({"shards": [{"table": t, "rank": t} for t in range(count)]})


def sweep(study, name, variants):
    """Measures variants of a table, each a table on a device of its own."""
    study.write(f"observed/{name}.json", json.dumps(variants))
    study.write(f"observed/{name}.plan.json", on_own_device(len(variants)))
    size = study.size
    study.once(f"observe {name}", "measure", f"observed/{name}.json", f"observed/{name}.plan.json", "--devices", len(variants),
               "--no-exchanges",
               "--warm-up", 0, "--runs", size["runs"], "--rounds", size["rounds"], "--threads", study.threads, "--out",
               f"observed/{name}.csv")


def observe(study):
    """Observations 1 and 2: one table with several dims, pooling factors and numbers of rows; many tables together and alone."""
    pool(study)
    size, of_pool = study.size, tables(study, "pool.json")
    draw = random.Random(1)
    most = size["dims"][-1]
    # Tables with reads enough to be measured.
    least = sorted(one["pooling_factor"] for one in of_pool)[len(of_pool) // 2]
    fitting = [one for one in of_pool if one["row"] * most * 4 <= size["device_bytes"] and one["pooling_factor"] >= least]
    drawn = draw.sample(fitting, min(size["observed_tables"], len(fitting)))
    for one in drawn:
        sweep(study, f"dims_{one['name']}", [{**one, "dim": dim, "name": f"{one['name']}/{dim}"} for dim in size["dims"]])
    # Reads stay as often repeated; four times as many of them still fit into a quarter of the rows.
    for one in drawn[:1]:
        reads = one["pooling_factor"] * one["bags"]
        shrunk = [one["row"] // part for part in (1, 4, 16, 64) if one["row"] // part >= 4 * reads]
        rows = [{**one, "dim": most, "row": row, "name": f"{one['name']}/{row}"} for row in shrunk or [one["row"]]]
        sweep(study, f"rows_{one['name']}", rows)
        wide = {**one, "dim": most, "row": max(one["row"], round(8 * reads))}
        lengths = [{**wide, "pooling_factor": one["pooling_factor"] * part, "name": f"{one['name']}/{part}"} for part in (0.25, 0.5, 1, 2, 4)]
        sweep(study, f"pooling_{one['name']}", lengths)
    for number in range(size["observed_subsets"]):
        while True:
            subset = draw.sample(of_pool, size["observed_size"])
            if sum(one["row"] for one in subset) * size["observed_dim"] * 4 <= size["device_bytes"]:
                break
        name = f"observed/subset_{number}"
        study.write(f"{name}.json", json.dumps([{**one, "dim": size["observed_dim"]} for one in subset]))
        study.write(f"{name}.apart.json", on_own_device(len(subset)))
        study.write(f"{name}.together.json", json.dumps({"shards": [{"table": t, "rank": 0} for t in range(len(subset))]}))
        study.once(f"observe subset {number}", "measure", f"{name}.json", f"{name}.apart.json", f"{name}.together.json", "--devices",
                   len(subset),
                   "--no-exchanges", "--warm-up", 0, "--runs", size["runs"], "--rounds", size["rounds"], "--threads", study.threads,
                   "--out", f"{name}.csv")


def session_log(sessions, seed):
    """A log of sessions as CSV: what is known of a user stays in a session, items change (RecD)."""
    draw = random.Random(seed)
    lines = ["label,user,history,likes,item,shop,context"]
    for _ in range(sessions):
        user = f"u{draw.randrange(sessions)}"
        history = "|".join(f"h{int(draw.paretovariate(0.7)) % 20000}" for _ in range(20))
        likes = "|".join(f"l{int(draw.paretovariate(0.7)) % 20000}" for _ in range(10))
        for _ in range(max(1, round(draw.expovariate(1 / 16)))):
            item, shop = int(draw.paretovariate(0.6)) % 50000, int(draw.paretovariate(0.9)) % 500
            lines.append(f"{draw.randrange(2)},{user},{history},{likes},i{item},s{shop},c{draw.randrange(1000)}")
    return "\n".join(lines) + "\n"


def recd(study):
    """Profiles of a log of sessions with and without deduplication, the plan of each, and what each costs where there is deduplication."""
    size, devices = study.size, study.size["devices"][0]
    study.mkdir("recd")
    if not (study.folder / "recd/log.csv").exists():
        study.write("recd/log.csv", session_log(size["log_sessions"], 3))
    columns = ["--label-column", "label", "--sparse-columns", "user,history[],likes[],item,shop,context", "--batch", size["batch"], "--dim",
               size["dims"][-1], "--threads", study.threads]
    study.once("profile without", "profile", "recd/log.csv", *columns, "--out", "recd/without.json")
    study.once("profile with", "profile", "recd/log.csv", *columns, "--dedup", "user+history+likes", "--out", "recd/with.json")
    plans = []
    for name in ("without", "with"):
        plan = f"recd/plan_{name}.json"
        if search(study, devices, f"recd/{name}.json", plan, "plan", "ours"):
            plans.append(plan)
    for plan in plans:
        study.once(f"show {plan}", "show", "recd/with.json", plan, *model_words("ours"), "--devices", devices, "--threads", study.threads)
    measure_plans(study, "recd", devices, "recd/with.json", plans)


STAGES = {"collect": collect, "fit": fit, "starts": starts_of_exchanges, "simulate": simulate, "measure": measure, "step": step, "ablate": ablate,
          "searches": searches, "observe": observe, "recd": recd, "scale": scale}
