// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <parquet/column_reader.h>
#include <parquet/schema.h>
#include <parquet/types.h>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// What a column is read as: which types and nulls it may have follows.
enum class column_role { label, dense, sparse, session, time };

// How a number is stored; integers of 8 and 16 bits as those of 32.
enum class stored_number { boolean, int32, uint32, int64, uint64, float16, float32, float64, none };

// A column of numbers, or of lists of them, as the file has it.
struct parquet_column {
  std::string name;
  column_role role = column_role::label;
  int leaf = 0;  // of all columns of numbers in the file
  stored_number number = stored_number::none;
  bool is_list = false;
  std::int16_t present = 0;   // definition level of a number that is there
  std::int16_t has_slot = 0;  // of a list's element, be it null
};

inline stored_number stored_number_of(parquet::schema::PrimitiveNode const& node) {
  auto const& logical = node.logical_type();
  bool const plain = !logical || logical->is_none() || logical->is_invalid();
  auto const* const integer = logical && logical->is_int() ? static_cast<parquet::IntLogicalType const*>(logical.get()) : nullptr;
  switch (node.physical_type()) {
    case parquet::Type::BOOLEAN: return stored_number::boolean;
    case parquet::Type::INT32:
      if (integer != nullptr) return integer->is_signed() ? stored_number::int32 : stored_number::uint32;
      return plain ? stored_number::int32 : stored_number::none;
    case parquet::Type::INT64:
      if (integer != nullptr) return integer->is_signed() ? stored_number::int64 : stored_number::uint64;
      return plain ? stored_number::int64 : stored_number::none;
    case parquet::Type::FLOAT: return stored_number::float32;
    case parquet::Type::DOUBLE: return stored_number::float64;
    case parquet::Type::FIXED_LEN_BYTE_ARRAY: return logical && logical->is_float16() ? stored_number::float16 : stored_number::none;
    default: return stored_number::none;
  }
}

// Timestamps, dates and times of day are integers too.
inline stored_number stored_time_of(parquet::schema::PrimitiveNode const& node) {
  auto const& logical = node.logical_type();
  if (logical && (logical->is_timestamp() || logical->is_time() || logical->is_date()))
    return node.physical_type() == parquet::Type::INT32 ? stored_number::int32 : stored_number::int64;
  return stored_number_of(node);
}

inline bool is_integer(stored_number number) noexcept {
  return number == stored_number::int32 || number == stored_number::uint32 || number == stored_number::int64 ||
         number == stored_number::uint64;
}

inline std::string type_text(parquet::schema::Node const& node) {
  std::string text(node.is_repeated() ? "repeated " : node.is_optional() ? "optional " : "");
  if (node.is_primitive()) text += parquet::TypeToString(static_cast<parquet::schema::PrimitiveNode const&>(node).physical_type());
  if (auto const& logical = node.logical_type(); logical && !logical->is_none() && !logical->is_invalid()) {
    text += (node.is_primitive() ? " " : "") + logical->ToString();
  } else if (node.is_group()) {
    text += "group";
  }
  if (node.is_group()) {
    auto const& group = static_cast<parquet::schema::GroupNode const&>(node);
    text += " of";
    for (int i = 0; i < group.field_count(); ++i) text += (i == 0 ? " " : " and ") + type_text(*group.field(i));
  }
  return text;
}

// The elements of a list, in any of the forms that writers have given lists; or nullptr. Source: the Parquet format, LogicalTypes.md, "Lists".
inline parquet::schema::Node const* list_element(parquet::schema::Node const& node) {
  if (node.is_repeated()) return node.is_primitive() ? &node : nullptr;
  if (!node.is_group()) return nullptr;
  auto const& list = static_cast<parquet::schema::GroupNode const&>(node);
  if (list.field_count() != 1 || !list.field(0)->is_repeated()) return nullptr;
  auto const& repeated = *list.field(0);
  if (repeated.is_primitive()) return &repeated;
  auto const& group = static_cast<parquet::schema::GroupNode const&>(repeated);
  if (group.field_count() != 1) return nullptr;
  auto const& element = *group.field(0);
  return element.is_primitive() && !element.is_repeated() ? &element : nullptr;
}

// @throws tessera::error incompatible, naming file, column, what was expected and what was found.
inline parquet_column find_parquet_column(parquet::SchemaDescriptor const& schema, std::string const& file, std::string const& name,
                                          column_role role) {
  auto const refuse = [&](std::string const& found) {
    char const* const expected = role == column_role::sparse    ? "lists of integers, or integers"
                                 : role == column_role::session ? "integers"
                                 : role == column_role::time    ? "integers or times"
                                                                : "numbers";
    throw error(errc::incompatible, "parquet_log: a column is missing or of another type",
                {{"file", file}, {"column", name}, {"expected", expected}, {"found", found}});
  };
  parquet::schema::Node const* node = nullptr;
  auto const& root = *schema.group_node();
  for (int i = 0; i < root.field_count(); ++i) {
    if (root.field(i)->name() != name) continue;
    if (node != nullptr) refuse("several columns of that name");
    node = root.field(i).get();
  }
  if (node == nullptr) refuse("no column of that name");

  parquet_column column;
  column.name = name;
  column.role = role;
  auto const* leaf = node;
  if (role == column_role::sparse && (node->is_group() || node->is_repeated())) {
    column.is_list = true;
    leaf = list_element(*node);
  }
  if (leaf == nullptr || !leaf->is_primitive() || (leaf->is_repeated() && !column.is_list)) refuse(type_text(*node));
  auto const& primitive = static_cast<parquet::schema::PrimitiveNode const&>(*leaf);
  column.number = role == column_role::time ? stored_time_of(primitive) : stored_number_of(primitive);
  bool const number = role == column_role::label || role == column_role::dense;
  if (column.number == stored_number::none || (!number && !is_integer(column.number))) refuse(type_text(*node));

  column.leaf = schema.ColumnIndex(*leaf);
  auto const& descriptor = *schema.Column(column.leaf);
  column.present = descriptor.max_definition_level();
  column.has_slot = static_cast<std::int16_t>(column.present - (column.is_list && leaf->is_optional() ? 1 : 0));
  if (descriptor.max_repetition_level() != (column.is_list ? 1 : 0)) refuse(type_text(*node));
  return column;
}

// Reads a column chunk of `rows` rows. Bytes that checksums did not protect may say anything: whatever is found is counted.
class chunk_decoder {
 public:
  chunk_decoder(parquet_column const& column, parquet::ColumnReader& reader, std::int64_t rows, std::int64_t slots)
      : column_(column), reader_(reader), rows_(rows), slots_(slots) {}

  /// out: (rows,). A null becomes `missing`; refused where there is none. @throws what Arrow does; tessera::error without a place.
  template <class Out>
  void read_numbers(Out* out, Out const* missing) {
    switch (column_.number) {
      case stored_number::boolean: return numbers<parquet::BooleanType>(out, missing, [](bool v) { return static_cast<Out>(v); });
      case stored_number::int32: return numbers<parquet::Int32Type>(out, missing, [](std::int32_t v) { return static_cast<Out>(v); });
      case stored_number::uint32:
        return numbers<parquet::Int32Type>(out, missing, [](std::int32_t v) { return static_cast<Out>(static_cast<std::uint32_t>(v)); });
      case stored_number::int64: return numbers<parquet::Int64Type>(out, missing, [](std::int64_t v) { return static_cast<Out>(v); });
      case stored_number::uint64:
        return numbers<parquet::Int64Type>(out, missing, [](std::int64_t v) { return static_cast<Out>(static_cast<std::uint64_t>(v)); });
      case stored_number::float32: return numbers<parquet::FloatType>(out, missing, [](float v) { return static_cast<Out>(v); });
      case stored_number::float64: return numbers<parquet::DoubleType>(out, missing, [](double v) { return static_cast<Out>(v); });
      case stored_number::float16:
        return numbers<parquet::FLBAType>(out, missing, [](parquet::FixedLenByteArray v) {
          return static_cast<Out>(to_float(float16{static_cast<std::uint16_t>(v.ptr[0] | v.ptr[1] << 8)}));
        });
      case stored_number::none: break;
    }
  }

  /// offsets: (rows + 1,); ids: room for as many as there are slots.
  void read_lists(std::int64_t* offsets, std::int64_t* ids) {
    offsets_ = offsets;
    switch (column_.number) {
      case stored_number::int32: return lists<parquet::Int32Type>(ids, [](std::int32_t v) { return std::int64_t{v}; });
      case stored_number::uint32:
        return lists<parquet::Int32Type>(ids, [](std::int32_t v) { return std::int64_t{static_cast<std::uint32_t>(v)}; });
      default: return lists<parquet::Int64Type>(ids, [](std::int64_t v) { return v; });
    }
  }

 private:
  static constexpr std::int64_t at_once = 4096;
  static constexpr int most_empty_pages = 1 << 16;  // one after the other
  using level_array = std::array<std::int16_t, at_once>;

  [[noreturn]] static void fail(char const* what) { throw parquet::ParquetException(what); }
  [[noreturn]] void fail_null(std::int64_t row) const {
    throw error(errc::incompatible, "null", {{"row", row}});  // the log adds the place
  }

  template <class Type>
  auto& typed() const {
    if (reader_.type() != Type::type_num) fail("another type than in the schema");
    return static_cast<parquet::TypedColumnReader<Type>&>(reader_);
  }

  // Values of up to `count` more levels; returns how many levels there were. Values are packed, those that are null left out.
  template <class Type>
  std::int64_t read_batch(parquet::TypedColumnReader<Type>& reader, std::int64_t count, std::int16_t* definition, std::int16_t* repetition,
                          typename Type::c_type* values, std::int64_t& found) const {
    auto levels = reader.ReadBatch(count, definition, repetition, values, &found);
    // Writers end a page behind a long row by one without values.
    for (int empty = 0; levels == 0 && empty < most_empty_pages && reader.HasNext(); ++empty)
      levels = reader.ReadBatch(count, definition, repetition, values, &found);
    if (levels <= 0) fail("fewer values than the footer says");
    auto const expected = column_.present == 0 ? levels : std::count(definition, definition + levels, column_.present);
    if (levels > count || found != expected) fail("a page has another number of values than its levels say");
    return levels;
  }
  void expect_end() const {
    if (reader_.HasNext()) fail("more values than the footer says");
  }

  template <class Type, class Out, class Convert>
  void numbers(Out* out, Out const* missing, Convert const& convert) {
    using stored = typename Type::c_type;
    auto& reader = typed<Type>();
    level_array levels;
    std::array<stored, std::is_same_v<stored, Out> ? 1 : at_once> scratch;
    for (std::int64_t done = 0; done < rows_;) {
      std::int64_t found = 0;
      if constexpr (std::is_same_v<stored, Out>) {
        auto const count = column_.present == 0 ? rows_ - done : std::min(at_once, rows_ - done);
        auto const read = read_batch<Type>(reader, count, levels.data(), nullptr, out + done, found);
        if (found < read)
          spread(
              out + done, levels, read, found, done, missing, [](Out v) { return v; }, out + done);
        done += read;
      } else {
        auto const read = read_batch<Type>(reader, std::min(at_once, rows_ - done), levels.data(), nullptr, scratch.data(), found);
        if (found < read) {
          spread(out + done, levels, read, found, done, missing, convert, scratch.data());
        } else {
          std::transform(scratch.data(), scratch.data() + read, out + done, convert);
        }
        done += read;
      }
    }
    expect_end();
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

  template <class Type, class Convert>
  void lists(std::int64_t* ids, Convert const& convert) {
    using stored = typename Type::c_type;
    auto& reader = typed<Type>();
    level_array definition, repetition;
    std::array<stored, std::is_same_v<stored, std::int64_t> ? 1 : at_once> scratch;
    std::int64_t row = 0, count = 0;  // rows begun, ids read
    for (std::int64_t done = 0; done < slots_;) {
      auto const wanted = std::min(at_once, slots_ - done);
      auto* const repeated = column_.is_list ? repetition.data() : nullptr;
      std::int64_t found = 0, read = 0;
      if constexpr (std::is_same_v<stored, std::int64_t>) {
        read = read_batch<Type>(reader, wanted, definition.data(), repeated, ids + count, found);
      } else {
        read = read_batch<Type>(reader, wanted, definition.data(), repeated, scratch.data(), found);
        std::transform(scratch.data(), scratch.data() + found, ids + count, convert);
      }
      row = column_.is_list ? begin_rows(definition.data(), repetition.data(), read, row, count, found == read)
                            : count_rows(definition.data(), read, row, count);
      count += found;
      done += read;
    }
    expect_end();
    if (row != rows_) fail("another number of rows than the footer says");
    offsets_[rows_] = count;
  }

  // Writes where the rows begin of which these levels tell. Without branches, which lists of a few ids would make mispredict; a write may
  // thus reach the offset behind the last row's.
  std::int64_t begin_rows(std::int16_t const* definition, std::int16_t const* repetition, std::int64_t levels, std::int64_t row,
                          std::int64_t count, bool is_full) const {
    auto const begun = std::count(repetition, repetition + levels, std::int16_t{0});
    if (begun > rows_ - row) fail("more rows than the footer says");
    if (row == 0 && repetition[0] != 0) fail("the first row does not begin");
    if (is_full) {
      for (std::int64_t i = 0; i < levels; ++i) {
        offsets_[row] = count + i;
        row += repetition[i] == 0;
      }
      return row;
    }
    bool is_wrong = false;
    auto const present = column_.present, has_slot = column_.has_slot;
    for (std::int64_t i = 0; i < levels; ++i) {
      offsets_[row] = count;
      row += repetition[i] == 0;
      if (present != has_slot && definition[i] == has_slot) fail_null(row - 1);
      is_wrong |= repetition[i] != 0 && definition[i] < has_slot;
      count += definition[i] == present;
    }
    if (is_wrong) fail("a row has an element that is none");
    return row;
  }

  // Integers that are no lists: each a list of one, a null an empty list.
  std::int64_t count_rows(std::int16_t const* definition, std::int64_t levels, std::int64_t row, std::int64_t count) const {
    for (std::int64_t i = 0; i < levels; ++i) {
      offsets_[row++] = count;
      count += column_.present == 0 || definition[i] == column_.present;
    }
    return row;
  }

  parquet_column const& column_;
  parquet::ColumnReader& reader_;
  std::int64_t rows_;
  std::int64_t slots_;  // as the footer counts: numbers, nulls and empty lists
  std::int64_t* offsets_ = nullptr;
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
