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

namespace tessera {
inline namespace TESSERA_ABI {

/// A batch of sparse features (KJT), key-major: all rows of key 0, then those of key 1, and so on. Every key has its own number of rows.
///
/// Keys are integers here; the owner has their names. A view of some of the keys shares all memory with the whole, so first_row[0] need not
/// be 0. Row counts are the host's, as shapes are: of a batch on a device `first_row` lies in the host's memory, everything else in the
/// device's. Trivially copyable.
template <class T, class Offset = std::int64_t>
struct keyed_jagged_view {
  T* values = nullptr;                      // (>= offsets[first_row[keys]],)
  float const* weights = nullptr;           // one a value, or nullptr: unweighted, as any batch without values may be
  Offset const* offsets = nullptr;          // (> first_row[keys],), non-decreasing: row r is values[offsets[r], offsets[r + 1])
  std::int64_t const* first_row = nullptr;  // (keys + 1,), non-decreasing: key k has rows [first_row[k], first_row[k + 1]); the host's
  std::int64_t keys = 0;
  std::int64_t room = -1;  // how many values there is memory for from `values` on; -1: whoever made the view did not say

  /// How many rows a key has. @pre 0 <= key < keys, here and below.
  TESSERA_HOST_DEVICE constexpr std::int64_t rows(std::int64_t key) const noexcept { return first_row[key + 1] - first_row[key]; }
  /// How many rows all keys have.
  TESSERA_HOST_DEVICE constexpr std::int64_t rows() const noexcept { return keys == 0 ? 0 : first_row[keys] - first_row[0]; }
  /// Whether values have weights.
  TESSERA_HOST_DEVICE constexpr bool weighted() const noexcept { return weights != nullptr; }
  /// The rows of every key, one key after the other; those of key k start at row first_row[k] - first_row[0].
  TESSERA_HOST_DEVICE constexpr jagged_view<T, Offset> flat() const noexcept {
    return {values, rows() == 0 ? offsets : offsets + first_row[0], rows(), room};
  }
  /// The weights of every key's rows. @pre weighted().
  TESSERA_HOST_DEVICE constexpr jagged_view<float const, Offset> flat_weights() const noexcept { return flat().with_values(weights); }
  /// The rows of one key, in place.
  TESSERA_HOST_DEVICE constexpr jagged_view<T, Offset> key(std::int64_t key) const noexcept {
    return {values, rows(key) == 0 ? offsets : offsets + first_row[key], rows(key), room};
  }
  /// The weights of one key's rows, in place. @pre weighted().
  TESSERA_HOST_DEVICE constexpr jagged_view<float const, Offset> key_weights(std::int64_t key) const noexcept {
    return this->key(key).with_values(weights);
  }
  /// Values in all rows.
  TESSERA_HOST_DEVICE constexpr std::int64_t size() const noexcept { return flat().size(); }
  /// Where the values of the first row begin in `values`, and its weights in `weights`.
  TESSERA_HOST_DEVICE constexpr std::int64_t first_value() const noexcept { return flat().first_value(); }
  /// Keys [first, first + count), in place.
  TESSERA_HOST_DEVICE constexpr keyed_jagged_view slice_keys(std::int64_t first, std::int64_t count) const noexcept(!checks_indices) {
    if constexpr (checks_indices) detail::check_part("keyed_jagged_view keys", first, count, keys);
    return {values, weights, offsets, first_row + first, count, room};
  }
  /// The same rows of other values, unweighted, such as those of a gradient. `others` has as many values as this view.
  template <class U>
  TESSERA_HOST_DEVICE constexpr keyed_jagged_view<U, Offset> with_values(U* others) const noexcept {
    return {others, nullptr, offsets, first_row, keys, room};
  }

  template <class U>
    requires(std::same_as<U, T const> && !std::is_const_v<T>)
  TESSERA_HOST_DEVICE constexpr operator keyed_jagged_view<U, Offset>() const noexcept {  // NOLINT: implicit, to const
    return {values, weights, offsets, first_row, keys, room};
  }
};

static_assert(std::is_trivially_copyable_v<keyed_jagged_view<std::int64_t>>);

/// One key's rows given one by one, for `keyed_jagged::from_rows`. Weights, where there are any, have the rows' shape.
template <class T = std::int64_t>
struct feature_rows {
  std::string key;
  std::vector<std::vector<T>> rows;
  std::vector<std::vector<float>> weights;

  /// Takes over the name, the rows, and the weights, or none.
  feature_rows(std::string key, std::vector<std::vector<T>> rows, std::vector<std::vector<float>> weights = {})
      : key(std::move(key)), rows(std::move(rows)), weights(std::move(weights)) {}
};

namespace detail {

// Row counts on the host, of a batch on a device: a buffer of the host's heap.
class host_numbers {
 public:
  template <class Exec>
  void resize(Exec const&, std::int64_t size) {
    numbers_.resize(static_cast<std::size_t>(size));
  }
  std::int64_t* data() noexcept { return numbers_.data(); }
  std::int64_t const* data() const noexcept { return numbers_.data(); }
  std::int64_t size() const noexcept { return static_cast<std::int64_t>(numbers_.size()); }
  bool empty() const noexcept { return numbers_.empty(); }
  std::int64_t& operator[](std::int64_t i) noexcept { return numbers_[static_cast<std::size_t>(i)]; }
  std::int64_t const& operator[](std::int64_t i) const noexcept { return numbers_[static_cast<std::size_t>(i)]; }
  std::size_t capacity_bytes() const noexcept { return numbers_.capacity() * sizeof(std::int64_t); }
  vector_view<std::int64_t> view() noexcept { return {data(), size()}; }

 private:
  std::vector<std::int64_t> numbers_;
};

// How an error calls a key: by its name where there is one, else by its number.
inline std::string key_label(std::vector<std::string> const* names, std::int64_t key) {
  return names == nullptr || names->empty() ? std::to_string(key) : (*names)[static_cast<std::size_t>(key)];
}

}  // namespace detail

/// Owns a batch of sparse features, and the names of its keys unless the batch is unnamed. Move-only.
///
/// What an operation makes of a view is unnamed, and all its memory is the execution's. What reads values or offsets is for the host; on a
/// device there are `with_room` and `copy_of`.
template <class T = std::int64_t, class Offset = std::int64_t, execution Exec = host_exec>
class keyed_jagged {
  static constexpr bool on_host = !device_execution<Exec>;

 public:
  keyed_jagged() = default;

  /// Copies rows given one by one. @throws tessera::error shape_mismatch when some features have weights and others not, or weights of
  /// another shape.
  static keyed_jagged from_rows(host_exec const& exec, std::vector<feature_rows<T>> const& features) requires on_host {
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

  /// Copies values and lengths. `keys` (keys,), or none: unnamed; `values` (sum of lengths,); `lengths` (rows of all keys,); `rows_per_key`
  /// (keys,); `weights` (values,) or none. @throws tessera::error naming what disagrees, here and below.
  static keyed_jagged from_lengths(host_exec const& exec, std::vector<std::string> keys, vector_view<T const> values,
                                   vector_view<Offset const> lengths, vector_view<std::int64_t const> rows_per_key,
                                   vector_view<float const> weights = {}) requires on_host {
    return from_parts(exec, std::move(keys), jagged<T, Offset>::from_lengths(exec, values, lengths), rows_per_key, weights);
  }

  /// Copies as `from_lengths` does, with `offsets` (rows of all keys + 1,) from 0.
  static keyed_jagged from_offsets(host_exec const& exec, std::vector<std::string> keys, vector_view<T const> values,
                                   vector_view<Offset const> offsets, vector_view<std::int64_t const> rows_per_key,
                                   vector_view<float const> weights = {}) requires on_host {
    return from_parts(exec, std::move(keys), jagged<T, Offset>::from_offsets(exec, values, offsets), rows_per_key, weights);
  }

  /// Takes over the rows of all keys, and copies `weights` (values,), or none. The other arguments are those of `from_lengths`.
  static keyed_jagged from_parts(host_exec const& exec, std::vector<std::string> keys, jagged<T, Offset> rows,
                                 vector_view<std::int64_t const> rows_per_key, vector_view<float const> weights = {}) requires on_host {
    keyed_jagged result;
    result.set_rows(exec, std::move(rows), rows_per_key);
    if (!weights.empty() && weights.size() != result.rows_.size())
      throw error(errc::shape_mismatch, "keyed_jagged: one weight a value", {{"values", result.rows_.size()}, {"weights", weights.size()}});
    result.weights_.resize(exec, weights.size());
    std::copy(weights.begin(), weights.end(), result.weights_.begin());
    return std::move(result).named(std::move(keys));
  }

  /// Makes unnamed rows of these `lengths` (rows of all keys,). The caller writes the values, and the weights where `weighted`.
  static keyed_jagged with_lengths(host_exec const& exec, vector_view<Offset const> lengths, vector_view<std::int64_t const> rows_per_key,
                                   bool weighted = false) requires on_host {
    keyed_jagged result;
    result.set_rows(exec, jagged<T, Offset>::with_lengths(exec, lengths), rows_per_key);
    if (weighted) result.weights_.resize(exec, result.rows_.size());
    return result;
  }

  /// Makes room for so many unnamed keys, rows and values.
  ///
  /// The caller writes `first_row()` and `offsets()`, each from 0 and in order, the values, and the weights where `weighted`. @throws
  /// tessera::error invalid_argument for a number that no memory has.
  static keyed_jagged with_room(Exec const& exec, std::int64_t keys, std::int64_t rows, std::int64_t values, bool weighted = false) {
    keyed_jagged result;
    result.first_row_.resize(exec, detail::bounds_of("keyed_jagged", "keys", keys));
    result.rows_ = jagged<T, Offset, Exec>::with_room(exec, rows, values);
    if (weighted) result.weights_.resize(exec, values);
    return result;
  }

  /// Copies a batch of the host to the device, with its names; the host's memory is free again on return.
  ///
  /// The call waits for the stream where a part has more than 64 KiB. Without a wait, a caller copies from pinned memory into a batch made
  /// by `with_room`.
  static keyed_jagged copy_of(Exec const& exec, keyed_jagged<T, Offset> const& batch) requires(!on_host) {
    keyed_jagged result;
    result.keys_ = batch.keys();
    result.rows_ = jagged<T, Offset, Exec>::copy_of(exec, batch.rows_);
    result.weights_.resize(exec, batch.weights_.size());
    exec.copy_in(result.weights_.data(), batch.weights_.data(), static_cast<std::size_t>(batch.weights_.size()) * sizeof(float));
    result.first_row_.resize(exec, batch.first_row_.size());
    std::copy(batch.first_row_.begin(), batch.first_row_.end(), result.first_row_.data());
    return result;
  }

  /// Gives the batch these names; none leave it unnamed. @throws tessera::error shape_mismatch unless there is one name a key,
  /// invalid_argument for a name twice.
  keyed_jagged named(std::vector<std::string> keys) && {
    if (!keys.empty() && static_cast<std::int64_t>(keys.size()) != key_count())
      throw error(errc::shape_mismatch, "keyed_jagged: one row count a key", {{"keys", keys.size()}, {"row counts", key_count()}});
    for (auto key = keys.begin(); key != keys.end(); ++key)
      if (std::find(keys.begin(), key, *key) != key) throw error(errc::invalid_argument, "keyed_jagged: a key twice", {{"key", *key}});
    keys_ = std::move(keys);
    return std::move(*this);
  }

  /// The names, one a key, or none of an unnamed batch.
  std::vector<std::string> const& keys() const noexcept { return keys_; }
  /// Bytes of memory, without the names.
  std::size_t bytes() const noexcept { return rows_.bytes() + weights_.capacity_bytes() + first_row_.capacity_bytes(); }

  /// The number of a key. The call searches the names, so it belongs before the steps. @throws tessera::error out_of_range for an unknown
  /// name, and for any name of an unnamed batch.
  std::int64_t key_index(std::string_view key) const {
    auto const found = std::find(keys_.begin(), keys_.end(), key);
    if (found == keys_.end()) throw error(errc::out_of_range, "keyed_jagged: no such key", {{"key", key}});
    return found - keys_.begin();
  }

  keyed_jagged_view<T, Offset> view() noexcept {
    return {rows_.view().values, weights_.data(), rows_.view().offsets, first_row_.data(), key_count(), rows_.size()};
  }
  keyed_jagged_view<T const, Offset> view() const noexcept {
    return {rows_.view().values, weights_.data(), rows_.view().offsets, first_row_.data(), key_count(), rows_.size()};
  }
  /// How many values there is room for.
  std::int64_t room() const noexcept { return rows_.size(); }
  /// One a value, or none: unweighted.
  vector_view<float> weights() noexcept { return weights_.view(); }
  /// (rows of all keys + 1,), to be written after `with_room`.
  vector_view<Offset> offsets() noexcept { return rows_.offsets(); }
  /// (keys + 1,), to be written after `with_room`; the host's.
  vector_view<std::int64_t> first_row() noexcept { return first_row_.view(); }

 private:
  template <class, class, execution>
  friend class keyed_jagged;

  std::int64_t key_count() const noexcept { return first_row_.empty() ? 0 : first_row_.size() - 1; }

  void set_rows(host_exec const& exec, jagged<T, Offset> rows, vector_view<std::int64_t const> rows_per_key) {
    first_row_.resize(exec, rows_per_key.size() + 1);
    lengths_to_offsets(exec, rows_per_key, first_row_.view());
    if (rows.rows() != first_row_[rows_per_key.size()])
      throw error(errc::shape_mismatch, "keyed_jagged: row counts do not sum to the number of rows",
                  {{"sum", first_row_[rows_per_key.size()]}, {"rows", rows.rows()}});
    rows_ = std::move(rows);
  }

  std::vector<std::string> keys_;  // or none
  jagged<T, Offset, Exec> rows_;   // of all keys
  buffer<float, Exec> weights_;    // one a value, or none
  std::conditional_t<on_host, buffer<std::int64_t>, detail::host_numbers> first_row_;
};

namespace detail {

template <class T, class Offset>
void validate_row_counts(keyed_jagged_view<T, Offset> view) {
  if (view.keys < 0) throw error(errc::invalid_argument, "keyed_jagged: negative number of keys", {{"keys", view.keys}});
  if (view.keys == 0) return;
  if (view.first_row == nullptr) throw error(errc::invalid_argument, "keyed_jagged: no row counts", {{"keys", view.keys}});
  if (view.first_row[0] < 0) throw error(errc::invalid_argument, "keyed_jagged: negative first row", {{"first row", view.first_row[0]}});
  for (std::int64_t key = 0; key < view.keys; ++key)
    if (view.first_row[key + 1] < view.first_row[key])
      throw error(errc::invalid_argument, "keyed_jagged: first rows decrease",
                  {{"key", key}, {"first row", view.first_row[key]}, {"next first row", view.first_row[key + 1]}});
}

}  // namespace detail

/// Checks what the type cannot: row counts per key and offsets in order, within `value_count` values and within the view's room.
/// @throws tessera::error naming the key or row that is wrong. Reads all offsets; host memory only.
template <class T, class Offset>
void validate(keyed_jagged_view<T, Offset> view, std::int64_t value_count) {
  detail::validate_row_counts(view);
  validate(view.flat(), value_count);
}

/// Whether both have the same rows in each key, with the same values and weights. Names belong to owners, and are not compared.
template <class T, class U, class Offset>
bool equal(keyed_jagged_view<T, Offset> a, keyed_jagged_view<U, Offset> b) {
  if (a.keys != b.keys) return false;
  for (std::int64_t key = 0; key < a.keys; ++key)
    if (a.rows(key) != b.rows(key)) return false;
  if (!equal(a.flat(), b.flat())) return false;
  if (a.size() == 0) return true;
  return a.weighted() == b.weighted() && (!a.weighted() || equal(a.flat_weights(), b.flat_weights()));
}

/// Whether both have the same names, rows, values and weights.
template <class T, class Offset>
bool operator==(keyed_jagged<T, Offset> const& a, keyed_jagged<T, Offset> const& b) {
  return a.keys() == b.keys() && equal(a.view(), b.view());
}

/// Prints {user: [[1, 2], []], item: [[3]]}; without names {0: [[1, 2], []], 1: [[3]]}.
template <class T, class Offset>
std::ostream& operator<<(std::ostream& out, keyed_jagged<T, Offset> const& batch) {
  out << '{';
  for (std::int64_t key = 0; key < batch.view().keys; ++key) {
    out << (key > 0 ? ", " : "") << detail::key_label(&batch.keys(), key) << ": " << batch.view().key(key);
    if (batch.view().weighted()) out << " weights " << batch.view().key_weights(key);
  }
  return out << '}';
}

}  // namespace TESSERA_ABI
}  // namespace tessera
