// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// All of tower/ but what reads and writes files: towers, their partitions, and the exchange by hosts.
#include <tessera/tower/agreed_towers.hpp>
#include <tessera/tower/any_tower.hpp>
#include <tessera/tower/dcn_tower.hpp>
#include <tessera/tower/dlrm_tower.hpp>
#include <tessera/tower/dot_tower.hpp>
#include <tessera/tower/exchange_costs.hpp>
#include <tessera/tower/feature_affinity.hpp>
#include <tessera/tower/pass_through.hpp>
#include <tessera/tower/peer_batch.hpp>
#include <tessera/tower/plan_towers.hpp>
#include <tessera/tower/received_towers.hpp>
#include <tessera/tower/split_columns.hpp>
#include <tessera/tower/split_source.hpp>
#include <tessera/tower/sptt_saved.hpp>
#include <tessera/tower/sptt_tables.hpp>
#include <tessera/tower/tower_baselines.hpp>
#include <tessera/tower/tower_blocks.hpp>
#include <tessera/tower/tower_costs.hpp>
#include <tessera/tower/tower_kinds.hpp>
#include <tessera/tower/tower_module.hpp>
#include <tessera/tower/tower_partition.hpp>
#include <tessera/tower/tower_partitioner.hpp>
#include <tessera/tower/tower_passes.hpp>
#include <tessera/tower/tower_ranks.hpp>
#include <tessera/tower/tower_shapes.hpp>
#include <tessera/tower/tower_source.hpp>
