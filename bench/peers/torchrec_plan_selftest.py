# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""What torchrec_plan.py makes of tables and of TorchRec's plans, on small planted tables; `torchrec_plan.py --selftest` runs it.

Without TorchRec only the conversions are tested; the program then says SKIPPED and which import failed, and returns 77. TESSERA_TEST_SEED
repeats a run.
"""

import contextlib
import io
import json
import os
import random
import tempfile
import types
import unittest
from pathlib import Path

import torchrec_plan
from torchrec_plan import NoPlan, Refused, Shard, Table, check_shards

DIMS = [1, 4, 6, 8, 20, 32, 64, 96, 128, 256]
SEED = int(os.environ.get("TESSERA_TEST_SEED") or random.SystemRandom().getrandbits(63))
try:
    REC, MISSING = torchrec_plan.import_torchrec(), None
except torchrec_plan.Missing as error:
    REC, MISSING = None, str(error)


def table(rows=1000, dim=64, pooling_factor=2.0, bags=4096, row_format="float", optimizer="sgd"):
    return Table(rows, dim, pooling_factor, bags, row_format, optimizer)


def options(text):
    return torchrec_plan.parser().parse_args(text.split())


def plan(tables, text):
    return torchrec_plan.plan_tables(REC, tables, options(text))


def weights_of_devices(shards, devices):
    held = [0] * devices
    for s in shards:
        held[s.rank] += 4 * s.rows * s.columns
    return held


def torchrec_shard(rank, first_row, rows, first_column, columns):
    return types.SimpleNamespace(
        shard_offsets=[first_row, first_column], shard_sizes=[rows, columns], placement=types.SimpleNamespace(rank=lambda: rank)
    )


def torchrec_plan_of(**shards):
    tables = {name: types.SimpleNamespace(sharding_spec=types.SimpleNamespace(shards=of)) for name, of in shards.items()}
    return types.SimpleNamespace(plan={"": tables})


class Conversion(unittest.TestCase):
    def test_shards_of_a_plan_come_in_order_without_empty_ones(self):
        given = torchrec_plan_of(
            t10=[torchrec_shard(1, 0, 8, 0, 4)],
            t2=[torchrec_shard(0, 0, 5, 32, 32), torchrec_shard(3, 0, 5, 0, 32)],
            t0=[torchrec_shard(0, 0, 2, 0, 8), torchrec_shard(1, 2, 1, 0, 8), torchrec_shard(2, 3, 0, 0, 8)],
        )
        self.assertEqual(
            torchrec_plan.shards_of_plan(given),
            [Shard(0, 0, 0, 2, 0, 8), Shard(0, 1, 2, 1, 0, 8), Shard(2, 3, 0, 5, 0, 32), Shard(2, 0, 0, 5, 32, 32), Shard(10, 1, 0, 8, 0, 4)],
        )

    def test_plans_name_all_of_a_shard_and_tables_cut_by_rows_are_partial(self):
        tables = [table(rows=3, dim=8), table(rows=5, dim=8)]
        by_columns = [Shard(0, 1, 0, 3, 0, 8), Shard(1, 0, 0, 5, 0, 4), Shard(1, 1, 0, 5, 4, 4)]
        made = torchrec_plan.plan_json(tables, by_columns)
        self.assertEqual(list(made), ["shards"])
        self.assertEqual(made["shards"][2], {"table": 1, "rank": 1, "first_row": 0, "rows": 5, "first_column": 4, "columns": 4})
        by_rows = [Shard(0, 1, 0, 3, 0, 8), Shard(1, 0, 0, 4, 0, 8), Shard(1, 1, 4, 1, 0, 8)]
        self.assertEqual(torchrec_plan.plan_json(tables, by_rows)["partial"], [1])

    def test_wrong_shards_are_refused(self):
        tables = [table(rows=10, dim=16), table(rows=4, dim=6)]
        right = [Shard(0, 0, 0, 10, 0, 8), Shard(0, 1, 0, 10, 8, 8), Shard(1, 1, 0, 4, 0, 6)]
        check_shards(tables, right, 2)
        for wrong, text in (
            (right[:2], "not covered"),
            (right[1:], "not covered"),
            (right + right[2:], "overlap"),
            ([right[0], Shard(0, 1, 0, 10, 4, 12), right[2]], "overlap"),
            ([right[0], Shard(0, 2, 0, 10, 8, 8), right[2]], "no such table or device"),
            ([*right, Shard(2, 0, 0, 1, 0, 4)], "no such table or device"),
            ([right[0], Shard(0, 1, 0, 10, 8, 12), right[2]], "past its table"),
            ([right[0], Shard(0, 1, 0, 0, 8, 8), right[2]], "empty"),
            ([Shard(0, 0, 0, 10, 0, 6), Shard(0, 1, 0, 10, 6, 10), right[2]], "multiple of 4"),
        ):
            with self.assertRaisesRegex(Refused, text):
                check_shards(tables, wrong, 2)

    def test_profiles_are_read_and_wrong_ones_named(self):
        whole = {"row": 7, "dim": 8, "pooling_factor": 0.5}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tables.json"
            path.write_text(json.dumps([whole, {**whole, "bags": 10, "row_format": "float16", "optimizer": "adam", "bin_0": 1.0}]))
            expected = [Table(7, 8, 0.5, 65536, "float", "sgd"), Table(7, 8, 0.5, 10, "float16", "adam")]
            self.assertEqual(torchrec_plan.read_tables(path), expected)
            for name, value in (("row", 0), ("row", "7"), ("dim", 2.5), ("dim", True), ("pooling_factor", -1), ("bags", float("nan"))):
                path.write_text(json.dumps([whole, {**whole, name: value}]))
                with self.assertRaisesRegex(Refused, f"tables.json: table 1: field '{name}'"):
                    torchrec_plan.read_tables(path)
            for text in ("[]", "{}", "[1]", "[", ""):
                path.write_text(text)
                with self.assertRaisesRegex(Refused, "tables.json"):
                    torchrec_plan.read_tables(path)

    def test_bytes_are_read_as_plan_tables_reads_them(self):
        for text, value in (("7", 7), ("3b", 3), ("2kb", 2000), ("2KiB", 2048), ("4GiB", 1 << 32), ("1 TB", 10**12), ("5m", 5 * 10**6)):
            self.assertEqual(torchrec_plan.bytes_of(text), value)
        for text in ("", "0", "4.5GB", "-1", "4xB", "4ib"):
            with self.assertRaises(torchrec_plan.argparse.ArgumentTypeError):
                torchrec_plan.bytes_of(text)


@unittest.skipIf(REC is None, "no TorchRec")
class Planning(unittest.TestCase):
    def test_random_tables_are_each_covered_once_within_the_limit(self):
        draw = random.Random(SEED)
        for trial in range(8):
            devices = draw.choice([1, 2, 3, 4, 8])
            # With 8 to 13 tables TorchRec tries up to 10,000 combinations.
            tables = [
                table(draw.randint(1, 3000), draw.choice(DIMS), draw.choice([0, 0.1, 1.0, 30.5]), draw.choice([1, 100, 65536]))
                for _ in range(draw.choice([1, 2, 5, 7, 14, 18]))
            ]
            # Twice an even share, and what the largest table takes: whole tables, the largest first, always fit.
            weights = [4 * t.rows * t.dim for t in tables]
            limit = 2 * sum(weights) // devices + max(weights)
            rows = draw.choice(["", " --row-wise"])
            with self.subTest(seed=SEED, trial=trial):
                planned = plan(tables, f"--devices {devices} --bytes-per-device {limit} --weights-alone --least-columns 4,16,128{rows}")
                check_shards(tables, planned.shards, devices)
                self.assertEqual(weights_of_devices(planned.shards, devices), planned.bytes)
                self.assertLessEqual(max(planned.bytes), limit)
                self.assertEqual({s.table for s in planned.shards}, set(range(len(tables))))
                if not rows:
                    self.assertTrue(all(s.rows == tables[s.table].rows for s in planned.shards))
                self.assertTrue(all(s.columns % 4 == 0 or s.columns == tables[s.table].dim for s in planned.shards))

    def test_a_table_too_large_for_a_device_is_cut_by_columns_where_it_may_be(self):
        tables = [table(rows=1000, dim=128), table(rows=10, dim=8)]
        limit = "--devices 2 --weights-alone --bytes-per-device 300000 --least-columns"
        planned = plan(tables, f"{limit} 64")
        rank = planned.shards[0].rank
        self.assertEqual(planned.shards[:2], [Shard(0, rank, 0, 1000, 0, 64), Shard(0, 1 - rank, 0, 1000, 64, 64)])
        self.assertEqual(len(planned.shards), 3)
        self.assertEqual({s.columns for s in plan(tables, f"{limit} 20").shards[:-1]}, {32})  # 20, 24 and 28 do not divide 128
        with self.assertRaises(NoPlan):
            plan(tables, f"{limit} 128")
        self.assertEqual(plan(tables, f"{limit} 128,64").least_columns, 64)

    def test_of_several_bounds_the_plan_that_torchrec_rates_best_is_taken(self):
        draw = random.Random(SEED)
        tables = [table(draw.randint(500, 1000), 256, draw.choice([1, 20]), 4096) for _ in range(3)]
        text = "--devices 4 --bytes-per-device 1GiB --weights-alone --least-columns"
        alone = {least: plan(tables, f"{text} {least}").rating_ms for least in (8, 64, 256)}
        with self.subTest(seed=SEED):
            best = plan(tables, f"{text} 8,64,256")
            self.assertEqual(best.rating_ms, min(alone.values()))
            self.assertEqual(best.rating_ms, alone[best.least_columns])
            self.assertLess(best.rating_ms, max(alone.values()))

    def test_rows_are_cut_only_where_they_may_be(self):
        tables = [table(rows=1001, dim=8)]
        limit = "--devices 4 --weights-alone --bytes-per-device 9000"
        with self.assertRaises(NoPlan):
            plan(tables, limit)
        shards = plan(tables, f"{limit} --row-wise").shards
        self.assertEqual([(s.first_row, s.rows, s.columns) for s in shards], [(0, 251, 8), (251, 251, 8), (502, 251, 8), (753, 248, 8)])
        self.assertEqual(torchrec_plan.plan_json(tables, shards)["partial"], [0])

    def test_pooling_factors_bags_and_bandwidths_reach_torchrec(self):
        text = "--devices 2 --bytes-per-device 1GiB --weights-alone"
        # The largest table is placed first.
        heavy = [table(pooling_factor=1)] * 4 + [table(rows=1100, pooling_factor=50)]
        shards = plan(heavy, text).shards
        self.assertEqual({s.rank for s in shards[:4]}, {1 - shards[4].rank})
        many = [table(bags=1000)] * 4 + [table(rows=1100, bags=50000)]
        shards = plan(many, text).shards
        self.assertEqual({s.rank for s in shards[:4]}, {1 - shards[4].rank})
        shards = plan(many, f"{text} --batch 1000").shards
        self.assertEqual(sorted(sum(s.rank == d for s in shards) for d in range(2)), [2, 3])

        def rating(memory, exchange):
            return plan(heavy, f"{text} --memory-gb-per-second {memory} --host-gb-per-second {exchange}").rating_ms

        both, memory, exchange = rating(1, 1), rating(2, 1), rating(1, 2)
        self.assertAlmostEqual(rating(2, 2), both / 2, delta=1e-9 * both)
        self.assertAlmostEqual(2 * (memory + exchange), 3 * both, delta=1e-9 * both)
        self.assertLess(memory, both)
        self.assertLess(exchange, both)

    def test_ratings_are_the_counted_bytes_that_the_page_says(self):
        # Ids, rows and vectors of a forward pass, and twice its time backward; vectors to the exchange and back.
        text = "--devices 2 --bytes-per-device 1GiB --weights-alone --memory-gb-per-second 1 --host-gb-per-second 2"
        for dim, penalty in ((128, 1), (64, 1.15), (60, 1.75), (16, 1.75)):
            rating = plan([table(dim=dim, pooling_factor=3, bags=1000)], text).rating_ms
            moved, sent = 1000 * 3 * 8 + 1000 * 3 * max(dim, 32) * 4 + 1000 * dim * 4, 1000 * dim * 4
            self.assertAlmostEqual(rating, (3 * moved * penalty + 2 * sent / 2) / 1e6, delta=1e-9 * rating)
        constants = REC.HBM_MEM_BW, REC.INTRA_NODE_BANDWIDTH, REC.CROSS_NODE_BANDWIDTH  # bytes a ms
        self.assertEqual([round(of / 1e6, 1) for of in constants], [963.1, 644.2, 13.4])

    def test_hosts_slow_the_exchange(self):
        text = "--devices 4 --bytes-per-device 1GiB --weights-alone"
        tables = [table()] * 8
        self.assertGreater(plan(tables, f"{text} --devices-of-host 2").rating_ms, plan(tables, text).rating_ms)
        slow = plan(tables, f"{text} --devices-of-host 2 --exchange-gb-per-second 1").rating_ms
        self.assertGreater(slow, plan(tables, f"{text} --devices-of-host 2 --exchange-gb-per-second 2").rating_ms)

    def test_memory_as_torchrec_counts_it_has_states_and_a_batch(self):
        text = "--devices 2 --bytes-per-device 1GiB"

        def held(**of):
            return max(plan([table(rows=10000, dim=32, pooling_factor=3, bags=100, **of)], text).bytes)

        # Ids and vectors of the batch, and 0, 1 or 2 floats of state an element, or 1 a row.
        weights, batch = 4 * 10000 * 32, 100 * 3 * 8 + 100 * 32 * 4
        self.assertEqual(held(), weights + batch)
        self.assertEqual(held(row_format="float16"), weights // 2 + 100 * 3 * 8 + 100 * 32 * 2)
        for name, state in (("adagrad", 1), ("momentum_sgd", 1), ("adam", 2), ("ftrl", 2), ("rowwise_adam", 1), ("rowwise_adagrad", 1 / 32)):
            self.assertEqual(held(optimizer=name), weights + batch + int(weights * state), name)

    def test_what_is_reserved_stays_free(self):
        tables = [table(rows=1000, dim=64)] * 4
        text = "--devices 4 --weights-alone --bytes-per-device 300000"
        self.assertEqual(len(plan(tables, f"{text} --reserve 0.1").shards), 4)
        with self.assertRaises(NoPlan):
            plan(tables, f"{text} --reserve 0.2")

    def test_what_torchrec_has_not_is_named(self):
        for of in ({"row_format": "scaled_int8"}, {"optimizer": "shampoo"}):
            with self.assertRaisesRegex(Refused, "table 1: TorchRec has no"):
                plan([table(), table(**of)], "--devices 1 --bytes-per-device 1GiB")

    def test_a_file_without_a_plan_leaves_none(self):
        with tempfile.TemporaryDirectory() as folder:
            tables, out = Path(folder) / "tables.json", Path(folder) / "plan.json"
            tables.write_text(json.dumps([{"row": 100, "dim": 8, "pooling_factor": 1}]))

            def planned(limit):
                with contextlib.redirect_stdout(io.StringIO()) as said:
                    found = torchrec_plan.plan_file(REC, tables, out, options(f"--devices 2 --weights-alone --bytes-per-device {limit}"))
                self.assertEqual("no plan: " in said.getvalue(), not found)
                return found

            self.assertTrue(planned(3200))
            self.assertEqual(json.loads(out.read_text()), {"shards": [Shard(0, 0, 0, 100, 0, 8)._asdict()]})
            self.assertFalse(planned(3199))
            self.assertEqual(sorted(p.name for p in Path(folder).iterdir()), ["tables.json"])


def main():
    print(f"seed {SEED}", flush=True)
    result = unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromName("torchrec_plan_selftest"))
    if result.wasSuccessful() and REC is None:
        print(f"SKIPPED: torchrec_plan: no import of {MISSING}")
        return 77
    return 0 if result.wasSuccessful() else 1
