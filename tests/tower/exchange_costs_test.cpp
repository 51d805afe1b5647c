// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <hosts.hpp>
#include <random.hpp>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/comm/two_hop_communicator.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tower/exchange_costs.hpp>

namespace exchange_costs_test {

namespace {

using tessera::codec;
using tessera::exchange_route;
using tessera::exchange_shape;
using tessera::rank_exchange_costs;

template <class Call>
tessera::error exchange_error(Call const& call) {
  try {
    call();
  } catch (tessera::error const& e) {
    return e;
  }
  return {tessera::errc::device_error, "nothing was thrown"};
}

/// What goes from one rank to another in one hop: samples by (feature, source), so that each counts once.
using cargo = std::map<std::int64_t, std::int64_t>;                            // of a source's feature, or of a tower's outputs: samples
using cargoes = std::map<std::tuple<int, std::int64_t, std::int64_t>, cargo>;  // by hop, from, to

std::int64_t padded(std::int64_t bytes, std::int64_t to) { return (bytes + to - 1) / to * to; }

/// Ranks that meet inside a tower or host: those of one group.
struct naive {
  explicit naive(exchange_shape const& shape)
      : shape_(shape), where_(tessera::topology::of_hosts(shape.grid.hosts, shape.grid.ranks / shape.grid.hosts)) {
    auto const host_ranks = shape.grid.ranks / shape.grid.hosts;
    auto const size = host_ranks * shape.grid.hosts_of_tower;
    std::vector<std::vector<std::int64_t>> domains;
    for (std::int64_t rank = 0; rank < shape.grid.ranks; ++rank) {
      if (rank % size == 0) domains.emplace_back();
      domains.back().push_back(rank);
    }
    groups_ = tessera::topology(shape.grid.ranks, {{"group", domains}});
  }

  // The rank in the group of `in` with the place of `place`.
  std::int64_t peer(std::int64_t in, std::int64_t place) const {
    return groups_.ranks_of(0, groups_.domain_of(0, in))[groups_.index_in_domain(0, place)];
  }

  /// Moves every sample's entry of every feature along its route, a hop at a time.
  void move(cargoes& all, std::int64_t asker, std::int64_t feature, std::int64_t holder, bool are_ids) const {
    auto const hop = [&](int number, std::int64_t from, std::int64_t to, std::int64_t what) {
      if (from != to) ++all[{number, from, to}][what];
    };
    if (shape_.route == exchange_route::flat) return are_ids ? hop(0, asker, holder, feature) : hop(0, holder, asker, feature);
    auto const near_holder = peer(holder, asker);
    // Inside a tower each peer's samples are keys of their own.
    auto const of_source = feature + features() * groups_.domain_of(0, asker);
    if (!are_ids) {
      hop(0, holder, near_holder, of_source);
      if (shape_.outputs.empty()) hop(1, near_holder, asker, feature);
    } else {
      hop(0, asker, near_holder, feature);
      hop(1, near_holder, holder, of_source);
    }
  }

  std::vector<rank_exchange_costs> costs(bool are_ids, codec with, codec inside) const {
    cargoes all;
    auto const ranks = shape_.grid.ranks;
    for (std::int64_t asker = 0; asker < ranks; ++asker) {
      for (std::int64_t sample = 0; sample < shape_.samples; ++sample) {
        for (std::size_t f = 0; f < shape_.features.size(); ++f)
          move(all, asker, static_cast<std::int64_t>(f), shape_.features[f].rank, are_ids);
        for (std::int64_t tower = 0; !are_ids && tower < static_cast<std::int64_t>(shape_.outputs.size()); ++tower)
          if (auto const from = peer(groups_.ranks_of(0, tower / modules_of_group())[0], asker); from != asker)
            ++all[{1, from, asker}][tower];
      }
    }
    // Every rank of a hop gets a message. Ids have a header, and the keys that it asks for.
    add_headers(all, are_ids);

    std::vector<rank_exchange_costs> result(static_cast<std::size_t>(ranks));
    for (auto const& [way, what] : all) {
      auto const& [hop, from, to] = way;
      std::int64_t bytes = are_ids ? 16 : 0;
      if (are_ids && hop == 0 && !shape_.outputs.empty())  // the keys of features once more, modules' numbers of samples, the first chunk
        bytes += 32 * static_cast<std::int64_t>(what.size()) + modules_of_group() * (32 + padded(shape_.samples, 8)) + 32 + 8;
      for (auto const& [feature, rows] : what) bytes += are_ids ? key_bytes(feature, rows) : block_bytes(hop, feature, rows, with, inside);
      bool const one_host = where_.shared_level(from, to) == 0;
      auto& sent = result[static_cast<std::size_t>(from)].sent;
      auto& received = result[static_cast<std::size_t>(to)].received;
      for (auto* side : {&sent, &received}) {
        auto& traffic = one_host ? side->inside_host : side->between_hosts;
        ++traffic.messages;
        traffic.bytes += bytes;
      }
    }
    return result;
  }

 private:
  std::int64_t features() const { return static_cast<std::int64_t>(shape_.features.size()); }
  std::int64_t modules_of_group() const { return static_cast<std::int64_t>(shape_.outputs.size()) / groups_.domains(0); }
  void add_headers(cargoes& all, bool are_ids) const {
    for (std::int64_t from = 0; from < shape_.grid.ranks; ++from)
      for (std::int64_t to = 0; to < shape_.grid.ranks; ++to) {
        if (from == to) continue;
        bool const one_group = groups_.domain_of(0, from) == groups_.domain_of(0, to), one_place = peer(to, from) == to;
        if (!are_ids) {
          if (shape_.route == exchange_route::flat || one_group) all[{0, from, to}];
          if (shape_.route != exchange_route::flat && !one_group && one_place) all[{1, from, to}];
        } else if (shape_.route == exchange_route::flat) {
          keys_of(all[{0, from, to}], [&](std::int64_t holder) { return holder == to; });
        } else if (one_group) {
          for (std::int64_t source = 0; source < std::max<std::int64_t>(groups_.domains(0), 2); ++source)
            keys_of(
                all[{1, from, to}], [&](std::int64_t holder) { return holder == to; }, source);
        } else if (one_place) {
          keys_of(all[{0, from, to}], [&](std::int64_t holder) { return groups_.domain_of(0, holder) == groups_.domain_of(0, to); });
        }
      }
  }
  template <class Asks>
  void keys_of(cargo& what, Asks const& asks, std::int64_t source = 0) const {
    for (std::size_t f = 0; f < shape_.features.size(); ++f)
      if (asks(shape_.features[f].rank)) what.emplace(static_cast<std::int64_t>(f) + features() * source, 0);
  }
  std::int64_t key_bytes(std::int64_t feature, std::int64_t rows) const {
    auto const ids = shape_.features[static_cast<std::size_t>(feature % features())].ids_a_sample;
    auto const length_bytes = ids == 1 || rows == 0 ? 0 : ids < 256 ? 1 : 2;
    return 32 + padded(rows * length_bytes, 8) + padded(rows * ids * shape_.id_bytes, 8);
  }
  std::int64_t block_bytes(int hop, std::int64_t feature, std::int64_t rows, codec with, codec inside) const {
    bool const is_first = hop == 0 && shape_.route != exchange_route::flat, of_towers = hop == 1 && !shape_.outputs.empty();
    auto const width =
        of_towers ? shape_.outputs[static_cast<std::size_t>(feature)] : shape_.features[static_cast<std::size_t>(feature % features())].dim;
    return padded(tessera::encoded_bytes(is_first ? inside : with, rows, width), 64);
  }

  exchange_shape const& shape_;
  tessera::topology where_;
  tessera::topology groups_ = tessera::topology::flat(1);
};

exchange_shape random_shape(std::mt19937_64& random) {
  auto const draw = [&](std::int64_t least, std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(least, most)(random); };
  exchange_shape shape;
  auto const host_ranks = draw(1, 4), hosts_of_tower = draw(1, 3);
  auto const hosts = hosts_of_tower * draw(1, 6 / hosts_of_tower);
  shape.grid = {host_ranks * hosts, hosts, hosts_of_tower};
  shape.route = draw(0, 1) == 0 ? exchange_route::flat : exchange_route::towers;
  auto const features = draw(shape.grid.ranks, shape.grid.ranks + 7);
  for (std::int64_t f = 0; f < features; ++f)
    shape.features.push_back({f < shape.grid.ranks ? f : draw(0, shape.grid.ranks - 1), draw(1, 40), draw(0, 3) == 0 ? draw(0, 300) : 1});
  shape.samples = draw(0, 9);
  shape.id_bytes = 4 * draw(1, 2);
  auto const any_codec = [&] { return tessera::all_codecs[draw(0, 5)]; };
  shape.codecs = {any_codec(), any_codec()};
  shape.inside = {any_codec(), any_codec()};
  if (shape.route == exchange_route::towers && draw(0, 1) == 0)
    for (std::int64_t t = 0, each = draw(1, 2); t < each * shape.grid.groups(); ++t) shape.outputs.push_back(draw(1, 30));
  return shape;
}

tessera::exchange_costs all_sent(std::vector<rank_exchange_costs> const& costs) {
  tessera::exchange_costs sum;
  for (auto const& of_rank : costs) sum += of_rank.sent;
  return sum;
}
tessera::exchange_costs all_received(std::vector<rank_exchange_costs> const& costs) {
  tessera::exchange_costs sum;
  for (auto const& of_rank : costs) sum += of_rank.received;
  return sum;
}

/// A feature on each rank, of 16 numbers; towers are hosts.
exchange_shape even_shape(exchange_route route, std::int64_t hosts, std::int64_t host_ranks, std::int64_t samples) {
  exchange_shape shape{.route = route, .grid = {hosts * host_ranks, hosts}, .samples = samples};
  for (std::int64_t rank = 0; rank < shape.grid.ranks; ++rank) shape.features.push_back({rank, 16});
  return shape;
}

}  // namespace

TEST_CASE("exchange_costs: messages and bytes are those of a loop over ranks, samples and features") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 150; ++round) {
    auto const shape = random_shape(random);
    CAPTURE(round);
    CAPTURE(static_cast<int>(shape.route));
    CAPTURE(shape.grid.ranks);
    CAPTURE(shape.grid.hosts);
    CAPTURE(shape.grid.hosts_of_tower);
    CAPTURE(shape.samples);
    naive const expected(shape);
    auto const ids = tessera::id_exchange_costs(shape), vectors = tessera::vector_exchange_costs(shape);
    CHECK(ids == expected.costs(true, codec::fp32, codec::fp32));
    CHECK(vectors == expected.costs(false, shape.codecs.forward, shape.inside.forward));
    auto gradients = expected.costs(false, shape.codecs.backward, shape.inside.backward);
    for (auto& of_rank : gradients) std::swap(of_rank.sent, of_rank.received);
    CHECK(tessera::gradient_exchange_costs(shape) == gradients);
    CHECK(all_sent(ids) == all_received(ids));
    CHECK(all_sent(vectors) == all_received(vectors));
  }
}

TEST_CASE("exchange_costs: every grid of the paper's kind") {
  for (std::int64_t hosts = 1; hosts <= 6; ++hosts)
    for (std::int64_t host_ranks = 1; host_ranks <= 4; ++host_ranks)
      for (std::int64_t of_tower = 1; of_tower <= 3; ++of_tower)
        for (auto const route : {exchange_route::flat, exchange_route::towers}) {
          auto shape = even_shape(route, hosts, host_ranks, 4);
          shape.grid.hosts_of_tower = of_tower;
          CAPTURE(hosts);
          CAPTURE(host_ranks);
          CAPTURE(of_tower);
          if (hosts % of_tower != 0) {
            auto const e = exchange_error([&] { tessera::id_exchange_costs(shape); });
            CHECK(e.code() == tessera::errc::invalid_argument);
            CHECK(e.value("hosts") == std::to_string(hosts));
            CHECK(e.value("hosts of a tower") == std::to_string(of_tower));
            continue;
          }
          naive const expected(shape);
          CHECK(tessera::id_exchange_costs(shape) == expected.costs(true, codec::fp32, codec::fp32));
          CHECK(tessera::vector_exchange_costs(shape) == expected.costs(false, codec::fp32, codec::fp32));
        }
}

TEST_CASE("exchange_costs: by hand, 4 hosts of 2 ranks") {
  constexpr std::int64_t samples = 32, vector_bytes = 32 * 64;
  auto const of = [&](exchange_route route) { return tessera::vector_exchange_costs(even_shape(route, 4, 2, samples))[3].sent; };
  auto const flat = of(exchange_route::flat), hops = of(exchange_route::two_hop), towers = of(exchange_route::towers);
  CHECK(flat.inside_host == tessera::link_traffic{1, vector_bytes});
  CHECK(flat.between_hosts == tessera::link_traffic{6, 6 * vector_bytes});
  // The same bytes between hosts in half the messages, and four batches inside of them.
  CHECK(towers.inside_host == tessera::link_traffic{1, 4 * vector_bytes});
  CHECK(towers.between_hosts == tessera::link_traffic{3, 6 * vector_bytes});
  // To rank 2: its message and those to hosts 2 and 0, which it carries; and what came from host 3. To host 3: all of both ranks. Each bundle
  // has 8 bytes and 24 a message before the first, which begin at multiples of 64.
  CHECK(hops.inside_host == tessera::link_traffic{2, 128 + 5 * vector_bytes + 64 + 2 * vector_bytes});
  CHECK(hops.between_hosts == tessera::link_traffic{1, 128 + 4 * vector_bytes});
  CHECK(tessera::vector_exchange_costs(even_shape(exchange_route::two_hop, 4, 1, samples)) ==
        tessera::vector_exchange_costs(even_shape(exchange_route::flat, 4, 1, samples)));
  CHECK(tessera::vector_exchange_costs(even_shape(exchange_route::two_hop, 1, 4, samples)) ==
        tessera::vector_exchange_costs(even_shape(exchange_route::flat, 1, 4, samples)));

  auto shape = even_shape(exchange_route::towers, 4, 2, samples);
  shape.outputs = {8, 8, 8, 8};  // of two vectors of 16: compressed four times
  CHECK(tessera::vector_exchange_costs(shape)[3].sent.between_hosts == tessera::link_traffic{3, 6 * vector_bytes / 4});
  CHECK(tessera::vector_exchange_costs(shape)[3].sent.inside_host == towers.inside_host);
  shape.codecs = {codec::fp16, codec::int8};
  CHECK(tessera::vector_exchange_costs(shape)[3].sent.between_hosts.bytes == 6 * vector_bytes / 8);
  CHECK(tessera::gradient_exchange_costs(shape)[3].sent.between_hosts.bytes == 3 * 32 * 12);

  // Ids: 16 bytes of header, 32 a key, 4 an id.
  auto const ids = tessera::id_exchange_costs(even_shape(exchange_route::towers, 4, 2, samples))[3].sent;
  CHECK(ids.between_hosts == tessera::link_traffic{3, 3 * (16 + 2 * (32 + 128))});
  CHECK(ids.inside_host == tessera::link_traffic{1, 16 + 4 * (32 + 128)});
  // With modules a key more of each feature, 1 byte a sample, and a number of 8 bytes.
  CHECK(tessera::id_exchange_costs(shape)[3].sent.between_hosts == tessera::link_traffic{3, 3 * (16 + 2 * (64 + 128) + 32 + 32 + 40)});
}

TEST_CASE("exchange_costs: a tower of all hosts") {
  auto shape = even_shape(exchange_route::towers, 2, 4, 8);
  CHECK(shape.grid.groups() == 2);
  CHECK(shape.grid.group_ranks() == 4);
  shape.grid.hosts_of_tower = 2;
  auto const flat = tessera::vector_exchange_costs(even_shape(exchange_route::flat, 2, 4, 8))[5].sent;
  CHECK(tessera::vector_exchange_costs(shape)[5].sent == flat);  // one tower
  CHECK(tessera::vector_exchange_costs(even_shape(exchange_route::towers, 1, 1, 8))[0] == rank_exchange_costs{});
}

TEST_CASE("exchange_costs: sharded tables send what is predicted, flat and over two hops, at each level") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const draw = [&](std::int64_t least, std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(least, most)(random); };
  constexpr std::int64_t rows = 50;
  constexpr std::pair<std::int64_t, std::int64_t> layouts[] = {{2, 2}, {3, 2}, {2, 3}, {4, 1}, {1, 3}, {4, 2}};
  for (int round = 0; round < 12; ++round) {
    auto const host_count = layouts[round / 2].first, host_ranks = layouts[round / 2].second;
    auto const ranks = static_cast<int>(host_count * host_ranks);
    exchange_shape shape{.grid = {ranks, host_count}, .samples = draw(1, 40)};
    shape.route = round % 2 == 0 ? exchange_route::flat : exchange_route::two_hop;
    CAPTURE(host_count);
    CAPTURE(host_ranks);
    CAPTURE(round);
    shape.codecs = {tessera::all_codecs[draw(0, 5)], tessera::all_codecs[draw(0, 5)]};
    tessera::sharding_plan plan;
    std::vector<tessera::table_spec> specs;
    std::vector<tessera::table_feature> features;
    for (std::int64_t t = 0; t < ranks + draw(0, 3); ++t) {
      auto const& of = shape.features.emplace_back(
          tessera::exchanged_feature{t < ranks ? t : draw(0, ranks - 1), draw(1, 20), draw(0, 1) == 0 ? 1 : draw(0, 5)});
      tessera::table_options const options{.id = tessera::table_id{t}, .dim = of.dim, .rows = rows, .init_bound = 0.1F};
      specs.push_back(tessera::spec_of<tessera::dense_table<>>(options, tessera::sgd{.learning_rate = 0.1F}));
      features.push_back({.name = std::to_string(t), .table = t});
      plan.shards.push_back({t, static_cast<int>(of.rank), 0, rows, 0, of.dim});
    }
    std::vector<tessera::sent_counts> forward(static_cast<std::size_t>(ranks)), backward = forward;
    std::vector<tessera_tests::serial_host> hosts(forward.size());
    auto const where = tessera::topology::of_hosts(host_count, host_ranks);
    tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& of) {
      auto const r = static_cast<std::size_t>(of.rank());
      auto const exec = hosts[r].exec();
      tessera::sent_counts sent;
      tessera::any_communicator comm = tessera::counting_communicator(of, sent);
      if (shape.route == exchange_route::two_hop) comm = tessera::two_hop_communicator(comm, where);
      tessera::sharded_tables tables(exec, comm, specs, features, plan, {.codecs = shape.codecs});
      std::vector<tessera::feature_rows<>> bags;
      std::vector<std::vector<float>> floats;
      for (std::size_t f = 0; f < features.size(); ++f) {
        std::vector<std::int64_t> const bag(static_cast<std::size_t>(shape.features[f].ids_a_sample), 7);
        bags.emplace_back(features[f].name, std::vector<std::vector<std::int64_t>>(static_cast<std::size_t>(shape.samples), bag));
        floats.emplace_back(static_cast<std::size_t>(shape.samples * shape.features[f].dim));
      }
      auto const ids = tessera::keyed_jagged<>::from_rows(exec, bags);
      tessera::batch_view batch;
      batch.dense = {nullptr, shape.samples, 0};
      batch.sparse = ids.view();
      std::vector<tessera::matrix_view<float>> out;
      for (std::size_t f = 0; f < features.size(); ++f) out.push_back({floats[f].data(), shape.samples, shape.features[f].dim});
      std::vector<tessera::matrix_view<float const>> const gradients(out.begin(), out.end());
      sent.clear();
      tessera::sharded_saved saved;
      tables.begin(exec, batch, saved);
      tables.finish(exec, saved, out);
      forward[r] = std::exchange(sent, {});
      tables.begin_backward(exec, saved, gradients);
      tables.finish_backward(exec, saved);
      backward[r] = std::exchange(sent, {});
    });
    auto const ids = tessera::id_exchange_costs(shape), vectors = tessera::vector_exchange_costs(shape),
               back = tessera::gradient_exchange_costs(shape);
    for (std::size_t r = 0; r < hosts.size(); ++r) {
      auto const compare = [&](tessera::sent_counts const& sent, tessera::exchange_costs const& costs) {
        for (bool const inside : {false, true}) {
          auto const found = tessera::sent_to(sent, [&](int to) {
            return to != static_cast<int>(r) && (to / host_ranks == static_cast<std::int64_t>(r) / host_ranks) == inside;
          });
          auto const& expected = inside ? costs.inside_host : costs.between_hosts;
          CHECK(found.messages == expected.messages);
          CHECK(found.bytes == expected.bytes);
        }
      };
      compare(forward[r], ids[r].sent + vectors[r].sent);
      compare(backward[r], back[r].sent);
      if (shape.route == exchange_route::flat)
        CHECK(tessera::sent_by(forward[r], "ids to their tables").bytes == ids[r].sent.inside_host.bytes + ids[r].sent.between_hosts.bytes);
    }
    for (auto const& costs : {ids, vectors, back}) CHECK(all_sent(costs) == all_received(costs));
  }
}

TEST_CASE("exchange_costs: seconds") {
  tessera::link_model const model{{{"host", 1, 0.5}, {"network", 10, 2}}};
  CHECK(tessera::predict_seconds({{3, 8}, {2, 5}}, model) == 3 + 4 + 20 + 10);
  CHECK(tessera::predict_seconds({{3, 8}, {}}, {{{"host", 1, 0.5}}}) == 7);
  CHECK(exchange_error([&] { (void)tessera::predict_seconds({{}, {1, 1}}, {{{"host", 1, 0.5}}}); }).code() == tessera::errc::out_of_range);
}

TEST_CASE("exchange_costs: refuses what cannot be") {
  auto const refused = [](auto const& change) {
    auto shape = even_shape(exchange_route::towers, 2, 2, 4);
    change(shape);
    auto const e = exchange_error([&] { tessera::vector_exchange_costs(shape); });
    CHECK(e.code() == tessera::errc::invalid_argument);
    CHECK(exchange_error([&] { tessera::id_exchange_costs(shape); }).code() == tessera::errc::invalid_argument);
    CHECK(exchange_error([&] { tessera::gradient_exchange_costs(shape); }).code() == tessera::errc::invalid_argument);
    return e;
  };
  CHECK(refused([](auto& shape) { shape.grid.ranks = 5; }).value("ranks") == "5");
  CHECK(refused([](auto& shape) { shape.grid.hosts = 0; }).value("hosts") == "0");
  CHECK(refused([](auto& shape) { shape.grid.hosts_of_tower = 3; }).value("hosts of a tower") == "3");
  CHECK(refused([](auto& shape) { shape.features[2].rank = 4; }).value("rank") == "4");
  CHECK(refused([](auto& shape) { shape.features[2].rank = -1; }).value("rank") == "-1");
  CHECK(refused([](auto& shape) { shape.features[1].dim = 0; }).value("dim") == "0");
  CHECK(refused([](auto& shape) { shape.features[1].ids_a_sample = -1; }).value("ids a sample") == "-1");
  CHECK(refused([](auto& shape) { shape.samples = -1; }).value("samples") == "-1");
  CHECK(refused([](auto& shape) { shape.id_bytes = 2; }).value("id bytes") == "2");
  auto const few = refused([](auto& shape) { shape.features.resize(1); });
  CHECK(few.value("towers") == "2");
  CHECK(few.value("features") == "1");
  CHECK(refused([](auto& shape) { shape.outputs = {3}; }).value("outputs") == "1");
  CHECK(refused([](auto& shape) { shape.outputs = {3, 0}; }).value("outputs") == "0");
  CHECK(refused([](auto& shape) { shape.outputs = {3, -1}; }).value("outputs") == "-1");
  CHECK(refused([](auto& shape) {
          shape.outputs = {3, 4};
          for (auto& feature : shape.features) feature.is_sequence = feature.rank > 1;
        }).value("tower") == "1");
  CHECK(refused([](auto& shape) {
          for (auto& feature : shape.features) feature.rank = 3;
        }).value("tower") == "0");
  auto const torn = refused([](auto& shape) { shape.features[1].feature = shape.features[2].feature = 7; });
  CHECK(torn.value("feature") == "7");
  CHECK(torn.value("tower") == "0");
  CHECK(torn.value("other tower") == "1");
  CHECK(refused([](auto& shape) { shape.features[1].row_shards = 0; }).value("shards of rows") == "0");
  CHECK(refused([](auto& shape) { shape.features[1].feature = -2; }).value("feature") == "-2");
  CHECK(refused([](auto& shape) { shape.features[1].first_column = -4; }).value("first column") == "-4");
  CHECK(refused([](auto& shape) { shape.sources = 2; }).value("sources") == "2");
  CHECK(refused([](auto& shape) {
          shape.outputs = {3, 3};
          shape.route = exchange_route::flat;
        }).value("outputs") == "2");
}

}  // namespace exchange_costs_test
