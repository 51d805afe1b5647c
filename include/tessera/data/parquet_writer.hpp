// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <arrow/io/interfaces.h>
#include <arrow/memory_pool.h>
#include <arrow/status.h>
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
#include <tessera/data/parquet_file.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/files/atomic_file.hpp>
#include <tessera/files/checksum.hpp>
#include <tessera/files/posix_file.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

struct parquet_writer_options {
  std::int64_t row_group_rows = std::int64_t{1} << 16;   ///< a row group ends with that many samples,
  std::int64_t row_group_bytes = std::int64_t{1} << 27;  ///< or before it has more than so many bytes of values, unless one sample has
  int zstd_level = 1;                                    ///< 0: not compressed; negative: faster, larger
  std::int64_t page_bytes = std::int64_t{1} << 20;       ///< of values: what is compressed at once
  bool dictionary = false;                               ///< each column's distinct values once a row group, as far as there are few,
  std::vector<std::string> other_columns = {};           ///< but for these columns, which do the opposite
  arrow::MemoryPool* pool = nullptr;                     ///< of Arrow's own memory; nullptr: its default pool
};

/// What a writer has written.
struct parquet_written {
  std::int64_t rows = 0;
  std::int64_t row_groups = 0;
  std::int64_t value_bytes = 0;  // of all values in memory, without offsets
  std::int64_t file_bytes = 0;
};

namespace detail {

// Where Arrow writes. Sums all bytes as they pass, and holds back the footer, in front of which sums will stand.
class parquet_sink final : public arrow::io::OutputStream {
 public:
  explicit parquet_sink(std::string target) : staged_(std::move(target)), file_(posix_file::create(staged_.path())) {}

  posix_file& file() noexcept { return file_; }
  /// Gives the file its name.
  void commit() {
    file_.close();
    staged_.commit();
  }
  void hold_back() noexcept { holds_back_ = true; }
  void abandon() noexcept { abandoned_ = true; }
  std::string const& held_back() const noexcept { return held_back_; }
  /// What the last failure of `Write` was: Arrow knows only that there was one.
  std::exception_ptr failure() const noexcept { return failure_; }

  /// The sum of bytes [first, first + count), at both ends of which a call of `Write` ended.
  std::uint32_t sum_of(std::int64_t first, std::int64_t count) const {
    return sum_before(first + count) ^ crc32_join(sum_before(first), 0, count);
  }

  arrow::Status Write(void const* data, std::int64_t bytes) override {
    if (abandoned_) return arrow::Status::OK();
    vector_view<char const> const text(static_cast<char const*>(data), bytes);
    try {
      if (holds_back_) {
        held_back_.append(text.data(), static_cast<std::size_t>(bytes));
        return arrow::Status::OK();
      }
      file_.append(text);
      sum_.update(text);
      position_ += bytes;
      ends_.push_back({position_, sum_.value()});
    } catch (...) {
      failure_ = std::current_exception();
      return arrow::Status::IOError("cannot write");
    }
    return arrow::Status::OK();
  }
  arrow::Status Close() override { return arrow::Status::OK(); }
  bool closed() const override { return false; }
  arrow::Result<std::int64_t> Tell() const override { return position_ + static_cast<std::int64_t>(held_back_.size()); }

 private:
  struct end {
    std::int64_t position;
    std::uint32_t sum;  // of all bytes before
  };
  std::uint32_t sum_before(std::int64_t position) const {
    auto const found =
        std::lower_bound(ends_.begin(), ends_.end(), position, [](end const& e, std::int64_t wanted) { return e.position < wanted; });
    if (found == ends_.end() || found->position != position)
      throw error(errc::incompatible, "parquet_writer: this Arrow lays out files otherwise",
                  {{"file", file_.path()}, {"offset", position}});
    return found->sum;
  }

  staged_file staged_;
  posix_file file_;
  crc32_sum sum_;
  std::int64_t position_ = 0;
  std::vector<end> ends_;
  std::string held_back_;
  std::exception_ptr failure_;
  bool holds_back_ = false, abandoned_ = false;
};

inline std::shared_ptr<parquet::schema::GroupNode> parquet_schema_of(sample_schema const& schema) {
  using namespace parquet;
  using schema::GroupNode, schema::PrimitiveNode;
  schema::NodeVector fields;
  std::set<std::string> names;
  auto const add = [&](std::string const& name, schema::NodePtr node) {
    if (name.empty() || name.find('\0') != std::string::npos || !names.insert(name).second)
      throw error(errc::invalid_argument, "parquet_writer: columns need names, each its own", {{"column", name}});
    fields.push_back(std::move(node));
  };
  auto const number = [&](std::string const& name, Type::type type) { add(name, PrimitiveNode::Make(name, Repetition::REQUIRED, type)); };
  number(schema.label, Type::FLOAT);
  for (auto const& name : schema.dense) number(name, Type::FLOAT);
  for (auto const& name : schema.sparse)
    add(name, GroupNode::Make(
                  name, Repetition::REQUIRED,
                  {GroupNode::Make("list", Repetition::REPEATED, {PrimitiveNode::Make("element", Repetition::REQUIRED, Type::INT64)})},
                  LogicalType::List()));
  if (!schema.session.empty()) number(schema.session, Type::INT64);
  if (!schema.time.empty()) number(schema.time, Type::INT64);
  auto const root = GroupNode::Make("schema", Repetition::REQUIRED, fields);
  return std::static_pointer_cast<GroupNode>(root);
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

/// Writes samples as a Parquet file: label and dense columns as float, lists as list<int64>, session and time as int64, none of them null.
///
/// The file stands beside its name, as a `staged_file`, until `finish` has it on the device and renames it; a writer that goes without
/// leaves nothing. Columns are encoded each by a thread; the bytes do not depend on how many there are. In memory is what was compressed of
/// the row group that is being written, in Arrow's pool. Every page has Parquet's checksum, and in front of the footer stand checksums of
/// all else, which `parquet_log` compares and other readers skip. After an exception the writer is good for nothing but destruction.
/// Move-only.
class parquet_writer {
 public:
  /// @throws tessera::error invalid_argument for a schema with an empty or repeated name and for options below 1; io_error.
  parquet_writer(std::string path, sample_schema schema, parquet_writer_options options = {})
      : path_(std::move(path)), schema_(std::move(schema)), options_(std::move(options)) {
    for (auto const& [name, value] : {std::pair("row_group_rows", options_.row_group_rows),
                                      std::pair("row_group_bytes", options_.row_group_bytes), std::pair("page_bytes", options_.page_bytes)})
      if (value < 1) throw error(errc::invalid_argument, "parquet_writer: options", {{"file", path_}, {name, value}});
    auto const fields = detail::parquet_schema_of(schema_);
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
  /// So far; file_bytes is known after `finish`.
  parquet_written const& written() const noexcept { return written_; }
  /// Samples in the row group that is being written.
  std::int64_t open_rows() const noexcept { return open_rows_; }
  std::int64_t open_bytes() const noexcept { return open_bytes_; }

  /// Writes samples behind those before. @throws tessera::error shape_mismatch for other columns than the schema's; io_error, out_of_memory.
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

  /// Ends the row group that is being written, if there are samples in it. @throws tessera::error io_error.
  void end_row_group() {
    if (row_group_ == nullptr) return;
    guarded([&] { row_group_->Close(); });
    row_group_ = nullptr;
    open_rows_ = open_bytes_ = 0;
    ++written_.row_groups;
  }

  /// Returns when the file is on the device under its name, in place of one that was there. The writer is then good for nothing but
  /// destruction. @throws tessera::error io_error; the name is then what it was.
  parquet_written finish() {
    end_row_group();
    sink_->hold_back();
    guarded([&] { file_->Close(); });
    auto const text = detail::parquet_sums_text(sums(*file_->metadata()), sink_->held_back());
    auto& file = sink_->file();
    file.append(text);
    written_.file_bytes = file.size();
    sink_->commit();
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
    auto const application = std::string(detail::parquet_application) + std::to_string(TESSERA_VERSION_MAJOR) + "." +
                             std::to_string(TESSERA_VERSION_MINOR) + "." + std::to_string(TESSERA_VERSION_PATCH);
    parquet::WriterProperties::Builder builder;
    builder.created_by(application)
        ->memory_pool(options_.pool != nullptr ? options_.pool : arrow::default_memory_pool())
        ->data_pagesize(options_.page_bytes)
        ->write_batch_size(4096)
        ->enable_page_checksum()
        ->disable_write_page_index()
        ->disable_statistics()
        ->set_size_statistics_level(parquet::SizeStatisticsLevel::None);
    if (options_.zstd_level != 0) builder.compression(parquet::Compression::ZSTD)->compression_level(options_.zstd_level);
    for (auto const& name : {schema_.session, schema_.time})
      if (!name.empty()) builder.enable_statistics(parquet::schema::ColumnPath({name}).ToDotString());
    options_.dictionary ? builder.enable_dictionary() : builder.disable_dictionary();
    for (auto const& name : options_.other_columns) {
      auto const is_list = std::find(schema_.sparse.begin(), schema_.sparse.end(), name) != schema_.sparse.end();
      auto const column = is_list ? name + ".list.element" : name;
      options_.dictionary ? builder.disable_dictionary(column) : builder.enable_dictionary(column);
    }
    return builder.build();
  }

  void check(sample_columns_view samples) const {
    auto const dense = static_cast<std::int64_t>(schema_.dense.size()), sparse = static_cast<std::int64_t>(schema_.sparse.size());
    bool fits = samples.dense.rows() == dense && (dense == 0 || samples.dense.columns() == samples.size()) &&
                samples.sparse.size() == sparse && (schema_.session.empty() || samples.sessions.size() == samples.size()) &&
                (schema_.time.empty() || samples.times.size() == samples.size());
    for (auto const& rows : samples.sparse) fits = fits && rows.rows == samples.size();
    if (fits) return;
    throw error(errc::shape_mismatch, "parquet_writer: samples with other columns",
                {{"file", path_},
                 {"dense", samples.dense.rows()},
                 {"dense expected", dense},
                 {"sparse", samples.sparse.size()},
                 {"sparse expected", sparse},
                 {"sessions", samples.sessions.size()},
                 {"times", samples.times.size()},
                 {"samples", samples.size()}});
  }

  std::int64_t bytes_of(sample_columns_view samples, std::int64_t first, std::int64_t count) const noexcept {
    std::int64_t const numbers = 4 * (1 + static_cast<std::int64_t>(schema_.dense.size())) +
                                 8 * ((schema_.session.empty() ? 0 : 1) + (schema_.time.empty() ? 0 : 1));
    auto sum = count * numbers;
    for (auto const& rows : samples.sparse) sum += 8 * (rows.offsets[first + count] - rows.offsets[first]);
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
    auto const dense = samples.dense.rows(), sparse = samples.sparse.size();
    auto const floats = [&](std::int64_t column, float const* values) {
      static_cast<parquet::FloatWriter*>(row_group_->column(static_cast<int>(column)))->WriteBatch(count, nullptr, nullptr, values + first);
    };
    auto const integers = [&](std::int64_t column, std::int64_t const* values) {
      static_cast<parquet::Int64Writer*>(row_group_->column(static_cast<int>(column)))->WriteBatch(count, nullptr, nullptr, values + first);
    };
    guarded([&] {
      exec.run(row_group_->num_columns(), [&](std::int64_t column) {
        auto const list = column - 1 - dense;
        if (column == 0) return floats(column, samples.labels.data());
        if (list < 0) return floats(column, samples.dense.row(column - 1));
        if (list < sparse)
          return detail::write_lists(*row_group_->column(static_cast<int>(column)), samples.sparse[list].slice(first, count));
        integers(column, list == sparse && !schema_.session.empty() ? samples.sessions.data() : samples.times.data());
      });
    });
    auto const bytes = bytes_of(samples, first, count);
    open_rows_ += count;
    open_bytes_ += bytes;
    written_.rows += count;
    written_.value_bytes += bytes;
  }

  std::vector<std::uint32_t> sums(parquet::FileMetaData const& metadata) const {
    std::vector<std::uint32_t> result;
    for (int group = 0; group < metadata.num_row_groups(); ++group) {
      auto const row_group = metadata.RowGroup(group);
      for (int c = 0; c < metadata.num_columns(); ++c) {
        auto const chunk = row_group->ColumnChunk(c);
        auto first = chunk->data_page_offset();
        if (chunk->has_dictionary_page() && chunk->dictionary_page_offset() > 0) first = std::min(first, chunk->dictionary_page_offset());
        result.push_back(sink_->sum_of(first, chunk->total_compressed_size()));
      }
    }
    return result;
  }

  std::string path_;
  sample_schema schema_;
  parquet_writer_options options_;
  std::shared_ptr<detail::parquet_sink> sink_;  // none: moved from
  std::unique_ptr<parquet::ParquetFileWriter> file_;
  parquet::RowGroupWriter* row_group_ = nullptr;  // of the file; none: no row group is open
  std::int64_t open_rows_ = 0, open_bytes_ = 0;
  parquet_written written_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
