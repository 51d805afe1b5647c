// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <arrow/memory_pool.h>
#include <parquet/column_reader.h>
#include <parquet/exception.h>
#include <parquet/types.h>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/hash_text.hpp>
#include <tessera/data/parquet_columns.hpp>
#include <tessera/data/parquet_pages.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// Where rows of ids go. Those for which `room` has no place follow in `overflow`.
struct list_rows {
  std::int64_t* offsets = nullptr;  // (rows + 1,)
  vector_view<std::int64_t> room;
  std::int64_t in_room = 0;
  std::vector<std::int64_t> overflow{};

  // Room for `more` ids behind `count`.
  std::int64_t* at(std::int64_t count, std::int64_t more) {
    if (overflow.empty() && count + more <= room.size()) {
      in_room = count + more;
      return room.data() + count;
    }
    if (overflow.empty()) in_room = count;
    overflow.resize(static_cast<std::size_t>(count - in_room + more));
    return overflow.data() + (count - in_room);
  }
};

// Microseconds since 1970 of nanoseconds of a day and a Julian day, as older Spark and Hive have it.
inline std::int64_t time_of_int96(parquet::Int96 const& time) noexcept {
  constexpr std::uint64_t day_of_1970 = 2'440'588, day = 86'400'000'000;
  auto const nanoseconds = std::uint64_t{time.value[0]} | std::uint64_t{time.value[1]} << 32;
  return static_cast<std::int64_t>((time.value[2] - day_of_1970) * day + nanoseconds / 1000);
}

// Reads rows of a column chunk one after the other. Bytes that checksums did not protect may say anything: whatever is found is counted.
class chunk_cursor {
 public:
  /// `rows`: of the chunk.
  chunk_cursor(open_parquet const& file, int row_group, parquet_column const& column, std::int64_t rows, arrow::MemoryPool* pool)
      : file_(file), row_group_(row_group), column_(column), rows_left_(rows), pool_(pool) {}
  chunk_cursor(chunk_cursor const&) = delete;

  /// Comes to a row, which begins in the page at which reading starts, or behind it. @throws as reading does.
  void open(std::int64_t row, page_start const& start, bool verify, bool is_whole) {
    progress_.is_list = column_.is_list;
    progress_.is_noted = !is_whole;
    progress_.first_wanted = row;
    auto pages = open_pages(file_, row_group_, column_.leaf, start, verify, is_whole, pool_, progress_, stream_);
    auto const& metadata = *file_.footer.metadata;
    slots_left_ = metadata.RowGroup(row_group_)->ColumnChunk(column_.leaf)->num_values() - start.page.slots;
    rows_left_ -= row;
    reader_ = parquet::ColumnReader::Make(metadata.schema()->Column(column_.leaf), std::move(pages), pool_);
    if (row > 0) skip_to(row, start.page);
  }

  std::vector<known_page>& pages() noexcept { return progress_.pages; }
  /// What reading the file failed by, of which Arrow knows only that it did.
  std::exception_ptr failure() const noexcept { return stream_ == nullptr ? nullptr : stream_->failure(); }

  /// out: (rows,). A null becomes `missing`; refused where there is none. @throws what Arrow does; tessera::error without a place.
  void read_floats(std::int64_t rows, float* out, float const* missing) {
    switch (column_.stored) {
      case stored_value::boolean: return numbers<parquet::BooleanType>(rows, out, missing, [](bool v) { return v ? 1.0F : 0.0F; });
      case stored_value::int32: return numbers<parquet::Int32Type>(rows, out, missing, as_float);
      case stored_value::uint32:
        return numbers<parquet::Int32Type>(rows, out, missing, [](auto v) { return static_cast<float>(static_cast<std::uint32_t>(v)); });
      case stored_value::int64: return numbers<parquet::Int64Type>(rows, out, missing, as_float);
      case stored_value::uint64:
        return numbers<parquet::Int64Type>(rows, out, missing, [](auto v) { return static_cast<float>(static_cast<std::uint64_t>(v)); });
      case stored_value::float32: return numbers<parquet::FloatType>(rows, out, missing, as_float);
      case stored_value::float64: return numbers<parquet::DoubleType>(rows, out, missing, as_float);
      case stored_value::float16:
        return numbers<parquet::FLBAType>(rows, out, missing, [](parquet::FixedLenByteArray v) {
          return to_float(float16{static_cast<std::uint16_t>(v.ptr[0] | v.ptr[1] << 8)});
        });
      default: fail("no number");
    }
  }

  void read_integers(std::int64_t rows, std::int64_t* out, std::int64_t const* missing) {
    integers([&](auto type, auto const& convert) { numbers<decltype(type)>(rows, out, missing, convert); });
  }

  /// out.offsets: (rows + 1,). A null is an empty list.
  void read_lists(std::int64_t rows, list_rows& out) {
    integers([&](auto type, auto const& convert) {
      column_.is_list ? lists<decltype(type)>(rows, out, convert) : lists_of_one<decltype(type)>(rows, out, convert);
    });
  }

 private:
  static constexpr std::int64_t at_once = 4096;
  static constexpr int most_empty_pages = 1 << 16;  // one after the other
  static constexpr auto as_float = [](auto v) { return static_cast<float>(v); };
  using level_array = std::array<std::int16_t, at_once>;

  // What was read of rows behind those that were asked for.
  struct carried_levels {
    std::vector<std::int16_t> definition, repetition;
    std::vector<std::int64_t> ids;
  };

  [[noreturn]] static void fail(char const* what) { throw parquet::ParquetException(what); }
  [[noreturn]] void fail_null(std::int64_t row) const {
    throw error(errc::incompatible, "null", {{"row", row}});  // the log adds the place
  }

  // f(type, how a value becomes an integer).
  template <class F>
  void integers(F const& f) {
    switch (column_.stored) {
      case stored_value::int32: return f(parquet::Int32Type(), [](std::int32_t v) { return std::int64_t{v}; });
      case stored_value::uint32: return f(parquet::Int32Type(), [](std::int32_t v) { return std::int64_t{static_cast<std::uint32_t>(v)}; });
      case stored_value::int64:
      case stored_value::uint64: return f(parquet::Int64Type(), [](std::int64_t v) { return v; });
      case stored_value::int96: return f(parquet::Int96Type(), [](parquet::Int96 const& v) { return time_of_int96(v); });
      case stored_value::text:
        return f(parquet::ByteArrayType(), [](parquet::ByteArray v) { return hash_text({reinterpret_cast<char const*>(v.ptr), v.len}); });
      default: fail("no integer");
    }
  }

  template <class Type>
  auto& typed() const {
    if (reader_->type() != Type::type_num) fail("another type than in the schema");
    return static_cast<parquet::TypedColumnReader<Type>&>(*reader_);
  }

  // Values of up to `count` more levels; returns how many levels there were. Values are packed, those that are null left out.
  template <class Type>
  std::int64_t read_batch(std::int64_t count, std::int16_t* definition, std::int16_t* repetition, typename Type::c_type* values,
                          std::int64_t& found) {
    auto& reader = typed<Type>();
    auto levels = reader.ReadBatch(count, definition, repetition, values, &found);
    // Writers end a page behind a long row by one without values.
    for (int empty = 0; levels == 0 && empty < most_empty_pages && reader.HasNext(); ++empty)
      levels = reader.ReadBatch(count, definition, repetition, values, &found);
    if (levels <= 0) fail("fewer values than the footer says");
    auto const expected = column_.present == 0 ? levels : std::count(definition, definition + levels, column_.present);
    if (levels > count || found != expected) fail("a page has another number of values than its levels say");
    slots_left_ -= levels;
    return levels;
  }
  // Behind rows that were read.
  void pass(std::int64_t rows) {
    rows_left_ -= rows;
    if (rows_left_ == 0 && (slots_left_ != 0 || reader_->HasNext())) fail("more values than the footer says");
  }

  template <class Type, class Out, class Convert>
  void numbers(std::int64_t rows, Out* out, Out const* missing, Convert const& convert) {
    using stored = typename Type::c_type;
    level_array levels;
    std::array<stored, std::is_same_v<stored, Out> ? 1 : at_once> scratch;
    for (std::int64_t done = 0; done < rows;) {
      std::int64_t found = 0, read = 0;
      if constexpr (std::is_same_v<stored, Out>) {
        auto const count = column_.present == 0 ? rows - done : std::min(at_once, rows - done);
        read = read_batch<Type>(count, levels.data(), nullptr, out + done, found);
        if (found < read)
          spread(
              out + done, levels, read, found, done, missing, [](Out v) { return v; }, out + done);
      } else {
        read = read_batch<Type>(std::min(at_once, rows - done), levels.data(), nullptr, scratch.data(), found);
        if (found < read) {
          spread(out + done, levels, read, found, done, missing, convert, scratch.data());
        } else {
          std::transform(scratch.data(), scratch.data() + read, out + done, convert);
        }
      }
      done += read;
    }
    pass(rows);
  }

  // Packed values to where they belong, from the back, since both may lie in the same memory.
  template <class Out, class Stored, class Convert>
  void spread(Out* out, level_array const& levels, std::int64_t count, std::int64_t found, std::int64_t first_row, Out const* missing,
              Convert const& convert, Stored const* packed) const {
    for (auto i = count; i-- > 0;) {
      bool const is_null = levels[static_cast<std::size_t>(i)] != column_.present;
      if (is_null && missing == nullptr) fail_null(first_row + first_null(levels, count));
      out[i] = is_null ? *missing : convert(packed[--found]);
    }
  }
  std::int64_t first_null(level_array const& levels, std::int64_t count) const {
    return std::find_if(levels.begin(), levels.begin() + count, [&](std::int16_t level) { return level != column_.present; }) -
           levels.begin();
  }

  // Ids of up to `count` more levels.
  template <class Type, class Convert>
  std::int64_t read_ids(std::int64_t count, std::int16_t* definition, std::int16_t* repetition, std::int64_t* ids, std::int64_t& found,
                        Convert const& convert) {
    if constexpr (std::is_same_v<typename Type::c_type, std::int64_t>) {
      return read_batch<Type>(count, definition, repetition, ids, found);
    } else {
      std::array<typename Type::c_type, at_once> scratch;
      auto const levels = read_batch<Type>(count, definition, repetition, scratch.data(), found);
      std::transform(scratch.data(), scratch.data() + found, ids, convert);
      return levels;
    }
  }

  template <class Type, class Convert>
  void lists(std::int64_t rows, list_rows& out, Convert const& convert) {
    level_array definition, repetition;
    std::int64_t row = 0, count = 0;  // rows begun, ids of theirs
    bool is_done = false;
    while (!is_done) {
      std::int64_t levels = 0, found = 0;
      std::int64_t* ids = nullptr;
      if (auto& carried = carried_; !carried.definition.empty()) {
        levels = static_cast<std::int64_t>(carried.definition.size());
        found = static_cast<std::int64_t>(carried.ids.size());
        ids = out.at(count, found);
        std::copy(carried.definition.begin(), carried.definition.end(), definition.begin());
        std::copy(carried.repetition.begin(), carried.repetition.end(), repetition.begin());
        std::copy(carried.ids.begin(), carried.ids.end(), ids);
        carried.definition.clear();
      } else {
        if (slots_left_ <= 0) break;
        auto const wanted = std::min(at_once, slots_left_);
        ids = out.at(count, wanted);
        levels = read_ids<Type>(wanted, definition.data(), repetition.data(), ids, found, convert);
        progress_.rows_begun += std::count(repetition.begin(), repetition.begin() + levels, std::int16_t{0});
      }
      auto const used = levels_of(repetition.data(), levels, rows - row);
      is_done = used < levels;
      if (row == 0 && repetition[0] != 0) fail("the first row does not begin");
      row = begin_rows(definition.data(), repetition.data(), used, row, count, found == levels, out.offsets);
      auto const ids_used = found == levels ? used : std::count(definition.data(), definition.data() + used, column_.present);
      if (is_done) carry(definition.data() + used, repetition.data() + used, levels - used, ids + ids_used, found - ids_used);
      count += ids_used;
    }
    if (is_done && rows == rows_left_) fail("more rows than the footer says");
    if (row != rows) fail("fewer rows than the footer says");
    out.offsets[rows] = count;
    out.at(count, 0);
    pass(rows);
  }

  // How many of these levels are of the next `rows` rows.
  static std::int64_t levels_of(std::int16_t const* repetition, std::int64_t levels, std::int64_t rows) {
    auto const begun = std::count(repetition, repetition + levels, std::int16_t{0});
    if (begun <= rows) return levels;
    std::int64_t end = levels;
    for (auto behind = begun - rows; behind > 0;) behind -= repetition[--end] == 0;
    return end;
  }

  void carry(std::int16_t const* definition, std::int16_t const* repetition, std::int64_t levels, std::int64_t const* ids,
             std::int64_t count) {
    carried_.definition.assign(definition, definition + levels);
    carried_.repetition.assign(repetition, repetition + levels);
    carried_.ids.assign(ids, ids + count);
  }

  // Writes where the rows begin of which these levels tell. Without branches, which lists of a few ids would make mispredict; a write may
  // thus reach the offset behind the last row's.
  std::int64_t begin_rows(std::int16_t const* definition, std::int16_t const* repetition, std::int64_t levels, std::int64_t row,
                          std::int64_t count, bool is_full, std::int64_t* offsets) const {
    if (is_full) {
      for (std::int64_t i = 0; i < levels; ++i) {
        offsets[row] = count + i;
        row += repetition[i] == 0;
      }
      return row;
    }
    bool is_wrong = false;
    auto const present = column_.present, has_slot = column_.has_slot;
    for (std::int64_t i = 0; i < levels; ++i) {
      offsets[row] = count;
      row += repetition[i] == 0;
      if (present != has_slot && definition[i] == has_slot) fail_null(row - 1);
      is_wrong |= repetition[i] != 0 && definition[i] < has_slot;
      count += definition[i] == present;
    }
    if (is_wrong) fail("a row has an element that is none");
    return row;
  }

  // Of a column without lists.
  template <class Type, class Convert>
  void lists_of_one(std::int64_t rows, list_rows& out, Convert const& convert) {
    level_array definition;
    std::int64_t count = 0;
    for (std::int64_t row = 0; row < rows;) {
      auto const wanted = std::min(at_once, rows - row);
      std::int64_t found = 0;
      auto const levels = read_ids<Type>(wanted, definition.data(), nullptr, out.at(count, wanted), found, convert);
      for (std::int64_t i = 0; i < levels; ++i) {
        out.offsets[row++] = count;
        count += column_.present == 0 || definition[static_cast<std::size_t>(i)] == column_.present;
      }
    }
    out.offsets[rows] = count;
    out.at(count, 0);
    pass(rows);
  }

  // To this row of the chunk.
  void skip_to(std::int64_t row, known_page const& start) {
    if (column_.is_list) return integers([&](auto type, auto const& convert) { skip_lists<decltype(type)>(row - start.rows, convert); });
    for (int empty = 0; !reader_->HasNext(); ++empty)
      if (empty == most_empty_pages) fail("fewer values than the footer says");
    auto const rows = row - progress_.page_first;  // of the page that is open now
    slots_left_ -= row - start.slots;
    if (rows > 0 && skip(rows) != rows) fail("fewer values than the footer says");
  }

  std::int64_t skip(std::int64_t values) {
    switch (reader_->type()) {
      case parquet::Type::BOOLEAN: return typed<parquet::BooleanType>().Skip(values);
      case parquet::Type::INT32: return typed<parquet::Int32Type>().Skip(values);
      case parquet::Type::INT64: return typed<parquet::Int64Type>().Skip(values);
      case parquet::Type::INT96: return typed<parquet::Int96Type>().Skip(values);
      case parquet::Type::FLOAT: return typed<parquet::FloatType>().Skip(values);
      case parquet::Type::DOUBLE: return typed<parquet::DoubleType>().Skip(values);
      case parquet::Type::BYTE_ARRAY: return typed<parquet::ByteArrayType>().Skip(values);
      case parquet::Type::FIXED_LEN_BYTE_ARRAY: return typed<parquet::FLBAType>().Skip(values);
      default: fail("another type than in the schema");
    }
  }

  // Past so many rows, and past what else there is of a row that began in an earlier page.
  template <class Type, class Convert>
  void skip_lists(std::int64_t rows, Convert const& convert) {
    level_array definition, repetition;
    std::array<std::int64_t, at_once> ids;
    for (;;) {
      if (slots_left_ <= 0) fail("fewer rows than the footer says");
      std::int64_t found = 0;
      auto const levels = read_ids<Type>(std::min(at_once, slots_left_), definition.data(), repetition.data(), ids.data(), found, convert);
      auto const used = levels_of(repetition.data(), levels, rows);
      auto const begun = std::count(repetition.begin(), repetition.begin() + used, std::int16_t{0});
      rows -= begun;
      progress_.rows_begun += std::count(repetition.begin(), repetition.begin() + levels, std::int16_t{0});
      if (used == levels) continue;
      auto const ids_used = std::count(definition.begin(), definition.begin() + used, column_.present);
      return carry(definition.data() + used, repetition.data() + used, levels - used, ids.data() + ids_used, found - ids_used);
    }
  }

  open_parquet const& file_;
  int row_group_;
  parquet_column const& column_;
  std::int64_t rows_left_;
  arrow::MemoryPool* pool_;
  std::int64_t slots_left_ = 0;  // as the footer counts: values, nulls and empty lists
  page_progress progress_;
  std::shared_ptr<chunk_stream> stream_;
  std::shared_ptr<parquet::ColumnReader> reader_;
  carried_levels carried_;
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
