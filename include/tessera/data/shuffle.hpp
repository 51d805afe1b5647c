// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include <tessera/core/philox.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

inline constexpr std::uint32_t block_order_words = 0x626c6b73;
inline constexpr std::uint32_t row_order_words = 0x726f7773;

// Fisher and Yates, with the words of the sub-stream (a, b).
inline void shuffle(random_seed seed, std::uint64_t a, std::uint32_t b, vector_view<std::int64_t> items) noexcept {
  random_block words{};
  for (std::int64_t draw = 0; draw + 1 < items.size(); ++draw) {
    if (draw % 2 == 0) words = philox(seed, a, b, static_cast<std::uint32_t>(draw / 2));
    auto const last = items.size() - 1 - draw;
    int const word = draw % 2 == 0 ? 0 : 2;
    auto const pick = uniform_below(words[word], words[word + 1], static_cast<std::uint64_t>(last) + 1);
    std::swap(items[last], items[static_cast<std::int64_t>(pick)]);
  }
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
