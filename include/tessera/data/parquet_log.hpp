// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <arrow/memory_pool.h>
#include <parquet/metadata.h>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/parquet_columns.hpp>
#include <tessera/data/parquet_decoder.hpp>
#include <tessera/data/parquet_file.hpp>
#include <tessera/data/parquet_pages.hpp>
#include <tessera/data/sample_source.hpp>
#include <tessera/files/byte_view.hpp>
#include <tessera/files/checksum.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of `parquet_log`.
struct parquet_log_options {
  std::int64_t block_rows = std::int64_t{1} << 16;   ///< the most samples of a block
  std::int64_t block_bytes = std::int64_t{1} << 27;  ///< of values in a block, about
  bool verify = true;                                ///< compares the checksums of pages that have one
  parquet_open open = {};                            ///< how files are opened; none: as files of this machine
  arrow::MemoryPool* pool = nullptr;                 ///< of Arrow's own memory; nullptr: its default pool. Outlives the log
};

/// The samples of one or more Parquet files of any writer as a data set, in their order. Only the columns that the schema names are read.
///
/// - A label, weight, further label or dense column is of any kind of number, or of booleans. A null of a dense column becomes NaN.
/// - A single column is of integers or texts; a null becomes `missing_id`.
/// - Any other sparse column is of lists of integers or texts, or of integers or texts, each a list of one. A null is an empty list.
/// - A session is an integer or a text.
/// - A time is an integer, date, time or timestamp, in the file's unit. An INT96 timestamp of older Spark and Hive becomes microseconds
///   since 1970.
///
/// Other nulls, as in a label or within a list, are errors. A text is read as `hash_text` of its bytes. Unsigned integers of 64 bits keep
/// their bits.
///
/// A block is a row group, or a part of a row group that has more than `block_rows` samples or `block_bytes`. So memory does not grow with
/// row groups. Beside the block, a thread takes the compressed chunk of one column of a whole row group. Where a block is a part, a thread
/// takes three pages of each column.
///
/// Blocks that are read in order decode each page once. In any other order a block decodes its own pages again where they are known. The
/// first reading of a list column's later rows also decodes the pages in front of them. A row group is thus decoded at most twice in an
/// epoch in which pages are small against blocks.
///
/// With `verify`, a page that does not match its checksum is refused. The files of `parquet_writer` have a checksum for each page and one
/// for the footer. In files of other writers nothing protects page headers and footer.
///
/// Opening reads the footers alone. A column is decoded by one thread. Threads may read through one object at once. Move-only.
class parquet_log {
 public:
  /// Opens the files and reads their footers.
  /// @throws tessera::error io_error. corrupt_file for what is no Parquet file, or a damaged one. incompatible for an encrypted file, and
  /// for a column that is missing or of another type, naming file, column, expected and found. invalid_argument without files, for options
  /// below 1, and as `check_schema`.
  parquet_log(std::vector<std::string> const& files, sample_schema schema, parquet_log_options options = {})
      : schema_(std::move(schema)), options_(std::move(options)) {
    if (files.empty()) throw error(errc::invalid_argument, "parquet_log: no files");
    if (options_.block_rows < 1 || options_.block_bytes < 1)
      throw error(errc::invalid_argument, "parquet_log: options",
                  {{"block_rows", options_.block_rows}, {"block_bytes", options_.block_bytes}, {"least", 1}});
    check_schema("parquet_log", schema_);
    if (options_.pool == nullptr) options_.pool = arrow::default_memory_pool();
    for (auto const& path : files) add(path);
  }

  sample_schema const& schema() const noexcept { return schema_; }
  std::int64_t rows() const noexcept { return rows_; }
  std::int64_t block_count() const noexcept { return static_cast<std::int64_t>(blocks_.size()); }
  /// How many samples a block has, at least one. @pre 0 <= block < block_count(), here and below.
  std::int64_t rows(std::int64_t block) const noexcept { return blocks_[static_cast<std::size_t>(block)].rows; }
  /// The number of a block's first sample.
  std::int64_t first_row(std::int64_t block) const noexcept {
    auto const& known = blocks_[static_cast<std::size_t>(block)];
    return groups_[known.group].first_row + known.row;
  }
  /// The path of the file that has a block.
  std::string const& file_of(std::int64_t block) const noexcept {
    return files_[groups_[blocks_[static_cast<std::size_t>(block)].group].file].path;
  }
  /// The most samples in any block.
  std::int64_t largest_block_rows() const noexcept { return largest_block_rows_; }
  /// The size of all files, in bytes.
  std::int64_t file_bytes() const noexcept { return file_bytes_; }

  /// A checksum of the sizes and footers of all files in their order. Footers of `parquet_writer` have a checksum of all data, so other
  /// data have another fingerprint, almost surely. Footers of other writers tell sizes, counts and statistics, so equal fingerprints are no
  /// proof of equal data.
  std::uint32_t fingerprint() const noexcept { return fingerprint_.value(); }

  /// `out` becomes the samples of a block. The call allocates only when a buffer grows, beside what Arrow does.
  /// @throws tessera::error io_error, out_of_memory. out_of_range naming a block that is not there. corrupt_file for what cannot be
  /// decoded, or has another checksum. incompatible for a null where none may be, naming its row in the file. An error of a column names
  /// file, row group and column.
  void read(host_exec const& exec, std::int64_t block, sample_columns& out) const {
    if (block < 0 || block >= block_count())
      throw error(errc::out_of_range, "parquet_log: no such block", {{"block", block}, {"blocks", block_count()}});
    auto const& known = blocks_[static_cast<std::size_t>(block)];
    auto const& group = groups_[known.group];
    auto const& file = files_[group.file];
    prepare(exec, known, out);
    auto reading = take(known);
    std::vector<detail::list_rows> lists(file.columns.size());
    exec.run(static_cast<std::int64_t>(file.columns.size()), [&](std::int64_t number) {
      auto const c = static_cast<std::size_t>(number);
      read_column(known, c, reading->cursors[c], out, lists[c]);
    });
    for (std::size_t c = 0; c < lists.size(); ++c) {
      if (file.columns[c].role != detail::column_role::list) continue;
      auto const ids = out.ids(exec, file.columns[c].index);
      std::copy(lists[c].overflow.begin(), lists[c].overflow.end(), ids.data() + lists[c].in_room);
    }
    put_back(known, std::move(reading));
  }

 private:
  struct file_of_rows : detail::open_parquet {
    std::vector<detail::parquet_column> columns;  // as `named_columns`
  };
  struct row_group {
    std::size_t file = 0;
    int number = 0;
    std::int64_t row_in_file = 0, first_row = 0, rows = 0;
    std::vector<std::int64_t> slots{};  // of each column
  };
  struct place {
    std::size_t group = 0;
    std::int64_t row = 0, rows = 0;  // in the row group
  };
  // A row group that is being read, and how far it was.
  struct open_group {
    std::size_t group = 0;
    std::int64_t next_row = 0;
    std::vector<std::unique_ptr<detail::chunk_cursor>> cursors;  // of each column
  };
  struct shared_state {
    std::mutex mutex;
    std::vector<std::unique_ptr<open_group>> left_off;                                     // at most as many as were read at once
    std::map<std::pair<std::size_t, std::size_t>, std::vector<detail::known_page>> pages;  // by row group and column
  };

  void add(std::string const& path) {
    file_of_rows file;
    file.path = path;
    file.file = detail::open_source(options_.open, path, options_.pool);
    file.footer = detail::read_parquet_footer(*file.file, path, options_.pool);
    file.bytes = *file.file->GetSize();
    auto const where = [&] { return std::vector<error_value>{{"file", path}}; };
    detail::arrow_call(errc::corrupt_file, "parquet_log: a footer that cannot be read", where, [&] {
      for (auto const& wanted : detail::named_columns(schema_))
        file.columns.push_back(detail::find_parquet_column(*file.footer.metadata->schema(), path, wanted));
      add_groups(file);
    });
    file_bytes_ += file.bytes;
    auto const one = file.footer.fingerprint;
    fingerprint_.update(as_bytes(vector_view<std::uint32_t const>(&one, 1)));
    files_.push_back(std::move(file));
  }

  void add_groups(file_of_rows const& file) {
    auto const& metadata = *file.footer.metadata;
    std::int64_t row_in_file = 0;
    for (int number = 0; number < metadata.num_row_groups(); ++number) {
      auto const found = metadata.RowGroup(number);
      row_group group{files_.size(), number, row_in_file, rows_, found->num_rows()};
      auto const refuse = [&](char const* what) {
        throw error(errc::corrupt_file, what, {{"file", file.path}, {"row group", number}, {"rows", group.rows}});
      };
      if (group.rows < 0 || group.rows > metadata.num_rows() - row_in_file) refuse("parquet_log: row groups do not add up to the file");
      for (auto const& column : file.columns) {
        auto const chunk = found->ColumnChunk(column.leaf);
        auto const slots = chunk->num_values();
        if (column.is_list ? slots < group.rows : slots != group.rows) refuse("parquet_log: columns have different numbers of rows");
        if (!chunk->file_path().empty()) refuse("parquet_log: a column in another file");
        group.slots.push_back(slots);
      }
      row_in_file += group.rows;
      if (group.rows > 0) add_blocks(file, std::move(group));
    }
    if (row_in_file != metadata.num_rows())
      throw error(errc::corrupt_file, "parquet_log: row groups do not add up to the file",
                  {{"file", file.path}, {"rows", row_in_file}, {"expected", metadata.num_rows()}});
  }

  // Parts of a row group that are as large as each other.
  void add_blocks(file_of_rows const& file, row_group group) {
    double bytes = 0;
    for (std::size_t c = 0; c < file.columns.size(); ++c)
      bytes += static_cast<double>(group.slots[c]) * (detail::is_number(file.columns[c].role) ? 4 : 8);
    auto const by_bytes = static_cast<std::int64_t>(std::min(bytes / static_cast<double>(options_.block_bytes) + 0.5, 0x1p62));
    auto const parts = std::clamp<std::int64_t>(std::max(by_bytes, divide_up(group.rows, options_.block_rows)), 1, group.rows);
    auto const rows = divide_up(group.rows, parts);
    for (std::int64_t row = 0; row < group.rows; row += rows) blocks_.push_back({groups_.size(), row, std::min(rows, group.rows - row)});
    largest_block_rows_ = std::max(largest_block_rows_, rows);
    rows_ += group.rows;
    groups_.push_back(std::move(group));
  }

  bool is_whole(place const& block) const noexcept { return block.rows == groups_[block.group].rows; }

  // As many ids as a block's lists have, at most or, where it is a part of a row group, as a rule.
  std::int64_t room_of(place const& block, std::size_t column) const noexcept {
    auto const& group = groups_[block.group];
    auto const slots = group.slots[column];
    if (is_whole(block)) return slots;
    if (!files_[group.file].columns[column].is_list) return block.rows;
    auto const share = static_cast<double>(slots) * static_cast<double>(block.rows) / static_cast<double>(group.rows);
    return std::min(slots, static_cast<std::int64_t>(1.125 * share) + 8192);
  }

  void prepare(host_exec const& exec, place const& block, sample_columns& out) const {
    if (!out.has_columns_of(schema_)) out = sample_columns(schema_);
    out.clear();
    out.resize(exec, block.rows);
    auto const& group = groups_[block.group];
    auto const& file = files_[group.file];
    for (std::size_t c = 0; c < file.columns.size(); ++c) {
      auto const& column = file.columns[c];
      if (column.role != detail::column_role::list) continue;
      auto const values = room_of(block, c);
      try {
        out.room(exec, column.index, values);
      } catch (error const& failure) {
        throw error(failure.code(), "parquet_log: no memory for a column",
                    {{"file", file.path}, {"row group", group.number}, {"column", column.name}, {"values", values}});
      }
    }
  }

  // Where a reading left off that came to this block; or one that begins, in place of the oldest that left off.
  std::unique_ptr<open_group> take(place const& block) const {
    std::unique_ptr<open_group> taken;
    {
      std::lock_guard const lock(shared_->mutex);
      auto& left_off = shared_->left_off;
      auto found = std::find_if(left_off.begin(), left_off.end(),
                                [&](auto const& one) { return one->group == block.group && one->next_row == block.row; });
      bool const is_next = found != left_off.end();
      if (!is_next) found = left_off.begin();
      if (found != left_off.end()) {
        taken = std::move(*found);
        left_off.erase(found);
      }
      if (is_next) return taken;
    }
    taken = std::make_unique<open_group>();
    taken->group = block.group;
    taken->cursors.resize(files_[groups_[block.group].file].columns.size());
    return taken;
  }

  void put_back(place const& block, std::unique_ptr<open_group> reading) const {
    if (is_whole(block)) return;
    std::lock_guard const lock(shared_->mutex);
    for (std::size_t c = 0; c < reading->cursors.size(); ++c) {
      auto& known = shared_->pages[{block.group, c}];
      auto& seen = reading->cursors[c]->pages();
      for (auto const& page : seen)
        if (known.empty() || page.offset > known.back().offset) known.push_back(page);
      seen.clear();
    }
    reading->next_row = block.row + block.rows;
    if (reading->next_row < groups_[block.group].rows) shared_->left_off.push_back(std::move(reading));
  }

  // The last page that is known in which a row may begin.
  detail::page_start start_of(place const& block, std::size_t column) const {
    std::lock_guard const lock(shared_->mutex);
    auto const found = shared_->pages.find({block.group, column});
    if (block.row == 0 || found == shared_->pages.end() || found->second.empty()) return {};
    auto const& pages = found->second;
    auto const behind = std::upper_bound(pages.begin(), pages.end(), block.row,
                                         [](std::int64_t row, detail::known_page const& page) { return row < page.rows; });
    return {behind == pages.begin() ? pages.front() : *std::prev(behind), pages.front().offset};
  }

  void read_column(place const& block, std::size_t number, std::unique_ptr<detail::chunk_cursor>& cursor, sample_columns& out,
                   detail::list_rows& lists) const {
    auto const& group = groups_[block.group];
    auto const& file = files_[group.file];
    auto const& column = file.columns[number];
    auto const where = [&] { return std::vector<error_value>{{"file", file.path}, {"row group", group.number}, {"column", column.name}}; };
    try {
      detail::arrow_call(errc::corrupt_file, "parquet_log: a column that cannot be decoded", where, [&] {
        if (cursor == nullptr) {
          cursor = std::make_unique<detail::chunk_cursor>(file, group.number, column, group.rows, options_.pool);
          cursor->open(block.row, start_of(block, number), options_.verify, is_whole(block));
        }
        decode(block.rows, column, *cursor, out, lists);
      });
    } catch (error const& failure) {
      auto values = where();
      if (auto const cause = cursor != nullptr ? cursor->failure() : nullptr; cause != nullptr) {
        try {
          std::rethrow_exception(cause);
        } catch (error const& original) {
          values.insert(values.end(), original.values().begin() + 1, original.values().end());  // but for the file
          throw error(original.code(), original.sentence(), std::move(values));
        }
      }
      if (failure.sentence() != "null") throw;
      values.emplace_back("row", std::to_string(group.row_in_file + block.row + std::stoll(std::string(failure.value("row")))));
      throw error(errc::incompatible, "parquet_log: a null where none may be", std::move(values));
    }
    if (is_whole(block)) cursor.reset();
  }

  void decode(std::int64_t rows, detail::parquet_column const& column, detail::chunk_cursor& cursor, sample_columns& out,
              detail::list_rows& lists) const {
    constexpr float no_number = std::numeric_limits<float>::quiet_NaN();
    switch (column.role) {
      case detail::column_role::label: return cursor.read_floats(rows, out.labels().data(), nullptr);
      case detail::column_role::dense: return cursor.read_floats(rows, out.dense().row(column.index), &no_number);
      case detail::column_role::weight: return cursor.read_floats(rows, out.weights().data(), nullptr);
      case detail::column_role::other_label: return cursor.read_floats(rows, out.other_labels().row(column.index), nullptr);
      case detail::column_role::session: return cursor.read_integers(rows, out.sessions().data(), nullptr);
      case detail::column_role::time: return cursor.read_integers(rows, out.times().data(), nullptr);
      case detail::column_role::single: return cursor.read_integers(rows, out.single_ids(column.index).data(), &missing_id);
      case detail::column_role::list:
        lists.offsets = out.offsets(column.index).data();
        lists.room = out.room_of(column.index);
        return cursor.read_lists(rows, lists);
    }
  }

  sample_schema schema_;
  parquet_log_options options_;
  std::vector<file_of_rows> files_;
  std::vector<row_group> groups_;  // those with rows
  std::vector<place> blocks_;
  std::int64_t rows_ = 0, largest_block_rows_ = 0, file_bytes_ = 0;
  crc32_sum fingerprint_;
  std::unique_ptr<shared_state> shared_ = std::make_unique<shared_state>();
};
static_assert(fingerprinted_source<parquet_log>);

}  // namespace TESSERA_ABI
}  // namespace tessera
