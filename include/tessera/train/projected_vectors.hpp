// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/train/click_net.hpp>
#include <tessera/train/vector_places.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// What the projections of a batch's vectors keep from forward to backward.
struct projected_saved {
  buffer<float> from, gradient;  ///< (samples, columns()): vectors before projection, and their gradients
  std::vector<mlp_saved> maps;   ///< what each map saved, chunk by chunk
};

/// The linear maps of a click model, which bring vectors of other widths to the width of those that meet. There may be none.
class projected_vectors {
 public:
  /// Makes a map for each vector that is not of `dim` elements, and gives it its place among those that are projected.
  projected_vectors(host_exec const& exec, std::vector<vector_place>& vectors, std::int64_t dim, random_seed seed);

  /// Elements of all vectors that are projected, side by side.
  std::int64_t columns() const noexcept { return columns_; }
  std::size_t bytes() const noexcept {
    std::size_t sum = 0;
    for (auto const& map : maps_) sum += map.bytes();
    return sum;
  }
  std::int64_t parameter_count() const noexcept {
    std::int64_t sum = 0;
    for (auto const& map : maps_) sum += map.parameters().size();
    return sum;
  }
  void add_groups(std::vector<parameter_group>& all) {
    for (std::size_t m = 0; m < maps_.size(); ++m) all.push_back({names_[m], maps_[m].parameters()});
  }
  void add_blocks(std::vector<parameter_block>& all);

  /// Makes room for a batch.
  void resize(host_exec const& exec, std::int64_t samples, std::int64_t chunks, projected_saved& saved) const {
    saved.from.resize(exec, samples * columns_);
    saved.maps.resize(std::max(saved.maps.size(), maps_.size() * static_cast<std::size_t>(chunks)));
  }
  /// The vectors before projection, of samples [first, last).
  matrix_view<float> from(projected_saved& saved, std::int64_t first, std::int64_t last) const noexcept {
    return {saved.from.data() + first * columns_, last - first, columns_};
  }
  /// Their gradients, laid out like `from`.
  matrix_view<float> gradient(projected_saved& saved, std::int64_t first, std::int64_t last) const noexcept {
    return {saved.gradient.data() + first * columns_, last - first, columns_};
  }

  /// Projects the samples [first, last) of a chunk into `to`, all vectors that meet, those of lookups from `first_lookup` on.
  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const& policy, std::vector<vector_place> const& vectors, std::int64_t chunk,
               std::pair<std::int64_t, std::int64_t> samples, matrix_view<float> to, std::int64_t first_lookup,
               projected_saved& saved) const {
    for (std::size_t v = 0; v < vectors.size(); ++v)
      if (auto const& place = vectors[v]; place.projection >= 0)
        maps_[at(place)].forward(exec, policy, from(saved, samples.first, samples.second).columns_from(place.column, place.width),
                                 to.columns_from((first_lookup + static_cast<std::int64_t>(v)) * dim_, dim_), map(saved, chunk, place));
  }

  /// Writes the gradients of the chunk's vectors before projection, and of the parameters, map after map.
  template <gemm_policy Gemm>
  void backward(host_exec const& exec, Gemm const& policy, std::vector<vector_place> const& vectors, std::int64_t chunk,
                std::pair<std::int64_t, std::int64_t> samples, matrix_view<float> of_vectors, std::int64_t first_lookup,
                vector_view<float> of_parameters, projected_saved& saved, gradient_listener const& finished) const {
    saved.gradient.resize(exec, saved.from.size());
    std::int64_t next = 0;
    for (std::size_t v = 0; v < vectors.size(); ++v) {
      auto const& place = vectors[v];
      if (place.projection < 0) continue;
      auto const size = maps_[at(place)].parameters().size();
      maps_[at(place)].backward(exec, policy, map(saved, chunk, place),
                                of_vectors.columns_from((first_lookup + static_cast<std::int64_t>(v)) * dim_, dim_),
                                of_parameters.slice(std::exchange(next, next + size), size),
                                gradient(saved, samples.first, samples.second).columns_from(place.column, place.width), finished);
    }
  }

 private:
  static constexpr std::size_t first_random_stream = 1 << 16;

  static std::size_t at(vector_place const& place) noexcept { return static_cast<std::size_t>(place.projection); }
  mlp_saved& map(projected_saved& saved, std::int64_t chunk, vector_place const& place) const {
    return saved.maps[static_cast<std::size_t>(chunk) * maps_.size() + at(place)];
  }

  std::int64_t dim_;
  std::int64_t columns_ = 0;
  std::vector<mlp> maps_;
  std::vector<std::string> names_;
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/train/projected_vectors.ipp>
#endif
