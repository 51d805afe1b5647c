// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/sample_schema.hpp>
#include <tessera/tensor/jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Samples as a data set stores them, column by column, in memory of others. Trivially copyable.
struct sample_columns_view {
  vector_view<float const> labels;  ///< (n,)
  matrix_view<float const> dense;   ///< (dense columns, n); NaN: missing
  /// (sparse columns,), each of n rows of ids as they are stored. A column of single ids has one id a row, or `missing_id`.
  vector_view<jagged_view<std::int64_t const> const> sparse;
  vector_view<std::int64_t const> sessions{};   ///< (n,), or empty where there are none
  vector_view<std::int64_t const> times{};      ///< (n,), or empty where there are none
  vector_view<float const> weights{};           ///< (n,), or empty where there are none
  matrix_view<float const> other_labels{};      ///< (other labels, n)
  vector_view<std::uint8_t const> is_single{};  ///< (sparse columns,): whether ids are single; or empty: all are lists

  constexpr std::int64_t size() const noexcept { return labels.size(); }
  /// Whether a sparse column has single ids.
  constexpr bool single(std::int64_t column) const noexcept { return !is_single.empty() && is_single[column] != 0; }
};

/// How many columns of each kind samples have, and which sparse ones have single ids.
struct sample_shape {
  std::int64_t dense = 0;
  std::int64_t sparse = 0;
  bool sessions = false;
  bool times = false;
  bool weights = false;
  std::int64_t other_labels = 0;
  std::vector<std::uint8_t> single{};  ///< (sparse,): whether the column has single ids; or empty: all have lists

  static sample_shape of(sample_schema const& schema);

  /// Whether samples have these columns, each with one row a sample. Sessions, times and weights that the shape lacks are not looked at.
  bool fits(sample_columns_view const& samples) const noexcept {
    auto const n = samples.size();
    auto const has = [n](bool named, auto const& values) { return !named || values.size() == n; };
    bool result = samples.dense.rows() == dense && (dense == 0 || samples.dense.columns() == n) && samples.sparse.size() == sparse &&
                  has(sessions, samples.sessions) && has(times, samples.times) && has(weights, samples.weights) &&
                  samples.other_labels.rows() == other_labels && (other_labels == 0 || samples.other_labels.columns() == n);
    for (std::int64_t c = 0; result && c < sparse; ++c)
      result = samples.sparse[c].rows == n && samples.single(c) == (!single.empty() && single[static_cast<std::size_t>(c)] != 0);
    return result;
  }
  friend bool operator==(sample_shape const&, sample_shape const&) = default;
};

namespace detail {

// `named` stands before what was found and expected. @throws tessera::error shape_mismatch for samples that do not fit.
void check_columns(char const* call, sample_shape const& shape, sample_columns_view const& samples, std::vector<error_value> named = {});

}  // namespace detail

/// A sample among several lots of samples: row `row` of lot `source`.
struct sample_place {
  std::int64_t source = 0;
  std::int64_t row = 0;
};

/// Owns samples of one data set, in the order in which they were appended. Move-only.
class sample_columns {
 public:
  sample_columns() = default;
  /// Makes the columns of a schema, without samples.
  explicit sample_columns(sample_schema const& schema) : sample_columns(sample_shape::of(schema)) {}
  /// Makes columns of a shape, without samples.
  explicit sample_columns(sample_shape shape);

  std::int64_t size() const noexcept { return size_; }
  /// How many columns of each kind there are.
  sample_shape const& shape() const noexcept { return shape_; }
  /// How many sparse columns there are.
  std::int64_t sparse_columns() const noexcept { return shape_.sparse; }
  /// How many dense columns there are.
  std::int64_t dense_columns() const noexcept { return shape_.dense; }
  /// Whether there are as many columns of each kind as the schema names.
  bool has_columns_of(sample_schema const& schema) const { return shape_ == sample_shape::of(schema); }
  /// Forgets all samples and keeps the memory.
  void clear() noexcept { set_size(0); }

  /// The samples, shown until the next call that changes anything.
  sample_columns_view view() const noexcept {
    return {{labels_.data(), size_},
            {dense_.data(), shape_.dense, size_, stride_},
            rows_,
            {sessions_.data(), shape_.sessions ? size_ : 0},
            {times_.data(), shape_.times ? size_ : 0},
            {weights_.data(), shape_.weights ? size_ : 0},
            {other_labels_.data(), shape_.other_labels, size_, stride_},
            shape_.single};
  }

  /// Appends samples [first, first + count) of others. Each column is one chunk of work. @pre the others are not a view of this object.
  /// @throws what the memory throws. tessera::error shape_mismatch where the others have another number of dense or sparse columns, or lack
  /// any column of these. out_of_range for samples that are not there. This object is then as it was.
  void append(host_exec const& exec, sample_columns_view from, std::int64_t first, std::int64_t count);

  /// Appends samples indices[0], indices[1], … of others; an index may come again. @throws tessera::error as above.
  void append(host_exec const& exec, sample_columns_view from, vector_view<std::int64_t const> indices);

  /// Appends samples of several lots: those at places[0], places[1], …; a place may come again. @throws tessera::error as above.
  void append(host_exec const& exec, vector_view<sample_columns_view const> from, vector_view<sample_place const> places);

  /// Keeps sample i where keeps(i) is true, and drops the others; the order stays. Each column is one chunk of work. The call allocates
  /// nothing. @pre keeps(i) says the same however often it is asked, to any thread
  template <class F>
  void keep_if(host_exec const& exec, F const& keeps) {
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < size_; ++i) kept += keeps(i) ? 1 : 0;
    if (kept == size_) return;
    exec.run(1 + shape_.dense + shape_.sparse, [&](std::int64_t task) {
      if (task == 0) return keep_numbers(keeps);
      auto const column = task - 1 - shape_.dense;
      if (column < 0)
        keep_in(dense_.data() + (task - 1) * stride_, keeps);
      else if (single(column))
        keep_in(single_data(column), keeps);
      else
        keep_lists(column, keeps);
    });
    set_size(kept);
  }

  /// Bytes that were taken from the memory of the execution.
  std::size_t bytes() const noexcept {
    auto sum = labels_.capacity_bytes() + dense_.capacity_bytes() + sessions_.capacity_bytes() + times_.capacity_bytes() +
               weights_.capacity_bytes() + other_labels_.capacity_bytes() + single_ids_.capacity_bytes() + positions_.capacity_bytes() +
               scratch_.capacity_bytes();
    for (auto const& column : sparse_) sum += column.ids.capacity_bytes() + column.offsets.capacity_bytes();
    return sum;
  }

  /// Makes room for `rows` samples in all. The caller writes each number and single id, and for each list column its offsets, then its ids.
  /// Samples that were there stay.
  void resize(host_exec const& exec, std::int64_t rows) {
    reserve(exec, rows);
    set_size(rows);
  }
  /// The labels, (size(),), to be written.
  vector_view<float> labels() noexcept { return {labels_.data(), size_}; }
  /// The numbers of dense columns, (dense columns, size()), to be written.
  matrix_view<float> dense() noexcept { return {dense_.data(), shape_.dense, size_, stride_}; }
  /// The sessions, (size(),), to be written; empty where the shape has none.
  vector_view<std::int64_t> sessions() noexcept { return {sessions_.data(), shape_.sessions ? size_ : 0}; }
  /// The times, (size(),), to be written; empty where the shape has none.
  vector_view<std::int64_t> times() noexcept { return {times_.data(), shape_.times ? size_ : 0}; }
  /// The weights, (size(),), to be written; empty where the shape has none.
  vector_view<float> weights() noexcept { return {weights_.data(), shape_.weights ? size_ : 0}; }
  /// The further labels, (other labels, size()), to be written.
  matrix_view<float> other_labels() noexcept { return {other_labels_.data(), shape_.other_labels, size_, stride_}; }
  /// The ids of a column of single ids, (size(),), to be written. @pre the column has single ids.
  vector_view<std::int64_t> single_ids(std::int64_t column) noexcept { return {single_data(column), size_}; }
  /// The offsets of a list column, (size() + 1,), to be written, from 0 on. @pre the column has lists, here and below.
  vector_view<std::int64_t> offsets(std::int64_t column) noexcept { return {of(column).offsets.data(), size_ + 1}; }
  /// The ids of a list column, (offsets[size()],), to be written; what was there stays. @pre the column's offsets are written.
  vector_view<std::int64_t> ids(host_exec const& exec, std::int64_t column);
  /// Makes room for so many ids of a list column, for a caller that knows a bound of the ids before the offsets. The old ids are lost where
  /// there was less room. The caller writes ids to `room_of`, and still calls `ids` once the offsets are written.
  void room(host_exec const& exec, std::int64_t column, std::int64_t values);
  /// The room for ids of a list column, as `room` made it.
  vector_view<std::int64_t> room_of(std::int64_t column) noexcept { return of(column).ids.view(); }
  /// Bytes for whoever writes the samples, for a file's text say. The samples do not depend on them; the memory stays for the next time.
  buffer<char>& scratch() noexcept { return scratch_; }

 private:
  struct list_column {
    buffer<std::int64_t> ids{}, offsets{};  // of a list column
    std::int64_t single_row = 0;            // of a single one: which of `single_ids_`
  };

  bool single(std::int64_t column) const noexcept { return !shape_.single.empty() && shape_.single[static_cast<std::size_t>(column)] != 0; }
  list_column& of(std::int64_t column) noexcept { return sparse_[static_cast<std::size_t>(column)]; }
  std::int64_t* single_data(std::int64_t column) noexcept { return single_ids_.data() + of(column).single_row * stride_; }

  // An odd number of cache lines between columns: a row's fields, written one after the other, then fall into different cache sets.
  static constexpr std::int64_t column_stride(std::int64_t rows) noexcept { return 16 * (divide_up(rows, 16) | 1); }

  void show(std::int64_t column) noexcept {
    auto const& list = of(column);
    auto& rows = rows_[static_cast<std::size_t>(column)];
    if (single(column))
      rows = {single_data(column), positions_.data(), size_, stride_};
    else
      rows = {list.ids.data(), list.offsets.data(), size_, list.ids.size()};
  }

  void set_size(std::int64_t size) noexcept {
    size_ = size;
    for (auto& rows : rows_) rows.rows = size;
  }

  // Nothing is changed but where things lie until all the memory is there.
  void reserve(host_exec const& exec, std::int64_t rows);

  template <class T>
  buffer<T> copied_rows(host_exec const& exec, buffer<T> const& from, std::int64_t count, std::int64_t stride) const {
    buffer<T> copy(exec, count * stride);
    for (std::int64_t row = 0; row < count; ++row) std::copy_n(from.data() + row * stride_, size_, copy.data() + row * stride);
    return copy;
  }

  template <class T>
  static void grow_to(host_exec const& exec, buffer<T>& values, std::int64_t size) {
    if (size <= values.size()) return;
    buffer<T> larger(exec, size);
    std::copy(values.begin(), values.end(), larger.begin());
    values = std::move(larger);
  }

  template <class Place>
  void append(host_exec const& exec, vector_view<sample_columns_view const> from, std::int64_t count, Place const& place) {
    auto const before = size_, after = size_ + count;
    reserve(exec, after);
    exec.run(shape_.sparse, [&](std::int64_t c) {
      if (single(c)) return;
      auto* const offsets = of(c).offsets.data();
      for (std::int64_t i = 0; i < count; ++i) {
        auto const at = place(i);
        offsets[before + i + 1] = offsets[before + i] + from[at.source].sparse[c].length(at.row);
      }
    });
    for (std::int64_t c = 0; c < shape_.sparse; ++c) {
      if (!single(c)) grow(exec, of(c).ids, of(c).offsets[after]);
      show(c);
    }

    exec.run(1 + shape_.dense + shape_.sparse, [&](std::int64_t task) {
      if (task == 0) return append_numbers(from, count, place);
      if (task <= shape_.dense) {
        auto* const out = dense_.data() + (task - 1) * stride_ + before;
        for (std::int64_t i = 0; i < count; ++i) out[i] = from[place(i).source].dense.row(task - 1)[place(i).row];
        return;
      }
      auto const column = task - 1 - shape_.dense;
      if (single(column))
        append_single(from, count, place, column);
      else
        append_lists(from, count, place, column);
    });
    set_size(after);
  }

  template <class Place>
  void append_numbers(vector_view<sample_columns_view const> from, std::int64_t count, Place const& place) {
    for (std::int64_t i = 0; i < count; ++i) {
      auto const at = place(i);
      auto const& samples = from[at.source];
      labels_.data()[size_ + i] = samples.labels[at.row];
      if (shape_.sessions) sessions_.data()[size_ + i] = samples.sessions[at.row];
      if (shape_.times) times_.data()[size_ + i] = samples.times[at.row];
      if (shape_.weights) weights_.data()[size_ + i] = samples.weights[at.row];
      for (std::int64_t c = 0; c < shape_.other_labels; ++c)
        other_labels_.data()[c * stride_ + size_ + i] = samples.other_labels.row(c)[at.row];
    }
  }

  template <class Place>
  void append_single(vector_view<sample_columns_view const> from, std::int64_t count, Place const& place, std::int64_t column) {
    auto* const ids = single_data(column) + size_;
    for (std::int64_t i = 0; i < count; ++i) {
      auto const& rows = from[place(i).source].sparse[column];
      ids[i] = rows.values[rows.begin_of(place(i).row)];
    }
  }

  // Samples that follow each other where they come from are copied at once.
  template <class Place>
  void append_lists(vector_view<sample_columns_view const> from, std::int64_t count, Place const& place, std::int64_t column) {
    auto* const ids = of(column).ids.data();
    auto const* const offsets = of(column).offsets.data() + size_;
    for (std::int64_t i = 0; i < count;) {
      auto const first = place(i);
      std::int64_t together = 1;
      while (i + together < count && place(i + together).source == first.source && place(i + together).row == first.row + together)
        ++together;
      auto const& rows = from[first.source].sparse[column];
      std::copy_n(rows.values + rows.begin_of(first.row), offsets[i + together] - offsets[i], ids + offsets[i]);
      i += together;
    }
  }

  template <class T, class F>
  void keep_in(T* values, F const& keeps) const {
    std::int64_t to = 0;
    for (std::int64_t i = 0; i < size_; ++i)
      if (keeps(i)) values[to++] = values[i];
  }

  template <class F>
  void keep_numbers(F const& keeps) {
    keep_in(labels_.data(), keeps);
    if (shape_.sessions) keep_in(sessions_.data(), keeps);
    if (shape_.times) keep_in(times_.data(), keeps);
    if (shape_.weights) keep_in(weights_.data(), keeps);
    for (std::int64_t c = 0; c < shape_.other_labels; ++c) keep_in(other_labels_.data() + c * stride_, keeps);
  }

  // What is written lies at or before what is read next.
  template <class F>
  void keep_lists(std::int64_t column, F const& keeps) {
    auto* const ids = of(column).ids.data();
    auto* const offsets = of(column).offsets.data();
    std::int64_t to = 0, end = offsets[0];
    for (std::int64_t i = 0; i < size_; ++i) {
      auto const first = std::exchange(end, offsets[i + 1]);
      if (!keeps(i)) continue;
      if (offsets[to] != first) std::copy(ids + first, ids + end, ids + offsets[to]);
      offsets[to + 1] = offsets[to] + (end - first);
      ++to;
    }
  }

  void check(sample_columns_view const& from) const { detail::check_columns("sample_columns", shape_, from); }
  static void check(sample_columns_view const& from, std::int64_t row) {
    if (row < 0 || row >= from.size())
      throw error(errc::out_of_range, "sample_columns: no such samples", {{"row", row}, {"samples", from.size()}});
  }

  sample_shape shape_;
  bool has_room_ = false;
  std::int64_t size_ = 0, capacity_ = 0, stride_ = 0, singles_ = 0;
  buffer<float> labels_, weights_;
  buffer<float> dense_, other_labels_;  // (columns, stride)
  buffer<std::int64_t> single_ids_;     // (columns of single ids, stride)
  buffer<std::int64_t> sessions_, times_;
  buffer<std::int64_t> positions_;  // 0, 1, …: the offsets of all columns of single ids
  buffer<char> scratch_;
  std::vector<list_column> sparse_;
  std::vector<jagged_view<std::int64_t const>> rows_;  // of each list column
};

/// Returns the samples in the ascending order of `keys` (samples,), a column of theirs say. Samples of one key stay in their order.
/// @throws tessera::error shape_mismatch for another number of keys.
sample_columns sorted_by(host_exec const& exec, sample_columns const& samples, vector_view<std::int64_t const> keys);

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/data/sample_columns.ipp>
#endif
