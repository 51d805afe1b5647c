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
  bound_ids(std::vector<std::string> keys, std::vector<detail::key_plan> plans) : plans_(std::move(plans)), keys_in_(std::move(keys)) {
    for (std::size_t key = 0; key < keys_in_.size(); ++key) {
      if (plans_[key].is_dropped) continue;
      keys_.push_back(keys_in_[key]);
      kept_.push_back(static_cast<std::int64_t>(key));
    }
  }

  /// The names of the keys that come out, in order: those that go in, without the dropped ones.
  std::vector<std::string> const& keys() const noexcept { return keys_; }

  /// Makes the batch with the ids of the model, in `exec`'s memory. A group that has no key left is left out.
  ///
  /// Ids change in place. The batch is copied only where a key is dropped or cut, and where a missing id's row becomes empty. Of an IKJT
  /// the call works on the distinct rows alone. Calls on several threads are safe.
  /// @throws tessera::error shape_mismatch for a batch with another number of keys, or with a key of another name.
  inverse_keyed_jagged<> operator()(host_exec const& exec, inverse_keyed_jagged<>&& batch) const {
    check(std::as_const(batch));
    auto result = changes_rows(std::as_const(batch).view()) ? with_rows(exec, std::as_const(batch)) : std::move(batch);
    change_ids(exec, result.view().distinct);
    return result;
  }

 private:
  static constexpr std::int64_t ids_per_piece = 2048, rows_per_piece = 512;

  detail::key_plan const& plan(std::int64_t key) const noexcept { return plans_[static_cast<std::size_t>(key)]; }

  void check(inverse_keyed_jagged<> const& batch) const {
    auto const keys = batch.view().keys();
    if (keys != static_cast<std::int64_t>(keys_in_.size()))
      throw error(errc::shape_mismatch, "sparse_pipeline: a batch of other keys",
                  {{"keys", keys}, {"keys of the pipeline", keys_in_.size()}});
    for (std::size_t key = 0; key < batch.keys().size(); ++key)
      if (batch.keys()[key] != keys_in_[key])
        throw error(errc::shape_mismatch, "sparse_pipeline: a batch of other keys",
                    {{"key", batch.keys()[key]}, {"key of the pipeline", keys_in_[key]}});
  }

  bool changes_rows(inverse_keyed_jagged_view<std::int64_t const> batch) const noexcept {
    for (std::int64_t key = 0; key < batch.keys(); ++key) {
      if (plan(key).is_dropped || plan(key).most >= 0) return true;
      if (!plan(key).is_single || plan(key).of_missing != missing_id) continue;
      auto const ids = batch.distinct.key(key).all_values();
      if (std::count(ids.begin(), ids.end(), missing_id) > 0) return true;
    }
    return false;
  }

  inverse_keyed_jagged<> with_rows(host_exec const& exec, inverse_keyed_jagged<> const& batch) const {
    auto const in = batch.view();
    auto const from = in.distinct;
    std::vector<std::int64_t> first_row, rows;  // of the keys that stay, in the result
    std::int64_t all_rows = 0;
    for (auto const key : kept_) {
      first_row.push_back(all_rows);
      rows.push_back(from.rows(key));
      all_rows += from.rows(key);
    }
    auto const keys = static_cast<std::int64_t>(kept_.size());
    auto const rows_of = [&](std::int64_t k) { return rows[static_cast<std::size_t>(k)]; };
    auto const source_of = [&](std::int64_t k) { return kept_[static_cast<std::size_t>(k)]; };
    auto const target_of = [&](std::int64_t k) { return first_row[static_cast<std::size_t>(k)]; };

    buffer<std::int64_t> begins(exec, all_rows), lengths(exec, all_rows);
    detail::for_each_piece_of_keys(exec, keys, rows_per_piece, rows_of, [&](std::int64_t k, std::int64_t first, std::int64_t last) {
      auto const source = from.key(source_of(k));
      auto const& own = plan(source_of(k));
      bool const drops_missing = own.is_single && own.of_missing == missing_id;
      for (auto row = first; row < last; ++row) {
        auto begin = source.begin_of(row), length = source.length(row);
        if (drops_missing && length == 1 && source.values[begin] == missing_id) length = 0;
        if (own.most >= 0 && length > own.most) {
          if (own.kept == kept_values::last) begin += length - own.most;
          length = own.most;
        }
        begins[target_of(k) + row] = begin;
        lengths[target_of(k) + row] = length;
      }
    });
    auto distinct = keyed_jagged<>::with_lengths(exec, std::as_const(lengths).view(), rows, from.weighted());
    auto const to = distinct.view();
    detail::for_each_piece_of_keys(exec, keys, rows_per_piece, rows_of, [&](std::int64_t k, std::int64_t first, std::int64_t last) {
      for (auto row = target_of(k) + first; row < target_of(k) + last; ++row) {
        std::copy_n(from.values + begins[row], lengths[row], to.values + to.offsets[row]);
        if (from.weighted()) std::copy_n(from.weights + begins[row], lengths[row], distinct.weights().data() + to.offsets[row]);
      }
    });

    std::vector<std::int64_t> keys_per_group;
    std::vector<std::int64_t const*> inverse_of;
    for (auto const& group : in.groups) {
      std::int64_t left = 0;
      for (auto key = group.first_key; key < group.first_key + group.keys; ++key) left += !plan(key).is_dropped;
      if (left == 0) continue;
      keys_per_group.push_back(left);
      inverse_of.push_back(group.inverse);
    }
    buffer<std::int64_t> inverses(exec, static_cast<std::int64_t>(inverse_of.size()) * in.samples);
    for (std::size_t g = 0; g < inverse_of.size(); ++g)
      std::copy_n(inverse_of[g], in.samples, inverses.data() + static_cast<std::int64_t>(g) * in.samples);
    if (!batch.keys().empty()) distinct = std::move(distinct).named(keys_);
    return inverse_keyed_jagged<>::from_parts(std::move(distinct), keys_per_group, std::move(inverses), in.samples);
  }

  // @pre dropped keys are gone.
  void change_ids(host_exec const& exec, keyed_jagged_view<std::int64_t> batch) const {
    auto const of = [&](std::int64_t key) -> detail::key_plan const& { return plan(kept_[static_cast<std::size_t>(key)]); };
    detail::for_each_piece_of_keys(
        exec, batch.keys, ids_per_piece, [&](std::int64_t key) { return of(key).functions.empty() ? 0 : batch.key(key).size(); },
        [&](std::int64_t key, std::int64_t first, std::int64_t last) {
          auto const& functions = of(key).functions;
          auto* const ids = batch.key(key).all_values().data() + first;
          for (auto const& function : functions)
            detail::apply_function(function, ids, last - first, of(key).is_single,
                                   &function == &functions.back() ? of(key).of_missing : missing_id);
        });
  }

  std::vector<detail::key_plan> plans_;
  std::vector<std::string> keys_in_, keys_;
  std::vector<std::int64_t> kept_;  // the keys that are not dropped
};

}  // namespace TESSERA_ABI
}  // namespace tessera
