// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// All of shard/ but what reads and writes files: plans of who holds which table, and tables on several ranks.
#include <tessera/shard/agreed_shards.hpp>
#include <tessera/shard/average_replicas.hpp>
#include <tessera/shard/block_order.hpp>
#include <tessera/shard/copied_sums.hpp>
#include <tessera/shard/device_exchange_state.hpp>
#include <tessera/shard/device_message.hpp>
#include <tessera/shard/device_split_ids.hpp>
#include <tessera/shard/embedding_times.hpp>
#include <tessera/shard/exchange.hpp>
#include <tessera/shard/flat_exchange.hpp>
#include <tessera/shard/flat_exchange_state.hpp>
#include <tessera/shard/id_message.hpp>
#include <tessera/shard/move_rows.hpp>
#include <tessera/shard/partial_sums.hpp>
#include <tessera/shard/pooled_ids.hpp>
#include <tessera/shard/rank_messages.hpp>
#include <tessera/shard/row_split.hpp>
#include <tessera/shard/sample_rows.hpp>
#include <tessera/shard/sharded_batch.hpp>
#include <tessera/shard/sharded_saved.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/shard/shards_here.hpp>
#include <tessera/shard/table_spec.hpp>
