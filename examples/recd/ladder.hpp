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

#include <tessera/data/memory_log.hpp>

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
  ladder(tessera::host_exec const& exec, tessera::session_clicks_options const& options, bool by_transformer, trainer_result& result)
      : exec_(exec), options_(options), by_transformer_(by_transformer), groups_(tessera::session_groups(options)), result_(result) {}

  /// A step on each batch in turn, after a pass that is not timed: until every batch was seen once, memory grows.
  training_result const& add(std::string name, tessera::memory_log const& log, bool shared, tessera::pooled_rows rows, std::int64_t size) {
    auto const set = read(log, shared, size);
    auto model = make_model<Gemm>(exec_, options_, by_transformer_, set.keys, rows);
    training_result way;
    way.name = std::move(name);
    way.batch = size;
    train(model, set, way);
    if (auto const* const before = result_.find(way.name))
      way.peak = before->peak;
    else
      way.peak = peak_of(model, set.largest());
    std::printf("  %-12s batch %6lld  %8.0f samples/s  peak %6.2f GB\n", way.name.c_str(), static_cast<long long>(size), way.rate(),
                way.peak.bytes / 1e9);
    std::fflush(stdout);
    return result_.add(std::move(way));
  }

  /// The peak of steps on batches whose repeated rows are there once.
  double shared_peak(tessera::memory_log const& log, std::int64_t size) const {
    auto const set = read(log, true, size);
    auto model = make_model<Gemm>(exec_, options_, by_transformer_, set.keys, tessera::pooled_rows::distinct);
    return peak_of(model, set.largest()).bytes;
  }

  /// The peak of a way of `ids`, foretold from the baseline: its steps on lists so short that they have about as many ids give the bytes that an
  /// id of sequences and of bags takes.
  double foretell(tessera::memory_log const& log, std::int64_t size, memory_peak const& whole, amounts const& ids) const {
    auto const set = read(log, false, size);
    auto model = make_model<Gemm>(exec_, options_, by_transformer_, set.keys, tessera::pooled_rows::distinct);
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

  void train(session_dlrm<Gemm>& model, batch_set const& set, training_result& way) const {
    tracked_trainer<Gemm> run(exec_, model);
    for (auto const& batch : set.batches) way.losses.push_back(run.step(batch));
    run.times() = {};
    for (auto const& batch : set.batches) {
      auto const before = std::chrono::steady_clock::now();
      run.step(batch);
      way.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
      way.samples += batch.view().samples();
      way.work += amounts_of(exec_, model, batch.view());
      auto const every_row = tessera::expand(exec_, batch.view().inverse_keyed());
      auto expanded = batch.view();
      expanded.sparse = every_row.view();
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
  tessera::session_clicks_options const& options_;
  bool by_transformer_;
  std::vector<std::vector<std::string>> groups_;
  trainer_result& result_;
};

}  // namespace recd
