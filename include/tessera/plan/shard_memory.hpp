// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/table_bytes.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What a shard takes on its device, in bytes.
struct shard_memory {
  std::int64_t weights = 0;      ///< in the row format
  std::int64_t state = 0;        ///< of the optimizer
  std::int64_t index = 0;        ///< of a hashed table, from ids to rows
  std::int64_t activations = 0;  ///< the vectors of all distinct bags, and their gradients, as float
  std::int64_t exchange = 0;     ///< the ids that other devices send, with one length a distinct bag, as int64

  constexpr std::int64_t total() const noexcept { return weights + state + index + activations + exchange; }
  friend constexpr bool operator==(shard_memory const&, shard_memory const&) = default;
};

/// What counts as the memory of a shard.
enum class counted_memory {
  all,            ///< all of `shard_memory`
  float_weights,  ///< float weights alone, whatever the row format: as NeuroShard counts
};

/// The memory of a shard, before it is built. Weights, state and index are what `bytes_for` of its store says.
/// @throws tessera::error invalid_argument, naming table, field and value, for a row format or an optimizer that there is not.
inline shard_memory memory_of_shard(table_profile const& shard, counted_memory counted = counted_memory::all);

/// What a device takes of each batch, whichever shards it holds: the vectors of its own bags from all tables, and their gradients. It is 0
/// where weights count alone. @throws tessera::error invalid_argument for less than one device.
inline std::int64_t received_bytes(vector_view<table_profile const> tables, std::int64_t devices,
                                   counted_memory counted = counted_memory::all);

namespace detail {

inline row_state_layout state_layout_of(table_profile const& profile) {
  auto const& name = profile.optimizer;
  if (name == sgd::name) return row_state_layout::of(sgd{});
  if (name == momentum_sgd::name) return row_state_layout::of(momentum_sgd{});
  if (name == adagrad::name) return row_state_layout::of(adagrad{});
  if (name == adam::name) return row_state_layout::of(adam{});
  if (name == ftrl::name) return row_state_layout::of(ftrl{});
  if (name == rowwise_adagrad::name) return row_state_layout::of(rowwise_adagrad{});
  if (name == rowwise_adam::name) return row_state_layout::of(rowwise_adam{});
  throw error(errc::invalid_argument, "table_profile: no row optimizer has this name",
              {{"table", profile.name}, {"field", "optimizer"}, {"value", name}});
}

// Returns f<element>().
template <class F>
auto with_row_format(table_profile const& profile, F const& f) {
  auto const& name = profile.row_format;
  if (name == "float") return f.template operator()<float>();
  if (name == "float16") return f.template operator()<float16>();
  if (name == "bfloat16") return f.template operator()<bfloat16>();
  if (name == "float8_e4m3") return f.template operator()<float8_e4m3>();
  if (name == "float8_e5m2") return f.template operator()<float8_e5m2>();
  if (name == "scaled_int8") return f.template operator()<scaled_int8>();
  throw error(errc::invalid_argument, "table_profile: no row format has this name",
              {{"table", profile.name}, {"field", "row_format"}, {"value", name}});
}

inline table_bytes stored_bytes(table_profile const& profile) {
  table_options options;
  options.dim = profile.dim;
  options.rows = profile.rows;
  auto const layout = state_layout_of(profile);
  return with_row_format(profile, [&]<class Element>() {
    return profile.hashed ? hash_table<Element>::bytes_for(options, layout) : dense_table<Element>::bytes_for(options, layout);
  });
}

// The bytes of a row as it is stored, without the optimizer's state.
inline std::int64_t stored_row_bytes(table_profile const& profile) {
  return with_row_format(
      profile, [&]<class Element>() { return row_scale<Element>::extent(profile.dim) * static_cast<std::int64_t>(sizeof(Element)); });
}

}  // namespace detail

inline shard_memory memory_of_shard(table_profile const& shard, counted_memory counted) {
  if (counted == counted_memory::float_weights) return {.weights = shard.rows * shard.dim * 4};
  auto const stored = detail::stored_bytes(shard);
  shard_memory memory;
  memory.weights = static_cast<std::int64_t>(stored.weights);
  memory.state = static_cast<std::int64_t>(stored.state);
  memory.index = static_cast<std::int64_t>(stored.index);
  memory.activations = static_cast<std::int64_t>(std::ceil(shard.distinct_bags)) * shard.dim * 2 * 4;
  memory.exchange = static_cast<std::int64_t>(std::ceil(distinct_ids_of_batch(shard)) + std::ceil(shard.distinct_bags)) * 8;
  return memory;
}

inline std::int64_t received_bytes(vector_view<table_profile const> tables, std::int64_t devices, counted_memory counted) {
  if (devices < 1) throw error(errc::invalid_argument, "received_bytes: there is at least one device", {{"devices", devices}});
  std::int64_t bytes = 0;
  if (counted == counted_memory::float_weights) return bytes;
  for (auto const& table : tables)
    bytes += static_cast<std::int64_t>(std::ceil(table.bags / static_cast<double>(devices))) * table.dim * 2 * 4;
  return bytes;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
