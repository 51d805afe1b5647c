// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/shard/copied_sums.ipp>
#include <tessera/shard/flat_exchange.ipp>
#include <tessera/shard/id_message.ipp>
#include <tessera/shard/move_rows.ipp>
#include <tessera/shard/row_split.ipp>
#include <tessera/shard/sample_rows.ipp>
#include <tessera/shard/sharding_plan.ipp>
