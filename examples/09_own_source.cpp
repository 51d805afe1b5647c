// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Vectors of one's own under our model and trainer: a map from words to vectors, updated by plain SGD.

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include <tessera/embed/embedding_source.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/local_model.hpp>

class map_source {
 public:
  using execution_type = tessera::host_exec;
  using gradients_type = std::map<std::int64_t, std::vector<float>>;  // by word
  using saved_type = std::pair<tessera::batch_view, gradients_type>;  // of a batch, from begin to finish_backward
  using prepared_type = int;                                          // nothing is made ahead
  using blocks = tessera::vector_view<tessera::matrix_view<float> const>;

  tessera::vector_view<tessera::embedding_output const> outputs() const { return outputs_; }

  void begin(execution_type const&, tessera::batch_view const& batch, saved_type& saved, auto&...) { saved.first = batch; }
  void finish(execution_type const& exec, saved_type& saved, blocks out) { predict(exec, saved.first, out); }
  void predict(execution_type const&, tessera::batch_view const& batch, blocks out) const {
    for (std::int64_t sample = 0; sample < batch.samples(); ++sample) {
      std::fill_n(out[0].row(sample), dim, 0.0F);
      for (auto const id : batch.sparse.key(0).row(sample)) add(out[0].row(sample), vector_of(id).data());
    }
  }
  void begin_backward(execution_type const&, saved_type& saved, tessera::vector_view<tessera::matrix_view<float const> const> gradients) {
    auto& [batch, sum] = saved;
    sum.clear();
    for (std::int64_t sample = 0; sample < batch.samples(); ++sample)
      for (auto const id : batch.sparse.key(0).row(sample))
        add(sum.try_emplace(id, dim, 0.0F).first->second.data(), gradients[0].row(sample));
  }
  void finish_backward(execution_type const& exec, saved_type& saved) { apply(exec, saved.second); }
  void gradients(execution_type const&, saved_type const& saved, gradients_type& sum) const { sum = saved.second; }
  void apply(execution_type const&, gradients_type const& sum) {
    for (auto const& [id, gradient] : sum) add(vectors_.try_emplace(id, vector_of(id)).first->second.data(), gradient.data(), -0.5F);
  }
  void prepare(execution_type const&, tessera::batch_view const&, prepared_type&) const {}
  tessera::table_parts parts() { return {}; }  // not in checkpoints
  std::size_t bytes() const { return vectors_.size() * dim * sizeof(float); }

 private:
  static constexpr std::int64_t dim = 8;

  static void add(float* sum, float const* vector, float factor = 1) {
    for (std::int64_t c = 0; c < dim; ++c) sum[c] += factor * vector[c];
  }
  std::vector<float> vector_of(std::int64_t id) const {
    if (auto const found = vectors_.find(id); found != vectors_.end()) return found->second;
    std::mt19937 random(static_cast<unsigned>(id));
    std::vector<float> fresh(dim);
    for (auto& x : fresh) x = std::uniform_real_distribution<float>(-0.1F, 0.1F)(random);
    return fresh;
  }

  std::vector<tessera::embedding_output> outputs_{{.name = "words", .width = dim, .key = 0}};
  std::map<std::int64_t, std::vector<float>> vectors_;
};

int main() {
  tessera::serial_team team;
  tessera::system_memory memory;
  tessera::host_exec const exec(team, memory);
  tessera::dlrm<map_source, tessera::eigen_gemm> model(exec, {.top_hidden = {8}}, map_source());
  tessera::trainer run(exec, model, tessera::adam{.learning_rate = 0.02F});

  // A sample is a hit where one of its words is 3.
  auto const words = tessera::keyed_jagged<>::from_rows(exec, {{"words", {{1, 3}, {2}, {3}, {4, 5}}}});
  std::vector<float> const labels{1, 0, 1, 0};
  for (int step = 1; step <= 60; ++step)
    std::printf("step %d loss %.4f\n", step, run.step(exec, {{nullptr, 4, 0}, labels, words.view(), {}}));
}
