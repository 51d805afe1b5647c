// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What a net, or a part of one, costs: of its shape alone, and of one sample where it is not said otherwise.
struct net_costs {
  std::int64_t macs = 0;        ///< multiplications of the forward's matrix products, each with an addition
  std::int64_t input_macs = 0;  ///< those of them whose input is data, so that no gradient of it is computed
  std::int64_t parameters = 0;  ///< weights and biases, of the net and not of a sample; embeddings are not among them
  /// Floats that a training step reads and writes in memory, where each operation is a call of its own. It moves its inputs and outputs once
  /// forward, and twice backward. ReLUs and the products of elements are operations; parameters do not count, as they are read once a batch.
  std::int64_t moved_floats = 0;

  /// Multiplications and additions of a training step: six times `macs`, for the outputs, the gradients of inputs and those of weights. Of
  /// `input_macs` it is four times. That is how the MFLOPs of the paper's Tables 4 and 5 are counted.
  constexpr std::int64_t training_flops() const noexcept { return 6 * macs - 2 * input_macs; }

  constexpr net_costs& operator+=(net_costs const& other) noexcept {
    macs += other.macs, input_macs += other.input_macs, parameters += other.parameters, moved_floats += other.moved_floats;
    return *this;
  }
  friend constexpr net_costs operator+(net_costs a, net_costs const& b) noexcept { return a += b; }
  friend bool operator==(net_costs const&, net_costs const&) = default;
};

/// The costs of a layer from `in` to `out` numbers, with biases. @throws tessera::error invalid_argument for less than 1, here and below.
net_costs linear_costs(std::int64_t in, std::int64_t out);

/// Those of an MLP of these widths, with a ReLU behind each layer but the last. Its input is data where it is `of_data`.
/// @throws tessera::error as above, and for fewer than two widths.
net_costs mlp_costs(std::vector<std::int64_t> const& widths, bool of_data = false);

/// Those of a cross network's layers of low rank, each x_0 ∘ (U V^T x + b) + x. 0 layers cost nothing. Two matrices of this rank count also
/// where it is the width or more. There `dcn_tower` has one full matrix, which is cheaper.
net_costs cross_net_costs(std::int64_t width, std::int64_t layers, std::int64_t rank);

/// Those of the products of all pairs of so many vectors, computed as one square matrix.
net_costs dot_costs(std::int64_t vectors, std::int64_t dim);

/// The shape of a net that predicts clicks. Defaults are those with which the FLOPs of the paper's Tables 4 and 5 come out.
struct click_net_shape {
  std::int64_t numbers = 13;   ///< dense features of a sample
  std::int64_t features = 26;  ///< sparse features, each with one vector
  std::int64_t dim = 128;      ///< of a vector
  std::vector<std::int64_t> bottom_hidden = {512, 256};
  std::vector<std::int64_t> top_hidden = {1024, 1024, 512, 256};  ///< without the output, which is one number
  std::int64_t cross_layers = 3;                                  ///< of a DCN
  std::int64_t cross_rank = 512;
};

/// The costs of a DLRM: bottom MLP, products of all pairs of vectors, top MLP. @throws tessera::error as above, here and below.
net_costs dlrm_costs(click_net_shape const& shape);

/// The costs of a DCN: bottom MLP, a cross network of all vectors beside each other, top MLP.
net_costs dcn_costs(click_net_shape const& shape);

/// The tower module of a DLRM: of F vectors it makes c * F + p of `dim` numbers each. Source: "Disaggregated Multi-Tower", listing 1.
struct dlrm_tower_shape {
  std::int64_t vectors_of_feature = 1;  ///< the paper's c, for which a linear map reads one vector
  std::int64_t vectors_of_tower = 0;    ///< the paper's p, for which a linear map reads all vectors of the tower
  std::int64_t dim = 64;                ///< the paper's D

  /// How many numbers a tower of so many features makes of a sample.
  constexpr std::int64_t outputs(std::int64_t features) const noexcept { return dim * (vectors_of_feature * features + vectors_of_tower); }
};

/// The tower module of a DCN: a cross network of the tower's vectors and a linear map. Source: as above, listing 2; but the paper's FLOPs come
/// out with `outputs` numbers a tower, however many features it has.
///
/// Two matrices of `rank` count for each layer, as `cross_net_costs` says: so they do in the paper. `dcn_tower` itself is cheaper where the
/// vectors of a tower have no more than `rank` elements.
struct dcn_tower_shape {
  std::int64_t layers = 1;
  std::int64_t rank = 512;
  std::int64_t outputs = 128;
};

/// What a net with towers costs.
struct tower_net_costs {
  std::vector<net_costs> towers;  ///< of each tower's module
  net_costs above;                ///< of what reads all outputs
  std::int64_t outputs = 0;       ///< how many numbers all towers make of a sample

  net_costs total() const {
    return std::accumulate(towers.begin(), towers.end(), above, [](net_costs const& a, net_costs const& b) { return a + b; });
  }
};

/// The costs of a DLRM with a tower of so many features for each number of `features_of_tower`.
///
/// Above the towers the products are of their output vectors and the bottom MLP's, of the towers' dim. A map that would make one vector of one,
/// of the same dim, is left out. So it is in a tower of one feature with p + c = 1.
/// @throws tessera::error as above; invalid_argument where towers together have another number of features than `shape`, or where towers
/// make no vector.
tower_net_costs dlrm_costs(click_net_shape const& shape, std::vector<std::int64_t> const& features_of_tower,
                           dlrm_tower_shape const& module);

/// The costs of a DCN with towers. Above them is a cross network of their outputs and the bottom MLP's, which are as many numbers as a
/// tower's. The linear map of one feature's vector to as many numbers is left out. @throws tessera::error as above.
tower_net_costs dcn_costs(click_net_shape const& shape, std::vector<std::int64_t> const& features_of_tower, dcn_tower_shape const& module);

/// So many features on so many towers, as even as can be, the larger towers first.
/// @throws tessera::error invalid_argument for no towers, or more towers than features.
std::vector<std::int64_t> even_towers(std::int64_t features, std::int64_t towers);

/// The pairs of vectors that a rank multiplies: |F|^2 / T^2 in a tower and r^2 |F|^2 above it. There a tower leaves a share r of its vectors.
/// One tower that leaves all is the flat net's |F|^2 twice. Source: "Disaggregated Multi-Tower", the section on tower modules.
/// @throws tessera::error invalid_argument for less than one tower, more towers than features, or a share that is negative or not finite.
double pair_products(std::int64_t features, std::int64_t towers, double share);

/// By how much smaller what towers send is than the vectors that they read: features * dim / outputs. It is the inverse of the formula in
/// the paper's section on its implementation, as its Table 5 has it. @throws tessera::error invalid_argument for less than 1 of anything.
inline double compression_ratio(std::int64_t features, std::int64_t dim, std::int64_t outputs);

namespace detail {

inline void check_costed(char const* call, std::int64_t number) {
  if (number < 1) throw error(errc::invalid_argument, std::string(call) + ": a size is at least 1", {{"size", number}});
}

// An operation of its own: what it moves.
constexpr std::int64_t moved_by(std::int64_t in, std::int64_t out) noexcept { return 3 * (in + out); }

std::vector<std::int64_t> widths_of(std::int64_t in, std::vector<std::int64_t> const& hidden, std::int64_t out);

inline net_costs bottom_costs(click_net_shape const& shape, std::int64_t out) {
  return mlp_costs(widths_of(shape.numbers, shape.bottom_hidden, out), true);
}

// The net above `vectors` vectors, the bottom MLP's among them.
inline net_costs dlrm_above(click_net_shape const& shape, std::int64_t vectors, std::int64_t dim) {
  return bottom_costs(shape, dim) + dot_costs(vectors, dim) + mlp_costs(widths_of(dim + vectors * (vectors - 1) / 2, shape.top_hidden, 1));
}
inline net_costs dcn_above(click_net_shape const& shape, std::int64_t width, std::int64_t of_bottom) {
  return bottom_costs(shape, of_bottom) + cross_net_costs(width, shape.cross_layers, shape.cross_rank) +
         mlp_costs(widths_of(width, shape.top_hidden, 1));
}

void check_towers(char const* call, click_net_shape const& shape, std::vector<std::int64_t> const& features_of_tower);

}  // namespace detail

inline net_costs dlrm_costs(click_net_shape const& shape) {
  detail::check_costed("dlrm_costs", shape.features);
  return detail::dlrm_above(shape, shape.features + 1, shape.dim);
}

inline net_costs dcn_costs(click_net_shape const& shape) {
  detail::check_costed("dcn_costs", shape.features);
  return detail::dcn_above(shape, (shape.features + 1) * shape.dim, shape.dim);
}

inline double compression_ratio(std::int64_t features, std::int64_t dim, std::int64_t outputs) {
  for (auto const number : {features, dim, outputs}) detail::check_costed("compression_ratio", number);
  return static_cast<double>(features) * static_cast<double>(dim) / static_cast<double>(outputs);
}

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/tower/tower_costs.ipp>
#endif
