// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/train/projected_vectors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE projected_vectors::projected_vectors(host_exec const& exec, std::vector<vector_place>& vectors, std::int64_t dim,
                                                    random_seed seed)
    : dim_(dim) {
  for (std::size_t v = 0; v < vectors.size(); ++v) {
    auto& place = vectors[v];
    if (place.width == dim) continue;
    place.projection = static_cast<std::int64_t>(maps_.size());
    place.column = columns_;
    columns_ += place.width;
    auto const stream = static_cast<std::uint32_t>(first_random_stream + v);
    maps_.emplace_back(exec, mlp_options{{place.width, dim}, activation::identity, seed, stream});
    names_.push_back("projection." + std::to_string(v));
  }
}

TESSERA_INLINE void projected_vectors::add_blocks(std::vector<parameter_block>& all) {
  for (std::size_t m = 0; m < maps_.size(); ++m) {
    auto some = maps_[m].blocks(names_[m]);
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
