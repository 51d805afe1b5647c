// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/embed/local_tables.hpp>
#include <tessera/train/trainer.hpp>

namespace tessera_tests {

/// Tables of one type, with an optimizer each as this one, or as the one that is chosen of a variant.
template <class Store, class Optimizer>
tessera::table_list listed(std::vector<Store> tables, Optimizer const& optimizer) {
  tessera::table_list list;
  for (auto& table : tables) tessera::with_optimizer(optimizer, [&](auto const& chosen) { list.add(std::move(table), chosen); });
  return list;
}

/// Features "0", "1", ... of a batch's keys: so many sequences, of the first tables, then bags, pooled so.
inline std::vector<tessera::table_feature> named(std::int64_t sequences, std::vector<tessera::pooled_feature> const& features) {
  std::vector<tessera::table_feature> all;
  for (std::int64_t key = 0; key < sequences; ++key) all.push_back({.name = std::to_string(key), .table = key, .sequence = true});
  for (auto const& feature : features)
    all.push_back({.name = std::to_string(all.size()), .table = feature.table, .pooling = feature.pooling});
  return all;
}

/// The source of a model of such tables and bags.
template <class Store, class Optimizer>
tessera::local_tables source_of(std::vector<Store> tables, std::vector<tessera::pooled_feature> const& features, Optimizer const& optimizer,
                                tessera::local_tables_options const& options = {}) {
  return {listed(std::move(tables), optimizer), named(0, features), options};
}

/// The tables of a model whose source has them all, of one type.
template <class Store, class Model>
std::vector<Store*> tables_of(Model& model) {
  std::vector<Store*> all;
  for (std::int64_t t = 0; t < model.source().table_count(); ++t) all.push_back(&model.source().template store<Store>(t));
  return all;
}

/// Gives every table of the model this optimizer's rates.
template <class Model, class Optimizer>
void set_row_optimizers(Model& model, Optimizer const& optimizer) {
  for (std::int64_t t = 0; t < model.source().table_count(); ++t)
    tessera::with_optimizer(optimizer, [&]<class Chosen>(Chosen const& chosen) { model.source().template optimizer<Chosen>(t) = chosen; });
}

}  // namespace tessera_tests
