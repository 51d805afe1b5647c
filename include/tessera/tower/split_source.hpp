// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/embed/lookup_checks.hpp>
#include <tessera/embed/source_adaptor.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/embed/table_places.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tower/split_columns.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// A batch in which the key of a feature stands once for each of its pieces. Its memory is kept from batch to batch.
class repeated_keys {
 public:
  /// The copy lives until the next call. @throws tessera::error shape_mismatch for a batch of other keys; as `validate_batch`.
  batch_view make(host_exec const& exec, batch_view const& batch, std::int64_t features, std::vector<column_piece> const& pieces) {
    auto repeated = batch;
    repeated.key_names = {};  // those of features
    repeated.groups = {};
    repeated.sparse = {};
    auto const& sparse = batch.sparse;
    if (sparse.keys != features)
      throw error(errc::shape_mismatch, "split_source: one key a feature", {{"keys", sparse.keys}, {"features", features}});
    validate_batch(exec, sparse);
    std::int64_t values = 0;
    first_row_.assign(1, 0);
    for (auto const& piece : pieces) {
      values += sparse.key(piece.of).size();
      first_row_.push_back(first_row_.back() + sparse.rows(piece.of));
    }
    values_.resize(exec, values);
    weights_.resize(exec, sparse.weighted() ? values : 0);
    offsets_.resize(exec, first_row_.back() + 1);
    offsets_[0] = 0;
    std::int64_t next = 0, row = 0;
    for (auto const& piece : pieces) {
      auto const bags = sparse.key(piece.of);
      auto const first = bags.rows == 0 ? 0 : bags.offsets[0];
      std::copy_n(bags.values + first, bags.size(), values_.data() + next);
      if (sparse.weighted()) std::copy_n(sparse.weights + first, bags.size(), weights_.data() + next);
      for (std::int64_t r = 0; r < bags.rows; ++r) offsets_[++row] = next + bags.end_of(r) - first;
      next += bags.size();
    }
    groups_.clear();
    for (auto const& group : batch.groups) {
      auto own = group;
      auto const before = [&](std::int64_t key) {  // pieces of earlier keys
        return std::count_if(pieces.begin(), pieces.end(), [&](auto const& piece) { return piece.of < key; });
      };
      own.first_key = before(group.first_key);
      own.keys = before(group.first_key + group.keys) - own.first_key;
      groups_.push_back(own);
    }
    repeated.groups = groups_;
    repeated.sparse = {values_.data(),    sparse.weighted() ? weights_.data() : nullptr, offsets_.data(),
                       first_row_.data(), static_cast<std::int64_t>(pieces.size()),      values};
    return repeated;
  }

  std::size_t bytes() const noexcept { return values_.capacity_bytes() + offsets_.capacity_bytes() + weights_.capacity_bytes(); }

 private:
  std::vector<std::int64_t> first_row_;
  std::vector<row_group> groups_;
  buffer<std::int64_t> values_, offsets_;
  buffer<float> weights_;
};

}  // namespace detail

/// What a `split_source` keeps of a batch, beside what the inner source keeps.
template <embedding_source Inner>
struct split_saved : Inner::saved_type {
  detail::repeated_keys keys, next_keys;       ///< the batch of the inner source, and room for the next one
  std::exception_ptr failure;                  ///< why the batch cannot be read, where other ranks are to hear of it first
  std::vector<matrix_view<float>> out;         ///< where it writes
  std::vector<matrix_view<float const>> read;  ///< gradients that it reads
};

/// Gives the vectors of whole features of a source whose tables were cut by `split_columns`. Batches are of the whole features: each key goes
/// to all its pieces. Outputs that are read from pieces of one feature are one output, in whose columns they stand side by side. What modules
/// make of pieces stays as it is, and is of no one key.
///
/// Where the optimizer has no row-wise state and clips by no norm, it gives and learns the bits of whole tables. `places()` says where in the
/// whole tables the pieces lie, so that checkpoints are theirs. A block of other columns than its output's is refused by the inner source,
/// which sees it without columns; and so on all ranks. See `embedding_source`.
template <embedding_source Inner>
class split_source : public source_adaptor<Inner> {
  using base = source_adaptor<Inner>;

 public:
  using saved_type = split_saved<Inner>;

  /// `split` is what the inner source's tables and features are of.
  /// @throws tessera::error invalid_argument, naming output and key, for a source that has other features.
  split_source(Inner inner, split_tables const& split)
      : base(std::move(inner)),
        pieces_(split.of_features),
        of_tables_(split.of_tables),
        tables_(split.tables),
        features_(static_cast<std::int64_t>(split.whole.size())) {
    std::vector<std::int64_t> output_of(split.whole.size(), -1);
    for (std::int64_t o = 0; o < base::outputs().size(); ++o) {
      auto output = base::outputs()[o];
      if (output.key >= static_cast<std::int64_t>(pieces_.size()) ||
          (output.key >= 0 && output.table >= 0 && pieces_[at(output.key)].columns != output.width))
        throw error(errc::invalid_argument, "split_source: an output of no piece",
                    {{"output", o}, {"key", output.key}, {"width", output.width}, {"pieces", pieces_.size()}});
      bool const is_read = output.key >= 0 && output.table >= 0;
      if (is_read) {
        auto const& piece = pieces_[at(output.key)];
        auto const& whole = split.whole[at(piece.of)];
        auto& number = output_of[at(piece.of)];
        if (number < 0) {
          number = static_cast<std::int64_t>(outputs_.size());
          output.name = whole.name;
          output.width = tables_[at(whole.table)].dim;
          output.key = piece.of;
          output.table = whole.table;
          outputs_.push_back(output);
        }
        parts_.push_back({number, piece.first_column, piece.columns});
        continue;
      }
      // A name is of one output: what is made of one piece of several is not what its key is named by.
      if (output.key >= 0) {
        auto const& piece = pieces_[at(output.key)];
        output.key = piece.columns == tables_[at(split.whole[at(piece.of)].table)].dim ? piece.of : -1;
      }
      parts_.push_back({static_cast<std::int64_t>(outputs_.size()), 0, output.width});
      outputs_.push_back(output);
    }
  }

  vector_view<embedding_output const> outputs() const noexcept { return outputs_; }

  void begin(host_exec const& exec, batch_view const& batch, saved_type& saved) {
    begin_with(exec, batch, saved, [&](batch_view const& repeated) { base::begin(exec, repeated, saved); });
  }
  void begin(host_exec const& exec, batch_view const& batch, saved_type& saved, typename Inner::prepared_type& prepared) {
    begin_with(exec, batch, saved, [&](batch_view const& repeated) { base::begin(exec, repeated, saved, prepared); });
  }
  void prepare(host_exec const& exec, batch_view const& batch, typename Inner::prepared_type& prepared) const {
    detail::repeated_keys keys;
    std::exception_ptr failure;
    base::prepare(exec, repeat(exec, batch, keys, failure), prepared);
  }
  /// @throws tessera::error as the inner source does. On the rank of a batch that cannot be read, it says why.
  void finish(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float> const> out) {
    saying(saved.failure, [&] { base::finish(exec, saved, parts_of(out, saved.out)); });
  }
  void predict(host_exec const& exec, batch_view const& batch, vector_view<matrix_view<float> const> out) const {
    saved_type own;
    auto const repeated = repeat(exec, batch, own.keys, own.failure);
    saying(own.failure, [&] { base::predict(exec, repeated, parts_of(out, own.out)); });
  }
  /// With modules that run by chunks of so many samples.
  void predict(host_exec const& exec, batch_view const& batch, vector_view<matrix_view<float> const> out,
               std::int64_t chunk_samples) const requires owns_parameters<Inner> {
    saved_type own;
    auto const repeated = repeat(exec, batch, own.keys, own.failure);
    saying(own.failure, [&] { base::inner().predict(exec, repeated, parts_of(out, own.out), chunk_samples); });
  }
  void begin_backward(host_exec const& exec, saved_type& saved,
                      vector_view<matrix_view<float const> const> gradients) requires(!owns_parameters<Inner>) {
    base::begin_backward(exec, saved, parts_of(gradients, saved.read));
  }
  void begin_backward(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float const> const> gradients,
                      vector_view<float> of_parameters) requires owns_parameters<Inner> {
    base::begin_backward(exec, saved, parts_of(gradients, saved.read), of_parameters);
  }

  /// Where the pieces lie in the whole tables.
  table_places places() const {
    table_places all{tables_, {}};
    if constexpr (places_parts<Inner>) {
      all.parts = base::inner().places().parts;
    } else {
      for (std::size_t t = 0; t < of_tables_.size(); ++t)
        all.parts.push_back({.table = static_cast<std::int64_t>(t), .columns = of_tables_[t].columns});
    }
    for (auto& part : all.parts) {
      auto const& piece = of_tables_[at(part.table)];
      part.table = piece.of;
      part.first_column += piece.first_column;
    }
    return all;
  }
  /// The modules' kind and each tower's pieces, as the inner source says.
  std::string towers_text() const requires requires(Inner const& inner) { inner.towers_text(); }
  { return base::inner().towers_text(); }

 private:
  static std::size_t at(std::int64_t i) noexcept { return static_cast<std::size_t>(i); }

  // With other ranks a batch that cannot be read must reach the inner source, which tells them.
  bool is_alone() const {
    if constexpr (requires(Inner const& inner) { inner.comm(); })
      return base::inner().comm().size() == 1;
    else
      return true;
  }
  // A failure is for who waits for other ranks: until then the batch is one without keys, which the inner source refuses on all of them.
  batch_view repeat(host_exec const& exec, batch_view const& batch, detail::repeated_keys& keys, std::exception_ptr& failure) const {
    try {
      return keys.make(exec, batch, features_, pieces_);
    } catch (...) {
      if (is_alone()) throw;
      failure = std::current_exception();
    }
    auto without_keys = batch;
    without_keys.groups = {};
    without_keys.sparse = {};
    return without_keys;
  }
  // Keeps what is under way where the inner source refuses to begin with another batch.
  template <class Begin>
  void begin_with(host_exec const& exec, batch_view const& batch, saved_type& saved, Begin const& begin) {
    std::exception_ptr failure;
    auto const repeated = repeat(exec, batch, saved.next_keys, failure);
    begin(repeated);
    std::swap(saved.keys, saved.next_keys);
    saved.failure = std::move(failure);
  }
  template <class F>
  static void saying(std::exception_ptr& failure, F const& f) {
    try {
      f();
    } catch (...) {
      if (failure == nullptr) throw;
      std::rethrow_exception(std::exchange(failure, nullptr));
    }
  }
  // The columns of the caller's blocks that each output of the inner source is. Of a block of other columns there are none.
  template <class T>
  vector_view<matrix_view<T> const> parts_of(vector_view<matrix_view<T> const> blocks, std::vector<matrix_view<T>>& to) const {
    to.clear();
    if (blocks.size() != outputs().size()) return {};
    for (auto const& part : parts_) {
      auto const& block = blocks[part.of];
      to.push_back(block.columns() == outputs()[part.of].width ? block.columns_from(part.first_column, part.columns)
                                                               : matrix_view<T>{nullptr, block.rows(), 0});
    }
    return to;
  }

  std::vector<column_piece> pieces_;     // of the inner source's features
  std::vector<column_piece> of_tables_;  // of its tables
  std::vector<table_options> tables_;    // the whole ones
  std::int64_t features_;                // whole ones
  std::vector<embedding_output> outputs_;
  std::vector<column_piece> parts_;  // of each output of the inner source: columns of one of these
};

}  // namespace TESSERA_ABI
}  // namespace tessera
