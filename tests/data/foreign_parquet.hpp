// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <arrow/io/file.h>
#include <parquet/column_writer.h>
#include <parquet/file_writer.h>
#include <parquet/properties.h>
#include <parquet/schema.h>

/// Parquet files as others write them: by Arrow's writer of columns, in types and forms that parquet_writer has not.
namespace foreign {

using parquet::LogicalType;
using parquet::Repetition;
using parquet::Type;
using parquet::schema::GroupNode;
using parquet::schema::NodePtr;
using parquet::schema::PrimitiveNode;

/// A column of any kind of number, by its 64 bits: of the integer, or of the double.
struct number_type {
  char const* name;
  Type::type physical;
  std::function<std::shared_ptr<LogicalType const>()> logical = [] { return std::shared_ptr<LogicalType const>(); };
  int bits = 64;
  bool is_signed = true;
};

inline std::vector<number_type> integer_types() {
  auto const integer = [](int bits, bool is_signed) { return [=] { return LogicalType::Int(bits, is_signed); }; };
  auto const none = [] { return std::shared_ptr<LogicalType const>(); };
  return {{"int8", Type::INT32, integer(8, true), 8, true},    {"uint8", Type::INT32, integer(8, false), 8, false},
          {"int16", Type::INT32, integer(16, true), 16, true}, {"uint16", Type::INT32, integer(16, false), 16, false},
          {"int32", Type::INT32, integer(32, true), 32, true}, {"uint32", Type::INT32, integer(32, false), 32, false},
          {"int64", Type::INT64, integer(64, true), 64, true}, {"uint64", Type::INT64, integer(64, false), 64, false},
          {"plain int32", Type::INT32, none, 32, true},        {"plain int64", Type::INT64, none, 64, true}};
}
inline std::vector<number_type> time_types() {
  return {{"timestamp", Type::INT64, [] { return LogicalType::Timestamp(true, LogicalType::TimeUnit::MICROS); }},
          {"time", Type::INT32, [] { return LogicalType::Time(true, LogicalType::TimeUnit::MILLIS); }, 31, false},
          {"date", Type::INT32, [] { return LogicalType::Date(); }, 32, true}};
}
inline std::vector<number_type> float_types() {
  return {{"boolean", Type::BOOLEAN}, {"float", Type::FLOAT}, {"double", Type::DOUBLE}, {"float16", Type::FIXED_LEN_BYTE_ARRAY, [] {
                                                                                           return LogicalType::Float16();
                                                                                         }}};
}

/// Texts, by a number each, and timestamps of 96 bits, by microseconds since 1970.
inline std::vector<number_type> text_types() {
  return {{"text", Type::BYTE_ARRAY, [] { return LogicalType::String(); }}, {"bytes", Type::BYTE_ARRAY}};
}
inline number_type int96_type() { return {"int96", Type::INT96}; }
inline std::string text_of(std::uint64_t number) { return number % 7 == 0 ? std::string() : "text " + std::to_string(number); }

inline NodePtr number_node(std::string const& name, number_type const& type, Repetition::type repetition) {
  return PrimitiveNode::Make(name, repetition, type.logical(), type.physical, type.physical == Type::FIXED_LEN_BYTE_ARRAY ? 2 : -1);
}

/// The forms of lists: three levels, of which the list and the element may be optional; two levels; one.
enum class list_form { three, three_of_spark, two, one };

inline NodePtr list_node(std::string const& name, number_type const& type, list_form form, bool optional_list, bool optional_element) {
  auto const element = optional_element ? Repetition::OPTIONAL : Repetition::REQUIRED;
  auto const list = optional_list ? Repetition::OPTIONAL : Repetition::REQUIRED;
  switch (form) {
    case list_form::three:
      return GroupNode::Make(name, list, {GroupNode::Make("list", Repetition::REPEATED, {number_node("element", type, element)})},
                             LogicalType::List());
    case list_form::three_of_spark:
      return GroupNode::Make(name, list, {GroupNode::Make("bag", Repetition::REPEATED, {number_node("array", type, element)})},
                             parquet::ConvertedType::LIST);
    case list_form::two: return GroupNode::Make(name, list, {number_node("array", type, Repetition::REPEATED)}, LogicalType::List());
    case list_form::one: return number_node(name, type, Repetition::REPEATED);
  }
  return nullptr;
}

/// Levels and packed values of a column.
struct leaf_values {
  std::vector<std::int16_t> definition, repetition;
  std::vector<std::uint64_t> values;
};

template <class DType, class T>
void write_typed(parquet::ColumnWriter& writer, leaf_values const& leaf, std::vector<T> const& values) {
  std::unique_ptr<typename DType::c_type[]> packed(new typename DType::c_type[values.size() + 1]);
  std::copy(values.begin(), values.end(), packed.get());
  static_cast<parquet::TypedColumnWriter<DType>&>(writer).WriteBatch(static_cast<std::int64_t>(leaf.definition.size()),
                                                                     leaf.definition.data(), leaf.repetition.data(), packed.get());
}

inline std::uint16_t half_of(double value) {  // exact ones only
  auto const bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  if (value == 0) return 0;
  return static_cast<std::uint16_t>((bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 112) << 10) | (bits >> 13 & 1023));
}

inline void write_leaf(parquet::ColumnWriter& writer, leaf_values const& leaf) {
  auto const convert = [&](auto const& f) {
    std::vector<std::remove_cvref_t<decltype(f(std::uint64_t{}))>> values;
    for (auto const v : leaf.values) values.push_back(f(v));
    return values;
  };
  switch (writer.type()) {
    case Type::BOOLEAN: {
      std::unique_ptr<bool[]> packed(new bool[leaf.values.size() + 1]);
      for (std::size_t i = 0; i < leaf.values.size(); ++i) packed[i] = std::bit_cast<double>(leaf.values[i]) != 0;
      static_cast<parquet::BoolWriter&>(writer).WriteBatch(static_cast<std::int64_t>(leaf.definition.size()), leaf.definition.data(),
                                                           leaf.repetition.data(), packed.get());
      return;
    }
    case Type::INT32:
      return write_typed<parquet::Int32Type>(
          writer, leaf, convert([](std::uint64_t v) { return static_cast<std::int32_t>(static_cast<std::uint32_t>(v)); }));
    case Type::INT64:
      return write_typed<parquet::Int64Type>(writer, leaf, convert([](std::uint64_t v) { return static_cast<std::int64_t>(v); }));
    case Type::FLOAT:
      return write_typed<parquet::FloatType>(writer, leaf,
                                             convert([](std::uint64_t v) { return static_cast<float>(std::bit_cast<double>(v)); }));
    case Type::DOUBLE:
      return write_typed<parquet::DoubleType>(writer, leaf, convert([](std::uint64_t v) { return std::bit_cast<double>(v); }));
    case Type::BYTE_ARRAY: {
      std::vector<std::string> texts;
      for (auto const v : leaf.values) texts.push_back(text_of(v));
      std::vector<parquet::ByteArray> values;
      for (auto const& text : texts) values.emplace_back(std::string_view(text));
      return write_typed<parquet::ByteArrayType>(writer, leaf, values);
    }
    case Type::INT96:
      return write_typed<parquet::Int96Type>(
          writer, leaf, convert([](std::uint64_t v) {
            auto const time = static_cast<std::int64_t>(v), day = std::int64_t{86'400'000'000};
            auto const days = time / day - (time % day < 0);
            auto const nanoseconds = static_cast<std::uint64_t>(time - days * day) * 1000 + 999;
            return parquet::Int96{{static_cast<std::uint32_t>(nanoseconds), static_cast<std::uint32_t>(nanoseconds >> 32),
                                   static_cast<std::uint32_t>(days + 2'440'588)}};
          }));
    default: {
      auto const halves = convert([](std::uint64_t v) { return half_of(std::bit_cast<double>(v)); });
      std::vector<parquet::FLBA> values;
      for (auto const& half : halves) values.emplace_back(reinterpret_cast<std::uint8_t const*>(&half));
      return write_typed<parquet::FLBAType>(writer, leaf, values);
    }
  }
}

/// Columns of a file: the nodes, and for each row group the leaves' values.
struct file_contents {
  parquet::schema::NodeVector fields;
  std::vector<std::vector<leaf_values>> row_groups;
};

inline void write_file(std::string const& path, file_contents const& contents,
                       std::shared_ptr<parquet::WriterProperties> const& properties) {
  auto const sink = arrow::io::FileOutputStream::Open(path).ValueOrDie();
  auto const root = std::static_pointer_cast<GroupNode>(GroupNode::Make("schema", Repetition::REQUIRED, contents.fields));
  auto const writer = parquet::ParquetFileWriter::Open(sink, root, properties);
  for (auto const& leaves : contents.row_groups) {
    auto* const row_group = writer->AppendRowGroup();
    for (auto const& leaf : leaves) write_leaf(*row_group->NextColumn(), leaf);
    row_group->Close();
  }
  writer->Close();
  PARQUET_THROW_NOT_OK(sink->Close());
}

/// Codecs, encodings, page versions and page sizes as they may come.
inline std::shared_ptr<parquet::WriterProperties> random_properties(std::mt19937_64& random, bool checksums) {
  using parquet::Compression;
  parquet::WriterProperties::Builder builder;
  Compression::type const codecs[] = {Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::GZIP, Compression::ZSTD,
                                      Compression::LZ4_HADOOP};
  builder.compression(codecs[random() % 5]);
  if (random() % 2 == 0) builder.disable_dictionary();
  builder.data_pagesize(random() % 2 == 0 ? 200 : 1 << 20);
  builder.data_page_version(random() % 2 == 0 ? parquet::ParquetDataPageVersion::V1 : parquet::ParquetDataPageVersion::V2);
  if (random() % 2 == 0) builder.disable_write_page_index();
  if (checksums) builder.enable_page_checksum();
  return builder.build();
}

}  // namespace foreign
