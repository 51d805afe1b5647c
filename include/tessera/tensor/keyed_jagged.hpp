// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/scan.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged.hpp>

namespace tessera::inline TESSERA_ABI {

/// A batch of sparse features (KJT), key-major: all rows of key 0, then of key 1, … Every key counts its own rows. Trivially copyable;
/// keys are integers here, their names stay with the owner.
template <class T, class Offset = std::int64_t>
struct keyed_jagged_view {
  T* values = nullptr;                      // (offsets[rows],) over all keys
  float const* weights = nullptr;           // one a value, or nullptr: unweighted, as any batch without values may be
  Offset const* offsets = nullptr;          // (rows of all keys + 1,)
  std::int64_t const* first_row = nullptr;  // (keys + 1,): key k has rows [first_row[k], first_row[k + 1]); first_row[0] = 0
  std::int64_t keys = 0;

  TESSERA_HOST_DEVICE constexpr std::int64_t rows(std::int64_t key) const noexcept { return first_row[key + 1] - first_row[key]; }
  TESSERA_HOST_DEVICE constexpr std::int64_t rows() const noexcept { return keys == 0 ? 0 : first_row[keys]; }
  TESSERA_HOST_DEVICE constexpr bool weighted() const noexcept { return weights != nullptr; }
  /// The rows of every key, one key after the other.
  TESSERA_HOST_DEVICE constexpr jagged_view<T, Offset> flat() const noexcept { return {values, offsets, rows()}; }
  /// The rows of one key, in place.
  TESSERA_HOST_DEVICE constexpr jagged_view<T, Offset> key(std::int64_t key) const noexcept {
    return flat().slice(first_row[key], rows(key));
  }
  /// The weights of one key's rows, in place. @pre weighted().
  TESSERA_HOST_DEVICE constexpr jagged_view<float const, Offset> key_weights(std::int64_t key) const noexcept {
    return {weights, offsets + first_row[key], rows(key)};
  }
  TESSERA_HOST_DEVICE constexpr std::int64_t size() const noexcept { return flat().size(); }

  template <class U>
    requires(std::same_as<U, T const> && !std::is_const_v<T>)
  TESSERA_HOST_DEVICE constexpr operator keyed_jagged_view<U, Offset>() const noexcept {  // NOLINT: implicit, to const
    return {values, weights, offsets, first_row, keys};
  }
};

static_assert(std::is_trivially_copyable_v<keyed_jagged_view<std::int64_t>>);

/// One key's rows given one by one, for `keyed_jagged::from_rows`. Weights, where there are any, have the rows' shape.
template <class T = std::int64_t>
struct feature_rows {
  std::string key;
  std::vector<std::vector<T>> rows;
  std::vector<std::vector<float>> weights;

  feature_rows(std::string key, std::vector<std::vector<T>> rows, std::vector<std::vector<float>> weights = {})
      : key(std::move(key)), rows(std::move(rows)), weights(std::move(weights)) {}
};

/// Owns a batch of sparse features and the names of its keys. Move-only.
template <class T = std::int64_t, class Offset = std::int64_t>
class keyed_jagged {
 public:
  keyed_jagged() = default;

  /// @throws tessera::error shape_mismatch when some features have weights and others not, or weights of another shape.
  static keyed_jagged from_rows(host_exec const& exec, std::vector<feature_rows<T>> const& features) {
    std::vector<std::string> keys;
    std::vector<std::int64_t> rows_per_key;
    std::vector<Offset> lengths;
    std::vector<T> values;
    std::vector<float> weights;
    bool const weighted = std::any_of(features.begin(), features.end(), [](auto const& f) { return !f.weights.empty(); });
    for (auto const& f : features) {
      keys.push_back(f.key);
      rows_per_key.push_back(static_cast<std::int64_t>(f.rows.size()));
      if (weighted && f.weights.size() != f.rows.size())
        throw error(errc::shape_mismatch, "keyed_jagged: rows without weights",
                    {{"key", f.key}, {"rows", f.rows.size()}, {"rows of weights", f.weights.size()}});
      for (std::size_t row = 0; row < f.rows.size(); ++row) {
        lengths.push_back(static_cast<Offset>(f.rows[row].size()));
        values.insert(values.end(), f.rows[row].begin(), f.rows[row].end());
        if (!weighted) continue;
        if (f.weights[row].size() != f.rows[row].size())
          throw error(errc::shape_mismatch, "keyed_jagged: a row and its weights differ in length",
                      {{"key", f.key}, {"row", row}, {"values", f.rows[row].size()}, {"weights", f.weights[row].size()}});
        weights.insert(weights.end(), f.weights[row].begin(), f.weights[row].end());
      }
    }
    return from_lengths(exec, std::move(keys), values, lengths, rows_per_key,
                        weighted ? vector_view<float const>(weights) : vector_view<float const>{});
  }

  /// `values` (sum of lengths,), `lengths` (rows of all keys,), `rows_per_key` (keys,), `weights` (values,) or none; all copied.
  /// @throws tessera::error naming what disagrees.
  static keyed_jagged from_lengths(host_exec const& exec, std::vector<std::string> keys, vector_view<T const> values,
                                   vector_view<Offset const> lengths, vector_view<std::int64_t const> rows_per_key,
                                   vector_view<float const> weights = {}) {
    check_weights(values, weights);
    auto rows = jagged<T, Offset>::from_lengths(exec, values, lengths);
    jagged<float, Offset> row_weights;
    if (!weights.empty()) row_weights = jagged<float, Offset>::from_lengths(exec, weights, lengths);
    return from_parts(exec, std::move(keys), std::move(rows), rows_per_key, std::move(row_weights));
  }

  /// As `from_lengths`, with `offsets` (rows of all keys + 1,) from 0.
  static keyed_jagged from_offsets(host_exec const& exec, std::vector<std::string> keys, vector_view<T const> values,
                                   vector_view<Offset const> offsets, vector_view<std::int64_t const> rows_per_key,
                                   vector_view<float const> weights = {}) {
    check_weights(values, weights);
    auto rows = jagged<T, Offset>::from_offsets(exec, values, offsets);
    jagged<float, Offset> row_weights;
    if (!weights.empty()) row_weights = jagged<float, Offset>::from_offsets(exec, weights, offsets);
    return from_parts(exec, std::move(keys), std::move(rows), rows_per_key, std::move(row_weights));
  }

  /// Takes over the rows of all keys, and their weights where there are any (an empty `weights`: none).
  static keyed_jagged from_parts(host_exec const& exec, std::vector<std::string> keys, jagged<T, Offset> rows,
                                 vector_view<std::int64_t const> rows_per_key, jagged<float, Offset> weights = {}) {
    keyed_jagged result;
    result.keys_ = std::move(keys);
    auto const key_count = static_cast<std::int64_t>(result.keys_.size());
    for (auto key = result.keys_.begin(); key != result.keys_.end(); ++key)
      if (std::find(result.keys_.begin(), key, *key) != key)
        throw error(errc::invalid_argument, "keyed_jagged: a key twice", {{"key", *key}});
    if (rows_per_key.size() != key_count)
      throw error(errc::shape_mismatch, "keyed_jagged: one row count a key", {{"keys", key_count}, {"row counts", rows_per_key.size()}});
    result.first_row_.resize(exec, key_count + 1);
    lengths_to_offsets(exec, rows_per_key, result.first_row_.view());
    if (rows.rows() != result.first_row_[key_count])
      throw error(errc::shape_mismatch, "keyed_jagged: row counts do not sum to the number of rows",
                  {{"sum", result.first_row_[key_count]}, {"rows", rows.rows()}});
    if (weights.rows() > 0 && (weights.rows() != rows.rows() || weights.size() != rows.size()))
      throw error(errc::shape_mismatch, "keyed_jagged: one weight a value", {{"values", rows.size()}, {"weights", weights.size()}});
    for (std::int64_t row = 0; row < weights.rows(); ++row)
      if (weights.view().length(row) != rows.view().length(row))
        throw error(errc::shape_mismatch, "keyed_jagged: a row and its weights differ in length",
                    {{"row", row}, {"values", rows.view().length(row)}, {"weights", weights.view().length(row)}});
    result.rows_ = std::move(rows);
    result.weights_ = std::move(weights);
    return result;
  }

  std::vector<std::string> const& keys() const noexcept { return keys_; }
  /// Without the names.
  std::size_t bytes() const noexcept { return rows_.bytes() + weights_.bytes() + first_row_.capacity_bytes(); }

  /// The number of a key. @throws tessera::error out_of_range for an unknown name. Not for a step: do it once.
  std::int64_t key_index(std::string_view key) const {
    auto const found = std::find(keys_.begin(), keys_.end(), key);
    if (found == keys_.end()) throw error(errc::out_of_range, "keyed_jagged: no such key", {{"key", key}});
    return found - keys_.begin();
  }

  keyed_jagged_view<T, Offset> view() noexcept {
    return {rows_.view().values, weights_.view().values, rows_.view().offsets, first_row_.data(), static_cast<std::int64_t>(keys_.size())};
  }
  keyed_jagged_view<T const, Offset> view() const noexcept {
    return {rows_.view().values, weights_.view().values, rows_.view().offsets, first_row_.data(), static_cast<std::int64_t>(keys_.size())};
  }

 private:
  static void check_weights(vector_view<T const> values, vector_view<float const> weights) {
    if (!weights.empty() && weights.size() != values.size())
      throw error(errc::shape_mismatch, "keyed_jagged: one weight a value", {{"values", values.size()}, {"weights", weights.size()}});
  }

  std::vector<std::string> keys_;
  jagged<T, Offset> rows_;         // of all keys
  jagged<float, Offset> weights_;  // the same rows; without rows: unweighted
  buffer<std::int64_t> first_row_;
};

/// Checks what the type cannot: row counts per key and offsets in order and within `value_count` values.
/// @throws tessera::error naming the key or row that is wrong. Reads all offsets; host memory only.
template <class T, class Offset>
void validate(keyed_jagged_view<T, Offset> view, std::int64_t value_count) {
  if (view.keys < 0) throw error(errc::invalid_argument, "keyed_jagged: negative number of keys", {{"keys", view.keys}});
  if (view.keys == 0) return;
  if (view.first_row == nullptr) throw error(errc::invalid_argument, "keyed_jagged: no row counts", {{"keys", view.keys}});
  if (view.first_row[0] != 0)
    throw error(errc::invalid_argument, "keyed_jagged: the first key does not start at row 0", {{"first row", view.first_row[0]}});
  for (std::int64_t key = 0; key < view.keys; ++key)
    if (view.rows(key) < 0)
      throw error(errc::invalid_argument, "keyed_jagged: negative number of rows", {{"key", key}, {"rows", view.rows(key)}});
  validate(view.flat(), value_count);
}

/// Same rows per key with the same values and weights; names are the owners' affair.
template <class T, class U, class Offset>
bool equal(keyed_jagged_view<T, Offset> a, keyed_jagged_view<U, Offset> b) {
  if (a.keys != b.keys || a.weighted() != b.weighted()) return false;
  for (std::int64_t key = 0; key < a.keys; ++key)
    if (a.rows(key) != b.rows(key)) return false;
  if (!equal(a.flat(), b.flat())) return false;
  return !a.weighted() || equal(jagged_view<float const, Offset>{a.weights, a.offsets, a.rows()},
                                jagged_view<float const, Offset>{b.weights, b.offsets, b.rows()});
}

template <class T, class Offset>
bool operator==(keyed_jagged<T, Offset> const& a, keyed_jagged<T, Offset> const& b) {
  return a.keys() == b.keys() && equal(a.view(), b.view());
}

/// Prints {user: [[1, 2], []], item: [[3]]}.
template <class T, class Offset>
std::ostream& operator<<(std::ostream& out, keyed_jagged<T, Offset> const& batch) {
  out << '{';
  for (std::size_t key = 0; key < batch.keys().size(); ++key) {
    auto const k = static_cast<std::int64_t>(key);
    out << (key > 0 ? ", " : "") << batch.keys()[key] << ": " << batch.view().key(k);
    if (batch.view().weighted()) out << " weights " << batch.view().key_weights(k);
  }
  return out << '}';
}

}  // namespace tessera::inline TESSERA_ABI
