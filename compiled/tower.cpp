// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tower/exchange_costs.ipp>
#include <tessera/tower/feature_affinity.ipp>
#include <tessera/tower/peer_batch.ipp>
#include <tessera/tower/plan_towers.ipp>
#include <tessera/tower/split_columns.ipp>
#include <tessera/tower/tower_baselines.ipp>
#include <tessera/tower/tower_blocks.ipp>
#include <tessera/tower/tower_costs.ipp>
#include <tessera/tower/tower_kinds.ipp>
#include <tessera/tower/tower_partitioner.ipp>
