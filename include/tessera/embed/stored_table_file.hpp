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
#include <tessera/embed/row_bands.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/table_places.hpp>
#include <tessera/files/safetensors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {
inline constexpr std::int64_t table_rows_per_piece = 4096;  // of a file, read or written at once

inline std::string table_tensor(std::size_t table, std::string_view part) {
  return "table." + std::to_string(table) + "." + std::string(part);
}
}  // namespace detail

/// A block of a table in a file of tables, as `part_place` says.
struct stored_block {
  std::shared_ptr<safetensors_reader const> file;
  std::int64_t number = 0;  ///< of the block in the file, whose tensors are `table.<number>.…`
  std::int64_t first_column = 0, columns = 0;
  std::int64_t first_row = 0, rows = part_place::all_rows;
};

/// A rectangle of a table, read from the blocks in files that cover it. Tensors are named by what follows `table.<n>.`, for instance "weight".
///
/// - Of "weight", a row has the columns that are asked for.
/// - Of "state", a row has the floats of the row, then those of the same columns. The floats of the row are those of its block, if that has the
///   same columns. Else they are the mean over its blocks, by how many of the columns lie in each.
/// - Of "step", a row has the one of its block.
/// - All other tensors are the same in all blocks. They are those of the first.
///
/// Blocks that list ids have all rows of a table, in any order. Then all of them are read, whatever rows are asked for.
class stored_table {
 public:
  /// The rows and columns of a place. Blocks of others may be among `blocks`. `table_rows` are the rows of the whole table, where ids are rows.
  /// @throws tessera::error corrupt_file, naming table, row and column, where blocks overlap or leave a gap.
  /// corrupt_file also, naming file and table, for a block with another number of rows than is said of it.
  /// incompatible, naming the table, for one of another size, for several blocks of columns whose rows have scales of their own, and for a
  /// file without the block.
  stored_table(part_place const& place, std::vector<stored_block> blocks, row_state_layout layout,
               std::int64_t table_rows = part_place::all_rows)
      : place_(place), table_rows_(table_rows), layout_(layout), blocks_(std::move(blocks)) {
    auto const first_column = place_.first_column, end_column = end();
    std::erase_if(blocks_, [&](auto const& b) { return b.first_column >= end_column || b.first_column + b.columns <= first_column; });
    std::sort(blocks_.begin(), blocks_.end(),
              [](auto const& a, auto const& b) { return std::pair(a.first_row, a.first_column) < std::pair(b.first_row, b.first_column); });
    set_rows();
    bands_ = detail::row_bands(blocks_, first_read_, end_read_);
    for (auto const& band : bands_) check_band(band);
  }

  /// Number of the table.
  std::int64_t number() const noexcept { return place_.table; }
  /// How many rows are read: those that are asked for, or all where ids are listed.
  std::int64_t rows() const noexcept { return end_read_ - first_read_; }
  /// The first of the rows that are asked for.
  std::int64_t first_row() const noexcept { return place_.first_row; }
  /// How many rows are asked for; `part_place::all_rows` for all of them.
  std::int64_t asked_rows() const noexcept { return place_.rows; }
  /// Whether rows of the table are not asked for, where ids are rows.
  bool lacks_rows() const noexcept { return place_.rows != part_place::all_rows && place_.hashed_rows == 0; }
  /// The rows that ids hash to, of which those above are asked for; 0: ids are rows. Then all rows are read.
  std::int64_t hashed_rows() const noexcept { return place_.hashed_rows; }
  /// The rows of the whole table, where ids are rows.
  std::int64_t table_rows() const noexcept { return table_rows_; }
  /// Whether there is a tensor of that name.
  bool has(std::string_view tensor) const { return find(blocks_.front(), tensor) != nullptr; }
  /// Whether each row lies in one block of these columns and no others, so that no columns are cut or joined.
  bool keeps_columns() const noexcept {
    return std::all_of(bands_.begin(), bands_.end(), [&](auto const& band) { return keeps_columns(band); });
  }
  /// Whether floats of rows in "state" are of other columns than those that were asked for.
  bool averages_states() const noexcept { return layout_.per_row > 0 && !keeps_columns(); }

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

  /// Refuses a tensor of another type or shape. `shape` is that of what is read.
  /// @throws tessera::error incompatible, naming file, tensor, expected and found.
  void expect(std::string_view tensor, safetensors_dtype dtype, std::vector<std::int64_t> const& shape) const {
    for (auto const& block : blocks_) {
      auto of_block = shape;
      if (is_of_rows(tensor)) of_block.front() = block.rows;
      if (tensor == "weight") of_block.back() = block.columns;
      if (tensor == "state") of_block.back() = layout_.width(block.columns);
      block.file->expect(name(block, tensor), dtype, of_block);
    }
  }

  /// Reads rows [first, first + count) of a tensor, one after the other. Row 0 is the first of `rows()`.
  /// @throws tessera::error corrupt_file naming file, tensor and row, where blocks list other ids; io_error.
  void read(host_exec const& exec, std::string_view tensor, std::int64_t first, std::int64_t count, vector_view<char> out) const {
    if (!is_of_rows(tensor)) {
      read_rows(blocks_.front(), tensor, first, count, out);
      if (tensor == "ids") check_ids(exec, first, count, out);
      return;
    }
    auto const row_bytes = count == 0 ? 0 : out.size() / count;
    auto const begin = first_read_ + first;
    for (auto const& band : bands_) {
      auto const from = std::max(band.first_row, begin), to = std::min(band.end_row, begin + count);
      if (from < to) read_band(exec, band, tensor, from, to - from, out.slice((from - begin) * row_bytes, (to - from) * row_bytes));
    }
  }
  /// Reads all of a tensor that has not a row for each row of the table, such as "clock".
  void read_all(std::string_view tensor, vector_view<char> out) const { blocks_.front().file->read_bytes(at(tensor), 0, out); }

 private:
  std::int64_t end() const noexcept { return place_.first_column + place_.columns; }

  // Tensors that have a row for each row of a block, whose rows are read from where they lie.
  static bool is_of_rows(std::string_view tensor) noexcept { return tensor == "weight" || tensor == "state" || tensor == "step"; }
  static std::string name(stored_block const& block, std::string_view tensor) {
    return detail::table_tensor(static_cast<std::size_t>(block.number), tensor);
  }
  static safetensors_entry const* find(stored_block const& block, std::string_view tensor) { return block.file->find(name(block, tensor)); }
  static std::int64_t rows_of(stored_block const& block) {
    auto const& shape = block.file->at(name(block, "weight")).shape;
    return shape.empty() ? 0 : shape[0];
  }
  bool keeps_columns(detail::row_band const& band) const noexcept {
    auto const& first = blocks_[band.blocks.front()];
    return band.blocks.size() == 1 && first.first_column == place_.first_column && first.columns == place_.columns;
  }

  [[noreturn]] void refuse_block(stored_block const& block, errc code, char const* what) const {
    throw error(code, std::string("table file: ") + what,
                {{"file", block.file->path()},
                 {"table", number()},
                 {"first row", block.first_row},
                 {"rows", rows_of(block)},
                 {"first column", block.first_column},
                 {"columns", block.columns}});
  }

  // Blocks of all rows get those of their files. Then the rows that are read are known, and only their blocks stay.
  void set_rows() {
    bool const lists_ids = !blocks_.empty() && has("ids");
    std::int64_t end_of_blocks = 0, of_whole = -1;
    for (auto& block : blocks_) {
      auto const rows = rows_of(block);
      bool const is_whole = block.rows == part_place::all_rows;
      if ((find(block, "ids") != nullptr) != lists_ids)
        refuse_block(block, errc::corrupt_file, "blocks of a table differ in whether they list ids");
      if (lists_ids && !is_whole) refuse_block(block, errc::corrupt_file, "a block of some rows lists ids");
      if (!is_whole && rows != block.rows) refuse_block(block, errc::corrupt_file, "a block has another number of rows than is said of it");
      if (is_whole && of_whole >= 0 && rows != of_whole)
        refuse_block(block, errc::corrupt_file, "blocks of a table differ in their numbers of rows");
      if (is_whole && !lists_ids && lacks_rows() && rows != table_rows_)
        throw error(errc::incompatible, "table file: a table of another size",
                    {{"file", block.file->path()}, {"table", number()}, {"rows", rows}, {"expected", table_rows_}});
      if (is_whole) of_whole = block.rows = rows;
      end_of_blocks = std::max(end_of_blocks, block.first_row + block.rows);
    }
    bool const reads_all = lists_ids || !lacks_rows();
    first_read_ = reads_all ? 0 : place_.first_row;
    end_read_ = reads_all ? end_of_blocks : place_.first_row + place_.rows;
    std::erase_if(blocks_, [&](auto const& b) {
      return first_read_ < end_read_ && (b.first_row >= end_read_ || b.first_row + b.rows <= first_read_);
    });
  }

  void check_band(detail::row_band const& band) const {
    detail::check_band(band, blocks_, place_.first_column, end(), [&](char const* what, std::int64_t column) {
      throw error(errc::corrupt_file, std::string("table file: blocks of a table ") + what,
                  {{"table", number()}, {"row", band.first_row}, {"column", column}});
    });
    if (band.blocks.size() < 2) return;
    for (auto const b : band.blocks)
      if (find(blocks_[b], "step") != nullptr)
        refuse_block(blocks_[b], errc::incompatible, "blocks whose rows have scales of their own cannot be joined");
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
                       {"table", number()},
                       {"row", first + i},
                       {"id", ids[i]},
                       {"expected", id}});
      }
    }
  }

  // Rows of a band, by their numbers in the table.
  void read_band(host_exec const& exec, detail::row_band const& band, std::string_view tensor, std::int64_t first, std::int64_t count,
                 vector_view<char> out) const {
    auto const& block = blocks_[band.blocks.front()];
    if (tensor == "step" || keeps_columns(band)) return read_rows(block, tensor, first - block.first_row, count, out);
    tensor == "weight" ? read_weights(exec, band, first, count, out) : read_states(exec, band, first, count, out);
  }

  // The columns of a block that are asked for.
  struct overlap {
    std::int64_t in_block, in_row, columns;  // its first column in the block, and in the row that is read
  };
  overlap overlap_of(stored_block const& block) const noexcept {
    auto const first = std::max(place_.first_column, block.first_column);
    return {first - block.first_column, first - place_.first_column, std::min(end(), block.first_column + block.columns) - first};
  }

  void read_weights(host_exec const& exec, detail::row_band const& band, std::int64_t first, std::int64_t count,
                    vector_view<char> out) const {
    buffer<char> rows;
    auto const size = element_bytes(at("weight").dtype);
    for (auto const b : band.blocks) {
      auto const& block = blocks_[b];
      auto const row_bytes = block.columns * size;
      rows.resize(exec, count * row_bytes);
      read_rows(block, "weight", first - block.first_row, count, rows.view());
      auto const here = overlap_of(block);
      for (std::int64_t i = 0; i < count; ++i)
        std::memcpy(out.data() + (i * place_.columns + here.in_row) * size, rows.data() + i * row_bytes + here.in_block * size,
                    static_cast<std::size_t>(here.columns * size));
    }
  }

  void read_states(host_exec const& exec, detail::row_band const& band, std::int64_t first, std::int64_t count,
                   vector_view<char> out) const {
    auto const width = layout_.width(place_.columns);
    buffer<float> states(exec, count * width), rows;
    buffer<double> sums(exec, count * layout_.per_row);
    std::fill(sums.view().begin(), sums.view().end(), 0.0);
    for (auto const b : band.blocks) {
      auto const& block = blocks_[b];
      auto const block_width = layout_.width(block.columns);
      auto const here = overlap_of(block);
      rows.resize(exec, count * block_width);
      block.file->read(name(block, "state"), (first - block.first_row) * block_width, rows.view());
      for (std::int64_t i = 0; i < count; ++i) {
        auto const* const from = rows.data() + i * block_width;
        auto* const to = states.data() + i * width;
        for (int s = 0; s < layout_.per_row; ++s) sums[i * layout_.per_row + s] += static_cast<double>(here.columns) * from[s];
        for (int s = 0; s < layout_.per_element; ++s)
          std::copy_n(from + layout_.per_row + s * block.columns + here.in_block, here.columns,
                      to + layout_.per_row + s * place_.columns + here.in_row);
      }
    }
    for (std::int64_t i = 0; i < count; ++i)
      for (int s = 0; s < layout_.per_row; ++s)
        states[i * width + s] = static_cast<float>(sums[i * layout_.per_row + s] / static_cast<double>(place_.columns));
    std::memcpy(out.data(), states.data(), static_cast<std::size_t>(out.size()));
  }

  part_place place_;
  std::int64_t table_rows_;
  row_state_layout layout_;
  std::vector<stored_block> blocks_;            // in the order of their rows, then of their columns
  std::int64_t first_read_ = 0, end_read_ = 0;  // rows
  std::vector<detail::row_band> bands_;         // of those
};

}  // namespace TESSERA_ABI
}  // namespace tessera
