// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <parquet/schema.h>
#include <parquet/types.h>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/data/sample_schema.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// What a column is read as: which types and nulls it may have follows.
enum class column_role { label, dense, list, single, session, time, weight, other_label };

// How a value is stored; integers of 8 and 16 bits as those of 32.
enum class stored_value { boolean, int32, uint32, int64, uint64, float16, float32, float64, int96, text, none };

// A column of values, or of lists of them, as the file has it.
struct parquet_column {
  std::string name;
  column_role role = column_role::label;
  std::int64_t index = 0;  // of the schema's dense columns, sparse columns or other labels
  int leaf = 0;            // of all columns of values in the file
  stored_value stored = stored_value::none;
  bool is_list = false;       // in the file
  std::int16_t present = 0;   // definition level of a value that is there
  std::int16_t has_slot = 0;  // of a list's element, be it null
};

// A column that a schema names. One that is dense and sparse comes twice.
struct named_column {
  std::string name;
  column_role role = column_role::label;
  std::int64_t index = 0;
};

// In the order in which a file of ours has them.
inline std::vector<named_column> named_columns(sample_schema const& schema) {
  std::vector<named_column> columns{{schema.label, column_role::label, 0}};
  auto const add = [&](std::vector<std::string> const& names, auto const& role_of) {
    for (std::size_t i = 0; i < names.size(); ++i) columns.push_back({names[i], role_of(names[i]), static_cast<std::int64_t>(i)});
  };
  add(schema.dense, [](std::string const&) { return column_role::dense; });
  add(schema.sparse, [&](std::string const& name) { return schema.is_single(name) ? column_role::single : column_role::list; });
  if (!schema.session.empty()) columns.push_back({schema.session, column_role::session, 0});
  if (!schema.time.empty()) columns.push_back({schema.time, column_role::time, 0});
  if (!schema.weight.empty()) columns.push_back({schema.weight, column_role::weight, 0});
  add(schema.other_labels, [](std::string const&) { return column_role::other_label; });
  return columns;
}

inline bool is_number(column_role role) noexcept {
  return role == column_role::label || role == column_role::dense || role == column_role::weight || role == column_role::other_label;
}

inline stored_value stored_value_of(parquet::schema::PrimitiveNode const& node) {
  auto const& logical = node.logical_type();
  bool const plain = !logical || logical->is_none() || logical->is_invalid();
  auto const* const integer = logical && logical->is_int() ? static_cast<parquet::IntLogicalType const*>(logical.get()) : nullptr;
  switch (node.physical_type()) {
    case parquet::Type::BOOLEAN: return stored_value::boolean;
    case parquet::Type::INT32:
      if (integer != nullptr) return integer->is_signed() ? stored_value::int32 : stored_value::uint32;
      return plain ? stored_value::int32 : stored_value::none;
    case parquet::Type::INT64:
      if (integer != nullptr) return integer->is_signed() ? stored_value::int64 : stored_value::uint64;
      return plain ? stored_value::int64 : stored_value::none;
    case parquet::Type::INT96: return stored_value::int96;
    case parquet::Type::FLOAT: return stored_value::float32;
    case parquet::Type::DOUBLE: return stored_value::float64;
    case parquet::Type::BYTE_ARRAY:
      return plain || logical->is_string() || logical->is_enum() || logical->is_JSON() ? stored_value::text : stored_value::none;
    case parquet::Type::FIXED_LEN_BYTE_ARRAY: return logical && logical->is_float16() ? stored_value::float16 : stored_value::none;
    default: return stored_value::none;
  }
}

// Timestamps, dates and times of day are integers too.
inline stored_value stored_time_of(parquet::schema::PrimitiveNode const& node) {
  auto const& logical = node.logical_type();
  if (logical && (logical->is_timestamp() || logical->is_time() || logical->is_date()))
    return node.physical_type() == parquet::Type::INT32 ? stored_value::int32 : stored_value::int64;
  return stored_value_of(node);
}

inline bool is_integer(stored_value stored) noexcept {
  return stored == stored_value::int32 || stored == stored_value::uint32 || stored == stored_value::int64 || stored == stored_value::uint64;
}

inline bool may_be(column_role role, stored_value stored) noexcept {
  if (stored == stored_value::none) return false;
  if (is_number(role)) return stored != stored_value::text && stored != stored_value::int96;
  return is_integer(stored) || stored == (role == column_role::time ? stored_value::int96 : stored_value::text);
}

inline char const* expected_of(column_role role) noexcept {
  if (is_number(role)) return "numbers";
  if (role == column_role::time) return "integers or times";
  return role == column_role::list ? "integers or texts, or lists of them" : "integers or texts";
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
inline parquet_column find_parquet_column(parquet::SchemaDescriptor const& schema, std::string const& file, named_column const& wanted) {
  auto const refuse = [&](std::string const& found) {
    throw error(errc::incompatible, "parquet_log: a column is missing or of another type",
                {{"file", file}, {"column", wanted.name}, {"expected", expected_of(wanted.role)}, {"found", found}});
  };
  parquet::schema::Node const* node = nullptr;
  auto const& root = *schema.group_node();
  for (int i = 0; i < root.field_count(); ++i) {
    if (root.field(i)->name() != wanted.name) continue;
    if (node != nullptr) refuse("several columns of that name");
    node = root.field(i).get();
  }
  if (node == nullptr) refuse("no column of that name");

  parquet_column column;
  column.name = wanted.name;
  column.role = wanted.role;
  column.index = wanted.index;
  auto const* leaf = node;
  if (wanted.role == column_role::list && (node->is_group() || node->is_repeated())) {
    column.is_list = true;
    leaf = list_element(*node);
  }
  if (leaf == nullptr || !leaf->is_primitive() || (leaf->is_repeated() && !column.is_list)) refuse(type_text(*node));
  auto const& primitive = static_cast<parquet::schema::PrimitiveNode const&>(*leaf);
  column.stored = wanted.role == column_role::time ? stored_time_of(primitive) : stored_value_of(primitive);
  if (!may_be(wanted.role, column.stored)) refuse(type_text(*node));

  column.leaf = schema.ColumnIndex(*leaf);
  auto const& descriptor = *schema.Column(column.leaf);
  column.present = descriptor.max_definition_level();
  column.has_slot = static_cast<std::int16_t>(column.present - (column.is_list && leaf->is_optional() ? 1 : 0));
  if (descriptor.max_repetition_level() != (column.is_list ? 1 : 0)) refuse(type_text(*node));
  return column;
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
