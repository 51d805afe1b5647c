// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/device.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/gather_vectors.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/jagged_vectors.cuh>
#include <tessera/tensor/source_lists.cuh>
#include <tessera/tensor/sum_by_target.cuh>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// Moves 8 * dim bytes a vector, and reads 8.
template <class Pack>
struct gather_pack {
  using pack_type = Pack;
  matrix_view<float const> in;
  std::int64_t const* indices;
  matrix_view<float> out;

  TESSERA_DEVICE Pack read(pack_place const& at) const {
    auto const row = indices[at.row];
    return row >= 0 && row < in.rows() ? read_pack<Pack>(in, row, at.pack) : Pack{};
  }
  TESSERA_DEVICE void write(pack_place const& at, Pack const& x) const { write_pack(out, at.vector, at.pack, x); }
};

template <device_execution Exec>
struct back_end<gather_vectors_tag, Exec> {
  // Kernels of `forward` look at the indices themselves.
  template <class... Of>
  static void check_indices(Exec const&, char const*, Of const&...) {}

  static void forward(Exec const& exec, vector_view<row_group const> groups, std::int64_t indices,
                      vector_view<matrix_view<float const> const> in, vector_view<matrix_view<float> const> out) {
    for (auto const& group : groups) {
      report_missing(exec, "gather_vectors", {group.inverse, indices}, in[group.first_key].rows());
      for (auto m = group.first_key; m < group.first_key + group.keys; ++m)
        with_packs(
            [&](auto pack, std::int64_t packs) {
              launch_for_packs(exec, vector_a_row<float>(out[m]), out[m].rows(), packs, nullptr,
                               gather_pack<decltype(pack)>{in[m], group.inverse, out[m]});
            },
            in[m], out[m]);
    }
  }

  static void backward(Exec const& exec, vector_view<row_group const> groups, std::int64_t indices,
                       vector_view<matrix_view<float const> const> gradients, vector_view<matrix_view<float> const> in_gradients) {
    for (auto const& group : groups) {
      auto const rows = in_gradients[group.first_key].rows();
      vector_view<std::int64_t const> const inverse{group.inverse, indices};
      report_missing(exec, "gather_vectors_backward", inverse, rows);
      source_lists<Exec> const lists(exec, inverse, rows);
      for (auto m = group.first_key; m < group.first_key + group.keys; ++m) {
        target_sums const sums{lists.view(), gradients[m], in_gradients[m]};
        sum_by_target(exec, {&sums, 1});
      }
    }
  }

 private:
  // Indices that name no row stop nothing, as ids without a row in a lookup.
  static void report_missing(Exec const& exec, char const* call, vector_view<std::int64_t const> indices, std::int64_t rows) {
    launch_for_each(exec, indices.size(), report_missing_target{indices.data(), rows, exec.faults(no_such_row).of(call, nullptr)});
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
