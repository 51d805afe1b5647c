// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// The DLRM of the steps by ranks: 26 tables of dim 64, one id a table. Rows that a rank holds, ids that it reads and samples that it has, are the
// same for any number of ranks.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/synth/zipf.hpp>
#include <tessera/tessera.hpp>

namespace tessera_bench {

inline constexpr std::int64_t dlrm_tables = 26, dlrm_dim = 64, dlrm_numbers = 13;

/// A batch of one id a table, some of which come often.
struct dlrm_clicks {
  dlrm_clicks(tessera::host_exec const& exec, std::int64_t samples, std::int64_t rows, std::uint64_t seed)
      : dense(static_cast<std::size_t>(samples * dlrm_numbers)), labels(static_cast<std::size_t>(samples)) {
    std::mt19937_64 random(seed);
    auto const uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
    for (auto& x : dense) x = static_cast<float>(uniform());
    for (auto& label : labels) label = uniform() < 0.25 ? 1.0F : 0.0F;
    tessera::zipf_distribution const law(rows, 1.05);
    std::vector<std::string> names;
    std::vector<std::int64_t> all;
    for (std::int64_t t = 0; t < dlrm_tables; ++t) {
      names.push_back("C" + std::to_string(t));
      for (std::int64_t s = 0; s < samples; ++s) all.push_back(law(uniform));
    }
    std::vector<std::int64_t> const lengths(all.size(), 1);
    ids = tessera::keyed_jagged<>::from_lengths(exec, names, all, lengths,
                                                std::vector<std::int64_t>(static_cast<std::size_t>(dlrm_tables), samples));
    batch.dense = {dense.data(), samples, dlrm_numbers};
    batch.labels = labels;
    batch.sparse = std::as_const(ids).view();
  }

  std::vector<float> dense, labels;
  tessera::keyed_jagged<> ids;
  tessera::batch_view batch;
};

inline std::vector<std::unique_ptr<dlrm_clicks>> dlrm_batches(tessera::host_exec const& exec, std::int64_t samples, std::int64_t rows,
                                                              int rank) {
  std::vector<std::unique_ptr<dlrm_clicks>> all;
  for (std::uint64_t b = 0; b < 8; ++b)
    all.push_back(std::make_unique<dlrm_clicks>(exec, samples, rows, 100 * b + static_cast<std::uint64_t>(rank)));
  return all;
}

inline std::vector<tessera::table_feature> dlrm_features() {
  std::vector<tessera::table_feature> all;
  for (std::int64_t t = 0; t < dlrm_tables; ++t) all.push_back({.name = "C" + std::to_string(t), .table = t});
  return all;
}

inline tessera::table_options dlrm_table(std::int64_t t, std::int64_t rows) {
  return {.id = tessera::table_id{t}, .dim = dlrm_dim, .rows = rows, .init_bound = 0.01F};
}

inline std::vector<tessera::table_spec> dlrm_specs(std::int64_t rows) {
  std::vector<tessera::table_spec> specs;
  for (std::int64_t t = 0; t < dlrm_tables; ++t)
    specs.push_back(tessera::spec_of<tessera::dense_table<>>(dlrm_table(t, rows), tessera::rowwise_adagrad{.learning_rate = 0.01F}));
  return specs;
}

/// Steps of a model, whatever its source is.
class dlrm_steps {
 public:
  virtual ~dlrm_steps() = default;
  virtual void steps(int count) = 0;
  /// The ids of each batch leave before the step of the one before it.
  virtual void steps_with_ids_ahead(int count) = 0;
};

/// One rank's model and trainer, with what they stand on. `make(exec)` makes the source.
template <class Source>
class dlrm_rank final : public dlrm_steps {
 public:
  using model_type = tessera::dlrm<Source, tessera::eigen_gemm>;

  template <class Make>
  dlrm_rank(int threads, std::int64_t samples, std::int64_t rows, int rank, tessera::trainer_options const& options, Make const& make)
      : pool_(threads),
        exec_(pool_, memory_),
        step_exec_(pool_, arena_),
        model_(exec_, net(), make(exec_)),
        run_(exec_, model_, tessera::sgd{0.01F}, options),
        batches_(dlrm_batches(exec_, samples, rows, rank)) {}

  std::int64_t parameter_count() const { return model_.parameter_count(); }
  void steps(int count) override {
    for (int i = 0; i < count; ++i) run_.step(step_exec_, batch(0)), ++next_;
  }
  void steps_with_ids_ahead(int count) override {
    run_.look_ahead(step_exec_, batch(0));
    for (int i = 0; i < count; ++i) {
      if (i + 1 < count) run_.look_ahead(step_exec_, batch(1));
      run_.step(step_exec_, batch(0));
      ++next_;
    }
  }

 private:
  tessera::batch_view const& batch(std::size_t ahead) const { return batches_[(next_ + ahead) % batches_.size()]->batch; }
  static tessera::click_model_options net() {
    return {.dense_features = dlrm_numbers, .bottom_hidden = {512, 256}, .top_hidden = {512, 256}, .seed = tessera::random_seed{1}};
  }

  tessera::thread_pool pool_;
  tessera::system_memory memory_;
  tessera::arena<tessera::system_memory> arena_{memory_};
  tessera::host_exec exec_, step_exec_;
  model_type model_;
  tessera::trainer<model_type, tessera::sgd> run_;
  std::vector<std::unique_ptr<dlrm_clicks>> batches_;
  std::size_t next_ = 0;
};

/// The tables of a rank alone: ids, lookups, vectors, gradients and updates, with no dense net. Outputs are as wide as tables.
template <class Source>
class dlrm_lookups {
 public:
  /// `make(exec)` makes the source.
  template <class Make>
  dlrm_lookups(std::int64_t samples, std::int64_t rows, int rank, Make const& make)
      : exec_(team_, memory_), tables_(make(exec_)), rows_(rows), rank_(rank) {
    set_samples(samples);
  }

  void set_samples(std::int64_t samples) {
    vectors_.assign(static_cast<std::size_t>(samples * dlrm_tables * dlrm_dim), 0.001F);
    batches_ = dlrm_batches(exec_, samples, rows_, rank_);
    out_.clear();
    for (std::int64_t t = 0; t < dlrm_tables; ++t)
      out_.push_back(tessera::matrix_view<float>{vectors_.data(), samples, dlrm_tables * dlrm_dim}.columns_from(t * dlrm_dim, dlrm_dim));
    gradients_.assign(out_.begin(), out_.end());
  }

  void forward() {
    tables_.begin(exec_, batches_[next_++ % batches_.size()]->batch, saved_);
    tables_.finish(exec_, saved_, out_);
  }
  void backward() {
    tables_.begin_backward(exec_, saved_, gradients_);
    tables_.finish_backward(exec_, saved_);
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      forward();
      backward();
    }
  }

 private:
  tessera::serial_team team_;
  tessera::system_memory memory_;
  tessera::host_exec exec_;
  Source tables_;
  std::int64_t rows_;
  int rank_;
  typename Source::saved_type saved_;
  std::vector<float> vectors_;
  std::vector<tessera::matrix_view<float>> out_;
  std::vector<tessera::matrix_view<float const>> gradients_;
  std::vector<std::unique_ptr<dlrm_clicks>> batches_;
  std::size_t next_ = 0;
};

}  // namespace tessera_bench
