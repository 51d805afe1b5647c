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

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/train/click_net.hpp>
#include <tessera/train/group_sequences.hpp>
#include <tessera/train/position_vectors.hpp>
#include <tessera/train/sequence_pooler.hpp>
#include <tessera/train/vector_places.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// The poolings of a click model's sequence groups, and their position vectors. The vector of group g is the g-th that meets the others.
template <sequence_pooler Pooling>
class group_poolings {
 public:
  /// @throws tessera::error invalid_argument for positions below 0; and what the poolings' constructors throw.
  group_poolings(host_exec const& exec, std::vector<sequence_group<Pooling>> const& groups, std::vector<vector_place> const& vectors,
                 random_seed seed) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      auto const stream = static_cast<std::uint32_t>(first_random_stream + g);
      auto const count = groups[g].positions;
      if (count < 0) throw error(errc::invalid_argument, "click_model: positions of a group", {{"group", g}, {"positions", count}});
      poolings_.emplace_back(exec, groups[g].pooling, vectors[g].width, seed, stream);
      pooling_names_.push_back("pooling." + std::to_string(g));
      positions_.emplace_back();
      if (count > 0) positions_.back() = position_vectors(exec, count, vectors[g].width, seed, stream);
      position_names_.push_back("positions." + std::to_string(g));
    }
  }

  std::size_t bytes() const noexcept {
    std::size_t sum = 0;
    for (auto const& pooling : poolings_) sum += pooling.bytes();
    for (auto const& positions : positions_) sum += positions.bytes();
    return sum;
  }
  /// Parameters of all poolings.
  std::int64_t parameter_count() const noexcept {
    std::int64_t sum = 0;
    for (auto const& pooling : poolings_) sum += pooling.parameters().size();
    return sum;
  }
  /// Parameters of all position vectors.
  std::int64_t position_count() const noexcept {
    std::int64_t sum = 0;
    for (auto const& positions : positions_) sum += positions.parameters().size();
    return sum;
  }
  void add_groups(std::vector<parameter_group>& all) {
    for (std::size_t g = 0; g < poolings_.size(); ++g) all.push_back({pooling_names_[g], poolings_[g].parameters()});
  }
  void add_position_groups(std::vector<parameter_group>& all) {
    for (std::size_t g = 0; g < positions_.size(); ++g)
      if (positions_[g].count() > 0) all.push_back({position_names_[g], positions_[g].parameters()});
  }
  void add_blocks(std::vector<parameter_block>& all) {
    for (std::size_t g = 0; g < poolings_.size(); ++g) add(all, poolings_[g].blocks(pooling_names_[g]));
  }
  void add_position_blocks(std::vector<parameter_block>& all) {
    for (std::size_t g = 0; g < positions_.size(); ++g)
      if (positions_[g].count() > 0) add(all, positions_[g].blocks(position_names_[g]));
  }

  /// Joins the sequences of each group, and adds their position vectors.
  void put_together(host_exec const& exec, std::vector<group_sequences>& sequences) const {
    for (std::size_t g = 0; g < poolings_.size(); ++g) {
      sequences[g].put_together(exec);
      if (positions_[g].count() > 0) positions_[g].add(exec, sequences[g].vector_rows());
    }
  }
  /// Pools the sequences of each group for the samples [first, last) of chunk number `chunk`. `vector(g)` and `target(g)` are where its vector
  /// goes and what it reads as target, of all samples. `saved` is of each chunk and group. @pre There is one chunk, or samples share no rows.
  template <gemm_policy Gemm, class Target, class Vector>
  void forward(host_exec const& exec, Gemm const& policy, std::vector<group_sequences>& sequences, std::int64_t chunk, std::int64_t first,
               std::int64_t last, Target const& target, Vector const& vector, std::vector<typename Pooling::saved>& saved) const {
    for (std::int64_t g = 0; g < size(); ++g)
      pooling(g).forward(exec, policy, sequences[at(g)].get(first, last), part(target(g), first, last), part(vector(g), first, last),
                         saved[at(chunk * size() + g)]);
  }
  /// Does the same for no backward.
  template <gemm_policy Gemm, class Target, class Vector>
  void predict(host_exec const& exec, Gemm const& policy, std::vector<group_sequences>& sequences, std::int64_t first, std::int64_t last,
               Target const& target, Vector const& vector) const {
    for (std::int64_t g = 0; g < size(); ++g)
      pooling(g).predict(exec, policy, sequences[at(g)].get(first, last), part(target(g), first, last), part(vector(g), first, last));
  }
  /// Writes the gradients of a chunk's sequences, of targets and of parameters, group after group; `vector` and `target` are those of
  /// gradients. @pre `make_gradients` has made room for those of sequences.
  template <gemm_policy Gemm, class Target, class Vector>
  void backward(host_exec const& exec, Gemm const& policy, std::vector<group_sequences>& sequences, std::int64_t chunk, std::int64_t first,
                std::int64_t last, Target const& target, Vector const& vector, std::vector<typename Pooling::saved>& saved,
                vector_view<float> of_poolings, vector_view<float> of_positions, gradient_listener const& finished) const {
    for (std::int64_t g = 0; g < size(); ++g) {
      auto const of_pooling = take(of_poolings, pooling(g).parameters().size());
      auto const rows = sequences[at(g)].gradient_rows(first, last);
      auto const of_vectors = rows.values.rows_from(rows.offsets[0], rows.offsets[rows.rows] - rows.offsets[0]);
      pooling(g).backward(exec, policy, saved[at(chunk * size() + g)], part(vector(g), first, last), of_pooling, of_vectors,
                          part(target(g), first, last));
      if (finished && !of_pooling.empty()) finished(of_pooling);
      auto const& positions = positions_[at(g)];
      if (positions.count() == 0) continue;
      auto const of_group = take(of_positions, positions.parameters().size());
      positions.backward(exec, rows, of_group);
      if (finished) finished(of_group);
    }
  }

 private:
  static constexpr std::size_t first_random_stream = 16;  // behind those of bottom, top and interaction

  static vector_view<float> take(vector_view<float>& from, std::int64_t size) {
    auto const part = from.slice(0, size);
    from = from.slice(size, from.size() - size);
    return part;
  }
  // Of the samples [first, last); of no target nothing.
  static matrix_view<float> part(matrix_view<float> all, std::int64_t first, std::int64_t last) {
    return all.data() == nullptr ? all : all.rows_from(first, last - first);
  }
  static constexpr std::size_t at(std::int64_t i) noexcept { return static_cast<std::size_t>(i); }
  std::int64_t size() const noexcept { return static_cast<std::int64_t>(poolings_.size()); }
  Pooling const& pooling(std::int64_t g) const noexcept { return poolings_[at(g)]; }
  static void add(std::vector<parameter_block>& all, std::vector<parameter_block> some) {
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }

  std::vector<Pooling> poolings_;
  std::vector<position_vectors> positions_;  // of each group; without any, of no count
  std::vector<std::string> pooling_names_, position_names_;
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
