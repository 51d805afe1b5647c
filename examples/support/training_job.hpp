// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/columns_file.hpp>
#include <tessera/data/preprocessing.hpp>
#include <tessera/data/preprocessing_file.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/sample_reader_options.hpp>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/nn/target_attention.hpp>
#include <tessera/nn/transformer_encoder.hpp>
#include <tessera/plan/found_plan_file.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/tower/feature_affinity.hpp>
#include <tessera/tower/split_columns.hpp>
#include <tessera/tower/tower_partition.hpp>
#include <tessera/train/pooling_choice.hpp>
#include <tessera/train/sequence_pooler.hpp>

#include "any_job.hpp"
#include "column_plan.hpp"
#include "data_columns.hpp"
#include "data_files.hpp"
#include "hot_batches.hpp"
#include "sources.hpp"
#include "tables.hpp"
#include "training_reader.hpp"

namespace examples {

/// Every kind of pooling that --pooling may name for sequences.
using any_pooling = tessera::pooling_choice<tessera::encoder_pooling, tessera::target_pooling>;

/// A run: the data, their preprocessing, and which of their columns are deduplicated.
class training_job : public any_job {
 public:
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
  training_reader train_reader() const {
    return {exec, *train_, *preprocess_, reader_options(s.batch_size, training_order()), s.read == "blocks"};
  }
  training_reader::slices test_reader() const { return {exec, *test_, *preprocess_, reader_options(2048, tessera::sample_order::stored)}; }
  std::vector<tessera::manifest_section> save_data(std::string const& folder) const {
    return {tessera::save_preprocessing(folder, *preprocess_)};
  }

  /// The features, in the order of a batch's keys, and what is read of each.
  column_list const& features() const noexcept { return features_; }
  std::vector<tessera::table_feature> table_features() const;
  /// Where the ranks are.
  tessera::topology const& where() const noexcept { return *where_; }
  /// Which features make which tower, where there are towers and they are known.
  std::optional<tessera::tower_partition> const& towers() const noexcept { return towers_; }
  /// What towers are made of: the features, or pieces of them where there are more towers.
  column_list const& tower_features() const noexcept { return tower_features_; }
  /// Whether towers are to be learned: then `set_towers` comes before `make_model`.
  bool learns_towers() const noexcept { return s.has_towers() && !towers_; }
  void set_towers(tessera::tower_partition towers);
  /// Makes towers of features by their affinity: JSON as `tessera::towers_json`. Writes a file and a page of them beside checkpoints.
  std::string partition(tessera::affinity_matrix const& affinity) const;

  /// Of all samples, for a model that one rank trains alone.
  training_reader::slices probe_reader() const {
    auto options = reader_options(s.batch_size, training_order());
    options.slice.rank = 0;
    options.slice.ranks = 1;
    return {exec, *train_, *preprocess_, options};
  }
  /// Finds out which rows and samples are hot, where the settings ask for it. All ranks call it, before `make_model`.
  void choose_hot();
  /// Null where none are.
  hot_batches const* hot() const noexcept { return hot_ ? &*hot_ : nullptr; }
  /// The batches of a run that has hot rows.
  std::unique_ptr<class_run_reader> class_reader(bool reads_ahead) const {
    return make_class_reader(s, exec, *hot_, *preprocess_, reader_options(s.batch_size, training_order()), reads_ahead);
  }

  /// A model without towers of this rank alone.
  template <class Model>
  Model make_probe() const {
    auto const specs = make_specs();
    return make_model<Model>({specs, table_features(), tessera::plan_by_bytes(specs, 1), tessera::self_communicator(),
                              tessera::topology::flat(1), std::nullopt, std::nullopt, nullptr});
  }
  /// Finds out which rank holds what. All ranks call it, before `make_model`.
  void choose_plan();
  /// Who holds what, with what was predicted of it if a file says so.
  tessera::predicted_plan const& planned() const noexcept { return planned_; }
  /// What --plan says, or said to the run whose plan is kept.
  std::string const& plan_name() const noexcept { return plan_name_; }
  /// Whether a file says what the plan is, so that a checkpoint keeps it.
  bool is_planned_by_file() const noexcept { return plan_name_ != "bytes" && plan_name_ != "cut" && plan_name_ != "round-robin"; }
  /// All ranks call it.
  template <class Model>
  Model make_model() const {
    auto const specs = all_specs();
    auto model =
        make_model<Model>({specs, split_ ? split_->features : table_features(), planned_.plan, comm, where(), towers_, split_, hot()});
    print_model(*this, model, specs, preprocess_->dense().features());
    if (towers_ && s.has_modules()) say_compression(model.source().outputs());
    return model;
  }

 private:
  // A weight of first order stands behind the factors.
  std::int64_t first_order() const { return s.model == "deepfm" ? 1 : 0; }
  std::int64_t row_dim(std::string const& column) const { return s.of_table(plan_.owner(column)).embedding_dim + first_order(); }

  template <class Model>
  Model make_model(source_parts parts) const {
    using interaction = typename Model::interaction_type;
    std::vector<typename Model::group_type> groups;
    for (auto const& sequence : plan_.sequences) {
      bool const attends = sequence.kind == column_plan::pooled_by::attention;
      groups.push_back({sequence.columns, pooling_options(attends, row_dim(sequence.columns[0])),
                        attends ? plan_.bags[static_cast<std::size_t>(plan_.target)] : "", s.positions});
    }
    bool const has_modules = parts.towers && s.has_modules();
    return Model(exec,
                 {.dense_features = preprocess_->dense().features(),
                  .bottom_hidden = s.bottom,
                  .top_hidden = s.top,
                  .seed = tessera::random_seed{s.seed},
                  .pooled = has_modules ? column_list() : plan_.bags,  // what modules make, in its order
                  .dim = has_modules ? s.tower_width() : s.embedding_dim + first_order(),
                  .projects = true},
                 make_source(s, exec, std::move(parts)), interaction_options<interaction>(s), std::move(groups));
  }

  tessera::data_description description() const;
  column_list sparse_columns() const;
  void order_columns();
  void open_training_data();
  void check_towers() const;
  void find_hosts();
  void choose_towers();
  std::int64_t tower_count() const;
  /// How much fewer numbers of a sample modules make than they read.
  void say_compression(tessera::vector_view<tessera::embedding_output const> made) const;
  /// Cuts tables by columns until there are as many features as towers. @throws tessera::error naming --towers where they are too narrow.
  void split_for(std::int64_t towers);
  /// Of JSON as `tessera::towers_json`, which may have more towers than there are features.
  void set_towers(nlohmann::json const& json, std::string const& file);
  /// Of whole tables.
  std::vector<tessera::table_spec> make_specs() const;
  /// Of the tables that are made: whole ones, or pieces.
  std::vector<tessera::table_spec> all_specs() const { return split_ ? split_->specs : make_specs(); }
  tessera::preprocessing make_preprocessing() const;
  tessera::predicted_plan said_plan(std::vector<tessera::table_spec> const& specs) const;
  tessera::sharding_plan tower_plan(std::vector<tessera::table_spec> const& specs) const;
  std::vector<std::int64_t> ids_a_sample() const;
  std::optional<tessera::predicted_plan> kept_plan(std::vector<tessera::table_spec> const& specs) const;
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
  column_list features_;
  std::optional<tessera::topology> where_;
  std::optional<tessera::tower_partition> towers_;
  std::optional<tessera::split_tables> split_;
  column_list tower_features_;
  std::optional<hot_batches> hot_;
  tessera::predicted_plan planned_;
  std::string plan_name_;
};

/// Trains or tests the model that the settings ask for. In train_ctr/models.cpp; what has no model in it is in train_ctr/training_job.cpp.
void run_dlrm(training_job& j);
void run_dcn(training_job& j);
void run_deepfm(training_job& j);
void run_job(training_job& j);

}  // namespace examples
