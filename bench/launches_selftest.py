# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""A check that never fails proves nothing: launches that were disturbed must be named, quiet ones not. Needs no package; `python3 launches_selftest.py`."""

import unittest
from collections import defaultdict

import compare
from launches import disturbance, mark_disturbed, quiet_seconds


def record(seconds=1.0, machine=100.0, moved=0.02, others=0.01):
    return dict(seconds=seconds, machine=machine, moved=moved, others=others, fraction=0.9)


class Disturbance(unittest.TestCase):
    def test_a_quiet_launch_counts(self):
        self.assertEqual(disturbance(record(), best=100), "")
        self.assertEqual(disturbance(record(machine=85, moved=0.09, others=0.09), best=100), "")

    def test_a_slow_machine_is_named(self):
        self.assertEqual(disturbance(record(machine=79), best=100), "slow")

    def test_a_ceiling_that_moved_is_named(self):
        self.assertEqual(disturbance(record(moved=0.11), best=100), "moved")

    def test_a_neighbour_on_one_core_is_named_though_the_ceilings_are_as_ever(self):
        self.assertEqual(disturbance(record(others=1.0), best=100), "neighbour")
        self.assertEqual(disturbance(record(others=0.11), best=100), "neighbour")

    def test_what_was_not_told_is_not_judged(self):
        self.assertEqual(disturbance(dict(seconds=1, machine=100, moved=None, others=None), best=100), "")
        self.assertEqual(disturbance(dict(seconds=1, machine=100), best=100), "")

    def test_only_quiet_launches_are_counted_and_all_where_none_is_quiet(self):
        records = [record(3), record(1, others=0.5), record(2)]
        mark_disturbed(records)
        self.assertEqual(quiet_seconds(records), [2, 3])
        mark_disturbed(records[1:2])
        self.assertEqual(quiet_seconds(records[1:2]), [1])

    def test_launches_are_repeated_until_enough_are_quiet_or_the_machine_will_not_be(self):
        neighbours = iter([1.0, 0.0, 1.0, 0.0, 0.0])
        side = compare.Side(["work"], lambda names: {"work": record(others=next(neighbours))})
        side.launch(["work"])
        side.repeat_disturbed(2)
        self.assertEqual([r["disturbed"] for r in side.records["work"]], ["neighbour", "", "neighbour", ""])
        never = compare.Side(["work"], lambda names: {"work": record(others=1.0)})
        never.launch(["work"])
        never.repeat_disturbed(1)
        self.assertEqual(len(never.records["work"]), 4)

    def test_a_result_of_disturbed_launches_says_so(self):
        work = compare.Work("work", "program", "script.py", ("peer", "other"), 1.0)

        def result(ours, peer):
            sides = {"ours": [ours], "peer": [peer], "other": [record(9)]}
            made = {}
            for name, records in sides.items():
                mark_disturbed(records)
                made[name] = compare.Side(["work"], None)
                made[name].records = defaultdict(list, work=records)
            return compare.result_of(work, made)

        quiet, busy = result(record(1), record(2)), result(record(1), record(2, others=1.0))
        self.assertEqual((quiet["peer"], quiet["ratio"], quiet["disturbed"]), ("peer", 2.0, []))
        self.assertEqual(busy["disturbed"], ["peer"])
        self.assertIn("disturbed |", compare.markdown([busy], ""))
        self.assertIn("(2e+03 neighbour)", compare.markdown([busy], ""))
        self.assertNotIn("disturbed |", compare.markdown([quiet], ""))


if __name__ == "__main__":
    unittest.main()
