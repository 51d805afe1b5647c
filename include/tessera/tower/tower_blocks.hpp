// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/tower/tower_module.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Elements of all outputs of a tower module, side by side.
inline std::int64_t output_width(std::vector<tower_output> const& outputs) noexcept {
  std::int64_t sum = 0;
  for (auto const& output : outputs) sum += output.width;
  return sum;
}

/// What tower modules share: checks of shapes, and features as one matrix.
namespace detail {

inline constexpr std::int64_t most_tower_columns = (std::int64_t{1} << 29) - 1;  // a matrix's elements can be counted
inline constexpr std::int64_t tower_rows_per_piece = 64;

/// Elements of all features. @throws tessera::error invalid_argument for no features, a width below 1, or too many elements.
std::int64_t check_tower_widths(char const* kind, vector_view<std::int64_t const> widths);

/// @throws tessera::error invalid_argument, naming the first feature that has another width than feature 0.
void check_one_width(char const* kind, vector_view<std::int64_t const> widths);

/// @throws tessera::error invalid_argument, naming the option, for one that is not in [least, most].
inline void check_tower_option(char const* kind, char const* option, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most)
    throw error(errc::invalid_argument, std::string(kind) + ": " + option, {{option, value}, {"least", least}, {"most", most}});
}

/// Whether a linear map would turn a single vector into one of its own width. Such a tower passes the vector on instead.
inline bool maps_to_itself(vector_view<std::int64_t const> widths, std::int64_t vectors, std::int64_t dim) noexcept {
  return widths.size() == 1 && vectors == 1 && widths[0] == dim;
}

/// So many outputs of one width, each made of all features.
inline std::vector<tower_output> mixed_outputs(vector_view<std::int64_t const> widths, std::int64_t vectors, std::int64_t dim) {
  return std::vector<tower_output>(static_cast<std::size_t>(vectors), tower_output{dim, widths.size() == 1 ? 0 : -1});
}

/// The shape of a tower module: its features' widths and its outputs.
class tower_layout {
 public:
  tower_layout(char const* kind, vector_view<std::int64_t const> widths, std::vector<tower_output> outputs);

  std::int64_t features() const noexcept { return static_cast<std::int64_t>(widths_.size()); }
  vector_view<std::int64_t const> widths() const noexcept { return widths_; }
  std::vector<tower_output> const& outputs() const noexcept { return outputs_; }
  /// Elements of all features.
  std::int64_t columns() const noexcept { return columns_; }
  std::int64_t output_width() const noexcept { return output_width_; }

  void check_forward(vector_view<matrix_view<float const> const> features, matrix_view<float> out) const {
    check_matrix("output", out, out.rows(), output_width_);
    check_blocks("features", features, out.rows());
  }
  /// `samples`: of the forward; -1: there was none.
  void check_backward(std::int64_t samples, matrix_view<float const> out_gradient, vector_view<float const> parameter_gradient,
                      std::int64_t parameters, vector_view<matrix_view<float> const> feature_gradients) const;

 private:
  void check_matrix(std::string const& what, matrix_view<float const> m, std::int64_t rows, std::int64_t columns,
                    std::int64_t feature = -1) const;
  template <class T>
  void check_blocks(char const* what, vector_view<matrix_view<T> const> blocks, std::int64_t rows) const {
    if (blocks.size() != features())
      throw error(errc::shape_mismatch, kind_ + ": one block a feature",
                  {{"argument", what}, {"blocks", blocks.size()}, {"features", features()}});
    for (std::int64_t f = 0; f < features(); ++f) check_matrix(what, blocks[f], rows, widths()[f], f);
  }

  std::string kind_;
  std::vector<std::int64_t> widths_;
  std::vector<tower_output> outputs_;
  std::int64_t columns_, output_width_;
};

/// What a tower module keeps from forward to backward. A module writes `samples` last.
struct tower_saved {
  std::int64_t samples = -1;                    ///< -1: no forward has filled it
  buffer<matrix_view<float const>> features{};  ///< (features,)
  matrix_view<float const> side_by_side{};      ///< (samples, elements of all features), where the blocks are or in `copied`
  buffer<float> copied{};
};

/// The blocks as one matrix of all their columns, where they lie side by side in memory; else a matrix without memory.
template <class T>
matrix_view<T> side_by_side(vector_view<matrix_view<T> const> blocks, std::int64_t columns) noexcept {
  auto const rows = blocks[0].rows(), stride = blocks[0].stride();
  auto* next = blocks[0].data();
  for (auto const& block : blocks) {
    if (block.data() == nullptr || block.data() != next || (rows > 1 && block.stride() != stride)) return {};
    next += block.columns();
  }
  if (rows > 1 && stride < columns) return {};
  return {blocks[0].data(), rows, columns, rows > 1 ? stride : columns};
}

/// Copies blocks of `from` to blocks of the same shapes.
template <class From, class To>
void copy_blocks(host_exec const& exec, From const& from, To const& to) {
  if (to.size() == 0) return;
  for_each_piece(exec, to[0].rows(), tower_rows_per_piece, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t b = 0; b < to.size(); ++b) {
      auto const source = from[b];
      auto const target = to[b];
      for (auto s = first; s < last; ++s) std::copy_n(source.row(s), target.columns(), target.row(s));
    }
  });
}

/// Adds each tile of a product to the same place of `sum`.
struct add_tile_to {
  matrix_view<float> sum;

  void operator()(matrix_view<float> tile, std::int64_t first_row, std::int64_t first_column) const noexcept(!checks_indices) {
    for (std::int64_t r = 0; r < tile.rows(); ++r) {
      auto const* const from = tile.row(r);
      auto* const to = sum.row(first_row + r) + first_column;
      for (std::int64_t c = 0; c < tile.columns(); ++c) to[c] += from[c];
    }
  }
};

/// Each feature's columns of a matrix in which features lie side by side.
template <class T>
struct columns_of_features {
  matrix_view<T> all;
  vector_view<std::int64_t const> widths;

  matrix_view<T> operator[](std::int64_t feature) const noexcept(!checks_indices) {
    std::int64_t first = 0;
    for (std::int64_t f = 0; f < feature; ++f) first += widths[f];
    return all.columns_from(first, widths[feature]);
  }
  std::int64_t size() const noexcept { return widths.size(); }
};

/// Keeps the list of features, and the features as one matrix where `joined`: copied unless they lie side by side.
void save_features(host_exec const& exec, tower_layout const& layout, vector_view<matrix_view<float const> const> features, bool joined,
                   tower_saved& saved);

/// Calls write(matrix (samples, elements of all features)), whose columns then are the features' gradients.
template <class Write>
void write_feature_gradients(host_exec const& exec, tower_layout const& layout, vector_view<matrix_view<float> const> gradients,
                             Write const& write) {
  if (auto const whole = side_by_side(gradients, layout.columns()); whole.data() != nullptr) return write(whole);
  auto const rows = gradients[0].rows();
  buffer<float> room(exec, rows * layout.columns());
  matrix_view<float> const joined{room.data(), rows, layout.columns()};
  write(joined);
  copy_blocks(exec, columns_of_features<float>{joined, layout.widths()}, gradients);
}

/// A linear map with its parameters in a block: weight (out, in), then bias (out,).
struct linear_in_block {
  std::int64_t in = 0, out = 0;  ///< out 0: there is no map

  std::int64_t parameters() const noexcept { return (in + 1) * out; }
  std::int64_t multiply_adds() const noexcept { return in * out; }
  template <class T>
  linear_view<T> view(vector_view<T> block) const noexcept {
    return {{block.data(), out, in}, {block.data() == nullptr ? nullptr : block.data() + in * out, out}};
  }
  /// Uniform in ±1 / sqrt(in), as an MLP's.
  void initialise(host_exec const& exec, vector_view<float> block, random_seed seed, std::uint32_t stream, std::uint64_t matrix) const;
  void add_blocks(std::vector<parameter_block>& all, std::string const& name, vector_view<float> block) const;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/tower/tower_blocks.ipp>
#endif
