// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>

namespace tessera::inline TESSERA_ABI {

/// A row for each id seen so far, any int64. A row appears at the first `locate` of its id, with the values that a dense table of the same
/// options has there. Rows live in slabs that never move, so slots and row pointers stay valid while the table grows. Move-only.
template <class Element = float>
class hash_table {
  static_assert(std::is_same_v<Element, float>, "rows are fp32");

 public:
  using element = Element;
  static constexpr bool slots_are_ids = false;

  /// Makes room for options.rows rows, with state for this optimizer. @throws tessera::error invalid_argument, out_of_memory.
  template <row_optimizer Optimizer>
  hash_table(host_exec const& exec, table_options const& options, Optimizer const& optimizer)
      : options_(options), layout_(row_state_layout::of(optimizer)), memory_(exec.memory()) {
    detail::check_table_options("hash_table", options, layout_);
    ids_.reserve(exec, options.rows);
    while (capacity() < options.rows) add_slab(exec);
  }

  /// What such a table will occupy with `rows` rows: slabs and the map of ids, which is between 3/10 and 3/5 full.
  static std::size_t bytes_for(table_options const& options, row_state_layout layout) noexcept {
    std::size_t entries = options.rows == 0 ? 0 : 16;
    while (5 * static_cast<std::size_t>(options.rows) > 3 * entries) entries *= 2;
    auto const slots = static_cast<std::size_t>(divide_up(options.rows, slab_rows) * slab_rows);
    return entries * 2 * sizeof(std::int64_t) + static_cast<std::size_t>(options.rows) * sizeof(std::int64_t) +
           slots * (static_cast<std::size_t>(options.dim) * sizeof(Element) +
                    static_cast<std::size_t>(layout.width(options.dim)) * sizeof(float));
  }
  std::size_t bytes() const noexcept {
    std::size_t sum = ids_.bytes();
    for (auto const& s : memories_) sum += s.weights.capacity_bytes() + s.states.capacity_bytes();
    return sum;
  }

  table_options const& options() const noexcept { return options_; }
  std::int64_t dim() const noexcept { return options_.dim; }
  /// Rows that exist; slots are 0 … rows() - 1, in the order in which ids came.
  std::int64_t rows() const noexcept { return ids_.size(); }
  row_state_layout state_layout() const noexcept { return layout_; }
  step_count steps() const noexcept { return steps_; }
  void set_steps(step_count steps) noexcept { steps_ = steps; }

  /// The id of each slot, (rows(),).
  vector_view<std::int64_t const> ids() const noexcept { return ids_.ids(); }

  Element* row(std::int64_t slot) noexcept { return at(slot).weights + (slot & slab_mask) * options_.dim; }
  Element const* row(std::int64_t slot) const noexcept { return at(slot).weights + (slot & slab_mask) * options_.dim; }
  float* state(std::int64_t slot) noexcept { return at(slot).states + (slot & slab_mask) * layout_.width(options_.dim); }
  float const* state(std::int64_t slot) const noexcept { return at(slot).states + (slot & slab_mask) * layout_.width(options_.dim); }

  /// Slots are given in the order of `ids`, whatever the thread count. What the table needs to grow comes from the memory it was built
  /// with. Should that run out, the rows that already appeared stay, whole.
  void locate(host_exec const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots,
              vector_view<row_status> statuses = {}) {
    detail::check_locate_shapes("hash_table::locate", ids.size(), slots.size(), statuses.size());
    find(exec, ids, slots);
    auto const home = exec.with_memory(memory_);
    auto const old_rows = rows();
    try {
      for (std::int64_t i = 0; i < ids.size(); ++i) {
        bool inserted = false;
        if (slots[i] < 0) {
          if (rows() == capacity() && ids_.find(ids[i]) == id_map::absent) add_slab(home);
          std::tie(slots[i], inserted) = ids_.insert(home, ids[i]);
        }
        if (!statuses.empty()) statuses[i] = inserted ? row_status::inserted : row_status::found;
      }
    } catch (...) {
      initialise(exec, old_rows);
      throw;
    }
    initialise(exec, old_rows);
  }

  void find(host_exec const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots) const {
    constexpr std::int64_t ids_per_piece = 2048, ahead = 16;
    detail::check_locate_shapes("hash_table::find", ids.size(), slots.size(), 0);
    for_each_piece(exec, ids.size(), ids_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto i = first; i < last; ++i) {
        if (i + ahead < last) ids_.prefetch(ids[i + ahead]);
        slots[i] = ids_.find(ids[i]);
      }
    });
  }

 private:
  static constexpr int slab_bits = 10;
  static constexpr std::int64_t slab_rows = std::int64_t{1} << slab_bits;
  static constexpr std::int64_t slab_mask = slab_rows - 1;
  // What a lookup reads of a slab, apart from who owns it: 16 bytes, so that the list stays in the cache.
  struct slab {
    Element* weights;
    float* states;
  };
  struct slab_memory {
    buffer<Element> weights;
    buffer<float> states;
  };

  slab const& at(std::int64_t slot) const noexcept { return slabs_[static_cast<std::size_t>(slot >> slab_bits)]; }

  std::int64_t capacity() const noexcept { return static_cast<std::int64_t>(slabs_.size()) * slab_rows; }
  void add_slab(host_exec const& exec) {
    if (slabs_.size() == slabs_.capacity()) slabs_.reserve(2 * slabs_.size() + 16);  // so that the push_back below cannot throw
    auto& memory = memories_.emplace_back(
        slab_memory{buffer<Element>(exec, slab_rows * options_.dim), buffer<float>(exec, slab_rows * layout_.width(options_.dim))});
    slabs_.push_back({memory.weights.data(), memory.states.data()});
  }

  void initialise(host_exec const& exec, std::int64_t first_slot) {
    for_each_piece(exec, rows() - first_slot, detail::rows_per_init_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto slot = first_slot + first; slot < first_slot + last; ++slot) {
        for_each_initial_element(options_, ids_.ids()[slot], [row = this->row(slot)](std::int64_t i, float value) { row[i] = value; });
        std::fill_n(state(slot), layout_.width(options_.dim), layout_.initial);
      }
    });
  }

  table_options options_;
  row_state_layout layout_;
  step_count steps_{};
  memory_ref<host_exec> memory_;
  id_map ids_;  // an id's number is its slot
  std::vector<slab> slabs_;
  std::vector<slab_memory> memories_;  // of the slabs
};
static_assert(row_store<hash_table<>>);

}  // namespace tessera::inline TESSERA_ABI
