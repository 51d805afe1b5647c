// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/data/dense_pipeline.hpp>
#include <tessera/data/sample_schema.hpp>
#include <tessera/data/sparse_pipeline.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Makes what a model reads of samples as a data set stores them: a `dense_pipeline` and a `sparse_pipeline` of one schema.
///
///     preprocessing const unfitted(schema, {{.steps = {log_values{}}}}, {{.steps = {vocabulary{.min_count = 5}}}});
///     preprocessing_fit fit(unfitted);
///     …                          // fit.add(exec, block) for the training data
///     auto const fitted = std::move(fit).finish(exec);
///
/// A preprocessing whose steps need no data is fitted from the start and drops nothing. Move-only.
class preprocessing {
 public:
  /// A reader leaves `missing_id` in columns of single ids, for the sparse pipeline.
  static constexpr bool takes_missing = true;

  preprocessing() = default;
  /// Takes rules for the schema's columns. A column without a rule is as it is stored: a missing number becomes 0, a missing id an empty
  /// row.
  /// @throws tessera::error as `check_schema`, `dense_pipeline` and `sparse_pipeline`.
  explicit preprocessing(sample_schema schema, std::vector<dense_rule> const& dense = {}, std::vector<sparse_rule> const& sparse = {})
      : schema_(checked(std::move(schema))), dense_(schema_.dense, dense), sparse_(schema_, sparse) {}
  /// Takes fitted parts. @pre the parts are of the schema.
  preprocessing(sample_schema schema, dense_pipeline dense, sparse_pipeline sparse)
      : schema_(std::move(schema)), dense_(std::move(dense)), sparse_(std::move(sparse)) {}

  /// The schema of the samples.
  sample_schema const& schema() const noexcept { return schema_; }
  /// What becomes of dense columns.
  dense_pipeline const& dense() const noexcept { return dense_; }
  /// What becomes of sparse columns.
  sparse_pipeline const& sparse() const noexcept { return sparse_; }
  /// Whether no step is left to a `preprocessing_fit`.
  bool is_fitted() const noexcept { return !dense_.needs_fit() && !sparse_.needs_fit(); }

  /// The columns that were empty everywhere in the training data. They give no feature or key. Dense columns come first, then sparse ones,
  /// each name once.
  std::vector<std::string> dropped() const {
    auto names = dense_.dropped();
    for (auto const& name : sparse_.dropped())
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    return names;
  }

  /// Returns what becomes of batches that have these keys, in this order: a function `(exec, inverse_keyed_jagged<>&&) ->
  /// inverse_keyed_jagged<>`. Its `keys()` are the keys that are not dropped. The function refers to this object. @throws tessera::error as
  /// `sparse_pipeline::of_keys`.
  bound_ids of_keys(std::vector<std::string> const& keys) const& { return sparse_.of_keys(keys); }
  bound_ids of_keys(std::vector<std::string> const& keys) const&& = delete;

  /// Bytes of memory, mostly of the vocabularies.
  std::size_t bytes() const noexcept { return sizeof(*this) - sizeof(sparse_) + sparse_.bytes(); }

  /// Whether both have the same schema and rules, and make the same features and ids.
  friend bool operator==(preprocessing const& a, preprocessing const& b) {
    return a.schema_ == b.schema_ && a.dense_ == b.dense_ && a.sparse_ == b.sparse_;
  }

 private:
  static sample_schema checked(sample_schema schema) {
    check_schema("preprocessing", schema);
    return schema;
  }

  sample_schema schema_;
  dense_pipeline dense_;
  sparse_pipeline sparse_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
