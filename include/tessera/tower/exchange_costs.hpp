// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/codec.hpp>
#include <tessera/comm/link_model.hpp>
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

/// Ranks on hosts, as `topology::of_hosts` numbers them, and their towers: several hosts each, or a part of one. Rank g is in tower
/// g / tower_ranks(), at place g % tower_ranks(); its peers have the same place in the other towers.
struct tower_grid {
  std::int64_t ranks = 1;           ///< a multiple of the hosts
  std::int64_t hosts = 1;           ///< a multiple of the hosts of a tower
  std::int64_t hosts_of_tower = 1;  ///< the paper's K
  std::int64_t towers_of_host = 1;  ///< they divide the ranks of a host; 1 where a tower has several hosts

  constexpr std::int64_t host_ranks() const noexcept { return ranks / hosts; }
  constexpr std::int64_t tower_ranks() const noexcept { return host_ranks() * hosts_of_tower / towers_of_host; }
  constexpr std::int64_t towers() const noexcept { return ranks / tower_ranks(); }

  friend constexpr bool operator==(tower_grid const&, tower_grid const&) = default;
};

/// Refuses a grid that cannot be. @throws tessera::error invalid_argument naming the two sizes. It does so for a size below 1, and for ranks
/// that the hosts do not divide. It also does so for hosts that those of a tower do not divide, and for ranks of a host that its towers do not
/// divide. So it does for towers that have several hosts and are parts of one.
inline void check_tower_grid(tower_grid const& grid);

/// Which way ids and vectors go.
enum class exchange_route : std::uint8_t {
  /// From the rank that has a sample to each rank that has a table, and back.
  flat,
  /// Inside the host to the rank with the place of the one that is meant, and from there to that one: a message a pair of hosts and a place.
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
  /// Shards of the same number from 0 are of one feature: on the way to a tower its ids go once, and on the way back its columns as one
  /// block. -1: a feature of its own.
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
  exchange_codecs inside{};   ///< inside towers, and in the first hop of `two_hop`
  /// (towers,) How many numbers each tower's module makes of a sample: they go to the peers as one block, in the place of vectors. With k
  /// towers on the ranks of each, (k towers,): the first k are of the first one. Modules get along how many samples there are. Empty: vectors
  /// go. Of `towers` alone.
  std::vector<std::int64_t> outputs{};
};

/// What each rank sends and receives for the ids of a batch without groups and weights: (ranks,). Bytes are those of the exchange's own
/// messages, header and padding included; there is a message to each rank of a hop, also where it has no tables. With shards of rows they are
/// those that are expected of ids by chance.
/// @throws tessera::error invalid_argument, naming the value, as `check_tower_grid`; for a feature's rank that is none, a dim below 1 or
/// negative ids; negative samples, ids of other sizes; more towers than features; outputs of another number of towers, below 1, or of
/// another route; sources of another route, or below 1; a shard before the first column, or among no shards of rows. The same below.
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
  auto const towers = shape.grid.towers();
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
  if (shape.outputs.empty()) return;
  if (shape.route != exchange_route::towers || static_cast<std::int64_t>(shape.outputs.size()) % towers != 0)
    refuse("outputs are as many numbers a tower, and of towers alone", {{"outputs", shape.outputs.size()}, {"towers", towers}});
  for (auto const numbers : shape.outputs)
    if (numbers < 1) refuse("a tower without outputs", {{"outputs", numbers}});
}

/// The sizes of all messages of an exchange, which are the same for many pairs of ranks.
class exchange_sizes {
 public:
  explicit exchange_sizes(exchange_shape const& shape)
      : shape_(shape), group_(shape.route == exchange_route::two_hop ? shape.grid.host_ranks() : shape.grid.tower_ranks()) {}

  std::vector<rank_exchange_costs> ids() const {
    std::vector<rank_exchange_costs> costs(count(shape_.grid.ranks));
    if (shape_.route == exchange_route::flat) {
      auto const bytes = id_sizes(shape_.grid.ranks, shape_.sources, shape_.samples);
      for_all_pairs([&](std::int64_t from, std::int64_t to) { add(costs, from, to, bytes[count(to)]); });
    } else if (shape_.route == exchange_route::towers) {
      auto const to_tower = tower_id_sizes();
      auto const to_rank = id_sizes(shape_.grid.ranks, groups(), shape_.samples);
      for_peers([&](std::int64_t from, std::int64_t to) { add(costs, from, to, to_tower[count(to / group_)]); });
      for_group([&](std::int64_t from, std::int64_t to) { add(costs, from, to, to_rank[count(to)]); });
    } else {
      std::vector<std::int64_t> to_place(count(group_), id_message_size({}));
      for (auto const& feature : shape_.features) to_place[count(feature.rank % group_)] += key_size(feature, shape_.samples);
      auto const to_rank = id_sizes(shape_.grid.ranks, 1, group_ * shape_.samples);
      for_group([&](std::int64_t from, std::int64_t to) { add(costs, from, to, to_place[count(to % group_)]); });
      for_peers([&](std::int64_t from, std::int64_t to) { add(costs, from, to, to_rank[count(to)]); });
    }
    return costs;
  }

  std::vector<rank_exchange_costs> vectors(codec with, codec inside) const {
    std::vector<rank_exchange_costs> costs(count(shape_.grid.ranks));
    if (shape_.route == exchange_route::flat) {
      auto const bytes = vector_sizes(shape_.sources, shape_.samples, with);
      for_all_pairs([&](std::int64_t from, std::int64_t to) { add(costs, from, to, bytes[count(from)]); });
      return costs;
    }
    bool const of_towers = shape_.route == exchange_route::towers;
    auto const of_rank = of_towers ? vector_sizes(groups(), shape_.samples, inside) : vector_sizes(1, groups() * shape_.samples, inside);
    auto of_group = group_vector_sizes(with);
    if (!shape_.outputs.empty()) std::fill(of_group.begin(), of_group.end(), 0);
    for (std::size_t t = 0; t < shape_.outputs.size(); ++t)
      of_group[t / count(modules_of_group())] += exchanged_room(with, shape_.samples, shape_.outputs[t]);
    for_group([&](std::int64_t from, std::int64_t to) { add(costs, from, to, of_rank[count(from)]); });
    for_peers([&](std::int64_t from, std::int64_t to) { add(costs, from, to, of_group[count(from / group_)]); });
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
    all.vectors = feature.of_ids ? all.values : all.rows;
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
  // The message of ids to each tower's ranks. Of `peer_keys`: a key a feature, and for modules one more each that says which rows samples have,
  // one a module with a row a sample, and the number of the first chunk.
  std::vector<std::int64_t> tower_id_sizes() const {
    constexpr auto of_key = static_cast<std::int64_t>(sizeof(id_message_key));
    std::vector<std::int64_t> sizes(count(groups()), id_message_size({}));
    bool const has_modules = !shape_.outputs.empty();
    for (std::size_t f = 0; f < shape_.features.size(); ++f) {
      if (!place_of(f).is_first) continue;
      auto whole = shape_.features[f];
      whole.row_shards = 1;
      sizes[count(whole.rank / group_)] += key_size(whole, shape_.samples) + (has_modules ? of_key : 0);
    }
    if (has_modules)
      for (auto& size : sizes)
        size += modules_of_group() * (of_key + id_message_key::padded(shape_.samples)) + of_key +
                static_cast<std::int64_t>(sizeof(std::int64_t));
    return sizes;
  }
  // The vectors that each rank has for so many samples of each source.
  std::vector<std::int64_t> vector_sizes(std::int64_t sources, std::int64_t samples, codec with) const {
    std::vector<std::int64_t> sizes(count(shape_.grid.ranks), 0);
    for (auto const& feature : shape_.features)
      sizes[count(feature.rank)] += sources * exchanged_room(with, rows_of(feature, samples).vectors, feature.dim);
    return sizes;
  }
  // The vectors that each group of ranks has for one peer: a block a feature.
  std::vector<std::int64_t> group_vector_sizes(codec with) const {
    std::vector<std::int64_t> sizes(count(groups()), 0);
    for (std::size_t f = 0; f < shape_.features.size(); ++f) {
      auto const& own = shape_.features[f];
      if (!place_of(f).is_first) continue;
      std::int64_t columns = own.dim;
      for (std::size_t g = f + 1; g < shape_.features.size() && own.feature >= 0; ++g) {
        auto const& other = shape_.features[g];
        if (other.feature == own.feature && other.rank / group_ == own.rank / group_ && place_of(g).has_new_columns) columns += other.dim;
      }
      auto whole = own;
      whole.row_shards = 1;
      whole.of_ids = own.is_sequence;
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
  std::int64_t group_;  // ranks of a tower, or of a host
};

}  // namespace detail

inline void check_tower_grid(tower_grid const& grid) {
  detail::check_divides("ranks", grid.ranks, "hosts", grid.hosts);
  detail::check_divides("hosts", grid.hosts, "hosts of a tower", grid.hosts_of_tower);
  detail::check_divides("ranks of a host", grid.host_ranks(), "towers of a host", grid.towers_of_host);
  if (grid.hosts_of_tower > 1 && grid.towers_of_host > 1)
    throw error(errc::invalid_argument, "tower_grid: a tower of several hosts is no part of one",
                {{"hosts of a tower", grid.hosts_of_tower}, {"towers of a host", grid.towers_of_host}});
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
  auto costs = detail::exchange_sizes(shape).vectors(shape.codecs.backward, shape.inside.backward);
  for (auto& of_rank : costs) std::swap(of_rank.sent, of_rank.received);
  return costs;
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
