// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/memory_adaptors.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/data/batch_copy.hpp>
#include <tessera/data/memory_log.hpp>
#include <tessera/data/sample_reader.hpp>
#include <tessera/data/sample_reader_options.hpp>
#include <tessera/synth/session_options.hpp>
#include <tessera/synth/session_sets.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/expand.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.hpp>
#include <tessera/tensor/truncate_rows.hpp>
#include <tessera/train/click_model_saved.hpp>
#include <tessera/train/click_net.hpp>
#include <tessera/train/trainer.hpp>

#include "model.hpp"
#include "results.hpp"

namespace recd {

/// A trainer whose memory for inputs and activations is its own, and is counted.
template <class Gemm>
class tracked_trainer {
 public:
  tracked_trainer(tessera::host_exec const& exec, session_dlrm<Gemm>& model)
      : exec_(exec.with_memory(tracked_)), trainer_(exec, model, tessera::adam{.learning_rate = 1e-3F}) {}

  double step(tessera::batch_copy const& batch) { return trainer_.step(exec_, batch.view()); }
  tessera::model_times& times() { return trainer_.saved().times; }
  /// Bytes in use at once so far, not those that the arena keeps.
  std::size_t peak_bytes() const { return tracked_.peak_bytes(); }

 private:
  tessera::system_memory memory_;
  tessera::arena<tessera::system_memory> workspace_{memory_};
  tessera::tracked_memory<tessera::arena<tessera::system_memory>> tracked_{workspace_};
  tessera::host_exec exec_;
  tessera::trainer<session_dlrm<Gemm>, tessera::adam> trainer_;
};

/// Batches of a log, in memory.
struct batch_set {
  std::vector<tessera::batch_copy> batches;
  std::vector<std::string> keys;

  tessera::batch_view const& largest() const {
    return std::max_element(batches.begin(), batches.end(), [](auto const& a, auto const& b) { return a.bytes() < b.bytes(); })->view();
  }
};

/// Trains on the same samples in the ways of the paper's ladder.
template <class Gemm>
class ladder {
 public:
  /// `result.transformers` of the groups of sequences are pooled by a transformer.
  ladder(tessera::host_exec const& exec, plan const& plan, tessera::session_clicks_options const& options, trainer_result& result)
      : exec_(exec), steps_(plan.steps), options_(options), groups_(tessera::session_groups(options)), result_(result) {
    result.table_bytes = bytes_of_tables(options);
  }

  /// The steps of a round by a new model, each on the next batch of the log.
  training_result const& add(std::string name, std::int64_t round, tessera::memory_log const& log, bool shared, tessera::pooled_rows rows,
                             std::int64_t size) {
    auto const set = read(log, shared, size);
    auto model = make_model<Gemm>(exec_, options_, result_.transformers, set.keys, rows);
    training_result way;
    way.name = std::move(name);
    way.batch = size;
    train(model, set, round * steps_, way);
    if (result_.find(way.name) == nullptr) way.peak = peak_of(model, set.largest());
    std::printf("  %-12s batch %6lld  %8.0f samples/s\n", way.name.c_str(), static_cast<long long>(size), way.rate());
    std::fflush(stdout);
    return result_.add(std::move(way));
  }

  /// The peak of steps on batches whose repeated rows are there once.
  double shared_peak(tessera::memory_log const& log, std::int64_t size) const {
    auto const set = read(log, true, size);
    auto model = make_model<Gemm>(exec_, options_, result_.transformers, set.keys, tessera::pooled_rows::distinct);
    return peak_of(model, set.largest()).bytes;
  }

  /// The peak of a way of `ids`, foretold from the baseline: its steps on lists so short that they have about as many ids give the bytes that an
  /// id of sequences and of bags takes.
  double foretell(tessera::memory_log const& log, std::int64_t size, memory_peak const& whole, amounts const& ids) const {
    auto const set = read(log, false, size);
    auto model = make_model<Gemm>(exec_, options_, result_.transformers, set.keys, tessera::pooled_rows::distinct);
    auto batch = set.largest();
    auto const short_sequences = cut(batch, set.keys, true, whole.ids.sequence_ids / ids.sequence_ids);
    batch.sparse = short_sequences.view();
    auto const fewer = peak_of(model, batch);
    auto const short_lists = cut(batch, set.keys, false, whole.ids.bag_ids / ids.bag_ids);
    batch.sparse = short_lists.view();
    auto const least = peak_of(model, batch);
    auto const a_sequence_id = (whole.bytes - fewer.bytes) / (whole.ids.sequence_ids - fewer.ids.sequence_ids);
    auto const a_bag_id = (fewer.bytes - least.bytes) / (fewer.ids.bag_ids - least.ids.bag_ids);
    return least.bytes + a_sequence_id * (ids.sequence_ids - least.ids.sequence_ids) + a_bag_id * (ids.bag_ids - least.ids.bag_ids);
  }

 private:
  batch_set read(tessera::memory_log const& log, bool shared, std::int64_t size) const {
    tessera::sample_reader_options options;
    options.batch_size = size;
    options.groups = groups_;
    tessera::sample_reader reader(exec_, log, options);
    batch_set set;
    set.keys = reader.keys();
    for (tessera::batch_view batch; reader.next(exec_, batch);) {
      tessera::keyed_jagged<> expanded;
      if (!shared) {
        expanded = tessera::expand(exec_, batch.inverse_keyed());
        batch.sparse = expanded.view();
        batch.groups = {};
      }
      set.batches.emplace_back().assign(exec_, batch);
    }
    return set;
  }

  // Before the timed steps, one on that batch of theirs which has most ids: memory grows there.
  void train(session_dlrm<Gemm>& model, batch_set const& set, std::int64_t first, training_result& way) const {
    std::vector<tessera::keyed_jagged<>> every_row;
    std::size_t most = 0;
    auto const batch_at = [&](std::size_t step) -> auto const& { return set.batches.at(static_cast<std::size_t>(first) + step); };
    for (std::size_t step = 0; step < static_cast<std::size_t>(steps_); ++step) {
      every_row.push_back(tessera::expand(exec_, batch_at(step).view().inverse_keyed()));
      if (every_row[step].view().size() > every_row[most].view().size()) most = step;
    }
    tracked_trainer<Gemm> run(exec_, model);
    way.losses.push_back(run.step(batch_at(most)));
    run.times() = {};
    for (std::size_t step = 0; step < every_row.size(); ++step) {
      auto const& batch = batch_at(step);
      auto const before = std::chrono::steady_clock::now();
      way.losses.push_back(run.step(batch));
      way.step_seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count());
      way.samples += batch.view().samples();
      way.work += amounts_of(exec_, model, batch.view());
      auto expanded = batch.view();
      expanded.sparse = every_row[step].view();
      way.expanded += amounts_of(exec_, model, expanded);
    }
    way.times = run.times();
  }

  memory_peak peak_of(session_dlrm<Gemm>& model, tessera::batch_view const& view) const {
    tessera::batch_copy batch;
    batch.assign(exec_, view);
    tracked_trainer<Gemm> run(exec_, model);
    run.step(batch);
    return {static_cast<double>(run.peak_bytes() + batch.bytes()), amounts_of(exec_, model, view)};
  }

  // Lists of sequences, or of all others, cut to their mean length over `factor`.
  tessera::keyed_jagged<> cut(tessera::batch_view const& batch, std::vector<std::string> const& keys, bool sequences, double factor) const {
    std::vector<std::int64_t> most;
    for (auto const& key : keys) {
      auto const f =
          std::find_if(options_.features.begin(), options_.features.end(), [&](auto const& feature) { return feature.name == key; });
      bool const is_sequence = f->kind == tessera::session_feature_kind::sequence;
      most.push_back(is_sequence == sequences ? static_cast<std::int64_t>(std::ceil(f->mean_length / factor)) : f->most_length);
    }
    return tessera::truncate_rows(exec_, batch.sparse, most, tessera::kept_values::last);
  }

  tessera::host_exec const& exec_;
  std::int64_t steps_;
  tessera::session_clicks_options const& options_;
  std::vector<std::vector<std::string>> groups_;
  trainer_result& result_;
};

}  // namespace recd
