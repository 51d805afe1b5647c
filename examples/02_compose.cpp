// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// A training loop of one's own: the caller's vectors are the memory, the caller's loss is the loss; Tessera looks up and updates.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <tessera/lookups.hpp>
#include <tessera/nn/loss.hpp>

int main() {
  tessera::thread_pool threads(2);
  tessera::system_memory memory;
  tessera::host_exec const exec(threads, memory);
  tessera::arena workspace(memory);  // what a step takes and gives back: after the first steps nothing is allocated
  auto const step_exec = exec.with_memory(workspace);
  tessera::rowwise_adagrad const optimizer{.learning_rate = 0.1F};

  // Two tables. With hash_table in place of dense_table, ids may be any integers and rows appear when an id is first seen.
  std::vector<tessera::dense_table<>> tables;
  tables.emplace_back(exec, tessera::table_options{.id = tessera::table_id{0}, .dim = 8, .rows = 1000, .init_bound = 0.1F}, optimizer);
  tables.emplace_back(exec, tessera::table_options{.id = tessera::table_id{1}, .dim = 8, .rows = 50, .init_bound = 0.1F}, optimizer);
  std::vector<tessera::pooled_feature> const features{{.table = 0}, {.table = 1, .pooling = tessera::pooling::mean}};

  // Your batch: four samples, key-major. Key 0 has one id a sample, key 1 any number; both are your own vectors.
  std::vector<std::int64_t> const ids{17, 4, 17, 998, 3, 5, 5, 49, 0};
  std::vector<std::int64_t> const offsets{0, 1, 2, 3, 4, 6, 6, 8, 9};  // of the 4 rows of key 0, then the 4 of key 1
  std::vector<std::int64_t> const first_row{0, 4, 8};
  std::vector<float> const labels{1, 0, 1, 0};
  tessera::keyed_jagged_view<std::int64_t const> const batch{ids.data(), nullptr, offsets.data(), first_row.data(), 2};

  // Pooled vectors land where you want them: here side by side, 4 samples of 2 x 8 floats.
  std::vector<float> vectors(4 * 16), gradient(4 * 16);
  std::vector<tessera::matrix_view<float>> const out{{vectors.data(), 4, 8, 16}, {vectors.data() + 8, 4, 8, 16}};
  std::vector<tessera::matrix_view<float const>> const gradients{{gradient.data(), 4, 8, 16}, {gradient.data() + 8, 4, 8, 16}};

  tessera::lookup_saved saved;
  for (int step = 1; step <= 50; ++step) {
    tessera::pooled_lookup(step_exec, tables, features, batch, out, saved);

    // Your model and your loss: the logit of a sample is the dot product of its two vectors.
    float loss = 0;
    for (std::size_t s = 0; s < 4; ++s) {
      float logit = 0;
      for (std::size_t d = 0; d < 8; ++d) logit += vectors[16 * s + d] * vectors[16 * s + 8 + d];
      loss += std::log1p(std::exp(labels[s] > 0 ? -logit : logit)) / 4;
      float const slope = (tessera::sigmoid(logit) - labels[s]) / 4;
      for (std::size_t d = 0; d < 8; ++d) {
        gradient[16 * s + d] = slope * vectors[16 * s + 8 + d];
        gradient[16 * s + 8 + d] = slope * vectors[16 * s + d];
      }
    }

    tessera::pooled_lookup_backward(step_exec, tables, features, saved, gradients, optimizer);
    if (step % 10 == 0) std::printf("step %d loss %.4f\n", step, static_cast<double>(loss));
  }
}
