// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tower/exchange_costs.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE void check_exchange_shape(exchange_shape const& shape) {
  auto const refuse = [](char const* what, std::vector<error_value> values) {
    throw error(errc::invalid_argument, std::string("exchange_shape: ") + what, std::move(values));
  };
  check_tower_grid(shape.grid);
  auto const towers = shape.grid.groups();
  for (auto const& feature : shape.features) {
    if (feature.rank < 0 || feature.rank >= shape.grid.ranks)
      refuse("a feature is on a rank that is none", {{"rank", feature.rank}, {"ranks", shape.grid.ranks}});
    if (feature.dim < 1 || feature.ids_a_sample < 0)
      refuse("a feature without columns, or with negative ids", {{"dim", feature.dim}, {"ids a sample", feature.ids_a_sample}});
    if (feature.feature < -1 || feature.first_column < 0 || feature.row_shards < 1)
      refuse("a shard that cannot be",
             {{"feature", feature.feature}, {"first column", feature.first_column}, {"shards of rows", feature.row_shards}});
  }
  if (shape.sources < 1 || (shape.sources > 1 && shape.route != exchange_route::flat))
    refuse("sources are 1 or more, and of a flat exchange alone", {{"sources", shape.sources}});
  if (shape.samples < 0) refuse("negative samples", {{"samples", shape.samples}});
  if (shape.id_bytes != 4 && shape.id_bytes != 8) refuse("an id has 4 or 8 bytes", {{"id bytes", shape.id_bytes}});
  if (shape.route == exchange_route::towers && towers > static_cast<std::int64_t>(shape.features.size()))
    refuse("more towers than features; cut tables by columns", {{"towers", towers}, {"features", shape.features.size()}});
  std::vector<bool> has_features(static_cast<std::size_t>(towers), false), has_pooled = has_features;
  if (shape.route == exchange_route::towers) {
    std::map<std::int64_t, std::int64_t> tower_of;
    for (auto const& feature : shape.features) {
      auto const tower = feature.rank / shape.grid.group_ranks();
      has_features[static_cast<std::size_t>(tower)] = true;
      if (!feature.is_sequence) has_pooled[static_cast<std::size_t>(tower)] = true;
      if (feature.feature < 0) continue;
      if (auto const first = tower_of.emplace(feature.feature, tower).first->second; first != tower)
        refuse("shards of one feature in two towers", {{"feature", feature.feature}, {"tower", first}, {"other tower", tower}});
    }
    for (std::int64_t t = 0; t < towers; ++t)
      if (!has_features[static_cast<std::size_t>(t)]) refuse("a tower without features", {{"tower", t}});
  }
  if (shape.outputs.empty()) return;
  if (shape.route != exchange_route::towers || static_cast<std::int64_t>(shape.outputs.size()) % towers != 0)
    refuse("outputs are as many numbers a tower, and of towers alone", {{"outputs", shape.outputs.size()}, {"towers", towers}});
  auto const modules_of_tower = static_cast<std::int64_t>(shape.outputs.size()) / towers;
  for (std::int64_t t = 0; t < towers; ++t) {
    std::int64_t sum = 0;
    for (auto m = t * modules_of_tower; m < (t + 1) * modules_of_tower; ++m) {
      auto const numbers = shape.outputs[static_cast<std::size_t>(m)];
      if (numbers < 0) refuse("negative outputs", {{"tower", t}, {"outputs", numbers}});
      sum += numbers;
    }
    if ((sum > 0) != has_pooled[static_cast<std::size_t>(t)])
      refuse(sum > 0 ? "outputs of a tower of sequences alone" : "a tower without outputs", {{"tower", t}, {"outputs", sum}});
  }
}

TESSERA_INLINE std::vector<rank_exchange_costs> exchange_sizes::ids() const {
  if (shape_.route != exchange_route::towers) {
    auto const bytes = id_sizes(shape_.grid.ranks, shape_.sources, shape_.samples);
    return between_all([&](std::int64_t, std::int64_t to) { return bytes[count(to)]; });
  }
  std::vector<rank_exchange_costs> costs(count(shape_.grid.ranks));
  auto const to_tower = tower_id_sizes();
  auto const to_rank = id_sizes(shape_.grid.ranks, groups(), shape_.samples);
  for_peers([&](std::int64_t from, std::int64_t to) { add(costs, from, to, to_tower[count(to / group_)]); });
  for_group([&](std::int64_t from, std::int64_t to) { add(costs, from, to, to_rank[count(to)]); });
  return costs;
}

TESSERA_INLINE std::vector<rank_exchange_costs> exchange_sizes::vectors(codec with, codec inside) const {
  if (shape_.route != exchange_route::towers) {
    auto const bytes = vector_sizes(shape_.sources, shape_.samples, with);
    return between_all([&](std::int64_t from, std::int64_t) { return bytes[count(from)]; });
  }
  std::vector<rank_exchange_costs> costs(count(shape_.grid.ranks));
  auto const of_rank = vector_sizes(groups(), shape_.samples, inside);
  auto of_group = group_vector_sizes(with);
  for (std::size_t m = 0; m < shape_.outputs.size(); ++m)
    if (shape_.outputs[m] > 0) of_group[m / count(modules_of_group())] += exchanged_room(with, shape_.samples, shape_.outputs[m]);
  for_group([&](std::int64_t from, std::int64_t to) { add(costs, from, to, of_rank[count(from)]); });
  for_peers([&](std::int64_t from, std::int64_t to) { add(costs, from, to, of_group[count(from / group_)]); });
  return costs;
}

TESSERA_INLINE std::vector<rank_exchange_costs> exchange_sizes::gradients(codec with, codec inside) const {
  if (shape_.route == exchange_route::two_hop) {
    auto const bytes = vector_sizes(1, shape_.samples, with);
    return between_all([&](std::int64_t, std::int64_t to) { return bytes[count(to)]; });
  }
  auto costs = vectors(with, inside);  // the same messages, back
  for (auto& of_rank : costs) std::swap(of_rank.sent, of_rank.received);
  return costs;
}

TESSERA_INLINE exchange_sizes::place_among_shards exchange_sizes::place_of(std::size_t f) const {
  auto const& own = shape_.features[f];
  place_among_shards place;
  for (std::size_t before = 0; before < f && own.feature >= 0; ++before) {
    auto const& other = shape_.features[before];
    if (other.feature != own.feature || other.rank / group_ != own.rank / group_) continue;
    place.is_first = false;
    place.has_new_columns &= other.first_column != own.first_column;
  }
  return place;
}

TESSERA_INLINE exchange_sizes::shard_rows exchange_sizes::rows_of(exchanged_feature const& feature, std::int64_t samples) {
  shard_rows all{samples, samples * feature.ids_a_sample, 0};
  if (feature.row_shards > 1) {
    auto const shards = static_cast<double>(feature.row_shards);
    auto const missed = std::pow(1 - 1 / shards, static_cast<double>(feature.ids_a_sample));
    all.values = std::llround(static_cast<double>(all.values) / shards);
    if (!feature.keeps_rows) all.rows = feature.of_ids ? all.values : std::llround(static_cast<double>(samples) * (1 - missed));
  }
  all.vectors = feature.of_ids || feature.is_sequence ? all.values : all.rows;
  return all;
}

TESSERA_INLINE std::int64_t exchange_sizes::key_size(exchanged_feature const& feature, std::int64_t samples) const {
  auto const all = rows_of(feature, samples);
  bool const each_has_one = feature.row_shards > 1 && !feature.keeps_rows && (feature.of_ids || feature.ids_a_sample == 1);
  auto const length = each_has_one ? 1 : feature.row_shards > 1 && feature.ids_a_sample == 1 ? 2 : feature.ids_a_sample;
  id_message_key key{.rows = all.rows, .values = all.values, .id_bytes = static_cast<std::int32_t>(shape_.id_bytes)};
  key.length_bytes = all.rows == 0 || length == 1 ? 0 : length < 256 ? 1 : length < 65'536 ? 2 : length < (std::int64_t{1} << 32) ? 4 : 8;
  return static_cast<std::int64_t>(sizeof key) + key.size();
}

TESSERA_INLINE std::vector<std::int64_t> exchange_sizes::id_sizes(std::int64_t ranks, std::int64_t sources, std::int64_t samples) const {
  std::vector<std::int64_t> sizes(count(ranks), id_message_size({}));
  for (auto const& feature : shape_.features) {
    sizes[count(feature.rank)] += sources * key_size(feature, samples);
    // The tables inside a tower see two sources at least, one of which may have nothing.
    if (shape_.route == exchange_route::towers && sources == 1)
      sizes[count(feature.rank)] += static_cast<std::int64_t>(sizeof(id_message_key));
  }
  return sizes;
}

TESSERA_INLINE std::vector<std::int64_t> exchange_sizes::tower_id_sizes() const {
  constexpr auto of_key = static_cast<std::int64_t>(sizeof(id_message_key));
  std::vector<std::int64_t> sizes(count(groups()), id_message_size({}));
  bool const has_modules = !shape_.outputs.empty();
  for (std::size_t f = 0; f < shape_.features.size(); ++f) {
    if (!place_of(f).is_first) continue;
    auto whole = shape_.features[f];
    whole.row_shards = 1;
    sizes[count(whole.rank / group_)] += key_size(whole, shape_.samples) + (has_modules && !whole.is_sequence ? of_key : 0);
  }
  for (std::size_t m = 0; m < shape_.outputs.size(); ++m)
    if (shape_.outputs[m] > 0) sizes[m / count(modules_of_group())] += of_key + id_message_key::padded(shape_.samples);
  if (has_modules)
    for (auto& size : sizes) size += of_key + static_cast<std::int64_t>(sizeof(std::int64_t));
  return sizes;
}

TESSERA_INLINE std::vector<std::int64_t> exchange_sizes::vector_sizes(std::int64_t sources, std::int64_t samples, codec with) const {
  std::vector<std::int64_t> sizes(count(shape_.grid.ranks), 0);
  for (auto const& feature : shape_.features)
    sizes[count(feature.rank)] += sources * exchanged_room(with, rows_of(feature, samples).vectors, feature.dim);
  return sizes;
}

TESSERA_INLINE std::vector<std::int64_t> exchange_sizes::group_vector_sizes(codec with) const {
  std::vector<std::int64_t> sizes(count(groups()), 0);
  for (std::size_t f = 0; f < shape_.features.size(); ++f) {
    auto const& own = shape_.features[f];
    if (!place_of(f).is_first || (!shape_.outputs.empty() && !own.is_sequence)) continue;
    std::int64_t columns = own.dim;
    for (std::size_t g = f + 1; g < shape_.features.size() && own.feature >= 0; ++g) {
      auto const& other = shape_.features[g];
      if (other.feature == own.feature && other.rank / group_ == own.rank / group_ && place_of(g).has_new_columns) columns += other.dim;
    }
    auto whole = own;
    whole.row_shards = 1;
    whole.of_ids = false;
    sizes[count(own.rank / group_)] += exchanged_room(with, rows_of(whole, shape_.samples).vectors, columns);
  }
  return sizes;
}

}  // namespace detail

TESSERA_INLINE double predict_seconds(exchange_costs const& costs, link_model const& model) {
  double seconds = 0;
  std::int64_t level = 0;
  for (auto const* traffic : {&costs.inside_host, &costs.between_hosts}) {
    if (traffic->messages > 0)
      seconds += static_cast<double>(traffic->messages - 1) * model.predict(0, level) + model.predict(traffic->bytes, level);
    ++level;
  }
  return seconds;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
