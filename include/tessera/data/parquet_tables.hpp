// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <arrow/array/array_base.h>
#include <arrow/array/array_binary.h>
#include <arrow/array/array_nested.h>
#include <arrow/array/array_primitive.h>
#include <arrow/compute/cast.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <parquet/arrow/reader.h>

#include <tessera/core/config.hpp>
#include <tessera/data/hash_text.hpp>
#include <tessera/data/parquet_file.hpp>
#include <tessera/data/session_order.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The columns by which `cluster_by_session` sorts the rows of Parquet files.
struct session_columns {
  std::string session;
  std::string time{};  ///< none: rows of a session keep their order
};

namespace detail {

using arrow_batch = std::shared_ptr<arrow::RecordBatch>;

template <class T>
T value_of(arrow::Result<T> result) {
  PARQUET_THROW_NOT_OK(result.status());
  return std::move(result).ValueUnsafe();
}

template <class Texts>
std::vector<std::int64_t> hashes_of(arrow::Array const& column) {
  auto const& texts = static_cast<Texts const&>(column);
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < texts.length(); ++i) result.push_back(hash_text(texts.GetView(i)));
  return result;
}

// Integers, texts by their hash, times in their unit. @throws parquet::ParquetException for other types and for nulls.
inline std::vector<std::int64_t> integers_of(std::shared_ptr<arrow::Array> column) {
  if (column->null_count() > 0) throw parquet::ParquetException("a null where none may be");
  if (column->type_id() == arrow::Type::DICTIONARY) {
    auto const& type = static_cast<arrow::DictionaryType const&>(*column->type());
    column = value_of(arrow::compute::Cast(*column, type.value_type()));
  }
  auto const type = column->type_id();
  if (type == arrow::Type::STRING || type == arrow::Type::BINARY) return hashes_of<arrow::BinaryArray>(*column);
  if (type == arrow::Type::LARGE_STRING || type == arrow::Type::LARGE_BINARY) return hashes_of<arrow::LargeBinaryArray>(*column);
  if (arrow::is_temporal(type) || type == arrow::Type::UINT64)  // bits as they are
    column = value_of(column->View(arrow::bit_width(type) == 32 ? arrow::int32() : arrow::int64()));
  if (!arrow::is_integer(column->type_id())) throw parquet::ParquetException("neither integers nor texts: ", column->type()->ToString());
  column = value_of(arrow::compute::Cast(*column, arrow::int64()));
  auto const& values = static_cast<arrow::Int64Array const&>(*column);
  return {values.raw_values(), values.raw_values() + values.length()};
}

// A Parquet file whose rows are read with all their columns.
struct table_file {
  std::string path;
  std::int64_t bytes = 0;
  std::shared_ptr<arrow::Schema> schema;
  std::unique_ptr<parquet::arrow::FileReader> reader;

  // `batch_rows`: at most so many are read at once.
  table_file(std::string file, std::int64_t batch_rows, arrow::MemoryPool* pool) : path(std::move(file)) {
    auto const source = open_source({}, path, pool);
    auto const footer = read_parquet_footer(*source, path, pool);
    bytes = *source->GetSize();
    parquet::ReaderProperties properties(pool);
    properties.enable_buffered_stream();
    properties.set_buffer_size(1 << 18);
    properties.set_page_checksum_verification(true);
    parquet::ArrowReaderProperties how(false);
    how.set_batch_size(batch_rows);
    how.set_pre_buffer(false);
    parquet::arrow::FileReaderBuilder builder;
    PARQUET_THROW_NOT_OK(builder.Open(source, properties, footer.metadata));
    PARQUET_THROW_NOT_OK(builder.memory_pool(pool)->properties(how)->Build(&reader));
    PARQUET_THROW_NOT_OK(reader->GetSchema(&schema));
  }

  std::vector<int> row_groups() const {
    std::vector<int> all(static_cast<std::size_t>(reader->num_row_groups()));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
};

// Of a few row groups' beginnings.
inline session_order table_order_of(table_file const& file, session_columns const& by, session_order_options options) {
  session_order_count count(options.batch_size);
  auto const all = std::int64_t{file.reader->num_row_groups()}, some = std::min(options.blocks, all);
  for (std::int64_t i = 0; i < some; ++i) {
    auto const group = some == 1 ? 0 : i * (all - 1) / (some - 1);
    auto const batches = value_of(file.reader->GetRecordBatchReader({static_cast<int>(group)}));
    arrow_batch batch;
    PARQUET_THROW_NOT_OK(batches->ReadNext(&batch));
    if (batch == nullptr) continue;
    auto const sessions = integers_of(batch->GetColumnByName(by.session));
    auto const rows = std::min(options.batch_size, batch->num_rows());
    std::vector<std::vector<std::int64_t>> ids, offsets;
    std::vector<jagged_view<std::int64_t const>> lists;
    for (auto const& column : batch->columns()) {
      if (column->type_id() != arrow::Type::LIST) continue;
      auto const& list = static_cast<arrow::ListArray const&>(*column);
      auto const first = list.value_offset(0);
      auto const values = list.values()->Slice(first, list.value_offset(rows) - first);
      auto const type = values->type_id();
      if (values->null_count() > 0 || !(arrow::is_integer(type) || arrow::is_base_binary_like(type))) continue;
      ids.push_back(integers_of(values));
      auto& places = offsets.emplace_back();
      for (std::int64_t row = 0; row <= batch->num_rows(); ++row) places.push_back(list.value_offset(std::min(row, rows)) - first);
      lists.push_back({ids.back().data(), places.data(), batch->num_rows(), static_cast<std::int64_t>(ids.back().size())});
    }
    sample_columns_view seen;
    seen.sessions = sessions;
    seen.sparse = lists;
    // A row group of which only the beginning was read borders on none behind it.
    bool const is_whole = batch->num_rows() == file.reader->parquet_reader()->metadata()->RowGroup(static_cast<int>(group))->num_rows();
    count.add(is_whole ? group : (std::int64_t{1} << 40) + 2 * group, seen);
  }
  return std::move(count).finish();
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
