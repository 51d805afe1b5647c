// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/sample_schema.hpp>
#include <tessera/data/sparse_steps.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// What becomes of one key of a batch.
struct key_plan {
  bool is_dropped = false;
  bool is_single = false;
  std::int64_t most = -1;  // ids a row; -1: rows are not cut
  kept_values kept = kept_values::last;
  std::int64_t of_missing = missing_id;  // missing_id: a missing id's row becomes empty
  std::vector<step_function> functions{};
};

/// Calls f(key, first, last) for pieces of [0, size_of(key)) of each key. The bounds depend on sizes alone.
template <class Size, class F>
void for_each_piece_of_keys(host_exec const& exec, std::int64_t keys, std::int64_t grain, Size const& size_of, F const& f) {
  std::int64_t pieces = 0;
  for (std::int64_t key = 0; key < keys; ++key) pieces += divide_up(size_of(key), grain);
  exec.run(pieces, [&](std::int64_t piece) {
    std::int64_t key = 0;
    for (std::int64_t own; (own = divide_up(size_of(key), grain)) <= piece; ++key) piece -= own;
    f(key, piece * grain, std::min(size_of(key), (piece + 1) * grain));
  });
}

}  // namespace detail

/// A `sparse_pipeline` for batches of certain keys, in their order. A reader calls it for each batch; `sparse_pipeline::of_keys` makes it.
class bound_ids {
 public:
  /// Takes what becomes of each key, (keys,). `sparse_pipeline::of_keys` calls it.
  bound_ids(std::vector<std::string> keys, std::vector<detail::key_plan> plans);

  /// The names of the keys that come out, in order: those that go in, without the dropped ones.
  std::vector<std::string> const& keys() const noexcept { return keys_; }

  /// Makes the batch with the ids of the model, in `exec`'s memory. A group that has no key left is left out.
  ///
  /// Ids change in place. The batch is copied only where a key is dropped or cut, and where a missing id's row becomes empty. Of an IKJT
  /// the call works on the distinct rows alone. Calls on several threads are safe.
  /// @throws tessera::error shape_mismatch for a batch with another number of keys, or with a key of another name.
  inverse_keyed_jagged<> operator()(host_exec const& exec, inverse_keyed_jagged<>&& batch) const;

 private:
  static constexpr std::int64_t ids_per_piece = 2048, rows_per_piece = 512;

  detail::key_plan const& plan(std::int64_t key) const noexcept { return plans_[static_cast<std::size_t>(key)]; }

  void check(inverse_keyed_jagged<> const& batch) const;

  bool changes_rows(inverse_keyed_jagged_view<std::int64_t const> batch) const noexcept {
    for (std::int64_t key = 0; key < batch.keys(); ++key) {
      if (plan(key).is_dropped || plan(key).most >= 0) return true;
      if (!plan(key).is_single || plan(key).of_missing != missing_id) continue;
      auto const ids = batch.distinct.key(key).all_values();
      if (std::count(ids.begin(), ids.end(), missing_id) > 0) return true;
    }
    return false;
  }

  inverse_keyed_jagged<> with_rows(host_exec const& exec, inverse_keyed_jagged<> const& batch) const;

  // @pre dropped keys are gone.
  void change_ids(host_exec const& exec, keyed_jagged_view<std::int64_t> batch) const;

  std::vector<detail::key_plan> plans_;
  std::vector<std::string> keys_in_, keys_;
  std::vector<std::int64_t> kept_;  // the keys that are not dropped
};

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/data/bound_ids.ipp>
#endif
