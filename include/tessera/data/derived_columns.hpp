// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/sample_schema.hpp>
#include <tessera/data/sample_source.hpp>
#include <tessera/tensor/id_transforms.hpp>
#include <tessera/tensor/jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A derived column of lists: the ids of several columns, one column behind the other. A missing id of a single column adds nothing.
struct combined_columns {
  std::string name;
  std::vector<std::string> columns;  ///< two or more; a column may come again

  friend bool operator==(combined_columns const&, combined_columns const&) = default;
};

/// A derived column of pairs. Each pair is the `hash_pair` of an id of the first column and one of the second.
///
/// The pairs of two single columns are a single column, missing where either id is. Any other pairs are a list. A sample's list has every
/// pair, those of the first id first, up to `most_pairs`. A missing id has no pairs.
struct column_ngram {
  std::string name;
  std::string first, second;
  std::int64_t most_pairs = 1024;  ///< at least 1

  friend bool operator==(column_ngram const&, column_ngram const&) = default;
};

/// A column that is made of others.
using derived_column = std::variant<combined_columns, column_ngram>;

/// Returns one id in [0, 2^63) for a pair of any ids; (a, b) and (b, a) differ. Two pairs have one id by chance alone.
constexpr std::int64_t hash_pair(std::int64_t a, std::int64_t b) noexcept {
  return static_cast<std::int64_t>(mix_bits(mix_bits(static_cast<std::uint64_t>(a) + 0x9E3779B97F4A7C15) ^ static_cast<std::uint64_t>(b)) >>
                                   1);
}

/// Returns the schema with the derived columns behind the others, in order. A derived column may be made of those before it.
/// @throws tessera::error invalid_argument naming the column, where one of these holds. A name is empty or taken. A column is made of one
/// that is not sparse, or combines fewer than two. `most_pairs` is below 1.
inline sample_schema schema_with(sample_schema schema, std::vector<derived_column> const& derived) {
  auto const refuse = [](char const* what, std::string const& name, std::string const& column) {
    throw error(errc::invalid_argument, std::string("derived_columns: ") + what, {{"name", name}, {"column", column}});
  };
  auto const expect_sparse = [&](std::string const& name, std::string const& column) {
    if (std::find(schema.sparse.begin(), schema.sparse.end(), column) == schema.sparse.end()) refuse("no such column of ids", name, column);
  };
  for (auto const& column : derived) {
    bool is_single = false;
    std::string name;
    if (auto const* const combined = std::get_if<combined_columns>(&column)) {
      name = combined->name;
      if (combined->columns.size() < 2) refuse("fewer than two columns to combine", name, "");
      for (auto const& part : combined->columns) expect_sparse(name, part);
    } else if (auto const* const ngram = std::get_if<column_ngram>(&column)) {
      name = ngram->name;
      for (auto const* part : {&ngram->first, &ngram->second}) expect_sparse(name, *part);
      if (ngram->most_pairs < 1)
        throw error(errc::invalid_argument, "derived_columns: pairs of a sample",
                    {{"name", name}, {"most_pairs", ngram->most_pairs}, {"least", 1}});
      is_single = schema.is_single(ngram->first) && schema.is_single(ngram->second);
    }
    if (std::find(schema.dense.begin(), schema.dense.end(), name) != schema.dense.end())
      refuse("the name of a column of numbers", name, "");
    schema.sparse.push_back(name);
    if (is_single) schema.single.push_back(name);
    check_schema("derived_columns", schema);
  }
  return schema;
}

/// A data set with further columns, which are made of its source's columns while a block is read. Owns its source. A block is in memory
/// twice meanwhile.
///
///     derived_columns const log(parquet_log({"clicks.parquet"}, schema), {column_ngram{"item x hour", "item", "hour"}});
template <sample_source Source>
class derived_columns {
 public:
  /// Takes over the source, and reads nothing yet. @throws tessera::error as `schema_with`.
  derived_columns(Source source, std::vector<derived_column> derived)
      : source_(std::move(source)), derived_(std::move(derived)), schema_(schema_with(source_.schema(), derived_)) {}

  /// The data set without the derived columns.
  Source const& source() const noexcept { return source_; }
  sample_schema const& schema() const noexcept { return schema_; }
  std::int64_t rows() const { return source_.rows(); }
  std::int64_t block_count() const { return source_.block_count(); }
  std::int64_t rows(std::int64_t block) const { return source_.rows(block); }
  std::int64_t first_row(std::int64_t block) const { return source_.first_row(block); }
  /// The fingerprint of the source and of what is derived. Without derived columns it is the source's.
  std::uint32_t fingerprint() const requires fingerprinted_source<Source> {
    std::uint64_t sum = source_.fingerprint();
    auto const add = [&](std::uint64_t bits) { sum = mix_bits(sum ^ bits) + 0x9E3779B97F4A7C15; };
    for (auto const& column : derived_) {
      add(column.index());
      if (auto const* const combined = std::get_if<combined_columns>(&column)) {
        add(combined->columns.size());
        add(salt_of(combined->name));
        for (auto const& part : combined->columns) add(salt_of(part));
      } else if (auto const* const ngram = std::get_if<column_ngram>(&column)) {
        for (auto const* part : {&ngram->name, &ngram->first, &ngram->second}) add(salt_of(*part));
        add(static_cast<std::uint64_t>(ngram->most_pairs));
      }
    }
    return static_cast<std::uint32_t>(derived_.empty() ? sum : sum >> 32);
  }
  /// The path of the file that has a block, as the source says.
  std::string file_of(std::int64_t block) const requires requires(Source const& s) { s.file_of(block); }
  { return source_.file_of(block); }

  /// `out` becomes the samples of a block, with the derived columns. @throws tessera::error as the source.
  void read(host_exec const& exec, std::int64_t block, sample_columns& out) const {
    sample_columns samples;
    source_.read(exec, block, samples);
    auto view = samples.view();
    std::vector<jagged_view<std::int64_t const>> columns(view.sparse.begin(), view.sparse.end());
    std::vector<std::uint8_t> single;
    for (auto const& name : schema_.sparse) single.push_back(schema_.is_single(name));
    std::vector<jagged<std::int64_t>> made;
    made.reserve(derived_.size());  // views of them stay
    for (auto const& column : derived_) {
      made.push_back(make(exec, column, view.size(), columns));
      columns.push_back(std::as_const(made.back()).view());
    }
    view.sparse = columns;
    if (!schema_.single.empty()) view.is_single = single;
    if (!out.has_columns_of(schema_)) out = sample_columns(schema_);
    out.clear();
    out.append(exec, view, 0, view.size());
  }

 private:
  static constexpr std::int64_t rows_per_piece = 1024;

  /// A column that others are made of.
  struct part {
    jagged_view<std::int64_t const> rows;
    bool is_single;

    // A missing id is no id.
    vector_view<std::int64_t const> ids(std::int64_t row) const noexcept {
      auto const all = rows.row(row);
      return is_single && all.data()[0] == missing_id ? vector_view<std::int64_t const>{} : all;
    }
  };

  part part_of_name(std::string const& name, std::vector<jagged_view<std::int64_t const>> const& columns) const {
    auto const at = static_cast<std::size_t>(std::find(schema_.sparse.begin(), schema_.sparse.end(), name) - schema_.sparse.begin());
    return {columns[at], schema_.is_single(name)};
  }

  jagged<std::int64_t> make(host_exec const& exec, derived_column const& column, std::int64_t rows,
                            std::vector<jagged_view<std::int64_t const>> const& columns) const {
    if (auto const* const ngram = std::get_if<column_ngram>(&column)) {
      auto const first = part_of_name(ngram->first, columns), second = part_of_name(ngram->second, columns);
      bool const is_single = first.is_single && second.is_single;
      auto const most = ngram->most_pairs;
      return make(
          exec, rows,
          [=](std::int64_t row) {
            auto const a = first.ids(row).size(), b = second.ids(row).size();
            if (is_single) return std::int64_t{1};
            return b > 0 && a > most / b ? most : std::min(a * b, most);
          },
          [=](std::int64_t row, vector_view<std::int64_t> out) {
            auto const a = first.ids(row), b = second.ids(row);
            if (is_single && (a.empty() || b.empty())) {
              out[0] = missing_id;
              return;
            }
            for (std::int64_t i = 0; i < out.size(); ++i) out[i] = hash_pair(a[i / b.size()], b[i % b.size()]);
          });
    }
    std::vector<part> parts;
    for (auto const& name : std::get<combined_columns>(column).columns) parts.push_back(part_of_name(name, columns));
    return make(
        exec, rows,
        [&](std::int64_t row) {
          std::int64_t length = 0;
          for (auto const& p : parts) length += p.ids(row).size();
          return length;
        },
        [&](std::int64_t row, vector_view<std::int64_t> out) {
          auto* to = out.begin();
          for (auto const& p : parts) {
            auto const ids = p.ids(row);
            to = std::copy(ids.begin(), ids.end(), to);
          }
        });
  }

  template <class Length, class Fill>
  static jagged<std::int64_t> make(host_exec const& exec, std::int64_t rows, Length const& length, Fill const& fill) {
    buffer<std::int64_t> lengths(exec, rows);
    for_each_piece(exec, rows, rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto row = first; row < last; ++row) lengths[row] = length(row);
    });
    auto result = jagged<std::int64_t>::with_lengths(exec, std::as_const(lengths).view());
    auto const view = result.view();
    for_each_piece(exec, rows, rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto row = first; row < last; ++row) fill(row, view.row(row));
    });
    return result;
  }

  Source source_;
  std::vector<derived_column> derived_;
  sample_schema schema_;
};
static_assert(fingerprinted_source<derived_columns<any_sample_source>>);

}  // namespace TESSERA_ABI
}  // namespace tessera
