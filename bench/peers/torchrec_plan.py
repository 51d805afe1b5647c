#!/usr/bin/env python3
# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""Plans tables with TorchRec's EmbeddingShardingPlanner: the peer of `plan_tables search` (docs/planning.md).

    build/peers/bin/python bench/peers/torchrec_plan.py tables.json --devices 4 --bytes-per-device 4GiB --weights-alone --out plan.json
    plan_tables show tables.json plan.json --roofline --devices 4 --bytes-per-device 4GiB --weights-alone
    build/peers/bin/python bench/peers/torchrec_plan.py tasks/*.json --devices 4 --bytes-per-device 4GiB --weights-alone --out-dir plans

Files of tables are those of `plan_tables profile` and `tasks`. Plans are those that `read_plan` reads: `plan_tables show` and `measure` take
them.

- Tables are whole, or cut by columns into equal blocks: TorchRec's table_wise and column_wise, the kernel fused. With --row-wise they may
  also be cut by rows over all devices; such shards return partial sums. Copies on all devices are left out, and so is what depends on hosts.
- TorchRec has one way to cut a table by columns: into the smallest blocks of at least --least-columns that divide the dim and are multiples
  of 4. Its own bound, 128, cuts no table of a dim below 256. Of several bounds, as 8,16,32,64, the plan that TorchRec rates best is taken.
- TorchRec is told rows, dim, row format, optimizer, pooling factor, and the samples of a device: the table's bags or --batch, over devices.
  It knows neither how often rows repeat nor deduplication.
- Its costs are counted bytes over bandwidths. Bandwidths that are not given are constants of TorchRec's.
- Memory counts float weights alone, as NeuroShard does, with --weights-alone; else what TorchRec counts: weights, optimizer's states, and a
  batch's ids and vectors. Of a device's bytes the share --reserve stays free.

A line is printed for each file: TorchRec's rating, in ms of its slowest device, and the seconds from profiles to plan. A file without a plan
is said to have none, and its old plan is removed. The program returns 1 where a file has no plan, and 2 for wrong input. Where TorchRec does
not import, it says which import failed and returns 77.
"""

import argparse
import collections
import json
import logging
import math
import os
import re
import sys
import time
import types
import warnings
from pathlib import Path

Table = collections.namedtuple("Table", "rows dim pooling_factor bags row_format optimizer")
# Rows [first_row, first_row + rows) and columns [first_column, first_column + columns) of a table, on the device `rank`.
Shard = collections.namedtuple("Shard", "table rank first_row rows first_column columns")
# `bytes` (devices,) as TorchRec or --weights-alone counts them.
Planned = collections.namedtuple("Planned", "shards rating_ms bytes least_columns")


class Refused(Exception):
    """Input that is wrong, or a plan that cannot be; the text names it."""


class NoPlan(Exception):
    """TorchRec found no plan; the text is the kind of its error."""


class Missing(Exception):
    """TorchRec does not import; the text names the import."""


def import_torchrec():
    """The names of TorchRec that are used. Raises Missing."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    try:
        import torch
        from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
        from torchrec.distributed.planner.constants import CROSS_NODE_BANDWIDTH, DEFAULT_PERF_ESTIMATOR, HBM_MEM_BW, INTRA_NODE_BANDWIDTH
        from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
        from torchrec.distributed.planner.estimator import EmbeddingPerfEstimatorFactory
        from torchrec.distributed.planner.perf_models import NoopPerfModel
        from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
        from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
        from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
        from torchrec.distributed.planner.types import (
            HardwareConfig,
            KernelConfig,
            ParameterConstraints,
            PlannerError,
            ShardEstimator,
            Storage,
            TopologyFactory,
            TrainerConfig,
        )
        from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig
        from torchrec.modules.embedding_modules import EmbeddingBagCollection
        from torchrec.optim import PartialRowWiseAdam, RowWiseAdagrad
    except Exception as error:  # a library that does not load raises what it likes
        raise Missing(f"{getattr(error, 'name', None) or 'torchrec'}: {type(error).__name__}: {error}") from error
    return types.SimpleNamespace(**locals())


def read_tables(path):
    """The tables of a file of profiles. Raises Refused, naming file, table and field."""
    try:
        profiles = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise Refused(f"{path}: {error}") from error
    if not isinstance(profiles, list) or not profiles or not all(isinstance(one, dict) for one in profiles):
        raise Refused(f"{path}: not a list of profiles of tables")
    tables = []
    for number, one in enumerate(profiles):

        def field(name, kind, least, otherwise=None):
            value = one.get(name, otherwise)
            known = isinstance(value, kind) and not isinstance(value, bool)
            if not known or (least is not None and not least <= value < math.inf):
                raise Refused(f"{path}: table {number}: field '{name}' is {json.dumps(value)}")
            return value

        tables.append(
            Table(
                field("row", int, 1),
                field("dim", int, 1),
                field("pooling_factor", (int, float), 0),
                field("bags", (int, float), 0, 65536),
                field("row_format", str, None, "float"),
                field("optimizer", str, None, "sgd"),
            )
        )
    return tables


def shards_of_plan(plan):
    """The shards of a plan of TorchRec's, whose table `t7` is table 7, by table, column and row. Shards without rows are left out."""
    shards = []
    for module in plan.plan.values():
        for name, parameter in module.items():
            for one in parameter.sharding_spec.shards:
                (first_row, first_column), (rows, columns) = one.shard_offsets, one.shard_sizes
                if rows > 0:
                    shards.append(Shard(int(name[1:]), one.placement.rank(), first_row, rows, first_column, columns))
    return sorted(shards, key=lambda s: (s.table, s.first_column, s.first_row))


def check_shards(tables, shards, devices):
    """Refuses shards that do not cover each element of each table once, on devices there are. Columns begin and end at multiples of 4, or at
    the table's end."""
    covered = [0] * len(tables)
    of_table = collections.defaultdict(list)
    for s in shards:
        if not 0 <= s.table < len(tables) or not 0 <= s.rank < devices:
            raise Refused(f"no such table or device: {s}")
        table = tables[s.table]
        last_row, last_column = s.first_row + s.rows, s.first_column + s.columns
        if s.rows < 1 or s.columns < 1 or s.first_row < 0 or s.first_column < 0 or last_row > table.rows or last_column > table.dim:
            raise Refused(f"empty, or past its table of {table.rows} rows of {table.dim}: {s}")
        if s.first_column % 4 or (last_column % 4 and last_column != table.dim):
            raise Refused(f"columns that are no multiple of 4: {s}")
        for other in of_table[s.table]:
            if (
                s.first_row < other.first_row + other.rows
                and other.first_row < last_row
                and s.first_column < other.first_column + other.columns
                and other.first_column < last_column
            ):
                raise Refused(f"shards overlap: {s}, {other}")
        of_table[s.table].append(s)
        covered[s.table] += s.rows * s.columns
    for number, table in enumerate(tables):
        if covered[number] != table.rows * table.dim:
            raise Refused(f"table {number} of {table.rows} rows of {table.dim} is not covered: {of_table[number]}")


def plan_json(tables, shards):
    """The plan as `plan_json` of include/tessera/shard/sharding_plan_file.hpp has it. Tables that are cut by rows return partial sums."""
    json_of_plan = {"shards": [s._asdict() for s in shards]}
    partial = sorted({s.table for s in shards if s.rows != tables[s.table].rows})
    return {**json_of_plan, "partial": partial} if partial else json_of_plan


def module_of_tables(rec, tables):
    """An EmbeddingBagCollection of these tables, without memory."""
    formats = {"float": rec.DataType.FP32, "float16": rec.DataType.FP16, "bfloat16": rec.DataType.BF16}
    adam, adagrad = rec.torch.optim.Adam, rec.torch.optim.Adagrad
    # By how many floats of state TorchRec counts: ftrl has two an element, as adam; momentum_sgd one, as adagrad.
    optimizers = {
        "sgd": rec.torch.optim.SGD,
        "momentum_sgd": adagrad,
        "adagrad": adagrad,
        "adam": adam,
        "ftrl": adam,
        "rowwise_adagrad": rec.RowWiseAdagrad,
        "rowwise_adam": rec.PartialRowWiseAdam,
    }
    configs = []
    for number, table in enumerate(tables):
        if table.row_format not in formats or table.optimizer not in optimizers:
            raise Refused(f"table {number}: TorchRec has no {table.row_format} rows with {table.optimizer}")
        configs.append(
            rec.EmbeddingBagConfig(
                name=f"t{number}",
                feature_names=[f"f{number}"],
                num_embeddings=table.rows,
                embedding_dim=table.dim,
                data_type=formats[table.row_format],
            )
        )
    module = rec.EmbeddingBagCollection(tables=configs, device=rec.torch.device("meta"))
    for number, table in enumerate(tables):
        module.embedding_bags[f"t{number}"].weight._optimizer_classes = [optimizers[table.optimizer]]
    return module


def float_weights_estimator(rec):
    class FloatWeights(rec.ShardEstimator):
        def __init__(self):
            pass

        def estimate(self, sharding_options, sharder_data_map=None):
            for option in sharding_options:
                for shard in option.shards:
                    shard.storage = rec.Storage(hbm=4 * shard.size[0] * shard.size[1], ddr=0)

    return FloatWeights()


def topology_of(rec, options):
    bytes_per_ms = 1e6  # 1 GB/s
    memory, intra, inter = options.memory_gb_per_second, options.host_gb_per_second, options.exchange_gb_per_second
    return rec.TopologyFactory.create_topology(
        rec.TrainerConfig(
            world_size=options.devices,
            local_world_size=options.devices_of_host or options.devices,
            hbm_cap_bytes=options.bytes_per_device,
        ),
        rec.HardwareConfig(
            hbm_mem_bw=memory * bytes_per_ms if memory else rec.HBM_MEM_BW,
            intra_host_bw=intra * bytes_per_ms if intra else rec.INTRA_NODE_BANDWIDTH,
            inter_host_bw=inter * bytes_per_ms if inter else rec.CROSS_NODE_BANDWIDTH,
        ),
        rec.KernelConfig(compute_device="cuda", use_hardware_based_bandwidth=True),
    )


def constraints_of(tables, options, least_columns):
    """What a table may be, and what is known of its ids: a dictionary of keyword arguments of ParameterConstraints for each table."""
    kinds = ["table_wise", "column_wise"] + (["row_wise"] if options.row_wise else [])
    return {
        f"t{number}": dict(
            sharding_types=kinds,
            compute_kernels=["fused"],
            min_partition=least_columns,
            pooling_factors=[float(table.pooling_factor)],
            batch_sizes=[math.ceil((options.batch or table.bags) / options.devices)],
        )
        for number, table in enumerate(tables)
    }


def plan_once(rec, module, tables, options, least_columns):
    topology = topology_of(rec, options)
    constraints = {name: rec.ParameterConstraints(**of) for name, of in constraints_of(tables, options, least_columns).items()}
    samples = max(of.batch_sizes[0] for of in constraints.values())
    storage = (
        float_weights_estimator(rec)
        if options.weights_alone
        else rec.EmbeddingStorageEstimator(topology=topology, constraints=constraints)
    )
    cost = rec.EmbeddingPerfEstimatorFactory.create(rec.DEFAULT_PERF_ESTIMATOR, topology=topology, constraints=constraints)
    planner = rec.EmbeddingShardingPlanner(
        topology=topology,
        batch_size=max(samples, 1),
        enumerator=rec.EmbeddingEnumerator(topology, max(samples, 1), constraints, [cost, storage]),
        storage_reservation=rec.FixedPercentageStorageReservation(options.reserve),
        constraints=constraints,
        stats=[],
        debug=False,
    )
    try:
        plan = planner.plan(module, [rec.EmbeddingBagCollectionSharder()])
    except rec.PlannerError as error:
        raise NoPlan(error.error_type.name.lower()) from error
    chosen = planner.get_selected_options()
    held = [0] * options.devices
    for option in chosen:
        for shard in option.shards:
            held[shard.rank] += shard.storage.hbm
    return Planned(shards_of_plan(plan), rec.NoopPerfModel(topology).rate(chosen), held, least_columns)


def plan_tables(rec, tables, options):
    """The plan that TorchRec rates best. Raises NoPlan where no bound of options.least_columns has one, Refused for a plan that cannot be."""
    module = module_of_tables(rec, tables)
    found, none = [], None
    for least_columns in options.least_columns:
        try:
            found.append(plan_once(rec, module, tables, options, least_columns))
        except NoPlan as error:
            none = error
    if not found:
        raise none
    best = min(found, key=lambda planned: planned.rating_ms)
    check_shards(tables, best.shards, options.devices)
    if max(best.bytes) > options.bytes_per_device:
        raise Refused(f"a device holds {max(best.bytes)} bytes of {options.bytes_per_device}")
    return best


def write_plan(path, tables, shards):
    """As a whole or not at all."""
    new = Path(f"{path}.new")
    new.write_text(json.dumps(plan_json(tables, shards), indent=1) + "\n")
    os.replace(new, path)


def bytes_of(text):
    """4294967296, 4GiB or 4GB, as plan_tables reads them."""
    match = re.fullmatch(r"(\d+)\s*(?:([kmgtp]?)(i?)b?)", text.strip().lower())
    if not match or (match[3] and not match[2]) or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"not a number of bytes: {text}")
    return int(match[1]) * (1024 if match[3] else 1000) ** " kmgtp".index(match[2] or " ")


def number_of(kind, least, most=math.inf):
    def read(text):
        value = kind(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"not from {least} to {most}: {text}")
        return value

    read.__name__ = "number"
    return read


def parser():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("tables", nargs="*", metavar="TABLES.json", help="files of profiles of tables")
    p.add_argument("--devices", type=number_of(int, 1), help="how many devices hold tables")
    p.add_argument("--bytes-per-device", type=bytes_of, help="what a device may hold: bytes, or as 4GiB")
    p.add_argument("--batch", type=number_of(int, 1), help="samples of a batch, on all devices together; else the bags of each table")
    p.add_argument("--out", help="the plan of the one file of tables")
    p.add_argument("--out-dir", help="the folder of the plans, which are named as their tables")
    p.add_argument("--weights-alone", action="store_true", help="count float weights alone as memory")
    p.add_argument("--reserve", type=number_of(float, 0, 1), default=0, help="the share of a device's bytes that stays free (0)")
    p.add_argument(
        "--least-columns",
        type=lambda text: [number_of(int, 4)(one) for one in text.split(",")],
        default=[128],
        help="bounds of blocks of columns, as 8,16,32 (128)",
    )
    p.add_argument("--row-wise", action="store_true", help="tables may be cut by rows too")
    p.add_argument("--devices-of-host", type=number_of(int, 1), help="all where it is not given")
    p.add_argument("--memory-gb-per-second", type=number_of(float, 1e-9), help="between a device and its memory (963)")
    p.add_argument("--exchange-gb-per-second", type=number_of(float, 1e-9), help="of a device, to other hosts (13.4)")
    p.add_argument("--host-gb-per-second", type=number_of(float, 1e-9), help="of a device, inside a host (644)")
    p.add_argument("--selftest", action="store_true", help="test this program")
    return p


def plan_file(rec, path, out, options):
    """Whether there is a plan."""
    Path(out).unlink(missing_ok=True)
    tables = read_tables(path)
    start = time.perf_counter()
    try:
        planned = plan_tables(rec, tables, options)
    except NoPlan as error:
        print(f"{path}: no plan: {error}; {time.perf_counter() - start:.2f} s", flush=True)
        return False
    seconds = time.perf_counter() - start
    write_plan(out, tables, planned.shards)
    cut = sum(count > 1 for count in collections.Counter(s.table for s in planned.shards).values())
    print(
        f"{path}: rated {planned.rating_ms:.4g} ms, {len(tables)} tables in {len(planned.shards)} shards, {cut} cut "
        f"(at least {planned.least_columns} columns), at most {max(planned.bytes)} bytes on a device; {seconds:.2f} s",
        flush=True,
    )
    return True


def main():
    p = parser()
    options = p.parse_args()
    if options.selftest:
        import torchrec_plan_selftest

        return torchrec_plan_selftest.main()
    if not options.tables or not options.devices or not options.bytes_per_device:
        p.error("TABLES.json, --devices and --bytes-per-device are needed")
    if options.devices % (options.devices_of_host or 1):
        p.error("hosts have equally many devices")
    if bool(options.out) == bool(options.out_dir) or (options.out and len(options.tables) > 1):
        p.error("--out for one file of tables, or --out-dir")
    outs = [options.out or str(Path(options.out_dir) / Path(path).name) for path in options.tables]
    if len(set(outs)) < len(outs) or {Path(o).resolve() for o in outs} & {Path(t).resolve() for t in options.tables}:
        p.error("each plan has a file of its own")
    try:
        rec = import_torchrec()
    except Missing as error:
        print(f"SKIPPED: torchrec_plan: no import of {error}")
        return 77
    if options.out_dir:
        Path(options.out_dir).mkdir(parents=True, exist_ok=True)
    try:
        return 0 if all([plan_file(rec, path, out, options) for path, out in zip(options.tables, outs)]) else 1
    except Refused as error:
        print(f"torchrec_plan: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
