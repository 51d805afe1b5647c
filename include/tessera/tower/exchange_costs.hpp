// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/codec.hpp>
#include <tessera/comm/link_model.hpp>
#include <tessera/comm/message_bundle.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/shard/flat_exchange_state.hpp>
#include <tessera/shard/id_message.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Messages, and all bytes in them.
struct link_traffic {
  std::int64_t messages = 0;
  std::int64_t bytes = 0;

  /// One more message.
  constexpr void add(std::int64_t message_bytes) noexcept { ++messages, bytes += message_bytes; }
  constexpr link_traffic& operator+=(link_traffic const& other) noexcept {
    messages += other.messages, bytes += other.bytes;
    return *this;
  }
  friend constexpr bool operator==(link_traffic const&, link_traffic const&) = default;
};

/// Traffic by the level at which two ranks meet. What a rank keeps for itself is no traffic.
struct exchange_costs {
  link_traffic inside_host;    ///< between ranks of one host
  link_traffic between_hosts;  ///< between ranks of different hosts

  constexpr exchange_costs& operator+=(exchange_costs const& other) noexcept {
    inside_host += other.inside_host, between_hosts += other.between_hosts;
    return *this;
  }
  friend constexpr exchange_costs operator+(exchange_costs a, exchange_costs const& b) noexcept { return a += b; }
  friend constexpr bool operator==(exchange_costs const&, exchange_costs const&) = default;
};

/// What one rank sends and receives in an exchange.
struct rank_exchange_costs {
  exchange_costs sent, received;

  friend constexpr bool operator==(rank_exchange_costs const&, rank_exchange_costs const&) = default;
};

/// Ranks on hosts, as `topology::of_hosts` numbers them, in groups of one host or several. Towers of one host share its group. Rank g is in
/// group g / group_ranks(), at place g % group_ranks(); its peers have the same place in the other groups.
struct tower_grid {
  std::int64_t ranks = 1;           ///< a multiple of the hosts
  std::int64_t hosts = 1;           ///< a multiple of the hosts of a tower
  std::int64_t hosts_of_tower = 1;  ///< the paper's K

  constexpr std::int64_t host_ranks() const noexcept { return ranks / hosts; }
  constexpr std::int64_t group_ranks() const noexcept { return host_ranks() * hosts_of_tower; }
  constexpr std::int64_t groups() const noexcept { return ranks / group_ranks(); }

  friend constexpr bool operator==(tower_grid const&, tower_grid const&) = default;
};

/// Refuses a grid that cannot be.
/// @throws tessera::error invalid_argument, naming two sizes, for a size below 1, and where one does not divide the other: hosts the ranks,
/// hosts of a tower the hosts.
inline void check_tower_grid(tower_grid const& grid);

/// Which way ids and vectors go.
enum class exchange_route : std::uint8_t {
  /// From the rank that has a sample to each rank that has a table, and back.
  flat,
  /// Over a `two_hop_communicator`: the messages of `flat`, in bundles within hosts, from host to host, and within hosts again. Between hosts
  /// there is one message a pair of hosts. Towers do not matter.
  two_hop,
  /// SPTT. Ids go to the peer in the feature's tower, one message a tower, and inside it to the rank that has the table. Vectors come back
  /// the same way: inside the tower, then to the peers.
  towers,
};

/// A table, or columns or rows of one, that a rank holds for a feature.
struct exchanged_feature {
  std::int64_t rank = 0;          ///< who holds it
  std::int64_t dim = 0;           ///< columns
  std::int64_t ids_a_sample = 1;  ///< of every sample; they are pooled to one vector
  /// Shards of the same number from 0 are of one feature. To a tower its ids go once, and back its columns go as one block. -1: a feature of
  /// its own.
  std::int64_t feature = -1;
  std::int64_t first_column = 0;  ///< of the feature's columns; those of a feature's shards in a tower lie side by side
  /// Shards of rows among which its ids are dealt by chance, one of which this is. Each gives the sum of those ids of a sample that it has.
  std::int64_t row_shards = 1;
  bool is_sequence = false;  ///< its vectors are of ids; else one of each sample
  bool of_ids = false;       ///< a shard gives vectors of ids, as of a sequence, or of rows that return no partial sums
  bool keeps_rows = false;   ///< each shard of rows gets all samples, also without ids, as where several features read the table
};

/// An exchange of the ids and vectors of a batch.
struct exchange_shape {
  exchange_route route = exchange_route::flat;
  tower_grid grid{};
  std::vector<exchanged_feature> features{};
  std::int64_t samples = 0;   ///< that each rank has
  std::int64_t sources = 1;   ///< that a rank of `flat` stands for: each has so many samples, and keys of its own
  std::int64_t id_bytes = 4;  ///< 4, or 8 for tables of 2^32 - 1 rows and more
  exchange_codecs codecs{};   ///< of vectors and gradients, but for those inside towers
  exchange_codecs inside{};   ///< inside towers
  /// (towers,) How many numbers each tower's module makes of a sample: they go to the peers as one block, in the place of pooled vectors.
  /// Sequences go as they are. 0: a tower of sequences alone. Empty: there are no modules, and vectors go. Of `towers` alone.
  ///
  /// With k modules on the ranks of each tower, (k towers,): the first k are of the first one. Modules get along how many samples there are.
  std::vector<std::int64_t> outputs{};
};

/// What each rank sends and receives for the ids of a batch without groups and weights: (ranks,). Bytes are those of the exchange's own
/// messages, header and padding included. There is a message to each rank of a hop, also where it has no tables. With shards of rows they are
/// those that are expected of ids by chance.
/// @throws tessera::error invalid_argument, naming the value, as `check_tower_grid`, and:
///
/// - for a feature's rank that is none, a dim below 1 or negative ids;
/// - for a shard before the first column, or among no shards of rows;
/// - for negative samples, and ids of other sizes;
/// - for more towers than features, a tower without features, and shards of one feature in two towers;
/// - for outputs of another number of towers, negative ones, and those of another route;
/// - for outputs of a tower of sequences alone, and none of another one;
/// - for sources below 1, and several of another route than `flat`.
///
/// The same below.
inline std::vector<rank_exchange_costs> id_exchange_costs(exchange_shape const& shape);

/// The same for vectors, by `encoded_bytes`: each block begins on a line of 64 bytes.
inline std::vector<rank_exchange_costs> vector_exchange_costs(exchange_shape const& shape);

/// The same for their gradients, which go the other way.
inline std::vector<rank_exchange_costs> gradient_exchange_costs(exchange_shape const& shape);

/// The seconds in which a rank sends so much, one message after the other. Link 0 of the model is that of a host, link 1 that between hosts.
/// @throws tessera::error out_of_range naming a link that there is none of, but has messages.
inline double predict_seconds(exchange_costs const& costs, link_model const& model);

namespace detail {

inline void check_divides(char const* what, std::int64_t all, char const* by, std::int64_t parts) {
  if (all < 1 || parts < 1 || all % parts != 0)
    throw error(errc::invalid_argument, "tower_grid: sizes are at least 1, and one divides the other", {{what, all}, {by, parts}});
}

inline void check_exchange_shape(exchange_shape const& shape) {
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

/// The sizes of all messages of an exchange, which are the same for many pairs of ranks.
class exchange_sizes {
 public:
  explicit exchange_sizes(exchange_shape const& shape) : shape_(shape), group_(shape.grid.group_ranks()) {}

  std::vector<rank_exchange_costs> ids() const {
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

  std::vector<rank_exchange_costs> vectors(codec with, codec inside) const {
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

  std::vector<rank_exchange_costs> gradients(codec with, codec inside) const {
    if (shape_.route == exchange_route::two_hop) {
      auto const bytes = vector_sizes(1, shape_.samples, with);
      return between_all([&](std::int64_t, std::int64_t to) { return bytes[count(to)]; });
    }
    auto costs = vectors(with, inside);  // the same messages, back
    for (auto& of_rank : costs) std::swap(of_rank.sent, of_rank.received);
    return costs;
  }

 private:
  static std::size_t count(std::int64_t number) noexcept { return static_cast<std::size_t>(number); }
  std::int64_t groups() const noexcept { return shape_.grid.ranks / group_; }

  void add(std::vector<rank_exchange_costs>& costs, std::int64_t from, std::int64_t to, std::int64_t bytes) const noexcept {
    bool const one_host = from / shape_.grid.host_ranks() == to / shape_.grid.host_ranks();
    auto& sent = costs[count(from)].sent;
    auto& received = costs[count(to)].received;
    (one_host ? sent.inside_host : sent.between_hosts).add(bytes);
    (one_host ? received.inside_host : received.between_hosts).add(bytes);
  }

  // A message of so many bytes from each rank to each other one, as the communicator carries it.
  template <class Bytes>
  std::vector<rank_exchange_costs> between_all(Bytes const& bytes) const {
    std::vector<rank_exchange_costs> costs(count(shape_.grid.ranks));
    auto const hosts = shape_.grid.hosts, each = shape_.grid.host_ranks();
    if (shape_.route == exchange_route::flat || hosts == 1 || each == 1) {
      for_all_pairs([&](std::int64_t from, std::int64_t to) { add(costs, from, to, bytes(from, to)); });
      return costs;
    }
    // Bundles within hosts, to hosts, and from hosts: how many messages are in them, and the bytes of these.
    using bundles = std::map<std::pair<std::int64_t, std::int64_t>, link_traffic>;
    bundles first, between, last;
    auto const carrier = [&](std::int64_t host, std::int64_t other) { return host * each + carrier_index(host, other, hosts, each); };
    for (std::int64_t host = 0; host < hosts; ++host)  // a bundle without messages is sent, too
      for (std::int64_t other = 0; other < hosts; ++other)
        for (std::int64_t i = 0; i < each; ++i) {
          auto const from = host * each + i, by = carrier(host, other);
          if (other == host)
            for (std::int64_t j = 0; j < each; ++j) first[{from, host * each + j}];
          else
            between[{by, carrier(other, host)}], last[{by, from}];
        }
    for_all_pairs([&](std::int64_t from, std::int64_t to) {
      auto const room = aligned_message(bytes(from, to));
      auto const host = from / each, other = to / each;
      if (host == other) return first[{from, to}].add(room);
      auto const leaves = carrier(host, other), arrives = carrier(other, host);
      first[{from, leaves}].add(room);
      between[{leaves, arrives}].add(room);
      last[{arrives, to}].add(room);
    });
    for (auto const* hop : {&first, &between, &last})
      for (auto const& [way, parts] : *hop)
        if (way.first != way.second) add(costs, way.first, way.second, bundle_heads_bytes(parts.messages) + parts.bytes);
    return costs;
  }

  std::int64_t modules_of_group() const noexcept { return static_cast<std::int64_t>(shape_.outputs.size()) / groups(); }
  // Whether a shard is the first of its feature in its group that has these columns, and whether it is the first at all.
  struct place_among_shards {
    bool is_first = true, has_new_columns = true;
  };
  place_among_shards place_of(std::size_t f) const {
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

  // What a shard gets of so many samples.
  struct shard_rows {
    std::int64_t rows = 0, values = 0, vectors = 0;
  };
  static shard_rows rows_of(exchanged_feature const& feature, std::int64_t samples) {
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
  // A key in a message.
  std::int64_t key_size(exchanged_feature const& feature, std::int64_t samples) const {
    auto const all = rows_of(feature, samples);
    bool const each_has_one = feature.row_shards > 1 && !feature.keeps_rows && (feature.of_ids || feature.ids_a_sample == 1);
    auto const length = each_has_one ? 1 : feature.row_shards > 1 && feature.ids_a_sample == 1 ? 2 : feature.ids_a_sample;
    id_message_key key{.rows = all.rows, .values = all.values, .id_bytes = static_cast<std::int32_t>(shape_.id_bytes)};
    key.length_bytes = all.rows == 0 || length == 1 ? 0 : length < 256 ? 1 : length < 65'536 ? 2 : length < (std::int64_t{1} << 32) ? 4 : 8;
    return static_cast<std::int64_t>(sizeof key) + key.size();
  }
  // The message of ids to each rank, of so many sources.
  std::vector<std::int64_t> id_sizes(std::int64_t ranks, std::int64_t sources, std::int64_t samples) const {
    std::vector<std::int64_t> sizes(count(ranks), id_message_size({}));
    for (auto const& feature : shape_.features) {
      sizes[count(feature.rank)] += sources * key_size(feature, samples);
      // The tables inside a tower see two sources at least, one of which may have nothing.
      if (shape_.route == exchange_route::towers && sources == 1)
        sizes[count(feature.rank)] += static_cast<std::int64_t>(sizeof(id_message_key));
    }
    return sizes;
  }
  // The message of ids to each tower's ranks. Of `peer_keys`: a key a feature, and with modules one more of each pooled feature that says
  // which rows samples have, one a module with a row a sample, and the number of the first chunk.
  std::vector<std::int64_t> tower_id_sizes() const {
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
  // The vectors that each rank has for so many samples of each source.
  std::vector<std::int64_t> vector_sizes(std::int64_t sources, std::int64_t samples, codec with) const {
    std::vector<std::int64_t> sizes(count(shape_.grid.ranks), 0);
    for (auto const& feature : shape_.features)
      sizes[count(feature.rank)] += sources * exchanged_room(with, rows_of(feature, samples).vectors, feature.dim);
    return sizes;
  }
  // The vectors that each group of ranks has for one peer: a block a feature, but for those of which a module makes something.
  std::vector<std::int64_t> group_vector_sizes(codec with) const {
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

  template <class F>
  void for_all_pairs(F const& f) const {
    for (std::int64_t from = 0; from < shape_.grid.ranks; ++from)
      for (std::int64_t to = 0; to < shape_.grid.ranks; ++to)
        if (from != to) f(from, to);
  }
  template <class F>
  void for_group(F const& f) const {
    for (std::int64_t from = 0; from < shape_.grid.ranks; ++from)
      for (std::int64_t place = 0; place < group_; ++place)
        if (auto const to = from / group_ * group_ + place; to != from) f(from, to);
  }
  template <class F>
  void for_peers(F const& f) const {
    for (std::int64_t from = 0; from < shape_.grid.ranks; ++from)
      for (auto to = from % group_; to < shape_.grid.ranks; to += group_)
        if (to != from) f(from, to);
  }

  exchange_shape const& shape_;
  std::int64_t group_;  // ranks of a tower
};

}  // namespace detail

inline void check_tower_grid(tower_grid const& grid) {
  detail::check_divides("ranks", grid.ranks, "hosts", grid.hosts);
  detail::check_divides("hosts", grid.hosts, "hosts of a tower", grid.hosts_of_tower);
}

inline std::vector<rank_exchange_costs> id_exchange_costs(exchange_shape const& shape) {
  detail::check_exchange_shape(shape);
  return detail::exchange_sizes(shape).ids();
}

inline std::vector<rank_exchange_costs> vector_exchange_costs(exchange_shape const& shape) {
  detail::check_exchange_shape(shape);
  return detail::exchange_sizes(shape).vectors(shape.codecs.forward, shape.inside.forward);
}

inline std::vector<rank_exchange_costs> gradient_exchange_costs(exchange_shape const& shape) {
  detail::check_exchange_shape(shape);
  return detail::exchange_sizes(shape).gradients(shape.codecs.backward, shape.inside.backward);
}

inline double predict_seconds(exchange_costs const& costs, link_model const& model) {
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
