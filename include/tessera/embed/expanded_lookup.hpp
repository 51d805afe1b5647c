// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/deduplicated_lookup.hpp>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/row_order.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/tensor/expand.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera::inline TESSERA_ABI {

namespace detail {

// What differs where the host does not see offsets.
template <class Exec>
struct expanded_lookup_impl {
  static_assert(dependent_false<Exec>,
                "expanded_lookup: no back end for this execution; for CUDA include <tessera/embed/deduplicated_lookup_backward.cuh>");
};

template <>
struct expanded_lookup_impl<host_exec> {
  static std::int64_t first_value(host_exec const&, keyed_jagged_view<std::int64_t const> batch) { return detail::first_value(batch); }
  static void copy(host_exec const& exec, vector_view<std::int64_t const> from, std::int64_t* to) {
    for_each_piece(exec, from.size(), 1 << 14,
                   [&](std::int64_t first, std::int64_t last) { std::copy_n(from.data() + first, last - first, to + first); });
  }
};

}  // namespace detail

/// What a lookup of the expanded batch would have saved, made of the lookup of an IKJT: handed to an ordinary backward with gradients of
/// expanded rows, it sums a row's gradients in the order of samples and positions, to the bits that training without deduplication has. The
/// IKJT, `saved` and the tables' rows must stay as the lookup left them. Move-only.
template <execution Exec>
class basic_expanded_lookup {
 public:
  /// `saved`: of a lookup of `batch.distinct`. @throws tessera::error as `expand`. On a device it waits for how many values there are, and for
  /// hashed tables once more.
  template <row_stores Tables>
  static basic_expanded_lookup of(Exec const& exec, Tables const&, inverse_keyed_jagged_view<std::int64_t const> batch,
                                  basic_lookup_saved<Exec> const& saved) {
    basic_expanded_lookup result;
    result.ids_ = expand(exec, batch);
    result.saved_.batch = std::as_const(result.ids_).view();
    if constexpr (!detail::element_in<Tables const>::slots_are_ids) {
      using impl = detail::expanded_lookup_impl<Exec>;
      auto const slots = batch.distinct.with_values(saved.slots.data() - impl::first_value(exec, batch.distinct));
      auto const expanded = expand(exec, inverse_keyed_jagged_view<std::int64_t const>{slots, batch.groups, batch.samples},
                                   result_room{.most_values = result.ids_.room()});
      result.saved_.slots.resize(exec, expanded.room());
      impl::copy(exec, {expanded.view().values, expanded.room()}, result.saved_.slots.data());
    }
    return result;
  }

  basic_lookup_saved<Exec>& saved() noexcept { return saved_; }
  basic_lookup_saved<Exec> const& saved() const noexcept { return saved_; }

 private:
  keyed_jagged<std::int64_t, std::int64_t, Exec> ids_;
  basic_lookup_saved<Exec> saved_;
};
using expanded_lookup = basic_expanded_lookup<host_exec>;

}  // namespace tessera::inline TESSERA_ABI
