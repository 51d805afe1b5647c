// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/gather_vectors.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/jagged_vectors.cuh>
#include <tessera/tensor/select_vectors.cuh>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

struct tell_of_missing_row {  // unproven
  std::int64_t const* indices;
  std::int64_t rows;
  fault_reporter missing;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    if (auto const row = indices[i]; row < 0 || row >= rows) missing(block, i, i, row, rows);
  }
};

/// A matrix as rows of one vector each.
template <class T>
struct vector_a_row {
  matrix_view<T> values;
  std::int64_t rows;

  explicit vector_a_row(matrix_view<T> matrix) noexcept : values(matrix), rows(matrix.rows()) {}
  TESSERA_HOST_DEVICE constexpr std::int64_t first() const noexcept { return 0; }
  TESSERA_HOST_DEVICE constexpr std::int64_t last() const noexcept { return rows; }
  TESSERA_HOST_DEVICE constexpr std::int64_t row_of(std::int64_t vector, std::int64_t) const noexcept { return vector; }
  TESSERA_HOST_DEVICE constexpr std::int64_t begin_of(std::int64_t row) const noexcept { return row; }
};

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
  static void check_indices(Exec const&, char const*, vector_view<std::int64_t const>, std::int64_t) {}

  static void forward(Exec const& exec, vector_view<row_group const> groups, std::int64_t indices,
                      vector_view<matrix_view<float const> const> in, vector_view<matrix_view<float> const> out) {
    for (auto const& group : groups) {
      auto const sound = tell_of_missing(exec, "gather_vectors", {group.inverse, indices}, in[group.first_key].rows());
      for (auto m = group.first_key; m < group.first_key + group.keys; ++m)
        with_packs(
            [&](auto pack, std::int64_t packs) {
              launch_for_packs(exec, vector_a_row<float>(out[m]), out[m].rows(), packs, sound.data(),
                               gather_pack<decltype(pack)>{in[m], group.inverse, out[m]});
            },
            in[m], out[m]);
    }
  }

  static void backward(Exec const& exec, vector_view<row_group const> groups, std::int64_t indices,
                       vector_view<matrix_view<float const> const> gradients, vector_view<matrix_view<float> const> in_gradients) {
    using gradient_rows = vector_a_row<float const>;
    for (auto const& group : groups) {
      auto const rows = in_gradients[group.first_key].rows();
      vector_view<std::int64_t const> const inverse{group.inverse, indices};
      auto const sound = tell_of_missing(exec, "gather_vectors_backward", inverse, rows);
      sources_by_row<Exec> const sources(exec, inverse, rows);
      for (auto m = group.first_key; m < group.first_key + group.keys; ++m)
        with_packs(
            [&](auto pack, std::int64_t packs) {
              launch_for_packs<1>(exec, vector_a_row<float>(in_gradients[m]), rows, packs, sound.data(),
                                  add_sources_pack<gradient_rows, decltype(pack)>{gradient_rows(gradients[m]), sources.positions(),
                                                                                  sources.first_of(), in_gradients[m]});
            },
            gradients[m], in_gradients[m]);
    }
  }

 private:
  // Indices that name no row stop nothing, as ids without a row in a lookup: the verdict that kernels ask for is always 0.
  static buffer<std::uint32_t, Exec> tell_of_missing(Exec const& exec, char const* call, vector_view<std::int64_t const> indices,
                                                     std::int64_t rows) {
    launch_for_each(exec, indices.size(), tell_of_missing_row{indices.data(), rows, exec.faults(no_such_row).of(call, nullptr)});
    buffer<std::uint32_t, Exec> sound(exec, 1);
    exec.fill(sound.data(), 0, sizeof(std::uint32_t));
    return sound;
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
