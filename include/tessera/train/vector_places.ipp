// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/train/vector_places.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE void vector_places::check_keys(batch_view const& batch) const {
  for (std::int64_t key = 0; key < std::min(keys, batch.key_names.size()); ++key) {
    auto const& expected = key_names[static_cast<std::size_t>(key)];
    if (!expected.empty() && batch.key_names[key] != expected)
      throw error(errc::shape_mismatch, "click_model: a batch of other keys, or of these in another order",
                  {{"key", key}, {"found", batch.key_names[key]}, {"expected", expected}});
  }
}

TESSERA_INLINE std::int64_t vector_places::dim(vector_view<embedding_output const> outputs, std::int64_t wanted, bool projects) const {
  if (vectors.empty() && wanted == 0) throw error(errc::invalid_argument, "click_model: no outputs, and no dim");
  auto const dim = wanted > 0 ? wanted : vectors[0].width;
  for (auto const& vector : vectors)
    if (vector.width != dim && !projects)
      throw error(errc::shape_mismatch, "click_model: outputs of different widths, which are not projected",
                  {{"output", vector.output < 0 ? "a group's" : outputs[vector.output].name}, {"width", vector.width}, {"dim", dim}});
  return dim;
}

TESSERA_INLINE std::int64_t vector_places::number_of(vector_view<embedding_output const> outputs, std::string const& name) {
  for (std::int64_t o = 0; o < outputs.size(); ++o)
    if (outputs[o].name == name) return o;
  throw error(errc::out_of_range, "click_model: no such output", {{"output", name}, {"outputs", outputs.size()}});
}

TESSERA_INLINE std::int64_t vector_places::take(vector_view<embedding_output const> outputs, std::string const& name, bool sequence,
                                                std::vector<bool>& is_placed) {
  auto const o = number_of(outputs, name);
  auto const refuse = [&](char const* why) { throw error(errc::invalid_argument, std::string("click_model: ") + why, {{"output", name}}); };
  if (is_placed[static_cast<std::size_t>(o)]) refuse("an output twice");
  if (outputs[o].sequence != sequence) refuse(sequence ? "a group is of sequences" : "a sequence meets the others through a group");
  is_placed[static_cast<std::size_t>(o)] = true;
  return o;
}

TESSERA_INLINE void vector_places::add_group(vector_view<embedding_output const> outputs, std::vector<std::string> const& names,
                                             std::vector<bool>& is_placed) {
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

TESSERA_INLINE std::int64_t vector_places::target_of(vector_view<embedding_output const> outputs, std::size_t group,
                                                     std::string const& name) const {
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

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
