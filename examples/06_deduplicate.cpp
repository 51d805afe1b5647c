// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// A batch of sessions whose repeated rows are kept once: looked up once, pooled once, trained on as if they were all there.

#include <cstdint>
#include <cstdio>
#include <vector>

#include <tessera/embed/deduplicated_lookup.hpp>
#include <tessera/embed/deduplicated_lookup_backward.hpp>
#include <tessera/lookups.hpp>
#include <tessera/tensor/deduplicate.hpp>
#include <tessera/tensor/key_groups.hpp>
#include <tessera/tensor/permute_keys.hpp>

int main() {
  tessera::thread_pool threads(2);
  tessera::system_memory memory;
  tessera::host_exec const exec(threads, memory);
  constexpr std::int64_t samples = 6, dim = 8;

  // Two sessions. What a user liked and shared changes together, now and then; the item shown changes with every sample.
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"liked", {{3, 1, 7}, {3, 1, 7}, {3, 1, 7}, {1, 7, 2}, {8, 8}, {8, 8}}},
                                                               {"shared", {{5}, {5}, {5}, {5, 4}, {9}, {9}}},
                                                               {"item", {{20}, {21}, {22}, {23}, {20}, {24}}}});
  // Which keys to group is named by hand here; `recommend_groups` finds it in a sample of a log.
  auto const groups = tessera::group_keys(batch.keys(), {{"liked", "shared"}});
  auto const distinct = tessera::deduplicate(exec, tessera::permute_keys(exec, batch, groups.order), groups.keys_per_group);
  std::printf("%lld ids of %lld are kept\n", static_cast<long long>(distinct.view().distinct.size()),
              static_cast<long long>(batch.view().size()));

  std::vector<tessera::dense_table<>> tables;
  tessera::rowwise_adagrad const optimizer{.learning_rate = 0.1F};
  for (std::int64_t t = 0; t < 3; ++t)
    tables.emplace_back(exec, tessera::table_options{.id = tessera::table_id{t}, .dim = dim, .rows = 30, .init_bound = 0.1F}, optimizer);
  std::vector<tessera::pooled_feature> const features{{.table = 0}, {.table = 1, .pooling = tessera::pooling::max}, {.table = 2}};

  // A vector a sample of each key, as from a batch with all rows; the lookups are of the distinct ones.
  std::vector<float> vectors(3 * samples * dim), gradient(vectors.size());
  std::vector<tessera::matrix_view<float>> out;
  std::vector<tessera::matrix_view<float const>> gradients;
  for (std::int64_t key = 0; key < 3; ++key) {
    out.emplace_back(vectors.data() + key * samples * dim, samples, dim);
    gradients.emplace_back(gradient.data() + key * samples * dim, samples, dim);
  }
  tessera::deduplicated_saved saved;
  double loss = 0;
  for (int step = 1; step <= 100; ++step) {
    tessera::deduplicated_lookup(exec, tables, features, distinct.view(), out, saved);
    loss = 0;
    for (std::size_t i = 0; i < vectors.size(); ++i) {  // yours: here, all vectors are drawn to ones
      gradient[i] = vectors[i] - 1;
      loss += static_cast<double>(gradient[i] * gradient[i]) / static_cast<double>(vectors.size());
    }
    tessera::deduplicated_lookup_backward(exec, tables, features, saved, gradients, optimizer);
  }
  std::printf("after 100 steps: mean squared distance %.4f\n", loss);
}
