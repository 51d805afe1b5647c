// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/data/checked_samples.hpp>
#include <tessera/data/dedupe_model.hpp>
#include <tessera/data/preprocessing.hpp>
#include <tessera/data/preprocessing_file.hpp>
#include <tessera/data/sample_reader.hpp>
#include <tessera/tessera_files.hpp>
#include <tessera/train/pooling_choice.hpp>

#include "any_job.hpp"
#include "column_plan.hpp"
#include "data_columns.hpp"
#include "data_files.hpp"
#include "tables.hpp"

namespace examples {

/// Every kind of pooling that --pooling may name for sequences.
using any_pooling = tessera::pooling_choice<tessera::encoder_pooling, tessera::target_pooling>;
/// Samples that a model can learn from, of files of any kind.
using sample_log = tessera::checked_samples<tessera::any_sample_source>;

/// A run: the data, their preprocessing, and which of their columns are deduplicated.
class training_job : public any_job {
 public:
  using reader = tessera::sample_reader<sample_log, tessera::preprocessing>;

  /// Opens the files, fits the preprocessing to the training data where no checkpoint has it, and finds out what to deduplicate.
  explicit training_job(any_job base);
  training_job(training_job const&) = delete;

  std::int64_t train_rows() const { return train_->rows(); }
  std::int64_t test_rows() const { return test_->rows(); }
  std::uint32_t train_fingerprint() const { return train_->fingerprint(); }
  /// The name of each table's: the first column that reads it.
  std::vector<std::string> const& tables() const noexcept { return tables_; }
  /// What a checkpoint keeps of the columns.
  json description_json() const { return tessera::columns_json(data_); }

  /// Readers give this rank's part of every batch.
  reader train_reader() const { return {exec, *train_, *preprocess_, reader_options(s.batch_size, training_order())}; }
  reader test_reader() const { return {exec, *test_, *preprocess_, reader_options(2048, tessera::sample_order::stored)}; }
  std::vector<tessera::manifest_section> save_data(std::string const& folder) const {
    return {tessera::save_preprocessing(folder, *preprocess_)};
  }

  template <class Model>
  Model make_model() const {
    using interaction = typename Model::interaction_type;
    auto const weight = std::is_same_v<interaction, tessera::factorization> ? 1 : 0;  // of first order, behind the factors
    auto const dim_of = [&](std::string const& column) { return s.of_table(plan_.owner(column)).embedding_dim + weight; };
    check_own_tables(s, tables_);
    std::vector<tessera::table_spec> specs;
    for (auto const& name : tables_)
      specs.push_back(spec_of_table(s, static_cast<std::int64_t>(specs.size()), name, dim_of(name), table_rows(name)));
    std::vector<typename Model::group_type> groups;
    for (auto const& sequence : plan_.sequences) {
      bool const attends = sequence.kind == column_plan::pooled_by::attention;
      groups.push_back({sequence.columns, pooling_options(attends, dim_of(sequence.columns[0])),
                        attends ? plan_.bags[static_cast<std::size_t>(plan_.target)] : "", s.positions});
    }
    std::vector<tessera::table_feature> features;
    for (auto const& key : keys()) {
      auto const table = std::find(tables_.begin(), tables_.end(), plan_.owner(key)) - tables_.begin();
      auto const bag = std::find(plan_.bags.begin(), plan_.bags.end(), key);
      auto const pooling =
          bag == plan_.bags.end() ? tessera::pooling::sum : plan_.poolings[static_cast<std::size_t>(bag - plan_.bags.begin())];
      features.push_back({.name = key, .table = table, .sequence = bag == plan_.bags.end(), .pooling = pooling});
    }
    auto const dense = preprocess_->dense().features();
    auto const sums = s.dedup_sums == "expanded" ? tessera::shared_gradients::expanded : tessera::shared_gradients::merged;
    Model model(
        exec,
        {.dense_features = dense,
         .bottom_hidden = s.bottom,
         .top_hidden = s.top,
         .seed = tessera::random_seed{s.seed},
         .pooled = plan_.bags,
         .dim = s.embedding_dim + weight,
         .projects = true},
        {exec, comm, specs, std::move(features), make_plan(specs), {.codecs = tessera::parse_exchange_codecs(s.codec), .sums = sums}},
        interaction_options<interaction>(s), std::move(groups));
    print_model(*this, model, specs, dense);
    return model;
  }

 private:
  tessera::data_description description() const;
  column_list sparse_columns() const;
  void order_columns();
  void open_training_data();
  tessera::preprocessing make_preprocessing() const;
  tessera::sharding_plan make_plan(std::vector<tessera::table_spec> const& specs) const;
  /// Of a dense table; 0: of a hashed one, for ids without a bound. @throws tessera::error naming a column that has neither.
  std::int64_t table_rows(std::string const& column) const;

  /// Of a batch, in its order.
  column_list keys() const;

  static any_pooling::options pooling_options(bool attends, std::int64_t dim) {
    if (attends) return tessera::target_attention_options{};
    tessera::transformer_encoder_options options;
    options.heads = dim % 2 == 0 ? 2 : 1;
    return options;
  }

  bool has_sessions() const { return !data_.schema.session.empty(); }
  tessera::sample_order training_order() const;
  tessera::sample_reader_options reader_options(std::int64_t batch_size, tessera::sample_order order) const;
  void choose_groups();
  /// @throws tessera::error on all ranks where some have other data or options.
  void check_same_job() const;
  std::vector<column_list> recommended_groups(sample_log const& log) const;
  tessera::sample_columns some_samples(sample_log const& log) const;
  double samples_per_session(sample_log const& log) const;

  std::vector<std::string> test_files_;
  tessera::data_description data_;
  column_plan plan_;
  std::optional<sample_log> test_, train_;
  std::optional<tessera::preprocessing> preprocess_;
  std::vector<column_list> groups_;  // of the readers
  std::vector<std::string> tables_;
};

/// Trains or tests the model that the settings ask for. In train_ctr/training.cpp; what has no model in it is in train_ctr/training_job.cpp.
void run_job(training_job const& j);

}  // namespace examples
