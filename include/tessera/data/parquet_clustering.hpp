// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <arrow/array/array_base.h>
#include <arrow/array/array_primitive.h>
#include <arrow/array/concatenate.h>
#include <arrow/compute/api_vector.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <arrow/util/byte_size.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>
#include <sys/resource.h>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/radix_sort.hpp>
#include <tessera/data/parquet_file.hpp>
#include <tessera/data/parquet_sink.hpp>
#include <tessera/data/parquet_tables.hpp>
#include <tessera/data/session_clustering.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// Rows of some sessions: in memory, or in a file of Arrow's stream format.
struct row_part {
  std::int64_t rows = 0, bytes = 0;
  std::vector<arrow_batch> held;
  std::string path;
  std::shared_ptr<arrow::io::FileOutputStream> file;
  std::shared_ptr<arrow::ipc::RecordBatchWriter> writer;
};

class row_clusterer {
 public:
  row_clusterer(host_exec const& exec, std::vector<std::string> const& files, session_columns by, std::string path,
                session_clustering_options const& options)
      : exec_(exec),
        files_(files),
        by_(std::move(by)),
        path_(std::move(path)),
        options_(options),
        work_(options.work_folder.empty() ? path_ + ".work" : options.work_folder, options.work_folder.empty(), {}) {
    work_.clear();
  }

  clustered_sessions run() {
    arrow_call(errc::corrupt_file, "cluster_by_session: a file that cannot be read", where(), [&] { survey(); });
    arrow_call(errc::io_error, "cluster_by_session: rows cannot be sorted", where(), [&] {
      divide();
      write();
    });
    arrow_call(errc::corrupt_file, "cluster_by_session: a file that cannot be read", where(),
               [&] { result_.after = table_order_of(table_file(path_, most_batch_rows, options_.output.pool), by_, options_.order); });
    return result_;
  }

 private:
  static constexpr std::int64_t most_batch_rows = 1 << 16;

  std::function<std::vector<error_value>()> where() const {
    return [this] { return std::vector<error_value>{{"file", current_}}; };
  }
  table_file open(std::string const& path) {
    current_ = path;
    return {path, batch_rows_, options_.output.pool};
  }

  // What columns there are, how large rows are, and which sessions bound the parts.
  void survey() {
    std::int64_t rows = 0, seen_rows = 0, seen_bytes = 0;
    for (auto const& path : files_) {
      auto const file = open(path);
      result_.source_bytes += file.bytes;
      rows += file.reader->parquet_reader()->metadata()->num_rows();
      if (schema_ == nullptr) {
        schema_ = file.schema;
        for (auto const* name : {&by_.session, &by_.time})
          if (!name->empty() && schema_->GetAllFieldIndices(*name).size() != 1)
            throw error(errc::incompatible, "cluster_by_session: a column is missing or there several times",
                        {{"file", path}, {"column", *name}});
        result_.before = table_order_of(file, by_, options_.order);
      } else if (!file.schema->Equals(*schema_, false)) {
        throw error(errc::incompatible, "cluster_by_session: a file has other columns than the first",
                    {{"file", path}, {"first", files_[0]}});
      }
      if (file.reader->num_row_groups() == 0) continue;
      auto const batches = value_of(file.reader->GetRecordBatchReader({0}));
      arrow_batch batch;
      PARQUET_THROW_NOT_OK(batches->ReadNext(&batch));
      if (batch == nullptr) continue;
      seen_rows += batch->num_rows();
      seen_bytes += arrow::util::TotalBufferSize(*batch);
    }
    row_bytes_ = std::max<std::int64_t>(seen_rows == 0 ? 1 : seen_bytes / seen_rows, 1);
    batch_rows_ = std::clamp<std::int64_t>(options_.memory_bytes / 16 / row_bytes_, 1, most_batch_rows);
    // A part is in memory twice, in Arrow's arrays of 32-bit offsets.
    auto const part_rows = std::max<std::int64_t>(std::min(options_.memory_bytes / 5, std::int64_t{1} << 30) / row_bytes_, 1);
    auto const parts = std::clamp<std::int64_t>(divide_up(rows, part_rows), 1, most_parts);
    if (parts > 1) bound_parts(rows, parts);
    parts_.resize(bounds_.size() + 1);
    check_open_files(static_cast<std::int64_t>(parts_.size()));
  }

  // Each part has a file open while rows are divided.
  void check_open_files(std::int64_t parts) const {
    constexpr std::int64_t others = 32;  // open files of the process, at a guess
    rlimit limit{};
    if (parts == 1 || getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    auto const allowed = static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, rlim_t{1} << 32));
    if (parts + others > allowed)
      throw error(errc::io_error, "cluster_by_session: too few open files are allowed; more memory needs fewer",
                  {{"file", path_}, {"needed", parts + others}, {"allowed", allowed}, {"memory_bytes", options_.memory_bytes}});
  }

  // Quantiles of the sessions of evenly spread rows.
  void bound_parts(std::int64_t rows, std::int64_t parts) {
    auto const step = std::max<std::int64_t>(rows >> 20, 1);
    std::vector<std::int64_t> seen;
    std::int64_t row = 0;
    for (auto const& path : files_) {
      auto const file = open(path);
      auto const leaf = file.reader->parquet_reader()->metadata()->schema()->ColumnIndex(by_.session);
      auto const batches = value_of(file.reader->GetRecordBatchReader(file.row_groups(), {leaf}));
      for_each(*batches, [&](arrow_batch const& batch) {
        auto const sessions = integers_of(batch->column(0));
        for (auto const session : sessions)
          if (row++ % step == 0) seen.push_back(session);
      });
    }
    std::sort(seen.begin(), seen.end());
    for (std::int64_t p = 1; p < parts; ++p) {
      auto const bound = seen[seen.size() * static_cast<std::size_t>(p) / static_cast<std::size_t>(parts)];
      if (bounds_.empty() || bounds_.back() < bound) bounds_.push_back(bound);
    }
  }

  template <class F>
  static void for_each(arrow::RecordBatchReader& batches, F const& f) {
    for (;;) {
      arrow_batch batch;
      PARQUET_THROW_NOT_OK(batches.ReadNext(&batch));
      if (batch == nullptr) return;
      f(batch);
    }
  }

  // Rows of a batch, in any order, a column a thread.
  arrow_batch rows_of(arrow_batch const& batch, std::vector<std::int64_t> const& rows) const {
    auto const indices = std::make_shared<arrow::Int64Array>(static_cast<std::int64_t>(rows.size()), arrow::Buffer::Wrap(rows));
    std::vector<std::shared_ptr<arrow::Array>> columns(static_cast<std::size_t>(batch->num_columns()));
    arrow::compute::ExecContext context(options_.output.pool);
    context.set_use_threads(false);
    exec_.run(batch->num_columns(), [&](std::int64_t c) {
      auto own = context;
      columns[static_cast<std::size_t>(c)] =
          value_of(arrow::compute::Take(*batch->column(static_cast<int>(c)), *indices, arrow::compute::TakeOptions::NoBoundsCheck(), &own));
    });
    return arrow::RecordBatch::Make(batch->schema(), static_cast<std::int64_t>(rows.size()), std::move(columns));
  }

  // Every row to the part that has its session, in order.
  void divide() {
    std::vector<std::vector<std::int64_t>> rows_of_part(parts_.size());
    for (auto const& path : files_) {
      auto const file = open(path);
      auto const batches = value_of(file.reader->GetRecordBatchReader(file.row_groups()));
      for_each(*batches, [&](arrow_batch const& batch) {
        auto const sessions = integers_of(batch->GetColumnByName(by_.session));
        for (auto& rows : rows_of_part) rows.clear();
        for (std::size_t i = 0; i < sessions.size(); ++i) {
          auto const row = result_.rows_read + static_cast<std::int64_t>(i);
          if (!options_.selection.keeps(sessions[i], row)) continue;
          auto const part = std::upper_bound(bounds_.begin(), bounds_.end(), sessions[i]) - bounds_.begin();
          rows_of_part[static_cast<std::size_t>(part)].push_back(static_cast<std::int64_t>(i));
        }
        result_.rows_read += batch->num_rows();
        for (std::size_t p = 0; p < parts_.size(); ++p)
          if (static_cast<std::int64_t>(rows_of_part[p].size()) == batch->num_rows())
            append(parts_[p], batch);
          else if (!rows_of_part[p].empty())
            append(parts_[p], rows_of(batch, rows_of_part[p]));
      });
    }
    for (auto& part : parts_) {
      if (part.writer == nullptr) continue;
      PARQUET_THROW_NOT_OK(part.writer->Close());
      PARQUET_THROW_NOT_OK(part.file->Close());
      part.writer.reset();
      ++result_.runs;
    }
  }

  void append(row_part& part, arrow_batch const& batch) {
    part.rows += batch->num_rows();
    if (parts_.size() == 1) return part.held.push_back(batch);
    if (part.writer == nullptr) {
      part.path = work_.path(work_.new_name(".arrow"));
      part.file = value_of(arrow::io::FileOutputStream::Open(part.path));
      auto how = arrow::ipc::IpcWriteOptions::Defaults();
      how.memory_pool = options_.output.pool;
      how.use_threads = false;
      part.writer = value_of(arrow::ipc::MakeStreamWriter(part.file, schema_, how));
    }
    PARQUET_THROW_NOT_OK(part.writer->WriteRecordBatch(*batch));
  }

  // All rows of a part in one batch.
  arrow_batch joined(row_part& part) const {
    auto batches = std::move(part.held);
    if (!part.path.empty()) {
      auto const file = value_of(arrow::io::ReadableFile::Open(part.path, options_.output.pool));
      auto how = arrow::ipc::IpcReadOptions::Defaults();
      how.memory_pool = options_.output.pool;
      how.use_threads = false;
      auto const reader = value_of(arrow::ipc::RecordBatchStreamReader::Open(file, how));
      for_each(*reader, [&](arrow_batch const& batch) { batches.push_back(batch); });
    }
    std::vector<std::shared_ptr<arrow::Array>> columns;
    for (int c = 0; c < schema_->num_fields(); ++c) {
      arrow::ArrayVector pieces;
      for (auto const& batch : batches) pieces.push_back(batch->column(c));
      auto column = value_of(arrow::Concatenate(pieces, options_.output.pool));
      columns.push_back(std::move(column));
    }
    return arrow::RecordBatch::Make(schema_, part.rows, std::move(columns));
  }

  void write() {
    current_ = path_;
    auto const sink = std::make_shared<parquet_sink>(path_);
    try {
      parquet::WriterProperties::Builder builder;
      set_properties(options_.output, builder);
      builder.max_row_group_length(std::int64_t{1} << 62);
      auto const arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
      auto const writer =
          value_of(parquet::arrow::FileWriter::Open(*schema_, options_.output.pool, sink, builder.build(), arrow_properties));
      for (auto& part : parts_) {
        if (part.rows > 0) write(part, *writer);
        std::error_code ignored;
        if (!part.path.empty()) std::filesystem::remove(part.path, ignored);
      }
      result_.output.file_bytes = seal_parquet(*sink, path_, [&](auto const& pairs) {
        PARQUET_THROW_NOT_OK(writer->AddKeyValueMetadata(pairs));
        PARQUET_THROW_NOT_OK(writer->Close());
      });
    } catch (parquet::ParquetException const&) {
      sink->abandon();
      if (auto const failure = sink->failure()) std::rethrow_exception(failure);
      throw;
    } catch (...) {
      sink->abandon();
      throw;
    }
  }

  void write(row_part& part, parquet::arrow::FileWriter& writer) {
    auto const table = joined(part);
    auto const sessions = integers_of(table->GetColumnByName(by_.session));
    buffer<std::int64_t> keys(exec_, table->num_rows()), order(exec_, table->num_rows());
    std::iota(order.begin(), order.end(), std::int64_t{0});
    auto const sort = [&](std::vector<std::int64_t> const& by) {
      for (std::int64_t i = 0; i < keys.size(); ++i) keys[i] = by[static_cast<std::size_t>(order[i])];
      radix_sort_pairs(exec_, keys.view(), order.view());
    };
    if (!by_.time.empty()) sort(integers_of(table->GetColumnByName(by_.time)));
    sort(sessions);

    auto const bytes = std::max<std::int64_t>(arrow::util::TotalBufferSize(*table) / table->num_rows(), 1);
    auto const group_bytes = std::min(options_.output.row_group_bytes, options_.memory_bytes / 8 / (options_.whole_sessions ? 2 : 1));
    auto const full = std::clamp<std::int64_t>(group_bytes / bytes, 1, options_.output.row_group_rows);
    result_.output.rows += table->num_rows();
    result_.output.value_bytes += bytes * table->num_rows();
    for (std::int64_t row = 0; row < order.size();) {
      if (group_rows_ == 0) {
        PARQUET_THROW_NOT_OK(writer.NewBufferedRowGroup());
        ++result_.output.row_groups;
      }
      auto end = std::min(order.size(), row + std::max<std::int64_t>(full - group_rows_, 1));
      auto const session_at = [&](std::int64_t i) { return sessions[static_cast<std::size_t>(order[i])]; };
      bool is_full = group_rows_ + (end - row) >= full;
      if (options_.whole_sessions && is_full)
        while (end < order.size() && session_at(end) == session_at(end - 1) && group_rows_ + (end - row) < 2 * full) ++end;
      auto const rows = std::vector<std::int64_t>(order.begin() + row, order.begin() + end);
      PARQUET_THROW_NOT_OK(writer.WriteRecordBatch(*rows_of(table, rows)));
      group_rows_ = is_full ? 0 : group_rows_ + (end - row);
      row = end;
    }
  }

  static constexpr std::int64_t most_parts = 4096;

  host_exec exec_;
  std::vector<std::string> const& files_;
  session_columns by_;
  std::string path_, current_;
  session_clustering_options const& options_;
  clustering_work work_;
  std::shared_ptr<arrow::Schema> schema_;
  std::int64_t row_bytes_ = 1, batch_rows_ = 4096;
  std::int64_t group_rows_ = 0;       // of the row group that is being written
  std::vector<std::int64_t> bounds_;  // the first sessions of all parts but the first
  std::vector<row_part> parts_;
  clustered_sessions result_;
};

}  // namespace detail

/// Writes the rows of Parquet files as one file, in the order of `cluster_by_session` for a data set, with all columns, of whatever types.
/// An INT96 timestamp becomes a timestamp in nanoseconds; other types stay. The files have the same columns.
///
/// Two passes divide the rows into parts by ranges of sessions, which lie in the work folder. Each part is then sorted in memory, so all of
/// a session is in memory at once. After a kill, the next call begins anew. A session is an integer or a text, sorted by `hash_text`. A
/// time is an integer, date, time or timestamp. In the result, `runs` counts the parts in the work folder, and `before` is measured on the
/// first file.
///
/// @throws tessera::error io_error, also where the process may not open a file a part. out_of_memory. corrupt_file for a file that cannot
/// be read. incompatible naming a file with other columns, or without those of `by`. invalid_argument without files, without a name of the
/// session, and for options out of their range. A session or time that is null, or of another type, is refused as corrupt_file or io_error,
/// by the pass that meets it.
inline clustered_sessions cluster_by_session(host_exec const& exec, std::vector<std::string> const& files, session_columns const& by,
                                             std::string const& path, session_clustering_options const& options = {}) {
  if (files.empty()) throw error(errc::invalid_argument, "cluster_by_session: no files", {{"file", path}});
  if (by.session.empty()) throw error(errc::invalid_argument, "cluster_by_session: no session", {{"file", path}});
  auto const valid = detail::checked_options(path, options);
  return detail::row_clusterer(exec, files, by, path, valid).run();
}

}  // namespace TESSERA_ABI
}  // namespace tessera
