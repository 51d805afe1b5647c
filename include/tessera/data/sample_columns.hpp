// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Which columns a table of samples has, by name.
struct sample_schema {
  std::string label;                // a number, 0 or 1
  std::vector<std::string> dense;   // numbers
  std::vector<std::string> sparse;  // lists of ids; a single id is a list of one
  std::string session;              // an integer; empty: the table has none
  std::string time;                 // an integer, in any unit; empty: the table has none

  sample_schema(std::string label, std::vector<std::string> dense, std::vector<std::string> sparse, std::string session = {},
                std::string time = {})
      : label(std::move(label)), dense(std::move(dense)), sparse(std::move(sparse)), session(std::move(session)), time(std::move(time)) {}

  friend bool operator==(sample_schema const&, sample_schema const&) = default;
};

/// Samples as they stand in a table, column by column. Trivially copyable.
struct sample_columns_view {
  vector_view<float const> labels;                            // (n,)
  matrix_view<float const> dense;                             // (dense columns, n)
  vector_view<jagged_view<std::int64_t const> const> sparse;  // (sparse columns,), each of n rows of ids as they are in the table
  vector_view<std::int64_t const> sessions;                   // (n,), or empty where the table has none
  vector_view<std::int64_t const> times;                      // (n,), or empty where the table has none

  constexpr std::int64_t size() const noexcept { return labels.size(); }
};

/// Row `row` of the samples number `source` among several.
struct sample_place {
  std::int64_t source = 0;
  std::int64_t row = 0;
};

/// Owns samples of one table, in the order in which they were appended. Move-only.
class sample_columns {
 public:
  sample_columns() = default;
  explicit sample_columns(sample_schema const& schema)
      : sample_columns(static_cast<std::int64_t>(schema.dense.size()), static_cast<std::int64_t>(schema.sparse.size()),
                       !schema.session.empty(), !schema.time.empty()) {}
  sample_columns(std::int64_t dense, std::int64_t sparse, bool with_sessions, bool with_times)
      : dense_columns_(dense),
        with_sessions_(with_sessions),
        with_times_(with_times),
        sparse_(static_cast<std::size_t>(sparse)),
        rows_(sparse_.size()) {}

  std::int64_t size() const noexcept { return size_; }
  std::int64_t dense_columns() const noexcept { return dense_columns_; }
  std::int64_t sparse_columns() const noexcept { return static_cast<std::int64_t>(sparse_.size()); }
  bool with_sessions() const noexcept { return with_sessions_; }
  bool with_times() const noexcept { return with_times_; }
  /// Whether it has as many columns of each kind as the schema names.
  bool has_columns_of(sample_schema const& schema) const noexcept {
    return dense_columns_ == static_cast<std::int64_t>(schema.dense.size()) && sparse_.size() == schema.sparse.size() &&
           with_sessions_ == !schema.session.empty() && with_times_ == !schema.time.empty();
  }
  /// Forgets all samples and keeps the memory.
  void clear() noexcept { set_size(0); }

  /// Shown until the next call that changes anything.
  sample_columns_view view() const noexcept {
    return {{labels_.data(), size_},
            {dense_.data(), dense_columns_, size_, stride_},
            rows_,
            {sessions_.data(), with_sessions_ ? size_ : 0},
            {times_.data(), with_times_ ? size_ : 0}};
  }

  /// Appends samples [first, first + count) of others, a column a thread. @pre none of them is in these.
  /// @throws tessera::error shape_mismatch where the others have other columns, out_of_range for samples that are not there; and what the
  /// memory throws. These samples are then as they were.
  void append(host_exec const& exec, sample_columns_view from, std::int64_t first, std::int64_t count) {
    check(from);
    if (first < 0 || count < 0 || first > from.size() - count)
      throw error(errc::out_of_range, "sample_columns: no such samples", {{"first", first}, {"count", count}, {"samples", from.size()}});
    append(exec, {&from, 1}, count, [=](std::int64_t i) { return sample_place{0, first + i}; });
  }

  /// Appends samples indices[0], indices[1], … of others; an index may come again. @throws as above.
  void append(host_exec const& exec, sample_columns_view from, vector_view<std::int64_t const> indices) {
    check(from);
    for (auto const index : indices) check(from, index);
    append(exec, {&from, 1}, indices.size(), [=](std::int64_t i) { return sample_place{0, indices[i]}; });
  }

  /// Appends samples of several others: those at places[0], places[1], …; a place may come again. @throws as above.
  void append(host_exec const& exec, vector_view<sample_columns_view const> from, vector_view<sample_place const> places) {
    for (auto const& samples : from) check(samples);
    for (auto const& place : places) {
      if (place.source < 0 || place.source >= from.size())
        throw error(errc::out_of_range, "sample_columns: no such samples", {{"source", place.source}, {"sources", from.size()}});
      check(from[place.source], place.row);
    }
    append(exec, from, places.size(), [=](std::int64_t i) { return places[i]; });
  }

  /// Taken from the memory of the execution.
  std::size_t bytes() const noexcept {
    auto sum = labels_.capacity_bytes() + dense_.capacity_bytes() + sessions_.capacity_bytes() + times_.capacity_bytes();
    for (auto const& column : sparse_) sum += column.ids.capacity_bytes() + column.offsets.capacity_bytes();
    return sum;
  }

  /// Makes room for `rows` samples in all, whose values the caller writes: labels, dense, sessions, times, and for each list column its
  /// offsets, then its ids.
  void resize(host_exec const& exec, std::int64_t rows) {
    reserve(exec, rows);
    set_size(rows);
  }
  vector_view<float> labels() noexcept { return {labels_.data(), size_}; }
  /// (dense columns, size()).
  matrix_view<float> dense() noexcept { return {dense_.data(), dense_columns_, size_, stride_}; }
  vector_view<std::int64_t> sessions() noexcept { return {sessions_.data(), with_sessions_ ? size_ : 0}; }
  vector_view<std::int64_t> times() noexcept { return {times_.data(), with_times_ ? size_ : 0}; }
  /// The offsets of a list column, (size() + 1,), which the caller writes, from 0 on.
  vector_view<std::int64_t> offsets(std::int64_t column) noexcept { return {of(column).offsets.data(), size_ + 1}; }
  /// The ids of a list column, (offsets[size()],); what was there stays. @pre the column's offsets are written.
  vector_view<std::int64_t> ids(host_exec const& exec, std::int64_t column) {
    auto& list = of(column);
    auto const values = list.offsets[size_];
    grow(exec, list.ids, values);
    show(column);
    return {list.ids.data(), values};
  }
  /// Instead, where a bound of the ids is known before the offsets are: makes room for so many, whose old contents are lost. They are written
  /// to `room_of`; `ids` is still to be called when the offsets are there.
  void room(host_exec const& exec, std::int64_t column, std::int64_t values) {
    auto& list = of(column);
    if (values > list.ids.size()) list.ids.resize(exec, values);
    show(column);
  }
  vector_view<std::int64_t> room_of(std::int64_t column) noexcept { return of(column).ids.view(); }

 private:
  struct list_column {
    buffer<std::int64_t> ids, offsets;
  };

  list_column& of(std::int64_t column) noexcept { return sparse_[static_cast<std::size_t>(column)]; }

  void show(std::int64_t column) noexcept {
    auto const& list = of(column);
    rows_[static_cast<std::size_t>(column)] = {list.ids.data(), list.offsets.data(), size_, list.ids.size()};
  }

  void set_size(std::int64_t size) noexcept {
    size_ = size;
    for (auto& rows : rows_) rows.rows = size;
  }

  // Nothing is changed but where things lie until all the memory is there.
  void reserve(host_exec const& exec, std::int64_t rows) {
    if (rows <= capacity_ && (capacity_ > 0 || sparse_.empty() || !sparse_.back().offsets.empty())) return;
    auto const capacity = capacity_ == 0 ? rows : std::max(rows, 2 * capacity_);
    buffer<float> dense(exec, dense_columns_ * capacity);
    for (std::int64_t c = 0; c < dense_columns_; ++c) std::copy_n(dense_.data() + c * stride_, size_, dense.data() + c * capacity);
    grow_to(exec, labels_, capacity);
    if (with_sessions_) grow_to(exec, sessions_, capacity);
    if (with_times_) grow_to(exec, times_, capacity);
    for (std::int64_t c = 0; c < sparse_columns(); ++c) {
      auto& offsets = of(c).offsets;
      bool const is_new = offsets.empty();
      grow_to(exec, offsets, capacity + 1);
      if (is_new) offsets[0] = 0;
      rows_[static_cast<std::size_t>(c)].offsets = offsets.data();
    }
    dense_ = std::move(dense);
    stride_ = capacity_ = capacity;
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
    exec.run(sparse_columns(), [&](std::int64_t c) {
      auto* const offsets = of(c).offsets.data();
      for (std::int64_t i = 0; i < count; ++i) {
        auto const at = place(i);
        offsets[before + i + 1] = offsets[before + i] + from[at.source].sparse[c].length(at.row);
      }
    });
    for (std::int64_t c = 0; c < sparse_columns(); ++c) {
      grow(exec, of(c).ids, of(c).offsets[after]);
      show(c);
    }

    exec.run(1 + dense_columns_ + sparse_columns(), [&](std::int64_t task) {
      if (task == 0) return append_numbers(from, count, place);
      if (task <= dense_columns_) {
        auto* const out = dense_.data() + (task - 1) * stride_ + before;
        for (std::int64_t i = 0; i < count; ++i) out[i] = from[place(i).source].dense.row(task - 1)[place(i).row];
        return;
      }
      append_lists(from, count, place, task - 1 - dense_columns_);
    });
    set_size(after);
  }

  template <class Place>
  void append_numbers(vector_view<sample_columns_view const> from, std::int64_t count, Place const& place) {
    for (std::int64_t i = 0; i < count; ++i) {
      auto const at = place(i);
      labels_.data()[size_ + i] = from[at.source].labels[at.row];
      if (with_sessions_) sessions_.data()[size_ + i] = from[at.source].sessions[at.row];
      if (with_times_) times_.data()[size_ + i] = from[at.source].times[at.row];
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

  void check(sample_columns_view const& from) const {
    bool fits = from.dense.rows() == dense_columns_ && from.sparse.size() == sparse_columns() &&
                (from.dense.rows() == 0 || from.dense.columns() == from.size()) &&
                (!with_sessions_ || from.sessions.size() == from.size()) && (!with_times_ || from.times.size() == from.size());
    for (auto const& rows : from.sparse) fits = fits && rows.rows == from.size();
    if (fits) return;
    throw error(errc::shape_mismatch, "sample_columns: samples with other columns",
                {{"dense", from.dense.rows()},
                 {"dense expected", dense_columns_},
                 {"sparse", from.sparse.size()},
                 {"sparse expected", sparse_columns()},
                 {"sessions", from.sessions.size()},
                 {"times", from.times.size()},
                 {"samples", from.size()}});
  }
  static void check(sample_columns_view const& from, std::int64_t row) {
    if (row < 0 || row >= from.size())
      throw error(errc::out_of_range, "sample_columns: no such samples", {{"row", row}, {"samples", from.size()}});
  }

  std::int64_t dense_columns_ = 0;
  bool with_sessions_ = false, with_times_ = false;
  std::int64_t size_ = 0, capacity_ = 0, stride_ = 0;
  buffer<float> labels_, dense_;  // dense: (dense columns, capacity)
  buffer<std::int64_t> sessions_, times_;
  std::vector<list_column> sparse_;
  std::vector<jagged_view<std::int64_t const>> rows_;  // of each list column
};

/// The samples in the ascending order of `keys` (samples,): a column of theirs, say. Those of one key stay in their order.
/// @throws tessera::error shape_mismatch for another number of keys.
inline sample_columns sorted_by(host_exec const& exec, sample_columns const& samples, vector_view<std::int64_t const> keys) {
  if (keys.size() != samples.size())
    throw error(errc::shape_mismatch, "sorted_by: a key for each sample", {{"keys", keys.size()}, {"samples", samples.size()}});
  std::vector<std::int64_t> order(static_cast<std::size_t>(keys.size()));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(), [keys](std::int64_t a, std::int64_t b) { return keys[a] < keys[b]; });
  sample_columns sorted(samples.dense_columns(), samples.sparse_columns(), samples.with_sessions(), samples.with_times());
  sorted.append(exec, samples.view(), order);
  return sorted;
}

/// A table of samples that is read block by block, in any order. Blocks are numbered from 0, are not empty, and in order are the table.
/// - `schema()`: its columns.
/// - `block_count()`; `rows()` in all, `rows(block)`, at least 1; `first_row(block)`: the number of a block's first row in the table.
/// - `read(exec, block, out)`: `out` becomes the block's samples, whatever was in it and whatever columns it had.
template <class S>
concept sample_source = requires(S const& source, host_exec const& exec, std::int64_t block, sample_columns& out) {
  { source.schema() } -> std::convertible_to<sample_schema const&>;
  { source.block_count() } -> std::same_as<std::int64_t>;
  { source.rows() } -> std::same_as<std::int64_t>;
  { source.rows(block) } -> std::same_as<std::int64_t>;
  { source.first_row(block) } -> std::same_as<std::int64_t>;
  source.read(exec, block, out);
};

/// A source that can be told from others: `fingerprint()` is a checksum that other data have, almost surely, otherwise.
template <class S>
concept fingerprinted_source = sample_source<S> && requires(S const& source) {
  { source.fingerprint() } -> std::same_as<std::uint32_t>;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
