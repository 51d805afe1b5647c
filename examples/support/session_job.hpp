// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/data/dedupe_model.hpp>
#include <tessera/data/sample_reader.hpp>
#include <tessera/tensor/id_pipeline.hpp>
#include <tessera/tessera_files.hpp>
#include <tessera/train/pooling_choice.hpp>

#include "any_job.hpp"
#include "session_log.hpp"
#include "session_plan.hpp"
#include "tables.hpp"

namespace examples {

/// Every kind of pooling that --pooling may name for sequences.
using any_pooling = tessera::pooling_choice<tessera::encoder_pooling, tessera::target_pooling>;

/// What becomes of ids: lists are cut, then ids hashed. It sees a list that repeats once.
struct session_ids {
  std::int64_t max_length;
  tessera::id_pipeline<tessera::host_exec, tessera::truncate_ids> cut;
  bool hashes;  // else ids are as they are
  tessera::id_pipeline<tessera::host_exec, tessera::hash_ids> hash;

  session_ids(tessera::host_exec const& exec, settings const& s, std::int64_t rows, column_list const& keys)
      : max_length(s.max_length),
        cut(exec, keys, tessera::truncate_ids{.most = s.max_length}),
        hashes(s.hash_table == 0),
        hash(exec, keys, tessera::hash_ids{.size = rows, .seed = s.seed}) {}

  template <class Batch>
  Batch operator()(tessera::host_exec const& exec, Batch batch) const {
    if (max_length > 0) batch = cut(exec, std::move(batch));
    if (hashes) batch = hash(exec, std::move(batch));
    return batch;
  }
};

/// A run on Parquet files whose samples come in sessions: the data, and which of their columns are deduplicated.
class session_job : public any_job {
 public:
  using reader = tessera::sample_reader<session_log, session_ids>;

  /// Opens the files, and finds out what to deduplicate.
  explicit session_job(any_job base) : any_job(std::move(base)), plan_(checked_plan(s)), test_(tessera::parquet_log({s.test}, schema())) {
    check_rows("--test", test_);
    std::printf("test: %lld samples\n", static_cast<long long>(test_rows()));
    if (!s.eval_only) {
      train_.emplace(tessera::parquet_log(s.train, schema()));
      check_rows("--train", *train_);
      std::printf("train: %lld samples\n", static_cast<long long>(train_rows()));
    }
    choose_groups();
    ids_.emplace(exec, s, table_rows(), keys());
  }
  session_job(session_job const&) = delete;

  std::int64_t train_rows() const { return train_->rows(); }
  std::int64_t test_rows() const { return test_.rows(); }
  std::uint32_t train_fingerprint() const { return train_->fingerprint(); }
  std::vector<std::string> features() const { return plan_.columns(); }

  reader train_reader() const { return {exec, *train_, *ids_, reader_options(groups_)}; }
  reader test_reader() const {
    auto options = reader_options(groups_);
    options.batch_size = 2048;
    options.order = tessera::sample_order::stored;
    return {exec, test_, *ids_, std::move(options)};
  }
  template <class Model>
  tessera::sort_ahead<Model> ahead(Model const& model) const {
    return tessera::sort_ahead(model);
  }

  std::vector<tessera::manifest_section> save_data(std::string const&) const { return {}; }

  template <class Model>
  Model make_model() const {
    tessera::table_list tables;
    auto const columns = plan_.columns();
    check_own_tables(s, columns);
    for (auto const& column : columns) add_table(*this, tables, column, s.of_table(column).embedding_dim, table_rows());
    std::vector<typename Model::group_type> groups;
    column_list sequences;
    for (auto const& sequence : plan_.sequences) {
      bool const attends = sequence.kind == session_plan::pooled_by::attention;
      groups.push_back({sequence.columns, pooling_options(attends, s.of_table(sequence.columns[0]).embedding_dim),
                        attends ? plan_.bags[static_cast<std::size_t>(plan_.target)] : ""});
      sequences.insert(sequences.end(), sequence.columns.begin(), sequence.columns.end());
    }
    std::vector<tessera::table_feature> features;
    for (auto const& key : keys()) {
      auto const table = std::find(columns.begin(), columns.end(), key) - columns.begin();
      auto const bag = std::find(plan_.bags.begin(), plan_.bags.end(), key);
      auto const pooling =
          bag == plan_.bags.end() ? tessera::pooling::sum : plan_.poolings[static_cast<std::size_t>(bag - plan_.bags.begin())];
      features.push_back({.name = key, .table = table, .sequence = bag == plan_.bags.end(), .pooling = pooling});
    }
    auto const dense = static_cast<std::int64_t>(schema().dense.size());
    auto const sums = s.dedup_sums == "expanded" ? tessera::shared_gradients::expanded : tessera::shared_gradients::merged;
    Model model(exec,
                {.dense_features = dense,
                 .bottom_hidden = s.bottom,
                 .top_hidden = s.top,
                 .seed = tessera::random_seed{s.seed},
                 .pooled = plan_.bags,
                 .dim = s.embedding_dim,
                 .projects = true},
                {std::move(tables), std::move(features), {.sums = sums}}, interaction_options<typename Model::interaction_type>(s),
                std::move(groups));
    print_model(model, dense);
    return model;
  }

 private:
  static session_plan checked_plan(settings const& s) {
    if (s.sparse_columns.empty())
      detail::refuse_option("--sparse-columns", "names at least one column of the file", kinds_of_columns(s.test));
    column_list all{s.label_column};
    auto const add = [&](char const* option, column_list const& names) {
      for (auto const& name : names) {
        if (std::find(all.begin(), all.end(), name) != all.end()) detail::refuse_option(option, "a column twice", {{"column", name}});
        all.push_back(name);
      }
    };
    add("--dense-columns", split(s.dense_columns, ','));
    add("--sparse-columns", split(s.sparse_columns, ','));
    if (s.order == "sessions" && s.session_column.empty()) detail::refuse_option("--order", "sessions need a --session-column", {});
    if (s.progressive && !s.order.empty() && s.order != "stored")
      detail::refuse_option("--progressive", "samples are tested in the order of the files", {{"--order", s.order}});
    return make_session_plan(s);
  }

  static void check_rows(char const* option, session_log const& log) {
    if (log.rows() == 0) detail::refuse_option(option, "no samples", {});
  }

  tessera::sample_schema schema() const {
    return {s.label_column, split(s.dense_columns, ','), plan_.columns(), s.session_column, s.time_column};
  }
  std::int64_t table_rows() const { return s.hash_size > 0 ? s.hash_size : 100'000; }

  /// Of a batch, in its order.
  column_list keys() const { return tessera::group_keys(plan_.columns(), groups_).keys; }

  static any_pooling::options pooling_options(bool attends, std::int64_t dim) {
    if (attends) return tessera::target_attention_options{};
    tessera::transformer_encoder_options options;
    options.heads = dim % 2 == 0 ? 2 : 1;
    return options;
  }

  tessera::sample_reader_options reader_options(std::vector<column_list> const& groups) const {
    using tessera::sample_order;
    tessera::sample_reader_options options;
    options.batch_size = s.batch_size;
    options.seed = tessera::random_seed{s.seed};
    options.dense = s.dense == "log" ? tessera::dense_values::log : tessera::dense_values::as_stored;
    options.groups = groups;
    options.order = s.progressive || s.order == "stored"                                    ? sample_order::stored
                    : s.order == "samples" || (s.order.empty() && s.session_column.empty()) ? sample_order::samples
                                                                                            : sample_order::sessions;
    return options;
  }

  void choose_groups() {
    std::vector<column_list> wanted;
    if (s.dedup == "auto" && !s.session_column.empty())
      wanted = recommended_groups(train_ ? *train_ : test_);
    else if (s.dedup != "auto" && s.dedup != "off")
      wanted = named_groups(s, plan_);
    groups_ = batch_groups(plan_, wanted);
    if (s.dedup == "auto" && s.session_column.empty()) return void(std::printf("dedup: off, there is no --session-column\n"));
    column_list shown;
    for (auto const& group : groups_) shown.push_back(join(group, "+"));
    std::printf("dedup: %s\n", shown.empty() ? "off" : join(shown, ",").c_str());
  }

  /// What the first samples suggest for batches as they will come.
  std::vector<column_list> recommended_groups(session_log const& log) const {
    constexpr std::int64_t enough = 8192;
    tessera::recommend_groups_options options;
    options.samples_per_session = samples_per_session(log, enough);
    tessera::sample_columns block, sample(log.schema());
    log.read(exec, 0, block);
    sample.append(exec, block.view(), 0, std::min(enough, block.size()));
    if (auto const times = sample.view().times; !times.empty()) sample = tessera::sorted_by(exec, sample, times);
    auto const found = tessera::recommend_groups(exec, sample.view(), options);

    auto const columns = plan_.columns();
    std::printf("%.1f samples a session in a batch; by column, how many times fewer ids without repeats:\n", options.samples_per_session);
    for (std::size_t f = 0; f < columns.size(); ++f) {
      auto const& reason = found.features[f];
      std::printf("  %s %.2f%s\n", columns[f].c_str(), reason.factor,
                  reason.group < 0 ? "" : text(" group %d", static_cast<int>(reason.group) + 1).c_str());
    }
    return tessera::group_names(columns, found.groups);
  }

  double samples_per_session(session_log const& log, std::int64_t enough) const {
    tessera::sample_reader batches(exec, log, reader_options({}));
    std::int64_t samples = 0, sessions = 0;
    for (tessera::batch_view batch; samples < enough && batches.next(exec, batch);) {
      samples += batch.samples();
      sessions += static_cast<std::int64_t>(std::set<std::int64_t>(batch.session_ids.begin(), batch.session_ids.end()).size());
    }
    return static_cast<double>(samples) / static_cast<double>(sessions);
  }

  session_plan plan_;
  session_log test_;
  std::optional<session_log> train_;
  std::vector<column_list> groups_;  // of the readers
  std::optional<session_ids> ids_;
};

}  // namespace examples
