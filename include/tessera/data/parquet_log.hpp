// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <arrow/io/interfaces.h>
#include <arrow/memory_pool.h>
#include <parquet/column_reader.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/parquet_columns.hpp>
#include <tessera/data/parquet_file.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/files/byte_view.hpp>
#include <tessera/files/checksum.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

struct parquet_log_options {
  float missing_dense = 0;            ///< what a null of a dense column becomes
  bool verify = true;                 ///< compares the checksums of what is read, where the file has some
  parquet_open open = {};             ///< how files are opened; none: as files of this machine
  arrow::MemoryPool* pool = nullptr;  ///< of Arrow's own memory; nullptr: its default pool. Outlives the log
};

/// Blocks [first, first + count) of a data set.
struct block_range {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

namespace detail {

// A file for one column chunk, whose bytes Arrow asks for at once: they are compared with their sum.
class chunk_source final : public arrow_source {
 public:
  chunk_source(arrow::io::RandomAccessFile& file, std::string const& path, std::int64_t file_bytes) noexcept
      : file_(file), path_(path), file_bytes_(file_bytes) {}
  void expect(std::uint32_t sum) noexcept {
    sum_ = sum;
    has_sum_ = true;
  }
  /// What reading failed by, of which Arrow knows only that it did.
  std::exception_ptr failure() const noexcept { return failure_; }

  arrow::Result<std::int64_t> GetSize() override { return file_bytes_; }
  arrow_bytes ReadAt(std::int64_t position, std::int64_t bytes) override {
    try {
      auto found = read_source(file_, path_, position, bytes);
      if (has_sum_ && crc32_of(chars_of(*found)) != sum_)
        throw error(errc::corrupt_file, "parquet_log: bytes that do not match their checksum",
                    {{"file", path_}, {"offset", position}, {"bytes", bytes}});
      return found;
    } catch (...) {
      failure_ = std::current_exception();
      return arrow::Status::IOError("cannot read");
    }
  }
  arrow::Result<std::int64_t> ReadAt(std::int64_t position, std::int64_t bytes, void* out) override {
    ARROW_ASSIGN_OR_RAISE(auto const found, ReadAt(position, bytes));
    std::copy_n(found->data(), found->size(), static_cast<std::uint8_t*>(out));
    return found->size();
  }

 private:
  arrow::io::RandomAccessFile& file_;
  std::string const& path_;
  std::int64_t file_bytes_;
  std::uint32_t sum_ = 0;
  bool has_sum_ = false;
  std::exception_ptr failure_;
};

}  // namespace detail

/// A data set: the samples of one or more Parquet files, whoever wrote them, in their order. Blocks are the files' row groups; only the
/// columns that the schema names are read.
///
/// A label or dense column is of any kind of number or of booleans; a null of a dense one becomes `missing_dense`. A sparse column is of
/// lists of integers, or of integers, each a list of one; a null is an empty list, and a null within a list an error. A session is an
/// integer, a time too, or a date, time or timestamp, in the unit of the file; neither is null, nor is a label. Unsigned integers of 64
/// bits keep their bits. A row's id is its number over all files.
///
/// With `verify`, bytes of a column that change in place while a log is open are noticed in files of `parquet_writer`, by checksums in
/// their footers; in files of others, where pages have checksums that no longer match.
///
/// Opening reads the footers alone. A column is decoded by one thread, straight to where it stays; Arrow's buffers of one column chunk a
/// thread lie in its pool. Threads may read through one object at once. Move-only.
class parquet_log {
 public:
  /// @throws tessera::error invalid_argument without files, or for a dense or sparse column that comes twice; corrupt_file for what is no
  /// Parquet file, or a damaged one; incompatible for a column that is missing or of another type, naming file, column, expected and found;
  /// io_error.
  parquet_log(std::vector<std::string> const& files, sample_schema schema, parquet_log_options options = {})
      : schema_(std::move(schema)), options_(std::move(options)) {
    if (files.empty()) throw error(errc::invalid_argument, "parquet_log: no files");
    for (auto const* names : {&schema_.dense, &schema_.sparse})
      for (auto name = names->begin(); name != names->end(); ++name)
        if (std::find(names->begin(), name, *name) != name)
          throw error(errc::invalid_argument, "parquet_log: a column twice", {{"column", *name}});
    if (options_.pool == nullptr) options_.pool = arrow::default_memory_pool();
    for (auto const& path : files) add(path);
  }

  sample_schema const& schema() const noexcept { return schema_; }
  std::int64_t rows() const noexcept { return rows_; }
  std::int64_t block_count() const noexcept { return static_cast<std::int64_t>(blocks_.size()); }
  /// Samples in a block, at least one; the id of its first. @pre the block is there.
  std::int64_t rows(std::int64_t block) const noexcept { return blocks_[static_cast<std::size_t>(block)].rows; }
  std::int64_t first_row(std::int64_t block) const noexcept { return blocks_[static_cast<std::size_t>(block)].first_row; }
  /// The path of the file that a block is in.
  std::string const& file_of(std::int64_t block) const noexcept { return files_[blocks_[static_cast<std::size_t>(block)].file].path; }
  /// The most samples in any block.
  std::int64_t largest_block_rows() const noexcept { return largest_block_rows_; }
  /// Of all files, in bytes.
  std::int64_t file_bytes() const noexcept { return file_bytes_; }

  /// A checksum of the sizes and footers of all files in their order. Footers of `parquet_writer` have checksums of all data; those of others
  /// tell sizes, counts and statistics.
  std::uint32_t fingerprint() const noexcept { return fingerprint_.value(); }

  /// The blocks of one of `ranks` processes: in order all blocks, each once. Each process has rows() / ranks samples, give or take the
  /// largest block. @throws tessera::error out_of_range unless 0 <= rank < ranks.
  block_range blocks_of(std::int64_t rank, std::int64_t ranks) const {
    if (rank < 0 || rank >= ranks) throw error(errc::out_of_range, "parquet_log: no such rank", {{"rank", rank}, {"ranks", ranks}});
    auto const first = cut(rank, ranks);
    return {first, cut(rank + 1, ranks) - first};
  }

  /// `out` becomes the samples of a block. Allocates only when a buffer grows, beside what Arrow does.
  /// @throws tessera::error out_of_range for no such block; corrupt_file for what cannot be decoded, or has another checksum; incompatible
  /// for a null where none may be, naming the row in its file; io_error, out_of_memory. All name file, row group and column.
  void read(host_exec const& exec, std::int64_t block, sample_columns& out) const {
    if (block < 0 || block >= block_count())
      throw error(errc::out_of_range, "parquet_log: no such block", {{"block", block}, {"blocks", block_count()}});
    auto const& known = blocks_[static_cast<std::size_t>(block)];
    auto const& file = files_[known.file];
    prepare(exec, file, known, out);
    exec.run(static_cast<std::int64_t>(file.columns.size()), [&](std::int64_t column) {
      auto const& from = file.columns[static_cast<std::size_t>(column)];
      auto const where = [&] {
        return std::vector<error_value>{{"file", file.path}, {"row group", known.row_group}, {"column", from.name}};
      };
      read_column(file, known, from, column, out, where);
    });
    for (std::int64_t c = 0; c < out.sparse_columns(); ++c) out.ids(exec, c);
  }

 private:
  struct file_of_rows {
    std::string path;
    std::shared_ptr<arrow::io::RandomAccessFile> file;
    std::int64_t bytes = 0;
    detail::parquet_footer footer;
    std::vector<detail::parquet_column> columns;  // label, dense, sparse, session, time
  };
  struct place {
    std::size_t file = 0;
    int row_group = 0;
    std::int64_t row_in_file = 0, first_row = 0, rows = 0;
    std::vector<std::int64_t> slots = {};  // of each list column
  };

  void add(std::string const& path) {
    file_of_rows file;
    file.path = path;
    file.file = detail::open_source(options_.open, path, options_.pool);
    file.footer = detail::read_parquet_footer(*file.file, path, options_.pool);
    file.bytes = *file.file->GetSize();
    auto const where = [&] { return std::vector<error_value>{{"file", path}}; };
    detail::arrow_call(errc::corrupt_file, "parquet_log: a footer that cannot be read", where, [&] {
      find_columns(file);
      add_blocks(file);
    });
    file_bytes_ += file.bytes;
    auto const one = file.footer.fingerprint;
    fingerprint_.update(as_bytes(vector_view<std::uint32_t const>(&one, 1)));
    files_.push_back(std::move(file));
  }

  void find_columns(file_of_rows& file) const {
    auto const& fields = *file.footer.metadata->schema();
    auto const find = [&](std::string const& name, detail::column_role role) {
      file.columns.push_back(detail::find_parquet_column(fields, file.path, name, role));
    };
    find(schema_.label, detail::column_role::label);
    for (auto const& name : schema_.dense) find(name, detail::column_role::dense);
    for (auto const& name : schema_.sparse) find(name, detail::column_role::sparse);
    if (!schema_.session.empty()) find(schema_.session, detail::column_role::session);
    if (!schema_.time.empty()) find(schema_.time, detail::column_role::time);
  }

  void add_blocks(file_of_rows const& file) {
    auto const& metadata = *file.footer.metadata;
    std::int64_t row_in_file = 0;
    for (int group = 0; group < metadata.num_row_groups(); ++group) {
      auto const row_group = metadata.RowGroup(group);
      place block{files_.size(), group, row_in_file, rows_, row_group->num_rows()};
      auto const refuse = [&](char const* what) {
        throw error(errc::corrupt_file, what, {{"file", file.path}, {"row group", group}, {"rows", block.rows}});
      };
      if (block.rows < 0 || block.rows > metadata.num_rows() - row_in_file) refuse("parquet_log: row groups do not add up to the file");
      for (auto const& column : file.columns) {
        auto const chunk = row_group->ColumnChunk(column.leaf);
        auto const slots = chunk->num_values();
        if (column.is_list ? slots < block.rows : slots != block.rows) refuse("parquet_log: columns have different numbers of rows");
        if (!chunk->file_path().empty()) refuse("parquet_log: a column in another file");
        if (column.role == detail::column_role::sparse) block.slots.push_back(slots);
      }
      row_in_file += block.rows;
      if (block.rows == 0) continue;
      rows_ += block.rows;
      largest_block_rows_ = std::max(largest_block_rows_, block.rows);
      blocks_.push_back(std::move(block));
    }
    if (row_in_file != metadata.num_rows())
      throw error(errc::corrupt_file, "parquet_log: row groups do not add up to the file",
                  {{"file", file.path}, {"rows", row_in_file}, {"expected", metadata.num_rows()}});
  }

  // The block before which process `rank` begins: the boundary that is nearest to its share.
  std::int64_t cut(std::int64_t rank, std::int64_t ranks) const noexcept {
    auto const whole = rows_ / ranks, rest = rows_ % ranks;
    auto const share = whole * rank + rest * rank / ranks;
    auto const found = std::lower_bound(blocks_.begin(), blocks_.end(), share,
                                        [](place const& block, std::int64_t row) { return block.first_row + (block.rows + 1) / 2 <= row; });
    return rank == ranks ? block_count() : found - blocks_.begin();
  }

  void prepare(host_exec const& exec, file_of_rows const& file, place const& block, sample_columns& out) const {
    if (!out.has_columns_of(schema_)) out = sample_columns(schema_);
    out.clear();
    out.resize(exec, block.rows);
    for (std::int64_t c = 0; c < out.sparse_columns(); ++c) {
      try {
        out.room(exec, c, block.slots[static_cast<std::size_t>(c)]);
      } catch (error const& failure) {
        throw error(failure.code(), "parquet_log: no memory for a column",
                    {{"file", file.path},
                     {"row group", block.row_group},
                     {"column", schema_.sparse[static_cast<std::size_t>(c)]},
                     {"values", block.slots[static_cast<std::size_t>(c)]}});
      }
    }
  }

  template <class Where>
  void read_column(file_of_rows const& file, place const& block, detail::parquet_column const& column, std::int64_t number,
                   sample_columns& out, Where const& where) const {
    auto const source = std::make_shared<detail::chunk_source>(*file.file, file.path, file.bytes);
    auto const& footer = file.footer;
    auto const chunk = std::int64_t{block.row_group} * footer.metadata->num_columns() + column.leaf;
    if (options_.verify && !footer.sums.empty()) source->expect(footer.sums[static_cast<std::size_t>(chunk)]);
    parquet::ReaderProperties properties(options_.pool);
    properties.set_page_checksum_verification(options_.verify && footer.sums.empty());
    try {
      detail::arrow_call(errc::corrupt_file, "parquet_log: a column that cannot be decoded", where, [&] {
        auto const reader = parquet::ParquetFileReader::Open(source, properties, footer.metadata);
        auto const values = reader->RowGroup(block.row_group)->Column(column.leaf);
        decode(block, column, number, *values, out);
      });
    } catch (error const& failure) {
      auto values = where();
      if (auto const cause = source->failure()) {
        try {
          std::rethrow_exception(cause);
        } catch (error const& original) {
          values.insert(values.end(), original.values().begin() + 1, original.values().end());  // but for the file
          throw error(original.code(), original.sentence(), std::move(values));
        }
      }
      if (failure.sentence() != "null") throw;
      values.emplace_back("row", std::to_string(block.row_in_file + std::stoll(std::string(failure.value("row")))));
      throw error(errc::incompatible, "parquet_log: a null where none may be", std::move(values));
    }
  }

  void decode(place const& block, detail::parquet_column const& column, std::int64_t number, parquet::ColumnReader& reader,
              sample_columns& out) const {
    auto const list = number - 1 - out.dense_columns();
    auto const slots = column.role == detail::column_role::sparse ? block.slots[static_cast<std::size_t>(list)] : block.rows;
    detail::chunk_decoder decoder(column, reader, block.rows, slots);
    constexpr float const* no_float = nullptr;
    constexpr std::int64_t const* no_integer = nullptr;
    switch (column.role) {
      case detail::column_role::label: return decoder.read_numbers(out.labels().data(), no_float);
      case detail::column_role::dense: return decoder.read_numbers(out.dense().row(number - 1), &options_.missing_dense);
      case detail::column_role::sparse: return decoder.read_lists(out.offsets(list).data(), out.room_of(list).data());
      case detail::column_role::session: return decoder.read_numbers(out.sessions().data(), no_integer);
      case detail::column_role::time: return decoder.read_numbers(out.times().data(), no_integer);
    }
  }

  sample_schema schema_;
  parquet_log_options options_;
  std::vector<file_of_rows> files_;
  std::vector<place> blocks_;
  std::int64_t rows_ = 0, largest_block_rows_ = 0, file_bytes_ = 0;
  crc32_sum fingerprint_;
};
static_assert(fingerprinted_source<parquet_log>);

}  // namespace TESSERA_ABI
}  // namespace tessera
