// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <arrow/memory_pool.h>
#include <parquet/column_writer.h>
#include <parquet/file_writer.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/schema.h>
#include <parquet/types.h>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/parquet_columns.hpp>
#include <tessera/data/parquet_file.hpp>
#include <tessera/data/parquet_sink.hpp>
#include <tessera/data/sample_columns.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// The columns of a file: a dense one that is sparse too is stored once, as ids.
inline std::vector<named_column> stored_columns(sample_schema const& schema) {
  auto columns = named_columns(schema);
  std::erase_if(columns, [&](named_column const& column) {
    return column.role == column_role::dense && std::find(schema.sparse.begin(), schema.sparse.end(), column.name) != schema.sparse.end();
  });
  return columns;
}

inline std::shared_ptr<parquet::schema::GroupNode> parquet_schema_of(std::vector<named_column> const& columns) {
  using namespace parquet;
  using schema::GroupNode, schema::PrimitiveNode;
  schema::NodeVector fields;
  for (auto const& [name, role, index] : columns) {
    if (name.find('\0') != std::string::npos)
      throw error(errc::invalid_argument, "parquet_writer: a column's name has a zero", {{"column", name.c_str()}});
    if (role == column_role::list) {
      auto const element = PrimitiveNode::Make("element", Repetition::REQUIRED, Type::INT64);
      fields.push_back(
          GroupNode::Make(name, Repetition::REQUIRED, {GroupNode::Make("list", Repetition::REPEATED, {element})}, LogicalType::List()));
    } else {
      fields.push_back(PrimitiveNode::Make(name, role == column_role::single ? Repetition::OPTIONAL : Repetition::REQUIRED,
                                           is_number(role) ? Type::FLOAT : Type::INT64));
    }
  }
  return std::static_pointer_cast<GroupNode>(GroupNode::Make("schema", Repetition::REQUIRED, fields));
}

// Writes ids of a column that has null for `missing_id`.
inline void write_single(parquet::ColumnWriter& column, vector_view<std::int64_t const> ids) {
  constexpr std::int64_t at_once = 4096;
  std::array<std::int16_t, at_once> present;
  std::array<std::int64_t, at_once> packed;
  for (std::int64_t first = 0; first < ids.size(); first += at_once) {
    auto const count = std::min(at_once, ids.size() - first);
    std::size_t found = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      bool const is_there = ids[first + i] != missing_id;
      present[static_cast<std::size_t>(i)] = is_there;
      packed[found] = ids[first + i];
      found += is_there;
    }
    static_cast<parquet::Int64Writer&>(column).WriteBatch(count, present.data(), nullptr, packed.data());
  }
}

// Writes rows of one list column. Levels say where rows begin and which are empty.
inline void write_lists(parquet::ColumnWriter& column, jagged_view<std::int64_t const> rows) {
  constexpr std::int64_t at_once = 4096;
  std::array<std::int16_t, at_once> filled, begins;  // definition and repetition levels
  auto& writer = static_cast<parquet::Int64Writer&>(column);
  std::int64_t levels = 0, values = rows.first_value(), next = values;
  auto const flush = [&] {
    if (levels > 0) writer.WriteBatch(levels, filled.data(), begins.data(), rows.values + values);
    values = next;
    levels = 0;
  };
  auto const add = [&](std::int16_t is_filled, std::int16_t is_further) {
    filled[static_cast<std::size_t>(levels)] = is_filled;
    begins[static_cast<std::size_t>(levels)] = is_further;
    if (++levels == at_once) flush();
  };
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    auto const end = rows.end_of(row);
    if (next == end) add(0, 0);
    for (std::int16_t further = 0; next < end; further = 1) {
      ++next;
      add(1, further);
    }
  }
  flush();
}

}  // namespace detail

/// Writes samples as a Parquet file. @post `parquet_log` reads the same samples back, with the same schema.
///
/// Labels, dense columns and the weight are stored as float, with NaN for what is missing. Lists are stored as `list<int64>`, single ids as
/// int64 with null for `missing_id`, session and time as int64. A single column that is dense too is stored once, as ids.
///
/// The file stands beside its name, as a `staged_file`, until `finish` has written it to the disk and renames it. A writer that is
/// destroyed before `finish` leaves nothing. Each column is encoded by one thread; the bytes do not depend on the number of threads.
/// Arrow's pool holds what was compressed of the row group that is being written.
///
/// Every page has Parquet's checksum, which leaves out the page's header. The footer has a checksum of all pages and one of itself, as a
/// key-value pair. After an exception the writer is good for nothing but destruction. Move-only.
class parquet_writer {
 public:
  /// Creates the file beside its name.
  /// @throws tessera::error io_error. invalid_argument as `check_schema`, and naming the column or the option where one of these holds. A
  /// dense column is one of lists, too. A name has a zero character. row_group_rows, row_group_bytes or page_bytes is below 1.
  parquet_writer(std::string path, sample_schema schema, parquet_writer_options options = {})
      : path_(std::move(path)), schema_(std::move(schema)), options_(std::move(options)) {
    for (auto const& [name, value] : {std::pair("row_group_rows", options_.row_group_rows),
                                      std::pair("row_group_bytes", options_.row_group_bytes), std::pair("page_bytes", options_.page_bytes)})
      if (value < 1) throw error(errc::invalid_argument, "parquet_writer: options", {{"file", path_}, {name, value}});
    check_schema("parquet_writer", schema_);
    columns_ = detail::stored_columns(schema_);
    for (auto const& column : columns_)
      if (column.role == detail::column_role::list && dense_of(column.name) >= 0)
        throw error(errc::invalid_argument, "parquet_writer: a column that is dense and one of lists",
                    {{"file", path_}, {"column", column.name}});
    auto const fields = detail::parquet_schema_of(columns_);
    sink_ = std::make_shared<detail::parquet_sink>(path_);
    guarded([&] { file_ = parquet::ParquetFileWriter::Open(sink_, fields, properties()); });
  }
  parquet_writer(parquet_writer&&) noexcept = default;
  parquet_writer& operator=(parquet_writer&&) = delete;
  ~parquet_writer() {
    if (sink_) sink_->abandon();  // what Arrow writes when its writer goes
  }

  std::string const& path() const noexcept { return path_; }
  sample_schema const& schema() const noexcept { return schema_; }
  /// What was written so far; `file_bytes` is known after `finish`.
  parquet_written const& written() const noexcept { return written_; }
  /// Samples in the row group that is being written.
  std::int64_t open_rows() const noexcept { return open_rows_; }
  /// Bytes of the values in the row group that is being written.
  std::int64_t open_bytes() const noexcept { return open_bytes_; }

  /// Writes samples behind those before.
  /// @throws tessera::error io_error, out_of_memory. shape_mismatch for other columns than the schema's. incompatible naming column and
  /// row, for a column that is dense and sparse whose number is not its id.
  void write(host_exec const& exec, sample_columns_view samples) {
    check(samples);
    for (std::int64_t first = 0; first < samples.size();) {
      auto const room = std::min(samples.size() - first, options_.row_group_rows - open_rows_);
      auto const fitting = rows_within(samples, first, room, options_.row_group_bytes - open_bytes_);
      if (fitting == 0 && open_rows_ > 0) {
        end_row_group();
        continue;
      }
      write_rows(exec, samples, first, std::max<std::int64_t>(fitting, 1));
      first += std::max<std::int64_t>(fitting, 1);
      if (open_rows_ == options_.row_group_rows) end_row_group();
    }
  }

  /// Ends the row group that is being written, where there are samples in it. @throws tessera::error io_error, out_of_memory.
  void end_row_group() {
    if (row_group_ == nullptr) return;
    guarded([&] { row_group_->Close(); });
    row_group_ = nullptr;
    open_rows_ = open_bytes_ = 0;
    ++written_.row_groups;
  }

  /// Ends the file, and returns when it is on the disk under its name, in place of one that was there. The writer is then good for nothing
  /// but destruction. @throws tessera::error io_error, out_of_memory; the name is then what it was.
  parquet_written finish() {
    end_row_group();
    written_.file_bytes = detail::seal_parquet(*sink_, path_, [&](auto const& pairs) {
      guarded([&] {
        file_->AddKeyValueMetadata(pairs);
        file_->Close();
      });
    });
    return written_;
  }

 private:
  template <class F>
  void guarded(F const& f) {
    try {
      detail::arrow_call(
          errc::io_error, "parquet_writer: cannot write",
          [&] {
            return std::vector<error_value>{{"file", path_}};
          },
          f);
    } catch (error const&) {
      if (auto const failure = sink_->failure()) std::rethrow_exception(failure);
      throw;
    }
  }

  std::shared_ptr<parquet::WriterProperties> properties() const {
    parquet::WriterProperties::Builder builder;
    detail::set_properties(options_, builder);
    for (auto const& name : {schema_.session, schema_.time})
      if (!name.empty()) builder.enable_statistics(parquet::schema::ColumnPath({name}).ToDotString());
    for (auto const& name : options_.other_columns) {
      bool const is_list = std::any_of(columns_.begin(), columns_.end(),
                                       [&](auto const& column) { return column.name == name && column.role == detail::column_role::list; });
      auto const column = is_list ? name + ".list.element" : name;
      options_.dictionary ? builder.disable_dictionary(column) : builder.enable_dictionary(column);
    }
    return builder.build();
  }

  // Of the dense columns; -1: none of that name.
  std::int64_t dense_of(std::string const& name) const {
    auto const found = std::find(schema_.dense.begin(), schema_.dense.end(), name);
    return found == schema_.dense.end() ? -1 : found - schema_.dense.begin();
  }

  void check(sample_columns_view samples) const {
    detail::check_columns("parquet_writer", sample_shape::of(schema_), samples, {{"file", path_}});
    for (auto const& column : columns_)
      if (auto const dense = dense_of(column.name); column.role == detail::column_role::single && dense >= 0)
        check_same(samples, column, samples.dense.row(dense));
  }

  void check_same(sample_columns_view samples, detail::named_column const& column, float const* numbers) const {
    auto const& rows = samples.sparse[column.index];
    for (std::int64_t i = 0; i < samples.size(); ++i) {
      auto const id = rows.values[rows.begin_of(i)];
      if (id == missing_id ? !std::isnan(numbers[i]) : static_cast<float>(id) != numbers[i])
        throw error(errc::incompatible, "parquet_writer: a number that is not its id",
                    {{"file", path_}, {"column", column.name}, {"row", written_.rows + i}, {"number", numbers[i]}, {"id", id}});
    }
  }

  std::int64_t bytes_of(sample_columns_view samples, std::int64_t first, std::int64_t count) const noexcept {
    std::int64_t sum = 0;
    for (auto const& column : columns_)
      if (column.role != detail::column_role::list) sum += count * (detail::is_number(column.role) ? 4 : 8);
    for (std::int64_t c = 0; c < samples.sparse.size(); ++c)
      if (!samples.single(c)) sum += 8 * (samples.sparse[c].offsets[first + count] - samples.sparse[c].offsets[first]);
    return sum;
  }

  // How many of the next `count` samples have at most so many bytes.
  std::int64_t rows_within(sample_columns_view samples, std::int64_t first, std::int64_t count, std::int64_t bytes) const noexcept {
    if (bytes_of(samples, first, count) <= bytes) return count;
    std::int64_t fits = 0, too_many = count;
    while (too_many - fits > 1) {
      auto const middle = fits + (too_many - fits) / 2;
      (bytes_of(samples, first, middle) <= bytes ? fits : too_many) = middle;
    }
    return fits;
  }

  void write_rows(host_exec const& exec, sample_columns_view samples, std::int64_t first, std::int64_t count) {
    if (row_group_ == nullptr) guarded([&] { row_group_ = file_->AppendBufferedRowGroup(); });
    guarded([&] {
      exec.run(row_group_->num_columns(), [&](std::int64_t number) {
        auto& column = *row_group_->column(static_cast<int>(number));
        auto const floats = [&](float const* values) {
          static_cast<parquet::FloatWriter&>(column).WriteBatch(count, nullptr, nullptr, values + first);
        };
        auto const integers = [&](std::int64_t const* values) {
          static_cast<parquet::Int64Writer&>(column).WriteBatch(count, nullptr, nullptr, values + first);
        };
        auto const& [name, role, index] = columns_[static_cast<std::size_t>(number)];
        switch (role) {
          case detail::column_role::label: return floats(samples.labels.data());
          case detail::column_role::dense: return floats(samples.dense.row(index));
          case detail::column_role::weight: return floats(samples.weights.data());
          case detail::column_role::other_label: return floats(samples.other_labels.row(index));
          case detail::column_role::session: return integers(samples.sessions.data());
          case detail::column_role::time: return integers(samples.times.data());
          case detail::column_role::single:
            return detail::write_single(column, {samples.sparse[index].values + samples.sparse[index].begin_of(first), count});
          case detail::column_role::list: return detail::write_lists(column, samples.sparse[index].slice(first, count));
        }
      });
    });
    auto const bytes = bytes_of(samples, first, count);
    open_rows_ += count;
    open_bytes_ += bytes;
    written_.rows += count;
    written_.value_bytes += bytes;
  }

  std::string path_;
  sample_schema schema_;
  parquet_writer_options options_;
  std::vector<detail::named_column> columns_;   // of the file
  std::shared_ptr<detail::parquet_sink> sink_;  // none: moved from
  std::unique_ptr<parquet::ParquetFileWriter> file_;
  parquet::RowGroupWriter* row_group_ = nullptr;  // of the file; none: no row group is open
  std::int64_t open_rows_ = 0, open_bytes_ = 0;
  parquet_written written_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
