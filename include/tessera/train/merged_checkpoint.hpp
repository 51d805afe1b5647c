// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/embed/stored_table_file.hpp>
#include <tessera/files/atomic_folder.hpp>
#include <tessera/files/file_digest.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/files/posix_file.hpp>
#include <tessera/files/safetensors.hpp>
#include <tessera/files/step_folders.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/checkpoint_folder.hpp>
#include <tessera/train/checkpoint_shards.hpp>
#include <tessera/train/checkpoint_writing.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Writes a checkpoint of several ranks as one process would have, into `directory`, and keeps the newest `keep` there. `from` is the folder
/// of the checkpoint, or a directory of which the newest is taken. No model is needed, and never more than some rows are in memory.
///
/// Blocks of rows and columns are joined. Row-wise states of rows in several blocks are averaged by width, and the report names the tables
/// of such rows.
/// Files of the caller's are copied. Into the directory that it is in, the checkpoint that was merged is replaced.
/// @throws tessera::error as `open_newest_checkpoint` and `save_checkpoint`. invalid_argument for a checkpoint that one process has written.
/// incompatible, naming the table, for blocks of columns of int8 rows, which have scales of their own.
inline load_report merge_checkpoint(host_exec const& exec, std::string const& from, std::string const& directory, std::int64_t keep = 1);

namespace detail {

// A tensor of a stored table, by its name without `table.<n>.`.
struct stored_tensor {
  std::string name;
  safetensors_tensor whole;  // as the merged file has it
};

// The tensors of a table, which lists rows once or more.
inline std::vector<stored_tensor> tensors_of(std::vector<stored_table> const& lists, std::int64_t columns, row_state_layout layout) {
  std::vector<stored_tensor> all;
  auto const& table = lists.front();
  if (lists.size() > 1 && table.has("clock"))
    throw error(errc::incompatible, "merge_checkpoint: rows of a table with policies are cut, and cannot be joined",
                {{"file", table.path()}, {"table", table.number()}});
  for (auto const& [name, entry] : table.tensors()) {
    safetensors_tensor whole{table_tensor(static_cast<std::size_t>(table.number()), name), entry.dtype, entry.shape};
    std::int64_t rows = 0;
    for (auto const& list : lists) {
      auto shape = entry.shape;
      if (name == "step" || name == "ids") shape = {list.rows()};
      if (name == "weight") shape = {list.rows(), columns};
      if (name == "state") shape = {list.rows(), layout.width(columns)};
      list.expect(name, whole.dtype, shape);
      rows += shape.empty() ? 0 : shape[0];
      whole.shape = std::move(shape);
    }
    if (!whole.shape.empty()) whole.shape[0] = rows;
    all.push_back({name, std::move(whole)});
  }
  return all;
}

inline manifest_section merge_tables(host_exec const& exec, std::string const& folder, std::vector<std::vector<stored_table>> const& tables,
                                     std::vector<std::vector<stored_tensor>> const& tensors) {
  std::vector<safetensors_tensor> whole;
  for (auto const& of_table : tensors)
    for (auto const& tensor : of_table) whole.push_back(tensor.whole);
  safetensors_writer out(folder + "/tables.safetensors", std::move(whole));
  buffer<char> bytes;
  for (std::size_t t = 0; t < tables.size(); ++t)
    for (auto const& [name, tensor] : tensors[t]) {
      std::int64_t row_bytes = element_bytes(tensor.dtype);
      for (std::size_t i = 1; i < tensor.shape.size(); ++i) row_bytes *= tensor.shape[i];
      for (auto const& list : tables[t]) {
        // Rows of whatever the tensor lists, which for some are not those of the table. They lie in one list.
        auto const rows = tables[t].size() > 1 ? list.rows() : tensor.shape.empty() ? 0 : tensor.shape[0];
        for (std::int64_t first = 0; first < rows; first += table_rows_per_piece) {
          auto const count = std::min(rows - first, table_rows_per_piece);
          bytes.resize(exec, count * row_bytes);
          list.read(exec, name, first, count, bytes.view());
          out.append_bytes(tensor.name, std::as_const(bytes).view());
        }
      }
    }
  return {"tables.safetensors", out.finish()};
}

inline void copy_section(std::string const& from, std::string const& to, manifest_section const& section) {
  std::error_code failure;
  std::filesystem::copy_file(from + "/" + section.file, to + "/" + section.file, failure);
  if (failure) throw_io_error("cannot copy file", from + "/" + section.file, failure.message());
  if (digest_of(to + "/" + section.file) != section.digest)
    throw error(errc::corrupt_file, "checkpoint: a section has changed while it was copied",
                {{"file", from + "/" + section.file}, {"section", section.file}});
}

}  // namespace detail

inline load_report merge_checkpoint(host_exec const& exec, std::string const& from, std::string const& directory, std::int64_t keep) {
  if (keep < 1) throw error(errc::invalid_argument, "merge_checkpoint: at least one to keep", {{"keep", keep}});
  auto const found = open_newest_checkpoint(from);
  auto const shards = detail::shards_of(found.content, found.folder + "/manifest.json");
  if (!shards.of_ranks)
    throw error(errc::invalid_argument, "merge_checkpoint: one process has written this checkpoint", {{"folder", found.folder}});
  detail::shard_files files(found.folder);
  std::vector<std::vector<stored_table>> tables;
  std::vector<std::vector<detail::stored_tensor>> tensors;
  load_report report;
  for (std::size_t t = 0; t < shards.table_columns.size(); ++t) {
    auto const number = static_cast<std::int64_t>(t);
    auto const columns = shards.table_columns[t];
    auto const layout = std::find_if(shards.shards.begin(), shards.shards.end(), [&](auto const& s) { return s.table == number; })->layout;
    tables.push_back(files.table(shards, {.table = number, .columns = columns}, layout));
    tensors.push_back(detail::tensors_of(tables.back(), columns, layout));
    if (std::any_of(tables.back().begin(), tables.back().end(), [](auto const& list) { return list.averages_states(); }))
      report.averaged_tables.push_back(number);
  }
  staged_folder staged(directory, step_folder_name(step_count{found.state.step}));
  manifest content{detail::checkpoint_format, detail::one_process_version, {}, found.content.state};
  for (char const* const field : {"shards", "table_columns", "table_rows"}) content.state.erase(field);
  for (auto const& section : found.content.sections)
    if (std::none_of(shards.shards.begin(), shards.shards.end(), [&](auto const& s) { return s.file == section.file; })) {
      detail::copy_section(found.folder, staged.path(), section);
      content.sections.push_back(section);
    }
  content.sections.push_back(detail::merge_tables(exec, staged.path(), tables, tensors));
  detail::commit_checkpoint(staged, directory, content, found.state.step, keep);
  return report;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
