// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/data/bound_ids.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE bound_ids::bound_ids(std::vector<std::string> keys, std::vector<detail::key_plan> plans)
    : plans_(std::move(plans)), keys_in_(std::move(keys)) {
  for (std::size_t key = 0; key < keys_in_.size(); ++key) {
    if (plans_[key].is_dropped) continue;
    keys_.push_back(keys_in_[key]);
    kept_.push_back(static_cast<std::int64_t>(key));
  }
}

TESSERA_INLINE inverse_keyed_jagged<> bound_ids::operator()(host_exec const& exec, inverse_keyed_jagged<>&& batch) const {
  check(std::as_const(batch));
  auto result = changes_rows(std::as_const(batch).view()) ? with_rows(exec, std::as_const(batch)) : std::move(batch);
  change_ids(exec, result.view().distinct);
  return result;
}

TESSERA_INLINE void bound_ids::check(inverse_keyed_jagged<> const& batch) const {
  auto const keys = batch.view().keys();
  if (keys != static_cast<std::int64_t>(keys_in_.size()))
    throw error(errc::shape_mismatch, "sparse_pipeline: a batch of other keys",
                {{"keys", keys}, {"keys of the pipeline", keys_in_.size()}});
  for (std::size_t key = 0; key < batch.keys().size(); ++key)
    if (batch.keys()[key] != keys_in_[key])
      throw error(errc::shape_mismatch, "sparse_pipeline: a batch of other keys",
                  {{"key", batch.keys()[key]}, {"key of the pipeline", keys_in_[key]}});
}

TESSERA_INLINE inverse_keyed_jagged<> bound_ids::with_rows(host_exec const& exec, inverse_keyed_jagged<> const& batch) const {
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

TESSERA_INLINE void bound_ids::change_ids(host_exec const& exec, keyed_jagged_view<std::int64_t> batch) const {
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

}  // namespace TESSERA_ABI
}  // namespace tessera
