// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/embed/local_tables.hpp>
#include <tessera/embed/source_adaptor.hpp>
#include <tessera/tower/dlrm_tower.hpp>
#include <tessera/tower/pass_through.hpp>
#include <tessera/tower/tower_source.hpp>

// A source that keeps replicas of hot rows, and one around it.
struct hot_tables : tessera::source_adaptor<tessera::local_tables> {
  using source_adaptor::source_adaptor;
  static constexpr bool has_hot_replicas = true;
};
using around = tessera::source_adaptor<hot_tables>;
static_assert(tessera::reads_hot_replicas<around> && !tessera::reads_hot_replicas<tessera::local_tables>);

#if CASE == 1  // says: a module over hot replicas
template class tessera::tower_source<hot_tables, tessera::dlrm_tower>;
#elif CASE == 2  // says: a module over hot replicas
template class tessera::tower_source<around, tessera::dlrm_tower>;
#elif CASE == 3  // says: towers of a source that owns dense parameters
template class tessera::tower_source<tessera::tower_source<tessera::local_tables, tessera::dlrm_tower>, tessera::pass_through>;
#else
template class tessera::tower_source<around, tessera::pass_through>;
template class tessera::tower_source<tessera::local_tables, tessera::dlrm_tower>;
#endif
