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
#include <tessera/train/session_pooling.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Outputs of a source whose sequences are put together, row by row, and made one vector a sample.
template <session_pooling Pooling>
struct sequence_group {
  std::vector<std::string> outputs;  // of keys that follow one another; one group of a batch, or of a row a sample
  typename Pooling::options pooling{};
  std::string target{};  // where the pooling looks at one: the output of a vector a sample that it compares with
};

namespace detail {

/// A vector that meets the others in a click model, before its projection: a group's, or an output's.
struct vector_place {
  std::int64_t output = -1;      // -1: a group's
  std::int64_t width = 0;        // floats
  std::int64_t projection = -1;  // its number; -1: none
  std::int64_t column = 0;       // of what is projected, the first
};

/// Where the sequences of a group come from.
struct group_place {
  std::vector<std::int64_t> outputs;
  std::int64_t first_key = 0;  // of a batch; the others follow
  std::int64_t target = -1;    // which vector its pooling looks at; -1: none
};

/// Which outputs of a source meet in a click model: those of groups first, then those of a vector a sample.
struct vector_places {
  std::vector<vector_place> vectors;
  std::vector<group_place> groups;
  std::int64_t keys = 0;  // of a batch

  /// `pooled`: the order of those of a vector a sample; empty: the source's. @throws tessera::error as `click_model`.
  template <session_pooling Pooling>
  vector_places(vector_view<embedding_output const> outputs, std::vector<sequence_group<Pooling>> const& sequence_groups,
                std::vector<std::string> pooled) {
    std::vector<bool> is_placed(static_cast<std::size_t>(outputs.size()));
    for (auto const& group : sequence_groups) add_group(outputs, group.outputs, is_placed);
    bool const in_order = pooled.empty();
    for (std::int64_t o = 0; o < outputs.size(); ++o) {
      keys = std::max(keys, outputs[o].key + 1);
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

  /// Of all vectors: `wanted`, or where that is 0 the first one's. @throws tessera::error where one has another, unless it `projects`.
  std::int64_t dim(vector_view<embedding_output const> outputs, std::int64_t wanted, bool projects) const {
    if (vectors.empty() && wanted == 0) throw error(errc::invalid_argument, "click_model: no outputs, and no dim");
    auto const dim = wanted > 0 ? wanted : vectors[0].width;
    for (auto const& vector : vectors)
      if (vector.width != dim && !projects)
        throw error(errc::shape_mismatch, "click_model: outputs of different widths, which are not projected",
                    {{"output", vector.output < 0 ? "a group's" : outputs[vector.output].name}, {"width", vector.width}, {"dim", dim}});
    return dim;
  }

 private:
  static std::int64_t number_of(vector_view<embedding_output const> outputs, std::string const& name) {
    for (std::int64_t o = 0; o < outputs.size(); ++o)
      if (outputs[o].name == name) return o;
    throw error(errc::out_of_range, "click_model: no such output", {{"output", name}, {"outputs", outputs.size()}});
  }

  static std::int64_t take(vector_view<embedding_output const> outputs, std::string const& name, bool sequence,
                           std::vector<bool>& is_placed) {
    auto const o = number_of(outputs, name);
    auto const refuse = [&](char const* why) {
      throw error(errc::invalid_argument, std::string("click_model: ") + why, {{"output", name}});
    };
    if (is_placed[static_cast<std::size_t>(o)]) refuse("an output twice");
    if (outputs[o].sequence != sequence) refuse(sequence ? "a group is of sequences" : "a sequence meets the others through a group");
    is_placed[static_cast<std::size_t>(o)] = true;
    return o;
  }

  void add_group(vector_view<embedding_output const> outputs, std::vector<std::string> const& names, std::vector<bool>& is_placed) {
    auto const number = groups.size();
    if (names.empty()) throw error(errc::invalid_argument, "click_model: a group without outputs", {{"group", number}});
    group_place place;
    for (auto const& name : names) {
      auto const o = take(outputs, name, true, is_placed);
      place.outputs.push_back(o);
      auto const &first = outputs[place.outputs[0]], &other = outputs[o];
      if (other.key < 0 || other.key != first.key + static_cast<std::int64_t>(place.outputs.size()) - 1)
        throw error(errc::invalid_argument, "click_model: keys of a group follow one another",
                    {{"group", number}, {"output", name}, {"key", other.key}, {"first key", first.key}});
      if (other.width != first.width || other.expanded_gradients != first.expanded_gradients)
        throw error(errc::shape_mismatch, "click_model: outputs of a group are alike",
                    {{"group", number}, {"output", name}, {"width", other.width}, {"first width", first.width}});
    }
    place.first_key = outputs[place.outputs[0]].key;
    vectors.push_back({.width = outputs[place.outputs[0]].width});
    groups.push_back(std::move(place));
  }

  std::int64_t target_of(vector_view<embedding_output const> outputs, std::size_t group, std::string const& name) const {
    auto const o = number_of(outputs, name);
    for (auto v = groups.size(); v < vectors.size(); ++v) {
      if (vectors[v].output != o) continue;
      if (vectors[v].width != vectors[group].width)
        throw error(errc::shape_mismatch, "click_model: a target is as wide as what it is compared with",
                    {{"group", group}, {"target", name}, {"width", vectors[v].width}, {"sequence width", vectors[group].width}});
      return static_cast<std::int64_t>(v);
    }
    throw error(errc::invalid_argument, "click_model: a target of a vector a sample", {{"group", group}, {"target", name}});
  }
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
