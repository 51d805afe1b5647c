// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/cluster/balance_weights.ipp>
#include <tessera/cluster/constrained_kmeans.ipp>
#include <tessera/cluster/distance_embedding.ipp>
#include <tessera/cluster/min_cost_flow.ipp>
#include <tessera/cluster/seeding.ipp>
#include <tessera/cluster/unit_costs.ipp>
#include <tessera/cluster/unit_placement.ipp>
