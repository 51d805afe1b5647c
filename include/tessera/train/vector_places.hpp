// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/train/sequence_pooler.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A sequence group: outputs of a source whose sequences are joined, row by row, and pooled to one vector a sample.
template <sequence_pooler Pooling>
struct sequence_group {
  /// Names of the outputs, whose keys follow one another. In a batch the keys are one row group, or all have a row a sample.
  std::vector<std::string> outputs;
  typename Pooling::options pooling{};  ///< how a sequence becomes a vector
  std::string target{};                 ///< where the pooling reads a target: the name of its output, of a vector a sample
  /// How many `position_vectors` tell the pooling the order of ids. With 0, a pooling sees only the order that it computes itself.
  std::int64_t positions = 0;
};

namespace detail {

/// A vector that meets the others in a click model, before its projection. It is that of a sequence group or that of an output.
struct vector_place {
  std::int64_t output = -1;      ///< number of the output; -1: a sequence group's vector
  std::int64_t width = 0;        ///< elements of the vector
  std::int64_t projection = -1;  ///< number of its projection; -1: none
  std::int64_t column = 0;       ///< its first column among the vectors that are projected
};

/// Where a sequence group has its sequences from.
struct group_place {
  std::vector<std::int64_t> outputs;  ///< numbers of the outputs
  std::int64_t first_key = 0;         ///< key of the first output; those of the others follow
  std::int64_t target = -1;           ///< number of the vector that the pooling reads as target; -1: none
};

/// Which vectors meet in a click model: those of sequence groups first, then those of outputs with a vector a sample.
struct vector_places {
  std::vector<vector_place> vectors;   ///< in the order in which they meet
  std::vector<group_place> groups;     ///< the sequence groups, whose vectors are the first
  std::int64_t keys = 0;               ///< keys that a batch has, or at least has
  bool are_all_keys = true;            ///< whether it has no others: no output is made of several keys, which only the source knows
  std::vector<std::string> key_names;  ///< (keys,): name of the output that is made of the key alone, or empty

  /// Gives each output its place. `outputs` are the source's; `pooled` names those with a vector a sample, in their order.
  /// An empty `pooled` stands for all of these, in the order of the source. @throws tessera::error as `click_model`.
  template <sequence_pooler Pooling>
  vector_places(vector_view<embedding_output const> outputs, std::vector<sequence_group<Pooling>> const& sequence_groups,
                std::vector<std::string> pooled) {
    std::vector<bool> is_placed(static_cast<std::size_t>(outputs.size()));
    for (auto const& group : sequence_groups) add_group(outputs, group.outputs, is_placed);
    bool const in_order = pooled.empty();
    for (std::int64_t o = 0; o < outputs.size(); ++o) {
      keys = std::max(keys, outputs[o].key + 1);
      are_all_keys = are_all_keys && outputs[o].key >= 0;
      key_names.resize(static_cast<std::size_t>(keys));
      if (outputs[o].key >= 0) key_names[static_cast<std::size_t>(outputs[o].key)] = outputs[o].name;
      if (is_placed[static_cast<std::size_t>(o)]) continue;
      if (outputs[o].sequence)
        throw error(errc::invalid_argument, "click_model: a sequence that no group pools", {{"output", outputs[o].name}});
      if (in_order) pooled.push_back(outputs[o].name);
    }
    for (auto const& name : pooled) {
      auto const o = take(outputs, name, false, is_placed);
      vectors.push_back({.output = o, .width = outputs[o].width});
    }
    if (auto const left = std::find(is_placed.begin(), is_placed.end(), false); left != is_placed.end())
      throw error(errc::invalid_argument, "click_model: an output that meets no other",
                  {{"output", outputs[left - is_placed.begin()].name}});
    for (std::size_t g = 0; g < groups.size(); ++g)
      if (reads_target<Pooling>(sequence_groups[g].pooling)) groups[g].target = target_of(outputs, g, sequence_groups[g].target);
  }

  /// Refuses a batch whose keys have other names than the outputs that are made of them. Keys without names are not compared.
  /// @throws tessera::error shape_mismatch naming the key, the name found and the name expected.
  void check_keys(batch_view const& batch) const;

  /// The elements that each vector has where it meets the others: `wanted`, or the width of the first vector where `wanted` is 0.
  /// @throws tessera::error shape_mismatch for a vector of another width, unless the model `projects`;
  /// invalid_argument where there are no vectors and `wanted` is 0.
  std::int64_t dim(vector_view<embedding_output const> outputs, std::int64_t wanted, bool projects) const;

 private:
  static std::int64_t number_of(vector_view<embedding_output const> outputs, std::string const& name);

  static std::int64_t take(vector_view<embedding_output const> outputs, std::string const& name, bool sequence,
                           std::vector<bool>& is_placed);

  void add_group(vector_view<embedding_output const> outputs, std::vector<std::string> const& names, std::vector<bool>& is_placed);

  std::int64_t target_of(vector_view<embedding_output const> outputs, std::size_t group, std::string const& name) const;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/train/vector_places.ipp>
#endif
