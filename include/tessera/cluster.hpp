// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// All of cluster/: clusters of points, with and without bounds on their sizes.
#include <tessera/cluster/balance_weights.hpp>
#include <tessera/cluster/constrained_kmeans.hpp>
#include <tessera/cluster/distance_embedding.hpp>
#include <tessera/cluster/kmeans.hpp>
#include <tessera/cluster/min_cost_flow.hpp>
#include <tessera/cluster/points.hpp>
#include <tessera/cluster/seeding.hpp>
#include <tessera/cluster/transfer_tree.hpp>
#include <tessera/cluster/unit_costs.hpp>
#include <tessera/cluster/unit_placement.hpp>
