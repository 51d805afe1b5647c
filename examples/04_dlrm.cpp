// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// A DLRM put together by hand, for a trainer that owns its model: two MLPs, lookups, dot products of all pairs, and the way back.

#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include <tessera/lookups.hpp>
#include <tessera/nn/dense_optimizer.hpp>
#include <tessera/nn/dot_interaction.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/loss.hpp>
#include <tessera/nn/mlp.hpp>

namespace {

constexpr std::int64_t samples = 256, numbers = 4, dim = 8, vectors = 3, users = 100, tags = 1000;

/// Whether a user clicks depends on the user and the first number together. Tags, up to three a sample, say nothing.
struct clicks {
  std::mt19937 random{1};

  std::int64_t below(std::int64_t bound) { return static_cast<std::int64_t>(random()) % bound; }

  tessera::keyed_jagged<> next(tessera::host_exec const& exec, std::vector<float>& x, std::vector<float>& labels) {
    for (auto& number : x) number = static_cast<float>(below(2001)) / 1000 - 1;
    std::vector<std::int64_t> ids, lengths(2 * samples, 1);
    for (std::size_t s = 0; s < samples; ++s) {
      ids.push_back(below(users));
      labels[s] = (ids[s] % 2 == 0) == (x[s * numbers] > 0) && below(10) > 0 ? 1.0F : 0.0F;
    }
    for (std::size_t s = samples; s < 2 * samples; ++s) {
      lengths[s] = below(4);
      for (std::int64_t i = 0; i < lengths[s]; ++i) ids.push_back(below(tags));
    }
    return tessera::keyed_jagged<>::from_lengths(exec, {"user", "tags"}, ids, lengths, std::vector<std::int64_t>{samples, samples});
  }
};

}  // namespace

int main() {
  tessera::thread_pool threads(2);
  tessera::system_memory memory;
  tessera::arena workspace(memory);
  tessera::host_exec const exec(threads, memory), step_exec = exec.with_memory(workspace);

  // The model. Who multiplies is a policy: blas_gemm or dnnl_fp32_gemm in its place, with nn/gemm_blas.hpp or nn/gemm_dnnl.hpp.
  tessera::eigen_gemm const gemm;
  constexpr auto pairs = tessera::dot_interaction_width(vectors, dim);
  tessera::mlp bottom(exec, {.widths = {numbers, 16, dim}, .last = tessera::activation::relu, .seed = tessera::random_seed{1}});
  tessera::mlp top(exec, {.widths = {pairs, 16, 1}, .seed = tessera::random_seed{1}, .stream = 1});
  std::vector<tessera::dense_table<>> tables;
  tessera::rowwise_adagrad const row_optimizer{.learning_rate = 0.1F};
  tables.emplace_back(exec, tessera::table_options{.id = tessera::table_id{0}, .dim = dim, .rows = users, .init_bound = 0.1F},
                      row_optimizer);
  tables.emplace_back(exec, tessera::table_options{.id = tessera::table_id{1}, .dim = dim, .rows = tags, .init_bound = 0.1F},
                      row_optimizer);
  std::vector<tessera::pooled_feature> const features{{.table = 0}, {.table = 1}};
  tessera::adam const optimizer{.learning_rate = 0.01F};
  tessera::dense_optimizer_state bottom_state(exec, bottom.parameters().size(), optimizer);
  tessera::dense_optimizer_state top_state(exec, top.parameters().size(), optimizer);

  // Its memory, all of it yours. A sample's vectors: that of the bottom MLP and one a key, each in a block (samples, dim).
  auto const floats = [](std::int64_t count) { return std::vector<float>(static_cast<std::size_t>(count)); };
  auto x = floats(samples * numbers), labels = floats(samples), logits = floats(samples), slopes = floats(samples);
  auto vector_memory = floats(vectors * samples * dim), vector_gradient_memory = vector_memory;
  auto pair_memory = floats(samples * pairs), pair_gradient_memory = pair_memory;
  auto bottom_gradient = floats(bottom.parameters().size()), top_gradient = floats(top.parameters().size());
  using block = tessera::matrix_view<float>;
  using read_block = tessera::matrix_view<float const>;
  auto const block_of = [](std::vector<float>& all, std::int64_t v) { return block{all.data() + v * samples * dim, samples, dim}; };
  std::vector<block> const pooled{block_of(vector_memory, 1), block_of(vector_memory, 2)};
  std::vector<read_block> const met{block_of(vector_memory, 0), pooled[0], pooled[1]};
  std::vector<block> const met_gradients{block_of(vector_gradient_memory, 0), block_of(vector_gradient_memory, 1),
                                         block_of(vector_gradient_memory, 2)};
  std::vector<read_block> const pooled_gradients{met_gradients[1], met_gradients[2]};
  block const pair_products{pair_memory.data(), samples, pairs}, pair_gradients{pair_gradient_memory.data(), samples, pairs};

  clicks source;
  tessera::mlp_saved bottom_saved, top_saved;
  tessera::lookup_saved saved;
  double loss = 0;
  for (int step = 1; step <= 400; ++step) {
    auto const batch = source.next(exec, x, labels);

    bottom.forward(step_exec, gemm, {x.data(), samples, numbers}, block_of(vector_memory, 0), bottom_saved);
    tessera::pooled_lookup(step_exec, tables, features, batch.view(), pooled, saved);
    tessera::dot_interaction(step_exec, met, pair_products);
    top.forward(step_exec, gemm, pair_products, {logits.data(), samples, 1}, top_saved);
    loss += tessera::bce_with_logits(step_exec, logits, labels, slopes);

    top.backward(step_exec, gemm, top_saved, {slopes.data(), samples, 1}, top_gradient, pair_gradients);
    tessera::dot_interaction_backward(step_exec, met, pair_gradients, met_gradients);
    bottom.backward(step_exec, gemm, bottom_saved, met_gradients[0], bottom_gradient);
    tessera::pooled_lookup_backward(step_exec, tables, features, saved, pooled_gradients, row_optimizer);
    tessera::dense_update(step_exec, bottom.parameters(), bottom_gradient, bottom_state, optimizer);
    tessera::dense_update(step_exec, top.parameters(), top_gradient, top_state, optimizer);
    if (step % 100 == 0) {
      std::printf("steps %d to %d: mean loss %.4f\n", step - 99, step, loss / 100);
      loss = 0;
    }
  }
}
