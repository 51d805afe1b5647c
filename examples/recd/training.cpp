// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tessera/data/parquet_log.hpp>

#include "results.hpp"

namespace recd {

namespace {

using namespace tessera;
using session_dlrm = session_model<dense_table<>, eigen_gemm, dot_products, encoder_pooling>;

constexpr std::int64_t dim = 64;
rowwise_adagrad const row_optimizer{.learning_rate = 0.02F};

/// What becomes of the features of a set: sequences of a group by a transformer together or each by sum, users by sum and maximum in turn, items
/// by sum.
session_dlrm make_model(host_exec const& exec, session_clicks_options const& options, bool by_transformer,
                        std::vector<std::string> const& keys, pooled_rows rows) {
  std::vector<dense_table<>> tables;
  std::vector<sequence_group<encoder_pooling>> groups;
  std::vector<pooled_feature> features;
  std::int64_t users = 0, last_group = -1;
  for (auto const& key : keys) {
    auto const feature = std::find_if(options.features.begin(), options.features.end(), [&](auto const& f) { return f.name == key; });
    auto const table = static_cast<std::int64_t>(tables.size());
    tables.emplace_back(
        exec, table_options{.id = table_id(table), .dim = dim, .rows = feature->ids, .init_bound = 0.05F, .seed = random_seed(17)},
        row_optimizer);
    if (by_transformer && feature->kind == session_feature_kind::sequence) {
      if (groups.empty() || feature->group < 0 || feature->group != last_group)
        groups.emplace_back(std::vector<std::int64_t>{}, transformer_encoder_options{.layers = 1, .heads = 2, .hidden = 128});
      last_group = feature->group;
      groups.back().tables.push_back(table);
    } else {
      bool const is_largest = feature->kind == session_feature_kind::user && users++ % 2 == 1;
      features.push_back({table, is_largest ? pooling::max : pooling::sum});
    }
  }
  click_model_options const dense(options.dense_features, {512, 256}, {512, 256}, random_seed(17));
  return {exec, dense, std::move(tables), std::move(groups), std::move(features), {}, rows};
}

/// Batches of a log, in memory: expanded, or with their repeated rows once.
std::vector<batch_copy> read_batches(host_exec const& exec, memory_log const& log, std::vector<std::vector<std::string>> const& groups,
                                     bool shared, std::int64_t size, std::vector<std::string>& keys) {
  stored_ids const as_they_are;
  sample_reader_options options;
  options.batch_size = size;
  options.groups = groups;
  sample_reader reader(exec, log, as_they_are, options);
  keys = reader.keys();
  std::vector<batch_copy> batches;
  for (batch_view batch; reader.next(exec, batch);) {
    std::optional<keyed_jagged<>> expanded;
    if (!shared) {
      expanded = expand(exec, batch.inverse_keyed());
      batch.sparse = std::as_const(*expanded).view();
      batch.groups = {};
    }
    batches.emplace_back().assign(exec, batch);
  }
  return batches;
}

sample_columns sorted_by(host_exec const& exec, sample_schema const& schema, sample_columns_view samples,
                         vector_view<std::int64_t const> key) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(samples.size()));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(), [key](std::int64_t a, std::int64_t b) { return key[a] < key[b]; });
  sample_columns sorted(schema);
  sorted.append(exec, samples, order);
  return sorted;
}

/// The same samples in two orders.
struct two_orders {
  memory_log inference, clustered;

  /// Takes over samples sorted by session; the other order is that of their times.
  two_orders(host_exec const& exec, sample_schema const& schema, sample_columns sorted)
      : inference(schema, sorted_by(exec, schema, sorted.view(), sorted.view().times)), clustered(schema, std::move(sorted)) {}
};

// A step on each batch in turn, after one on the largest that is not timed and makes room for all.
training_result train(host_exec const& exec, std::string name, session_dlrm& model, std::vector<batch_copy> const& batches) {
  system_memory memory;
  arena workspace(memory);
  tracked_memory tracked(workspace);  // counts what is in use, not what the arena keeps
  auto const step_exec = exec.with_memory(tracked);
  training_result result;
  result.name = std::move(name);
  trainer run(exec, model, row_optimizer, adam{.learning_rate = 1e-3F});
  auto const largest = std::max_element(batches.begin(), batches.end(), [](auto const& a, auto const& b) { return a.bytes() < b.bytes(); });
  run.step(step_exec, largest->view());
  run.saved().times = {};
  for (auto const& batch : batches) {
    auto const before = std::chrono::steady_clock::now();
    result.loss = run.step(step_exec, batch.view());
    result.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
    result.batch = std::max(result.batch, batch.view().samples());
    result.samples += batch.view().samples();
  }
  auto const& saved = run.saved();
  for (auto const& sequences : saved.sequences) result.sequence_bytes += 2 * sequences.vectors.capacity_bytes();
  for (auto const& pooled : saved.pooled) result.sequence_bytes += pooled.encoder.values.capacity_bytes();
  result.times = saved.times;
  result.peak_bytes = tracked.peak_bytes() + largest->bytes();
  std::printf("  %-12s batch %6lld  %8.0f samples/s  peak %6.2f GB\n", result.name.c_str(), static_cast<long long>(result.batch),
              result.rate(), static_cast<double>(result.peak_bytes) / 1e9);
  std::fflush(stdout);
  return result;
}

/// Trains on the same samples in the ways of the paper's ladder.
class ladder {
 public:
  ladder(host_exec const& exec, session_clicks_options const& options, bool by_transformer, trainer_result& result)
      : exec_(exec), options_(options), by_transformer_(by_transformer), groups_(groups_of(options)), result_(result) {
    std::printf("training, %s\n", result.set.c_str());
  }

  training_result const& add(std::string name, memory_log const& log, bool shared, pooled_rows rows, std::int64_t batch) {
    std::vector<std::string> keys;
    auto const batches = read_batches(exec_, log, groups_, shared, batch, keys);
    auto model = make_model(exec_, options_, by_transformer_, keys, rows);
    return result_.ways.emplace_back(train(exec_, std::move(name), model, batches));
  }

  // Ids with every row, over those of distinct rows.
  void count(memory_log const& log, std::int64_t batch) {
    std::vector<std::string> keys;
    double all[2] = {}, distinct[2] = {};  // of bags, of sequences that a transformer pools
    for (auto const& copy : read_batches(exec_, log, groups_, true, batch, keys)) {
      auto const view = copy.view().inverse_keyed();
      auto const expanded = expand(exec_, view);
      for (std::int64_t key = 0; key < view.keys(); ++key) {
        auto const kind = by_transformer_ && feature(keys[static_cast<std::size_t>(key)]).kind == session_feature_kind::sequence ? 1 : 0;
        all[kind] += static_cast<double>(expanded.view().key(key).size());
        distinct[kind] += static_cast<double>(view.distinct.key(key).size());
      }
    }
    result_.factor = (all[0] + all[1]) / (distinct[0] + distinct[1]);
    result_.bag_factor = all[0] / distinct[0];
    result_.sequence_factor = by_transformer_ ? all[1] / distinct[1] : 1;
  }

 private:
  session_feature const& feature(std::string const& name) const {
    return *std::find_if(options_.features.begin(), options_.features.end(), [&](auto const& f) { return f.name == name; });
  }

  host_exec const& exec_;
  session_clicks_options const& options_;
  bool by_transformer_;
  std::vector<std::vector<std::string>> groups_;
  trainer_result& result_;
};

// Of two rounds of the same ways.
void keep_faster(trainer_result& result) {
  auto const half = result.ways.size() / 2;
  for (std::size_t w = 0; w < half; ++w)
    if (result.ways[half + w].seconds < result.ways[w].seconds) result.ways[w] = result.ways[half + w];
  result.ways.resize(half);
}

}  // namespace

training_result const& trainer_result::of(std::string const& name) const {
  for (auto const& way : ways)
    if (way.name == name) return way;
  throw std::out_of_range(name);
}

double trainer_result::bound() const {
  auto const& t = ways.front().times;
  auto const of_sequences = t.sequence_lookup + t.pooling + t.sequence_update, of_bags = t.pooled_lookup + t.pooled_update;
  return (t.dense + of_sequences + of_bags) / (t.dense + of_sequences / sequence_factor + of_bags / bag_factor);
}

double trainer_result::expected_memory() const {
  auto const& first = ways.front();
  auto const share = static_cast<double>(first.sequence_bytes) / static_cast<double>(first.peak_bytes);
  return 1 - share * (1 - 1 / sequence_factor);
}

session_clicks_options log_options(plan const& plan, session_clicks_options options, std::int64_t rows) {
  options = scaled_down(std::move(options), plan.scale);
  options.window_sessions = std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(rows) / options.mean_samples));
  options.windows = 1;
  return options;
}

std::vector<std::vector<std::string>> groups_of(session_clicks_options const& options) {
  std::vector<std::vector<std::string>> groups;
  std::int64_t last = -1;
  for (auto const& feature : options.features) {
    if (feature.kind != session_feature_kind::sequence) continue;
    if (groups.empty() || feature.group < 0 || feature.group != last) groups.emplace_back();
    last = feature.group;
    groups.back().push_back(feature.name);
  }
  for (auto const& feature : options.features)
    if (feature.kind == session_feature_kind::user) groups.push_back({feature.name});
  return groups;
}

trainer_result train_rm1(host_exec const& exec, plan const& plan, storage_result const& stored) {
  auto const options = log_options(plan, rm1_sessions(), plan.rows);
  auto const schema = session_clicks(exec, options).schema();
  parquet_log const clustered({stored.clustered}, schema);
  sample_columns samples(schema), block(schema);
  for (std::int64_t b = 0; b < clustered.block_count() && samples.size() < plan.steps * plan.batch; ++b) {
    clustered.read(exec, b, block);
    samples.append(exec, block.view(), 0, std::min(block.size(), plan.steps * plan.batch - samples.size()));
  }
  two_orders const logs(exec, schema, std::move(samples));
  trainer_result result;
  result.set = "RM1-like";
  ladder steps(exec, options, true, result);
  auto const before = steps.add("baseline", logs.inference, false, pooled_rows::distinct, plan.batch).peak_bytes;
  steps.count(logs.clustered, plan.batch);
  steps.add("clustered", logs.clustered, false, pooled_rows::distinct, plan.batch);
  steps.add("+ O5, O6", logs.clustered, true, pooled_rows::expanded, plan.batch);
  auto const shared = steps.add("+ O7", logs.clustered, true, pooled_rows::distinct, plan.batch).peak_bytes;
  // The batch grows to the baseline's peak, in which memory is nearly linear.
  auto const room = 0.95 * static_cast<double>(before) / static_cast<double>(shared) * static_cast<double>(plan.batch);
  steps.add("+ batch", logs.clustered, true, pooled_rows::distinct, std::max(plan.batch, static_cast<std::int64_t>(room) / 64 * 64));
  return result;
}

trainer_result train_set(host_exec const& exec, plan const& plan, std::string const& name, session_clicks_options set) {
  auto const options = log_options(plan, std::move(set), plan.steps * plan.batch);
  session_clicks clicks(exec, options);
  auto const schema = clicks.schema();
  sample_columns log(schema);
  clicks.next(exec, 4 * plan.steps * plan.batch, log);
  two_orders const logs(exec, schema, sorted_by(exec, schema, log.view(), log.view().sessions));
  trainer_result result;
  result.set = name;
  ladder steps(exec, options, false, result);
  steps.count(logs.clustered, plan.batch);
  // Twice in turn, the faster of each: these steps are short.
  for (int round = 0; round < 2; ++round) {
    steps.add("baseline", logs.inference, false, pooled_rows::distinct, plan.batch);
    steps.add("RecD", logs.clustered, true, pooled_rows::distinct, plan.batch);
  }
  keep_faster(result);
  return result;
}

trainer_result train_without_repeats(host_exec const& exec, plan const& plan) {
  auto options = no_repeats();
  options.window_sessions = plan.steps * plan.batch;
  options.windows = 1;
  session_clicks clicks(exec, options);
  auto const schema = clicks.schema();
  sample_columns log(schema);
  clicks.next(exec, plan.steps * plan.batch, log);
  auto const advice = recommend_groups(exec, log.view());
  memory_log const stored(schema, std::move(log));
  trainer_result result;
  result.set = "no repeats";
  ladder steps(exec, options, false, result);
  std::printf("  %zu groups recommended\n", advice.groups.size());
  for (int round = 0; round < 2; ++round) {
    steps.add("baseline", stored, false, pooled_rows::distinct, plan.batch);
    // What is recommended: nothing, so the same batches; and every feature of users and sequences forced into groups.
    steps.add("auto", stored, !advice.groups.empty(), pooled_rows::distinct, plan.batch);
    steps.add("forced", stored, true, pooled_rows::distinct, plan.batch);
  }
  keep_faster(result);
  return result;
}

}  // namespace recd
