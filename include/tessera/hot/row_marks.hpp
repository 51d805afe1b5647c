// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/hot/hot_rows.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// A mark for each hot row of all tables.
class row_marks {
 public:
  /// No row is marked.
  explicit row_marks(hot_rows const& hot) {
    first_word_.push_back(0);
    for (auto const& table : hot.tables) {
      first_word_.push_back(first_word_.back() + divide_up(table.size(), 64));
      sizes_.push_back(table.size());
    }
    words_.resize(static_cast<std::size_t>(first_word_.back()));
  }

  void set(std::int64_t table, std::int64_t number) noexcept {
    words_[static_cast<std::size_t>(first_word_[static_cast<std::size_t>(table)] + number / 64)] |= std::uint64_t{1} << number % 64;
    has_any_ = true;
  }
  void set_all() noexcept {
    for (std::size_t t = 0; t < sizes_.size(); ++t)
      for (std::int64_t number = 0; number < sizes_[t]; ++number) set(static_cast<std::int64_t>(t), number);
  }
  void clear() noexcept {
    if (has_any_) std::fill(words_.begin(), words_.end(), std::uint64_t{0});
    has_any_ = false;
  }
  /// The marks become those of any rank. A rank without marks sends nothing. All ranks call it.
  void join(host_exec const& exec, any_communicator& comm) {
    if (comm.size() == 1) return;
    vector_view<std::uint64_t const> const own(words_.data(), has_any_ ? static_cast<std::int64_t>(words_.size()) : 0);
    any_pending pending;
    auto const all = all_gather<std::uint64_t>(exec, comm, own, pending, "hot_source: rows that have changed");
    for (int r = 0; r < comm.size(); ++r) {
      auto const& theirs = all[static_cast<std::size_t>(r)];
      if (r == comm.rank() || theirs.empty()) continue;
      has_any_ = true;
      for (std::size_t w = 0; w < words_.size(); ++w) words_[w] |= theirs[static_cast<std::int64_t>(w)];
    }
  }
  /// Calls f(number) for each marked row of a table, ascending.
  template <class F>
  void for_each(std::int64_t table, F const& f) const {
    if (!has_any_) return;
    auto const first = first_word_[static_cast<std::size_t>(table)], last = first_word_[static_cast<std::size_t>(table) + 1];
    for (auto w = first; w < last; ++w)
      for (auto word = words_[static_cast<std::size_t>(w)]; word != 0; word &= word - 1) f((w - first) * 64 + std::countr_zero(word));
  }
  std::size_t bytes() const noexcept { return words_.capacity() * sizeof(std::uint64_t); }

 private:
  std::vector<std::int64_t> first_word_, sizes_;
  std::vector<std::uint64_t> words_;
  bool has_any_ = false;
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
