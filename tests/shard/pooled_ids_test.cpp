// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/shard/pooled_ids.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <hosts.hpp>
#include <random.hpp>

#include <tessera/core/optimizers.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/pooled_lookup.hpp>

TEST_CASE("pooled_ids: vectors of single ids are pooled to the bits of pooled_lookup; each gets its bag's gradient, or a maximum's share") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::pool_host<2> host;
  auto const exec = host.exec();
  constexpr std::int64_t table_rows = 9;
  tessera::detail::pooled_ids ids;  // whose memory serves all rounds
  for (int round = 0; round < 60; ++round) {
    bool const weighted = random() % 2 == 0;
    std::vector<tessera::dense_table<>> tables;
    std::vector<tessera::pooled_feature> features;
    std::vector<tessera::feature_rows<>> keys;
    std::vector<bool> is_here;
    for (std::int64_t k = 0; k < 3; ++k) {
      tessera::table_options const options{
          .id = tessera::table_id{k}, .dim = 1 + static_cast<std::int64_t>(random() % 40), .rows = table_rows, .init_bound = 1.0F};
      tables.emplace_back(exec, options, tessera::sgd{});
      // Equal elements, of which the first wins.
      for (std::int64_t row = 1; row < table_rows; row += 3) std::copy_n(tables.back().row(0), options.dim, tables.back().row(row));
      features.push_back({k, weighted ? tessera::pooling::mean : static_cast<tessera::pooling>(random() % 3)});
      is_here.push_back(random() % 4 > 0);
      std::vector<std::vector<std::int64_t>> rows(random() % 30);
      std::vector<std::vector<float>> weights;
      for (auto& row : rows) {
        row = tessera_tests::random_integers<std::int64_t>(random, random() % 6, 0, table_rows - 1);
        if (weighted) weights.push_back(tessera_tests::random_floats(random, row.size()));
      }
      keys.emplace_back(std::to_string(k), std::move(rows), std::move(weights));
    }
    auto const owned = tessera::keyed_jagged<>::from_rows(exec, keys);
    auto const batch = owned.view();
    auto const dim_of = [&](std::int64_t key) { return tables[static_cast<std::size_t>(key)].dim(); };

    std::vector<std::vector<float>> memory;
    auto const blocks = [&] {
      std::vector<tessera::matrix_view<float>> all;
      for (std::int64_t key = 0; key < batch.keys; ++key) {
        memory.emplace_back(static_cast<std::size_t>(batch.rows(key) * dim_of(key)), 3.0F);
        all.push_back({memory.back().data(), batch.rows(key), dim_of(key)});
      }
      return all;
    };
    auto const expected = blocks(), out = blocks(), gradients = blocks();
    for (auto const& block : gradients)
      for (std::int64_t r = 0; r < block.rows(); ++r)
        for (std::int64_t c = 0; c < block.columns(); ++c) block(r, c) = tessera_tests::random_floats(random, 1)[0];
    tessera::lookup_saved saved;
    tessera::pooled_lookup(exec, tables, features, batch, expected, saved);

    ids.resize(
        exec, batch, tessera::vector_view<tessera::pooled_feature const>(features),
        [&](std::int64_t key) { return bool{is_here[static_cast<std::size_t>(key)]}; }, dim_of);
    auto vectors = out;
    ids.put_into(tessera::vector_view<tessera::matrix_view<float>>(vectors));
    for (std::int64_t key = 0; key < batch.keys; ++key) {
      auto const k = static_cast<std::size_t>(key);
      if (!is_here[k]) continue;
      REQUIRE(vectors[k].rows() == batch.key(key).size());
      for (std::int64_t i = 0; i < vectors[k].rows(); ++i)
        std::copy_n(tables[k].row(batch.key(key).all_values()[i]), dim_of(key), vectors[k].row(i));
    }
    ids.pool(exec, batch, out);
    ids.spread(exec, batch, std::vector<tessera::matrix_view<float const>>(gradients.begin(), gradients.end()));
    bool same = true;
    for (std::int64_t key = 0; key < batch.keys; ++key) {
      auto const k = static_cast<std::size_t>(key);
      if (!is_here[k]) continue;
      auto const dim = dim_of(key);
      auto const bags = batch.key(key);
      for (std::int64_t bag = 0; bag < bags.rows; ++bag) {
        same &= std::memcmp(out[k].row(bag), expected[k].row(bag), static_cast<std::size_t>(dim) * sizeof(float)) == 0;
        for (std::int64_t p = 0; p < bags.length(bag); ++p)
          for (std::int64_t c = 0; c < dim; ++c) {
            bool const gets = features[k].pooling != tessera::pooling::max || saved.argmax.of(key)[bag * dim + c] == p;
            same &= vectors[k](bags.begin_of(bag) - bags.offsets[0] + p, c) == (gets ? gradients[k](bag, c) : 0.0F);
          }
      }
    }
    CHECK(same);
  }
}
