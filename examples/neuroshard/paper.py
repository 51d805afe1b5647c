# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""Numbers that the paper states. Source: Zha et al., "Pre-train and Search", MLSys 2023; the number of the table is in each name."""

# (devices, largest dim) -> NeuroShard's improvement over its strongest baseline.
TABLE_1 = {(4, 4): 0.014, (4, 8): 0.015, (4, 16): 0.085, (4, 32): 0.065, (4, 64): 0.209, (4, 128): 0.181,
           (8, 4): 0.005, (8, 8): 0.089, (8, 16): 0.049, (8, 32): 0.210, (8, 64): 0.238, (8, 128): 0.234}

# Part -> devices -> mean squared error in ms².
TABLE_2 = {"step": {4: 0.21, 8: 0.21}, "forward": {4: 0.02, 8: 0.05}, "backward": {4: 0.02, 8: 0.04}}

# Devices -> what is left out -> cost in ms (None: it does not say), share of tasks solved, seconds of a search. Tables 3 and 7.
TABLES_3_7 = {4: {"full": (39.99, 1.0, 10.75), "without beam": (None, 0.87, 0.05), "without grid": (42.90, 1.0, 2.12),
                  "without kept sums": (39.99, 1.0, 95.87)},
              8: {"full": (49.10, 1.0, 20.79), "without beam": (None, 0.63, 0.09), "without grid": (55.97, 1.0, 4.09),
                  "without kept sums": (49.10, 1.0, 164.21)}}

# Method -> embedding cost in ms, on 128 devices. "whole-even-compute" stands for AutoShard, "whole" for DreamShard.
TABLE_4 = {"random": 118.3, "greedy-size": 107.6, "greedy-dim": 90.8, "greedy-lookup": 102.4, "greedy-size-lookup": 109.2,
           "torchrec": 86.4, "whole-even-compute": 86.6, "whole": 61.6, "plan": 55.2}
