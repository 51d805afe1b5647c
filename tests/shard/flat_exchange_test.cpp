// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/shard/flat_exchange.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <hosts.hpp>

#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>

namespace flat_exchange_test {

namespace {

using tessera::counting_communicator;
using tessera::host_exec;
using tessera::sent_by;

std::int64_t whole_lines(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

TEST_CASE("flat_exchange: a step sends one message a pair of ranks and direction, of as many bytes as the layout says") {
  constexpr int ranks = 3;
  constexpr std::int64_t samples = 50, width = 24;
  // Key 0: one id a sample, of a small table, all of it on rank 0. Key 1: two ids a sample, of a table without bound, its columns on ranks 1 and 2.
  std::vector<tessera::exchanged_key> const keys{{.id_bound = 1000}, {.sequence = true}};
  std::vector<std::vector<tessera::exchanged_block>> const blocks{{{0, 0, width}}, {{1, 0, 8}}, {{1, 8, 16}}};
  for (auto const with : {tessera::codec::fp32, tessera::codec::bf16, tessera::codec::int8}) {
    CAPTURE(static_cast<int>(with));
    std::vector<tessera::sent_counts> sent(ranks);
    std::vector<tessera_tests::serial_host> hosts(ranks);
    tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
      auto const rank = static_cast<std::size_t>(comm.rank());
      auto const exec = hosts[rank].exec();
      tessera::flat_exchange const exchange(counting_communicator(comm, sent[rank]), keys, blocks, {with, with});
      std::vector<std::vector<std::int64_t>> one(samples), two(samples);
      for (std::int64_t s = 0; s < samples; ++s) {
        one[static_cast<std::size_t>(s)] = {comm.rank() * 100 + s};
        two[static_cast<std::size_t>(s)] = {s, -s};
      }
      auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"one", one}, {"two", two}});
      tessera::flat_exchange_state state;
      exchange.begin_ids(exec, batch.view(), true, state);
      auto const all = exchange.finish_ids(exec, state);
      CHECK(all.keys == ranks);  // a key here, of each rank
      // Vectors that say which id they are of: what a holder makes of a key is what its sender gets.
      for (int r = 0; r < ranks; ++r) {
        auto const out = state.out()[static_cast<std::size_t>(r)];
        auto const ids = all.key(r);
        for (std::int64_t row = 0; row < out.rows(); ++row)
          for (std::int64_t c = 0; c < out.columns(); ++c) out(row, c) = static_cast<float>(ids.values[ids.offsets[0] + row] % 64);
      }
      exchange.begin_vectors(exec, state);
      std::vector<float> of_one(samples * width), of_two(2 * samples * width);
      std::vector<tessera::matrix_view<float>> const out{{of_one.data(), samples, width}, {of_two.data(), 2 * samples, width}};
      exchange.finish_vectors(exec, state, out);
      bool near = true;
      for (std::int64_t s = 0; s < samples; ++s)
        for (std::int64_t c = 0; c < width; ++c) {
          near &= std::abs(out[0](s, c) - static_cast<float>((comm.rank() * 100 + s) % 64)) < 0.3F;
          near &= std::abs(out[1](2 * s, c) - static_cast<float>(s % 64)) < 0.3F;
          near &= std::abs(out[1](2 * s + 1, c) + static_cast<float>(s % 64)) < 0.3F;
        }
      CHECK(near);
      std::vector<tessera::matrix_view<float const>> const gradients(out.begin(), out.end());
      exchange.begin_gradients(exec, state, gradients);
      exchange.finish_gradients(exec, state);
      // They come back as they went, within another rounding.
      bool back = true;
      for (int r = 0; r < ranks; ++r) {
        auto const& went = state.out()[static_cast<std::size_t>(r)];
        auto const& came = state.gradients()[static_cast<std::size_t>(r)];
        REQUIRE(came.rows() == went.rows());
        for (std::int64_t row = 0; row < went.rows(); ++row)
          for (std::int64_t c = 0; c < went.columns(); ++c) back &= std::abs(came(row, c) - went(row, c)) < 0.6F;
      }
      CHECK(back);
    });

    auto const ids_to = [&](int rank) -> std::int64_t {
      constexpr std::int64_t header = 16 + 32;
      return rank == 0 ? header + 4 * samples : header + (samples + 7) / 8 * 8 + 8 * 2 * samples;
    };
    auto const vectors_of = [&](int rank) {
      return rank == 0 ? whole_lines(tessera::encoded_bytes(with, samples, width))
                       : whole_lines(tessera::encoded_bytes(with, 2 * samples, rank == 1 ? 8 : 16));
    };
    for (int r = 0; r < ranks; ++r) {
      std::int64_t ids = 0, gradients = 0;
      for (int to = 0; to < ranks; ++to)
        if (to != r) {
          ids += ids_to(to);
          gradients += vectors_of(to);
        }
      auto const& of = sent[static_cast<std::size_t>(r)];
      CHECK(of.size() == 3);
      for (auto const& one : of) CHECK(sent_by(of, one.first).messages == ranks - 1);
      CHECK(sent_by(of, "ids to their tables").bytes == ids);
      CHECK(sent_by(of, "vectors to their samples").bytes == (ranks - 1) * vectors_of(r));
      CHECK(sent_by(of, "gradients to their tables").bytes == gradients);
    }
  }
}

TEST_CASE("flat_exchange: blocks of a key that is cut by rows get their own ids, without lengths where nobody asks") {
  constexpr int ranks = 3;
  constexpr std::int64_t samples = 30, width = 8;
  // Ids 0 … 99, of which rank 1 has the first 40, rank 2 the others; rank 0 has none. Means, so that scales travel.
  for (bool const keeps_rows : {false, true}) {
    CAPTURE(keeps_rows);
    std::vector<tessera::exchanged_key> const keys{
        {.sequence = true, .id_bound = 100, .keeps_rows = keeps_rows, .pooled = tessera::pooling::mean}};
    std::vector<std::vector<tessera::exchanged_block>> const blocks{{}, {{0, 0, width, 0, 40}}, {{0, 0, width, 40, 60}}};
    std::vector<tessera::sent_counts> sent(ranks);
    std::vector<tessera_tests::serial_host> hosts(ranks);
    tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
      auto const rank = static_cast<std::size_t>(comm.rank());
      auto const exec = hosts[rank].exec();
      tessera::flat_exchange const exchange(counting_communicator(comm, sent[rank]), keys, blocks);
      // Two ids a sample: one of the first 40, one of the others. The last sample has an id that nobody has.
      std::vector<std::vector<std::int64_t>> ids(samples);
      for (std::int64_t s = 0; s < samples; ++s) ids[static_cast<std::size_t>(s)] = {s, 99 - s};
      ids.back().push_back(100);
      auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"ids", ids}});
      tessera::flat_exchange_state state;
      exchange.begin_ids(exec, batch.view(), true, state);
      auto const all = exchange.finish_ids(exec, state);
      bool right = true;
      for (std::int64_t key = 0; key < all.keys; ++key) {
        auto const bags = all.key(key);
        right &= bags.rows == samples && bags.size() == samples;
        for (std::int64_t i = 0; i < bags.size(); ++i) {
          right &= bags.all_values()[i] == (comm.rank() == 1 ? i : 59 - i);
          right &= state.scales()[bags.offsets[0] + i] == (i + 1 < samples ? 0.5F : 1.0F / 3);
          std::fill_n(state.out()[static_cast<std::size_t>(key)].row(i), width, static_cast<float>(comm.rank() * 1000 + i));
        }
      }
      exchange.begin_vectors(exec, state);
      std::vector<float> vectors((2 * samples + 1) * width, 7.0F);
      std::vector<tessera::matrix_view<float>> const out{{vectors.data(), 2 * samples + 1, width}};
      exchange.finish_vectors(exec, state, out);
      for (std::int64_t s = 0; s < samples; ++s)
        right &= out[0](2 * s, 1) == static_cast<float>(1000 + s) && out[0](2 * s + 1, 1) == static_cast<float>(2000 + s);
      right &= out[0](2 * samples, 0) == 0.0F;
      exchange.begin_gradients(exec, state, std::vector<tessera::matrix_view<float const>>(out.begin(), out.end()));
      exchange.finish_gradients(exec, state);
      for (std::int64_t key = 0; key < all.keys; ++key)
        for (std::int64_t i = 0; i < samples; ++i)
          right &= state.gradients()[static_cast<std::size_t>(key)](i, width - 1) == static_cast<float>(comm.rank() * 1000 + i);
      CHECK(right);
      CHECK(state.bytes() > 0);
    });
    for (int r = 0; r < ranks; ++r) {
      auto const& of = sent[static_cast<std::size_t>(r)];
      auto const holders = r == 0 ? 2 : 1;  // among the others
      constexpr std::int64_t header = 16, key = 32 + 4 * samples + 4 * samples;
      CHECK(sent_by(of, "ids to their tables").bytes == (ranks - 1) * header + holders * key);
      CHECK(sent_by(of, "vectors to their samples").bytes == (r == 0 ? 0 : (ranks - 1) * whole_lines(4 * samples * width)));
      CHECK(sent_by(of, "gradients to their tables").bytes == holders * whole_lines(4 * samples * width));
      for (auto const& one : of) CHECK(sent_by(of, one.first).messages == ranks - 1);
    }
  }
}

}  // namespace flat_exchange_test
