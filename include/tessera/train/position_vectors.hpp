// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/tensor/jagged_vectors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Learned vectors of positions, which show a pooling the order of a sequence. It owns its parameters. Move-only.
/// The last vector of a sequence has position 0, the vector before has position 1. Positions from count() - 1 on share one vector.
/// All calls run on the threads of `exec` and return when their work is done.
/// Source: Gehring et al., "Convolutional sequence to sequence learning", ICML 2017, Section 3.1.
class position_vectors {
 public:
  /// Has no positions, so count() is 0.
  position_vectors() = default;
  /// Makes `count` vectors of `dim` elements, uniform in ± 1 / sqrt(dim); `seed` and `stream` say which numbers these are.
  /// @throws tessera::error invalid_argument for a count or a dim below 1.
  position_vectors(host_exec const& exec, std::int64_t count, std::int64_t dim, random_seed seed, std::uint32_t stream)
      : count_(count), dim_(dim) {
    if (count < 1 || dim < 1) throw error(errc::invalid_argument, "position_vectors: extents", {{"count", count}, {"dim", dim}});
    values_.resize(exec, count * dim);
    auto const bound = 1 / std::sqrt(static_cast<float>(dim));
    for (std::int64_t i = 0; i < values_.size(); ++i)
      values_[i] = uniform_symmetric(philox(seed, static_cast<std::uint64_t>(i), stream, own_words)[0], bound);
  }

  /// How many positions have a vector.
  std::int64_t count() const noexcept { return count_; }
  /// All parameters, (count * dim,). Their gradients have the same layout.
  vector_view<float> parameters() noexcept { return values_.view(); }
  vector_view<float const> parameters() const noexcept { return values_.view(); }
  /// The parameters as one block, (count, dim), under the name `prefix`, for checkpoints.
  std::vector<parameter_block> blocks(std::string_view prefix) { return {{std::string(prefix), {count_, dim_}, values_.view()}}; }
  std::size_t bytes() const noexcept { return values_.capacity_bytes(); }

  /// Adds to each vector the vector of its position. `rows` are sequences of vectors. @pre Vectors have the dim of the positions.
  void add(host_exec const& exec, jagged_vectors_view<float> rows) const {
    for_each_index(exec, rows.rows, rows_per_piece, [&](std::int64_t row) {
      for (auto i = rows.offsets[row]; i < rows.offsets[row + 1]; ++i) {
        auto const* const own = values_.data() + position(rows.offsets[row + 1] - 1 - i) * dim_;
        auto* const vector = rows.values.row(i);
        for (std::int64_t c = 0; c < dim_; ++c) vector[c] += own[c];
      }
    });
  }

  /// Overwrites `gradient` (count * dim,) with that of the parameters. `of_vectors` are the gradients of the rows that `add` changed.
  /// @post The gradient of a position is the sum over all vectors to which `add` added it, in the order of the rows.
  /// The number of threads changes no bit.
  /// @throws tessera::error shape_mismatch for a `gradient` of another size.
  void backward(host_exec const& exec, jagged_vectors_view<float const> of_vectors, vector_view<float> gradient) const {
    if (gradient.size() != count_ * dim_)
      throw error(errc::shape_mismatch, "position_vectors: gradient block", {{"size", gradient.size()}, {"parameters", count_ * dim_}});
    for_each_index(exec, count_, 1, [&](std::int64_t p) {
      auto* const sum = gradient.data() + p * dim_;
      std::fill_n(sum, dim_, 0.0F);
      for (std::int64_t row = 0; row < of_vectors.rows; ++row) {
        auto const begin = of_vectors.offsets[row], behind = of_vectors.offsets[row + 1] - p;
        auto const first = p == count_ - 1 ? begin : std::max(begin, behind - 1);  // the last position is that of all vectors before, too
        for (auto i = first; i < behind; ++i)
          for (std::int64_t c = 0; c < dim_; ++c) sum[c] += of_vectors.values.row(i)[c];
      }
    });
  }

 private:
  static constexpr std::int64_t rows_per_piece = 64;
  static constexpr std::uint32_t own_words = 0x706f73;  // sets these numbers apart from those of layers

  std::int64_t position(std::int64_t from_the_last) const noexcept { return std::min(from_the_last, count_ - 1); }

  std::int64_t count_ = 0, dim_ = 0;
  buffer<float> values_;  // (count, dim)
};

}  // namespace TESSERA_ABI
}  // namespace tessera
