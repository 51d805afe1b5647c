// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/bucket_rows.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/table_part.hpp>

/// Tables on a device as checkpoints see them. Rows are gathered on the device, then copied to the host, or the other way. Reading
/// synchronises.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// Copies a plane of rows, byte by byte, between their slots and a contiguous array.
template <class Rows>
struct copy_plane {
  Rows rows;
  row_plane plane;
  std::int64_t const* slots;
  std::int64_t row_bytes;
  char* packed;  // (slots, row_bytes)
  bool out;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    char* const in_row = begin_of(slots[i / row_bytes]) + i % row_bytes;
    if (out)
      packed[i] = *in_row;
    else
      *in_row = packed[i];
  }

  TESSERA_DEVICE char* begin_of(std::int64_t slot) const {
    if (plane == row_plane::state) return reinterpret_cast<char*>(rows.state(slot));
    if constexpr (!Rows::slots_are_ids)
      if (plane == row_plane::use) return reinterpret_cast<char*>(&rows.use_of(slot));
    auto* const row = rows.row(slot);
    return reinterpret_cast<char*>(plane == row_plane::step ? row - row_scale<typename Rows::element>::lead : row);
  }
};

/// A part that is all of a store on a device.
template <row_store Store>
class device_store_part : public whole_store<Store> {
  using base = whole_store<Store>;
  using exec_type = execution_of<Store>;
  using base::remembers_use;
  using base::store;
  using typename base::eviction;

 public:
  /// Refers to the store. `optimizer` is the optimizer's name.
  device_store_part(exec_type const& exec, Store& store, std::string_view optimizer) noexcept : base(store, optimizer), exec_(exec) {}

  void find_rows(host_exec const&, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots) const override {
    if (ids.empty()) return;
    auto const ids_on_device = to_device(exec_, ids);
    buffer<std::int64_t, exec_type> slots_on_device(exec_, ids.size());
    store().find(exec_, ids_on_device.view(), slots_on_device.view());
    exec_.copy_out(slots.data(), slots_on_device.data(), static_cast<std::size_t>(ids.size()) * sizeof(std::int64_t));
  }
  /// @throws tessera::error incompatible where ids lose their rows to these: then the rows did not come from this table.
  void place_rows(host_exec const&, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots) override {
    if (ids.empty()) return;
    auto const before = evicted();
    auto const ids_on_device = to_device(exec_, ids);
    buffer<std::int64_t, exec_type> slots_on_device(exec_, ids.size());
    store().locate(exec_, ids_on_device.view(), slots_on_device.view(), {});
    exec_.copy_out(slots.data(), slots_on_device.data(), static_cast<std::size_t>(ids.size()) * sizeof(std::int64_t));
    if (auto const left = evicted() - before; left > 0)
      throw error(errc::incompatible, "table part: ids lose their rows to those that are placed",
                  {{"table", base::options().id.value}, {"ids", left}});
  }

  void copy_out(row_plane plane, vector_view<std::int64_t const> slots, char* to) const override {
    if constexpr (remembers_use)
      if (plane == row_plane::use) {
        std::vector<std::int64_t> uses(static_cast<std::size_t>(slots.size()));
        gather(plane, slots, sizeof uses[0], uses.data());
        for (auto const use : uses) {
          auto const words = slot_use<eviction>::words_of(use);
          std::memcpy(to, words.data(), sizeof words);
          to += sizeof words;
        }
        return;
      }
    gather(plane, slots, base::row_bytes(plane), to);
  }

  void copy_in(host_exec const&, row_plane plane, vector_view<std::int64_t const> slots, char const* from) override {
    if constexpr (remembers_use)
      if (plane == row_plane::use) {
        std::vector<std::int64_t> uses(static_cast<std::size_t>(slots.size()));
        for (auto& use : uses) {
          std::array<std::int64_t, eviction::saved_width> words{};
          std::memcpy(words.data(), from, sizeof words);
          use = slot_use<eviction>::of_words(words);
          from += sizeof words;
        }
        return scatter(plane, slots, sizeof uses[0], uses.data());
      }
    scatter(plane, slots, base::row_bytes(plane), from);
  }

 protected:
  exec_type const& exec() const noexcept { return exec_; }

 private:
  using rows_type = decltype(std::declval<Store const&>().device_rows());

  // How many ids have lost their rows to others.
  std::int64_t evicted() const {
    if constexpr (remembers_use)
      return store().counts().evicted;
    else
      return 0;
  }

  void gather(row_plane plane, vector_view<std::int64_t const> slots, std::size_t row_bytes, void* to) const {
    buffer<char, exec_type> packed(exec_, slots.size() * static_cast<std::int64_t>(row_bytes));
    copy(plane, slots, row_bytes, packed, true);
    if (!packed.empty()) exec_.copy_out(to, packed.data(), static_cast<std::size_t>(packed.size()));
  }
  void scatter(row_plane plane, vector_view<std::int64_t const> slots, std::size_t row_bytes, void const* from) const {
    auto packed =
        to_device(exec_, vector_view<char const>(static_cast<char const*>(from), slots.size() * static_cast<std::int64_t>(row_bytes)));
    copy(plane, slots, row_bytes, packed, false);
  }
  void copy(row_plane plane, vector_view<std::int64_t const> slots, std::size_t row_bytes, buffer<char, exec_type>& packed,
            bool out) const {
    auto const slots_on_device = to_device(exec_, slots);
    launch_for_each(exec_, packed.size(),
                    copy_plane<rows_type>{store().device_rows(), plane, slots_on_device.data(), static_cast<std::int64_t>(row_bytes),
                                          packed.data(), out});
  }

  exec_type exec_;
};

/// A part that is the backing table of a cache. Lines are written back before rows are listed or found, and emptied before rows change.
template <row_store Cache>
class cached_store_part final : public device_store_part<std::remove_reference_t<decltype(std::declval<Cache&>().backing_table())>> {
  using base = device_store_part<std::remove_reference_t<decltype(std::declval<Cache&>().backing_table())>>;

 public:
  cached_store_part(execution_of<Cache> const& exec, Cache& cache, std::string_view optimizer) noexcept
      : base(exec, cache.backing_table(), optimizer), cache_(&cache) {}

  void list_rows(vector_view<std::int64_t> slots, vector_view<std::int64_t> ids) const override {
    cache_->write_back(base::exec());
    base::list_rows(slots, ids);
  }
  void find_rows(host_exec const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots) const override {
    cache_->write_back(base::exec());
    base::find_rows(exec, ids, slots);
  }
  void place_rows(host_exec const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots) override {
    cache_->write_back(base::exec());
    cache_->forget(base::exec());
    base::place_rows(exec, ids, slots);
  }

 private:
  Cache* cache_;
};

/// `optimizer` is the optimizer's name.
template <device_execution Exec, row_store Store>
std::unique_ptr<table_part> part_on_device(Exec const& exec, Store& store, std::string_view optimizer) {
  if constexpr (requires { store.backing_table(); })
    return std::make_unique<cached_store_part<Store>>(exec, store, optimizer);
  else
    return std::make_unique<device_store_part<Store>>(exec, store, optimizer);
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
