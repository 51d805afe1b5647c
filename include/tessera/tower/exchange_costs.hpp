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
double predict_seconds(exchange_costs const& costs, link_model const& model);

namespace detail {

inline void check_divides(char const* what, std::int64_t all, char const* by, std::int64_t parts) {
  if (all < 1 || parts < 1 || all % parts != 0)
    throw error(errc::invalid_argument, "tower_grid: sizes are at least 1, and one divides the other", {{what, all}, {by, parts}});
}

void check_exchange_shape(exchange_shape const& shape);

/// The sizes of all messages of an exchange, which are the same for many pairs of ranks.
class exchange_sizes {
 public:
  explicit exchange_sizes(exchange_shape const& shape) : shape_(shape), group_(shape.grid.group_ranks()) {}

  std::vector<rank_exchange_costs> ids() const;

  std::vector<rank_exchange_costs> vectors(codec with, codec inside) const;

  std::vector<rank_exchange_costs> gradients(codec with, codec inside) const;

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
  place_among_shards place_of(std::size_t f) const;

  // What a shard gets of so many samples.
  struct shard_rows {
    std::int64_t rows = 0, values = 0, vectors = 0;
  };
  static shard_rows rows_of(exchanged_feature const& feature, std::int64_t samples);
  // A key in a message.
  std::int64_t key_size(exchanged_feature const& feature, std::int64_t samples) const;
  // The message of ids to each rank, of so many sources.
  std::vector<std::int64_t> id_sizes(std::int64_t ranks, std::int64_t sources, std::int64_t samples) const;
  // The message of ids to each tower's ranks. Of `peer_keys`: a key a feature, and with modules one more of each pooled feature that says
  // which rows samples have, one a module with a row a sample, and the number of the first chunk.
  std::vector<std::int64_t> tower_id_sizes() const;
  // The vectors that each rank has for so many samples of each source.
  std::vector<std::int64_t> vector_sizes(std::int64_t sources, std::int64_t samples, codec with) const;
  // The vectors that each group of ranks has for one peer: a block a feature, but for those of which a module makes something.
  std::vector<std::int64_t> group_vector_sizes(codec with) const;

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

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/tower/exchange_costs.ipp>
#endif
