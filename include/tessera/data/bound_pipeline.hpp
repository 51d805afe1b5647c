// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/key_groups.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The pipeline of a reader that leaves ids as they are stored.
struct stored_ids {
  /// Returns the batch itself.
  template <class Batch>
  Batch operator()(host_exec const&, Batch batch) const {
    return batch;
  }
};

namespace detail {

template <class F>
concept ids_function = requires(F const& f, host_exec const& exec, inverse_keyed_jagged<> batch) {
  { f(exec, std::move(batch)) } -> std::convertible_to<inverse_keyed_jagged<>>;
};
template <class Pipeline>
concept has_keys = requires(Pipeline const& pipeline) {
  { pipeline.keys() } -> std::convertible_to<std::vector<std::string> const&>;
};
template <class Pipeline>
concept has_of_keys = requires(Pipeline const& pipeline, std::vector<std::string> const& keys) {
  pipeline.of_keys(keys);
};
template <class Pipeline>
concept has_dense = requires(Pipeline const& pipeline, host_exec const& exec, matrix_view<float const> columns,
                             vector_view<std::int64_t const> rows, std::int64_t n, matrix_view<float> out) {
  { pipeline.dense().features() } -> std::same_as<std::int64_t>;
  pipeline.dense()(exec, columns, n, n, out);
  pipeline.dense()(exec, columns, rows, out);
};
template <class Pipeline>
inline constexpr bool takes_missing = false;
template <class Pipeline>
  requires requires { Pipeline::takes_missing; }
inline constexpr bool takes_missing<Pipeline> = Pipeline::takes_missing;

/// What a reader calls for each batch: the pipeline, which outlives it.
template <class Pipeline>
class bound_pipeline {
  static_assert(ids_function<Pipeline>,
                "a reader's pipeline is pipeline(exec, inverse_keyed_jagged<>) -> inverse_keyed_jagged<>, or makes one by of_keys(keys)");

 public:
  /// @throws tessera::error shape_mismatch for a pipeline that names other keys than the reader's.
  bound_pipeline(Pipeline const& pipeline, key_groups const& groups) : pipeline_(&pipeline) {
    if constexpr (has_keys<Pipeline>) {
      std::vector<std::string> const& names = pipeline.keys();
      for (std::size_t key = 0; key < std::max(names.size(), groups.keys.size()); ++key) {
        auto const name = key < names.size() ? names[key] : std::string("none"),
                   own = key < groups.keys.size() ? groups.keys[key] : std::string("none");
        if (name != own)
          throw error(errc::shape_mismatch, "sample_reader: a pipeline of other keys; it takes those that `group_keys` orders",
                      {{"key", key}, {"name", own}, {"name in the pipeline", name}});
      }
    }
  }

  inverse_keyed_jagged<> operator()(host_exec const& exec, inverse_keyed_jagged<>&& batch) const {
    return (*pipeline_)(exec, std::move(batch));
  }

 private:
  Pipeline const* pipeline_;
};

// The keys of these names alone; a group without any is gone.
inline void keep_keys(key_groups& groups, std::vector<std::string> const& names) {
  key_groups kept;
  std::size_t key = 0;
  auto const keep = [&](std::size_t end) {
    std::int64_t count = 0;
    for (; key < end; ++key) {
      if (std::find(names.begin(), names.end(), groups.keys[key]) == names.end()) continue;
      kept.order.push_back(groups.order[key]);
      kept.keys.push_back(groups.keys[key]);
      ++count;
    }
    return count;
  };
  for (auto const keys : groups.keys_per_group)
    if (auto const count = keep(key + static_cast<std::size_t>(keys)); count > 0) kept.keys_per_group.push_back(count);
  keep(groups.keys.size());
  groups = std::move(kept);
}

/// The same where the pipeline is made for the reader's keys. Those that it drops leave `groups`, and are not read.
template <has_of_keys Pipeline>
class bound_pipeline<Pipeline> {
  using function = decltype(std::declval<Pipeline const&>().of_keys(std::declval<std::vector<std::string> const&>()));
  static_assert(ids_function<function>, "of_keys(keys) makes a function (exec, inverse_keyed_jagged<>) -> inverse_keyed_jagged<>");

 public:
  /// @throws what `of_keys` throws.
  bound_pipeline(Pipeline const& pipeline, key_groups& groups) : function_(made(pipeline, groups)) {}

  inverse_keyed_jagged<> operator()(host_exec const& exec, inverse_keyed_jagged<>&& batch) const {
    return function_(exec, std::move(batch));
  }

 private:
  static function made(Pipeline const& pipeline, key_groups& groups) {
    if constexpr (has_keys<function>) {
      std::vector<std::string> const kept = pipeline.of_keys(groups.keys).keys();
      if (kept != groups.keys) keep_keys(groups, kept);
    }
    return pipeline.of_keys(groups.keys);
  }

  function function_;
};

/// @throws tessera::error shape_mismatch for a pipeline whose numbers are of other columns.
template <class Pipeline>
void check_dense_columns(Pipeline const& pipeline, std::vector<std::string> const& columns) {
  if constexpr (has_dense<Pipeline>)
    if constexpr (requires {
                    { pipeline.dense().columns() } -> std::convertible_to<std::vector<std::string> const&>;
                  }) {
      std::vector<std::string> const& expected = pipeline.dense().columns();
      for (std::size_t c = 0; c < std::max(expected.size(), columns.size()); ++c) {
        auto const name = c < columns.size() ? columns[c] : std::string("none"),
                   other = c < expected.size() ? expected[c] : std::string("none");
        if (name != other)
          throw error(errc::shape_mismatch, "sample_reader: a pipeline of other dense columns",
                      {{"column", c}, {"name", name}, {"name in the pipeline", other}});
      }
    }
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
