// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <tessera/core/call_list.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/piece_list.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/lookup_options.hpp>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/pooled_lookup.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/shared_bags.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What the backward of a lookup in an IKJT needs. The caller owns it, and any number of them may be in flight. `deduplicated_saved` is the
/// host's.
/// @pre the memory of the batch, of its groups and of their inverses outlives this
template <execution Exec>
struct basic_deduplicated_saved {
  basic_lookup_saved<Exec> lookup;  ///< of the distinct rows
  vector_view<row_group const> groups;
  std::int64_t samples = 0;

  /// The batch that was looked up.
  inverse_keyed_jagged_view<std::int64_t const> batch() const noexcept { return {lookup.batch, groups, samples}; }
  std::size_t bytes() const noexcept { return lookup.bytes(); }

  /// Forgets the batch and keeps the memory.
  void clear() noexcept {
    lookup.clear();
    groups = {};
    samples = 0;
  }
};
/// What the backward of a lookup in an IKJT on the host needs.
using deduplicated_saved = basic_deduplicated_saved<host_exec>;

/// Looks up and pools an IKJT for training, each distinct row once. `saved` is for `deduplicated_lookup_backward` and
/// `deduplicated_lookup_gradients`.
///
/// `out` (keys,): matrices (samples, dim of the key's table) of any row stride. Workspace: the pooled vectors of the distinct rows of keys
/// in groups. Features, options and errors are those of `pooled_lookup`, whose errors number distinct rows. Ids out of range that read as
/// zeros are counted once a distinct row. Policies of hashed tables see ids in the order of distinct rows. `deduplicate` leaves the order
/// of each row's first sample: then the same ids get rows, and leave, as with the expanded batch.
///
/// On a device it waits for what `pooled_lookup` of the distinct rows waits for. Samples whose inverse names no row get zeros, and
/// `synchronize()` reports them as of `gather_vectors`.
///
/// Of several source ranks (`lookup_options`) each has `batch.samples` samples; a rank of fewer points the others to an empty row. Groups
/// cover all keys but the last rank's. Where the inverses stay with the ranks, `pooled_lookup` of their distinct rows serves any numbers of
/// samples. Merged sums add up in the order of (source rank, distinct row, key).
///
/// Vectors of single ids need no call of their own: `sequence_lookup` of `batch.distinct`, then `select_vectors` with the inverse where
/// they are to be expanded.
/// @post row i of out[k] has the bits of `pooled_lookup` of the expanded batch
/// @throws tessera::error as `pooled_lookup`; out_of_range where an inverse names no row. Source: RecD, Section 5 (deduplicated EMB).
template <execution Exec, row_stores Tables>
void deduplicated_lookup(Exec const& exec, Tables& tables, vector_view<pooled_feature const> features,
                         inverse_keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float> const> out,
                         basic_deduplicated_saved<Exec>& saved, lookup_options const& options = {});

/// As above, for evaluation: it changes nothing.
template <execution Exec, row_stores Tables>
void deduplicated_lookup(Exec const& exec, Tables const& tables, vector_view<pooled_feature const> features,
                         inverse_keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float> const> out,
                         lookup_options const& options = {});

namespace detail {

/// That inverses name rows. @throws tessera::error out_of_range.
inline void check_inverse_rows(host_exec const& exec, inverse_keyed_jagged_view<std::int64_t const> batch) {
  for_each_piece_of(
      exec, batch.groups.size(), [&](std::int64_t) { return batch.samples; }, [](std::int64_t) { return std::int64_t{4096}; },
      [&](std::int64_t g, std::int64_t first, std::int64_t last) {
        auto const* const inverse = batch.groups[g].inverse;
        auto const rows = batch.rows(batch.groups[g]);
        for (auto i = first; i < last; ++i)
          if (inverse[i] < 0 || inverse[i] >= rows)
            throw error(errc::out_of_range, "deduplicated_lookup: no such row",
                        {{"group", g}, {"sample", i}, {"row", inverse[i]}, {"rows", rows}});
      });
}

/// The part of a lookup of an IKJT that is different on a device; the rest is made of other primitives.
struct deduplicated_lookup_tag {};

template <>
struct back_end<deduplicated_lookup_tag, host_exec> {
  static void check(host_exec const& exec, inverse_keyed_jagged_view<std::int64_t const> batch) { check_inverse_rows(exec, batch); }
};

template <class Matrix>
void check_sample_matrices(char const* call, std::int64_t features, inverse_keyed_jagged_view<std::int64_t const> batch,
                           vector_view<Matrix const> matrices) {
  check_groups(call, batch);
  if (matrices.size() != batch.keys() || features != batch.keys())
    throw error(errc::shape_mismatch, std::string(call) + ": one feature and one matrix a key of the batch",
                {{"keys", batch.keys()}, {"features", features}, {"matrices", matrices.size()}});
}

/// Calls look_up(matrices) for the distinct rows, and expands the result to all samples.
template <class Exec, class LookUp>
void look_up_distinct(Exec const& exec, vector_view<pooled_feature const> features, inverse_keyed_jagged_view<std::int64_t const> batch,
                      vector_view<matrix_view<float> const> out, LookUp const& look_up) {
  check_sample_matrices("deduplicated_lookup", features.size(), batch, out);
  for (std::int64_t key = 0; key < batch.keys(); ++key)
    if (out[key].rows() != batch.samples)
      throw error(errc::shape_mismatch, "deduplicated_lookup: a row a sample",
                  {{"feature", key}, {"rows", out[key].rows()}, {"samples", batch.samples}});
  if (batch.groups.empty()) return look_up(out);
  back_end<deduplicated_lookup_tag, Exec>::check(exec, batch);
  shared_bags<Exec> const shared(exec, batch, features, [&](std::int64_t key) { return out[key].columns(); });
  call_list<matrix_view<float>, Exec> to(exec, batch.keys());
  for (std::int64_t key = 0; key < batch.keys(); ++key) to[key] = out[key];
  shared.put_into(to.view());
  look_up(to.view());
  shared.expand(exec, batch.samples, out);
}

}  // namespace detail

template <execution Exec, row_stores Tables>
void deduplicated_lookup(Exec const& exec, Tables& tables, vector_view<pooled_feature const> features,
                         inverse_keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float> const> out,
                         basic_deduplicated_saved<Exec>& saved, lookup_options const& options) {
  saved.clear();
  try {
    detail::look_up_distinct(exec, features, batch, out, [&](vector_view<matrix_view<float> const> distinct) {
      pooled_lookup(exec, tables, features, batch.distinct, distinct, saved.lookup, options);
    });
  } catch (...) {
    saved.clear();  // what is saved of distinct rows is not of a batch without groups
    throw;
  }
  saved.groups = batch.groups;
  saved.samples = batch.samples;
}

template <execution Exec, row_stores Tables>
void deduplicated_lookup(Exec const& exec, Tables const& tables, vector_view<pooled_feature const> features,
                         inverse_keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float> const> out,
                         lookup_options const& options) {
  detail::look_up_distinct(exec, features, batch, out, [&](vector_view<matrix_view<float> const> distinct) {
    pooled_lookup(exec, tables, features, batch.distinct, distinct, options);
  });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
