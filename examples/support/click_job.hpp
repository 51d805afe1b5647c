// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/tessera_files.hpp>

#include "any_job.hpp"
#include "tables.hpp"

namespace examples {

/// A run on files in Criteo's layout: the data and their preprocessing.
struct click_job : any_job {
  std::optional<tessera::click_log> train, test;
  std::optional<tessera::preprocessing> preprocess;

  std::int64_t train_rows() const { return train->rows(); }
  std::int64_t test_rows() const { return test->rows(); }
  std::uint32_t train_fingerprint() const { return train->fingerprint(); }
  std::vector<std::string> features() const {
    std::vector<std::string> names;
    for (std::int64_t f = 0; f < preprocess->sparse_features(); ++f) names.push_back(preprocess->sparse_name(f));
    return names;
  }

  tessera::batch_reader train_reader() const {
    return {exec, *train, *preprocess, {.batch_size = s.batch_size, .seed = tessera::random_seed{s.seed}, .shuffle = !s.progressive}};
  }
  tessera::batch_reader test_reader() const { return {exec, *test, *preprocess, {.batch_size = 2048, .shuffle = false}}; }
  template <class Model>
  tessera::sort_ahead<Model> ahead(Model const& model) const {
    return tessera::sort_ahead(model);
  }

  std::vector<tessera::manifest_section> save_data(std::string const& folder) const {
    return {tessera::save_preprocessing(folder, *preprocess)};
  }

  template <class Model>
  Model make_model() const {
    using interaction = typename Model::interaction_type;
    auto const weight = std::is_same_v<interaction, tessera::factorization> ? 1 : 0;  // of first order, behind the factors
    auto const names = features();
    check_own_tables(s, names);
    tessera::table_list tables;
    std::vector<tessera::table_feature> inputs;
    for (std::size_t f = 0; f < names.size(); ++f) {
      auto const dim = s.of_table(names[f]).embedding_dim + weight;
      auto const table = add_table(*this, tables, names[f], dim, preprocess->id_count(static_cast<std::int64_t>(f)));
      inputs.push_back({.name = names[f], .table = table});
    }
    auto const dense = preprocess->dense_features();
    Model model(exec,
                {.dense_features = dense,
                 .bottom_hidden = s.bottom,
                 .top_hidden = s.top,
                 .seed = tessera::random_seed{s.seed},
                 .dim = s.embedding_dim + weight,
                 .projects = true},
                {std::move(tables), std::move(inputs)}, interaction_options<interaction>(s));
    print_model(model, dense);
    return model;
  }
};

/// Trains or tests the model that the settings ask for. In train_ctr/clicks.cpp.
void run_job(click_job const& j);

}  // namespace examples
