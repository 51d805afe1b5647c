// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/tessera.hpp>

#include "../gemm_ceiling.hpp"
#include "../gemms.hpp"
#include "../inputs.hpp"
#include "../report.hpp"

/// A click model's training step as it is judged: on batches drawn from a seed, row-wise Adagrad for rows and SGD for the rest, whole and
/// by stages.
namespace tessera_bench {

struct click_shape {
  std::int64_t dense_features, dim;
  std::vector<std::int64_t> rows, lengths;  // of each table, and the ids of each bag of it
  std::vector<std::int64_t> bottom, top;    // hidden layers

  std::int64_t features() const { return static_cast<std::int64_t>(rows.size()); }
  std::int64_t ids_a_sample() const {
    std::int64_t sum = 0;
    for (auto const length : lengths) sum += length;
    return sum;
  }
};

struct click_batch {
  std::vector<float> dense, labels;
  std::vector<std::int64_t> ids, offsets{0}, first_row{0}, sample_ids;
  std::int64_t dense_features;

  click_batch(click_shape const& shape, std::int64_t samples, std::uint64_t seed) : dense_features(shape.dense_features) {
    draws draw(seed);
    for (std::int64_t i = 0; i < samples * dense_features; ++i) dense.push_back(static_cast<float>(draw.unit()));
    for (std::int64_t s = 0; s < samples; ++s) {
      labels.push_back(draw.below(4) == 0 ? 1.0F : 0.0F);
      sample_ids.push_back(s);
    }
    for (std::size_t f = 0; f < shape.rows.size(); ++f) {
      for (std::int64_t s = 0; s < samples; ++s) {
        for (std::int64_t i = 0; i < shape.lengths[f]; ++i) ids.push_back(draw.below(shape.rows[f]));
        offsets.push_back(static_cast<std::int64_t>(ids.size()));
      }
      first_row.push_back(first_row.back() + samples);
    }
  }

  tessera::batch_view view() const {
    auto const samples = static_cast<std::int64_t>(labels.size());
    return {{dense.data(), samples, dense_features},
            labels,
            {ids.data(), nullptr, offsets.data(), first_row.data(), static_cast<std::int64_t>(first_row.size()) - 1},
            sample_ids};
  }
};

template <class Interaction, class Gemm>
class click_step {
 public:
  using model_type = tessera::click_model<tessera::local_tables, Gemm, Interaction>;
  static constexpr std::array stage_names{"lookup",       "bottom",           "interaction", "top",         "loss",
                                          "top_backward", "interaction_back", "bottom_back", "rows_update", "dense_update"};

  click_step(click_shape const& shape, std::int64_t samples, int threads, typename Interaction::options const& interaction)
      : machine_(threads),
        model_(machine_.exec, {.dense_features = shape.dense_features, .bottom_hidden = shape.bottom, .top_hidden = shape.top},
               source(machine_.exec, shape), interaction),
        trainer_(machine_.exec, model_, dense_optimizer),
        samples_(samples) {
    auto const bytes = samples * shape.ids_a_sample() * shape.dim * 4;
    for (std::int64_t b = 0; b < batches_past_cache(bytes); ++b) batches_.emplace_back(shape, samples, static_cast<std::uint64_t>(b));
    products_ = gemm_ceiling(machine_.exec, Gemm{});
  }

  void step(std::int64_t i) { benchmark::DoNotOptimize(trainer_.step(machine_.step, batch(i))); }

  /// The same step, composed of its parts; adds the seconds of each to `seconds`.
  void step_by_stages(std::int64_t i, std::array<double, stage_names.size()>& seconds) {
    auto const& exec = machine_.step;
    auto const data = batch(i);
    auto const vectors = model_.vector_count(), dim = model_.dim(), width = model_.interaction().output_width();
    vectors_.resize(exec, samples_ * vectors * dim);
    vector_gradients_.resize(exec, samples_ * vectors * dim);
    interacted_.resize(exec, samples_ * width);
    interacted_gradients_.resize(exec, samples_ * width);
    logits_.resize(exec, samples_);
    logit_gradients_.resize(exec, samples_);
    gradient_.resize(exec, model_.parameter_count());
    tessera::matrix_view<float> const all(vectors_.data(), samples_, vectors * dim),
        all_gradients(vector_gradients_.data(), samples_, vectors * dim);
    tessera::matrix_view<float> const interacted(interacted_.data(), samples_, width),
        interacted_gradients(interacted_gradients_.data(), samples_, width);
    std::vector<tessera::matrix_view<float>> pooled;
    std::vector<tessera::matrix_view<float const>> pooled_gradients;
    for (std::int64_t v = 1; v < vectors; ++v) {
      pooled.push_back(all.columns_from(v * dim, dim));
      pooled_gradients.push_back(all_gradients.columns_from(v * dim, dim));
    }
    auto const groups = model_.groups();
    auto const of_bottom = gradient_.view().slice(0, groups[0].values.size());
    auto const of_interaction = gradient_.view().slice(of_bottom.size(), groups[1].values.size());
    auto const of_top = gradient_.view().slice(of_bottom.size() + of_interaction.size(), groups[2].values.size());
    std::size_t stage = 0;
    auto const timed = [&](auto const& run) {
      auto const start = std::chrono::steady_clock::now();
      run();
      seconds[stage++] += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    Gemm const gemm{};
    timed([&] {
      model_.source().begin(exec, data, source_saved_);
      model_.source().finish(exec, source_saved_, pooled);
    });
    timed([&] { model_.bottom().forward(exec, gemm, data.dense, all.columns_from(0, dim), bottom_saved_); });
    timed([&] { model_.interaction().forward(exec, gemm, all, interacted, interaction_saved_); });
    timed([&] { model_.top().forward(exec, gemm, interacted, {logits_.data(), samples_, 1}, top_saved_); });
    timed([&] { tessera::bce_with_logits(exec, logits_.view(), data.labels, logit_gradients_.view(), data.weights); });
    timed([&] { model_.top().backward(exec, gemm, top_saved_, {logit_gradients_.data(), samples_, 1}, of_top, interacted_gradients); });
    timed([&] {
      model_.interaction().backward(exec, gemm, interaction_saved_, interacted_gradients, logit_gradients_.view(), of_interaction,
                                    all_gradients);
    });
    timed([&] { model_.bottom().backward(exec, gemm, bottom_saved_, all_gradients.columns_from(0, dim), of_bottom); });
    timed([&] {
      model_.source().begin_backward(exec, source_saved_, pooled_gradients);
      model_.source().finish_backward(exec, source_saved_);
    });
    timed([&] {
      std::int64_t first = 0;
      for (auto const& state : trainer_.dense_states()) {
        auto const group = *std::find_if(groups.begin(), groups.end(), [&](auto const& g) { return g.name == state.group; });
        tessera::dense_update(exec, group.values, std::as_const(gradient_).view().slice(first, group.values.size()), *state.state,
                              dense_optimizer);
        first += group.values.size();
      }
    });
  }

  std::int64_t batches() const { return static_cast<std::int64_t>(batches_.size()); }
  std::int64_t samples() const { return samples_; }
  /// Of large products, in FLOP/s.
  ceiling& products() { return products_; }
  double workspace_bytes() const { return static_cast<double>(machine_.workspace.reserved_bytes()); }
  model_type const& model() const { return model_; }

  /// Of the layers' products, forward and both backwards: two for each multiply-add.
  double flop_per_sample() const {
    double sum = interaction_flop();
    auto const add = [&](tessera::mlp const& net, bool has_input_gradient) {
      for (std::size_t l = 1; l < net.widths().size(); ++l)
        sum += static_cast<double>(net.widths()[l - 1] * net.widths()[l]) * (l == 1 && !has_input_gradient ? 4 : 6);
    };
    add(model_.bottom(), false);
    add(model_.top(), true);
    return sum;
  }

 private:
  static constexpr tessera::rowwise_adagrad row_optimizer{.learning_rate = 0.01F};
  static constexpr tessera::sgd dense_optimizer{0.1F};

  static tessera::local_tables source(tessera::host_exec const& exec, click_shape const& shape) {
    tessera::table_list tables;
    std::vector<tessera::table_feature> features;
    for (std::int64_t f = 0; f < shape.features(); ++f) {
      tessera::table_options const options{.id = tessera::table_id{f}, .dim = shape.dim, .rows = shape.rows[static_cast<std::size_t>(f)]};
      features.push_back(
          {.name = std::to_string(f), .table = tables.add(tessera::dense_table<>(exec, options, row_optimizer), row_optimizer)});
    }
    return {std::move(tables), std::move(features)};
  }

  // Of the pairs' products, or of the cross layers' matrices.
  double interaction_flop() const {
    auto const vectors = model_.vector_count();
    if constexpr (requires { model_.interaction().net(); })
      return static_cast<double>(model_.interaction().parameters().size() - model_.interaction().net().layers() * vectors * model_.dim()) *
             6;
    else
      return static_cast<double>(vectors * (vectors - 1) / 2 * model_.dim()) * 6;
  }

  tessera::batch_view batch(std::int64_t i) const { return batches_[static_cast<std::size_t>(i % batches())].view(); }

  machine machine_;
  model_type model_;
  tessera::trainer<model_type, tessera::sgd> trainer_;
  std::int64_t samples_;
  std::vector<click_batch> batches_;
  ceiling products_;
  tessera::buffer<float> vectors_, vector_gradients_, interacted_, interacted_gradients_, logits_, logit_gradients_, gradient_;
  tessera::local_tables_saved source_saved_;
  tessera::mlp_saved bottom_saved_, top_saved_;
  typename Interaction::saved interaction_saved_;
};

/// Times the step, then reports what each of its stages takes, in milliseconds.
template <class Interaction, class Gemm>
void run_click_step(benchmark::State& state, std::string const& name, click_shape const& shape, std::int64_t samples, int threads,
                    typename Interaction::options const& interaction) {
  using step_type = click_step<Interaction, Gemm>;
  auto& work = kept<step_type>(name, [&] {
    auto made = std::make_shared<step_type>(shape, sized(samples), threads, interaction);
    for (std::int64_t i = 0; i < std::min<std::int64_t>(made->batches(), 8); ++i) made->step(i);
    return made;
  });
  auto& next = next_input();
  for (auto _ : state) work.step(next++);
  auto const done = static_cast<double>(state.iterations() * work.samples());
  state.counters["samples_per_second"] = benchmark::Counter(done, benchmark::Counter::kIsRate);
  report_machine(state, work.products());
  state.counters["ceiling_fraction"] =
      benchmark::Counter(done * work.flop_per_sample() / work.products().rate(), benchmark::Counter::kIsRate);
  state.counters["mflop_per_sample"] = work.flop_per_sample() / 1e6;
  std::array<double, step_type::stage_names.size()> seconds{};
  work.step_by_stages(next++, seconds);
  seconds.fill(0);
  auto const rounds = std::clamp<std::int64_t>(state.iterations(), 1, 50);
  for (std::int64_t i = 0; i < rounds; ++i) work.step_by_stages(next++, seconds);
  for (std::size_t s = 0; s < seconds.size(); ++s)
    state.counters[std::string("ms_") + step_type::stage_names[s]] = seconds[s] * 1e3 / static_cast<double>(rounds);
  state.counters["workspace_bytes"] = work.workspace_bytes();
}

/// Registers the step by each library that may multiply.
template <class Interaction>
void add_click_step(std::string const& name, click_shape const& shape, std::int64_t samples, int threads = all_threads(),
                    typename Interaction::options const& interaction = {}) {
  for_each_gemm(name, [=](std::string const& called, auto gemm) {
    benchmark::RegisterBenchmark(
        called.c_str(),
        [=](benchmark::State& state) { run_click_step<Interaction, decltype(gemm)>(state, called, shape, samples, threads, interaction); })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  });
}

}  // namespace tessera_bench
