// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/files/safetensors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {
inline constexpr std::int64_t table_rows_per_piece = 4096;  // of a file, read or written at once

inline std::string table_tensor(std::size_t table, std::string_view part) {
  return "table." + std::to_string(table) + "." + std::string(part);
}
}  // namespace detail

/// A block of a table's columns in a file of tables, with all rows.
struct stored_block {
  std::shared_ptr<safetensors_reader const> file;
  std::int64_t number = 0;  ///< of the block in the file, whose tensors are `table.<number>.…`
  std::int64_t first_column = 0, columns = 0;
};

/// Columns of a table, as blocks in files make them up. Tensors are named by what follows `table.<n>.`, for instance "weight".
///
/// - Of "weight", a row has the columns that are asked for.
/// - Of "state", a row has the floats of the row, then those of the same columns. The floats of the row are those of the block, if it has the
///   same columns. Else they are the mean over the blocks, by how many of the columns lie in each.
/// - All other tensors are the same in all blocks. They are those of the first.
class stored_table {
 public:
  /// Columns [first_column, first_column + columns) of table `number`. Blocks of other columns may be among `blocks`.
  /// @throws tessera::error corrupt_file, naming table and column, where blocks overlap or leave a gap, or differ in their rows.
  /// incompatible, naming the table, for several blocks whose rows have scales of their own, and for a file without the block.
  stored_table(std::int64_t number, std::vector<stored_block> blocks, std::int64_t first_column, std::int64_t columns,
               row_state_layout layout)
      : number_(number), first_column_(first_column), columns_(columns), layout_(layout) {
    std::erase_if(blocks, [&](auto const& b) { return b.first_column >= end() || b.first_column + b.columns <= first_column; });
    std::sort(blocks.begin(), blocks.end(), [](auto const& a, auto const& b) { return a.first_column < b.first_column; });
    blocks_ = std::move(blocks);
    check_cover();
    for (auto const& block : blocks_) check_block(block);
  }

  /// Number of the table.
  std::int64_t number() const noexcept { return number_; }
  /// How many rows each block has.
  std::int64_t rows() const { return rows_of(blocks_.front()); }
  /// Whether there is a tensor of that name.
  bool has(std::string_view tensor) const { return find(blocks_.front(), tensor) != nullptr; }
  /// Whether one block has these columns and no others, so that nothing is cut or joined.
  bool is_one_block() const noexcept {
    return blocks_.size() == 1 && blocks_.front().first_column == first_column_ && blocks_.front().columns == columns_;
  }
  /// Whether floats of rows in "state" are of other columns than those that were asked for.
  bool averages_states() const noexcept { return layout_.per_row > 0 && !is_one_block(); }

  /// The file of the first block, for errors.
  std::string const& path() const noexcept { return blocks_.front().file->path(); }
  /// The tensor's name in the file of the first block.
  std::string name(std::string_view tensor) const { return name(blocks_.front(), tensor); }
  /// The tensor in the file of the first block. @throws tessera::error incompatible where there is none.
  safetensors_entry const& at(std::string_view tensor) const { return blocks_.front().file->at(name(tensor)); }

  /// The tensors of the first block, by what follows `table.<n>.`, in the order of the file.
  std::vector<std::pair<std::string, safetensors_entry>> tensors() const {
    auto const prefix = name("");
    std::vector<std::pair<std::string, safetensors_entry>> all;
    for (auto const& entry : blocks_.front().file->entries())
      if (entry.name.starts_with(prefix)) all.emplace_back(entry.name.substr(prefix.size()), entry);
    std::sort(all.begin(), all.end(), [](auto const& a, auto const& b) { return a.second.offset < b.second.offset; });
    return all;
  }

  /// Refuses a tensor of another type or shape. `shape` is that of the columns that are asked for, in the first extent rows.
  /// @throws tessera::error incompatible, naming file, tensor, expected and found.
  void expect(std::string_view tensor, safetensors_dtype dtype, std::vector<std::int64_t> const& shape) const {
    for (auto const& block : blocks_) {
      auto of_block = shape;
      if (tensor == "weight") of_block.back() = block.columns;
      if (tensor == "state") of_block.back() = layout_.width(block.columns);
      block.file->expect(name(block, tensor), dtype, of_block);
    }
  }

  /// Reads rows [first, first + count) of a tensor, one after the other.
  /// @throws tessera::error corrupt_file naming file, tensor and row, where blocks list other ids; io_error.
  void read(host_exec const& exec, std::string_view tensor, std::int64_t first, std::int64_t count, vector_view<char> out) const {
    if (tensor == "weight" && !is_one_block()) return read_weights(exec, first, count, out);
    if (tensor == "state" && !is_one_block()) return read_states(exec, first, count, out);
    read_rows(blocks_.front(), tensor, first, count, out);
    if (tensor == "ids") check_ids(exec, first, count, out);
  }
  /// Reads all of a tensor that has not a row for each row of the table, such as "clock".
  void read_all(std::string_view tensor, vector_view<char> out) const { blocks_.front().file->read_bytes(at(tensor), 0, out); }

 private:
  std::int64_t end() const noexcept { return first_column_ + columns_; }

  static std::string name(stored_block const& block, std::string_view tensor) {
    return detail::table_tensor(static_cast<std::size_t>(block.number), tensor);
  }
  static safetensors_entry const* find(stored_block const& block, std::string_view tensor) { return block.file->find(name(block, tensor)); }
  static std::int64_t rows_of(stored_block const& block) {
    auto const& shape = block.file->at(name(block, "weight")).shape;
    return shape.empty() ? 0 : shape[0];
  }

  void check_cover() const {
    auto next = first_column_;
    auto const refuse = [&](char const* what, std::int64_t column) {
      throw error(errc::corrupt_file, std::string("table file: blocks of columns ") + what, {{"table", number_}, {"column", column}});
    };
    for (auto const& block : blocks_) {
      if (block.first_column > next) refuse("leave a gap", next);
      if (&block != &blocks_.front() && block.first_column < next) refuse("overlap", block.first_column);
      next = block.first_column + block.columns;
    }
    if (blocks_.empty() || next < end()) refuse("leave a gap", next);
  }

  void check_block(stored_block const& block) const {
    auto const refuse = [&](errc code, char const* what) {
      throw error(code, std::string("table file: ") + what,
                  {{"file", block.file->path()}, {"table", number_}, {"first column", block.first_column}, {"columns", block.columns}});
    };
    if (rows_of(block) != rows()) refuse(errc::corrupt_file, "blocks of a table differ in their numbers of rows");
    if ((find(block, "ids") != nullptr) != has("ids")) refuse(errc::corrupt_file, "blocks of a table differ in whether they list ids");
    if (blocks_.size() > 1 && find(block, "step") != nullptr)
      refuse(errc::incompatible, "blocks whose rows have scales of their own cannot be joined");
  }

  void read_rows(stored_block const& block, std::string_view tensor, std::int64_t first, std::int64_t count, vector_view<char> out) const {
    auto const& entry = block.file->at(name(block, tensor));
    block.file->read_bytes(entry, count == 0 ? 0 : first * (out.size() / count), out);
  }

  void check_ids(host_exec const& exec, std::int64_t first, std::int64_t count, vector_view<char const> expected) const {
    buffer<std::int64_t> ids(exec, count);
    for (auto const& block : blocks_) {
      if (&block == &blocks_.front()) continue;
      block.file->read(name(block, "ids"), first, ids.view());
      for (std::int64_t i = 0; i < count; ++i) {
        std::int64_t id = 0;
        std::memcpy(&id, expected.data() + i * static_cast<std::int64_t>(sizeof id), sizeof id);
        if (ids[i] != id)
          throw error(errc::corrupt_file, "table file: blocks of a table list other ids",
                      {{"file", block.file->path()},
                       {"tensor", name(block, "ids")},
                       {"table", number_},
                       {"row", first + i},
                       {"id", ids[i]},
                       {"expected", id}});
      }
    }
  }

  // The columns of a block that are asked for.
  struct overlap {
    std::int64_t in_block, in_row, columns;  // its first column in the block, and in the row that is read
  };
  overlap overlap_of(stored_block const& block) const noexcept {
    auto const first = std::max(first_column_, block.first_column);
    return {first - block.first_column, first - first_column_, std::min(end(), block.first_column + block.columns) - first};
  }

  void read_weights(host_exec const& exec, std::int64_t first, std::int64_t count, vector_view<char> out) const {
    buffer<char> rows;
    auto const size = element_bytes(at("weight").dtype);
    for (auto const& block : blocks_) {
      auto const row_bytes = block.columns * size;
      rows.resize(exec, count * row_bytes);
      read_rows(block, "weight", first, count, rows.view());
      auto const here = overlap_of(block);
      for (std::int64_t i = 0; i < count; ++i)
        std::memcpy(out.data() + (i * columns_ + here.in_row) * size, rows.data() + i * row_bytes + here.in_block * size,
                    static_cast<std::size_t>(here.columns * size));
    }
  }

  void read_states(host_exec const& exec, std::int64_t first, std::int64_t count, vector_view<char> out) const {
    auto const width = layout_.width(columns_);
    buffer<float> states(exec, count * width), rows;
    buffer<double> sums(exec, count * layout_.per_row);
    std::fill(sums.view().begin(), sums.view().end(), 0.0);
    for (auto const& block : blocks_) {
      auto const block_width = layout_.width(block.columns);
      auto const here = overlap_of(block);
      rows.resize(exec, count * block_width);
      block.file->read(name(block, "state"), first * block_width, rows.view());
      for (std::int64_t i = 0; i < count; ++i) {
        auto const* const from = rows.data() + i * block_width;
        auto* const to = states.data() + i * width;
        for (int s = 0; s < layout_.per_row; ++s) sums[i * layout_.per_row + s] += static_cast<double>(here.columns) * from[s];
        for (int s = 0; s < layout_.per_element; ++s)
          std::copy_n(from + layout_.per_row + s * block.columns + here.in_block, here.columns,
                      to + layout_.per_row + s * columns_ + here.in_row);
      }
    }
    for (std::int64_t i = 0; i < count; ++i)
      for (int s = 0; s < layout_.per_row; ++s)
        states[i * width + s] = static_cast<float>(sums[i * layout_.per_row + s] / static_cast<double>(columns_));
    std::memcpy(out.data(), states.data(), static_cast<std::size_t>(out.size()));
  }

  std::int64_t number_, first_column_, columns_;
  row_state_layout layout_;
  std::vector<stored_block> blocks_;  // in the order of their columns
};

}  // namespace TESSERA_ABI
}  // namespace tessera
