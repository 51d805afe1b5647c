// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/shard/copied_sums.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE void copied_sums::pack(host_exec const& exec, std::vector<bool> const& is_copied, row_gradients const& sum) {
  std::int64_t bytes = 0;
  for (std::int64_t t = 0; t < sum.tables(); ++t)
    if (is_copied[static_cast<std::size_t>(t)]) bytes += part::size(sum.rows(t), sum.dim(t));
  sent_.resize(exec, bytes);
  auto* to = sent_.data();
  for (std::int64_t t = 0; t < sum.tables(); ++t) {
    if (!is_copied[static_cast<std::size_t>(t)]) continue;
    auto const rows = sum.rows(t);
    std::memcpy(to, &rows, sizeof rows);
    if (rows > 0) {
      std::memcpy(to + 8, sum.ids(t).data(), static_cast<std::size_t>(rows) * 8);
      std::memcpy(to + 8 + rows * 8, sum.values(t).data(), static_cast<std::size_t>(rows * sum.dim(t)) * sizeof(float));
    }
    to += part::size(rows, sum.dim(t));
  }
}

TESSERA_INLINE void copied_sums::unpack(int rank, vector_view<std::byte const> message, std::vector<bool> const& is_copied,
                                        row_gradients const& sum, std::vector<std::vector<part>>& parts) {
  std::int64_t at = 0;
  bool fits = true;
  for (std::int64_t t = 0; t < sum.tables(); ++t) {
    if (!is_copied[static_cast<std::size_t>(t)]) continue;
    std::int64_t rows = -1;
    fits = fits && message.size() - at >= 8;
    if (fits) std::memcpy(&rows, message.data() + at, sizeof rows);
    fits = fits && rows >= 0 && rows <= message.size() / 8 && part::size(rows, sum.dim(t)) <= message.size() - at;
    if (!fits) break;
    auto const* const ids = reinterpret_cast<std::int64_t const*>(message.data() + at + 8);
    parts[static_cast<std::size_t>(t)].push_back({rows, ids, reinterpret_cast<float const*>(ids + rows)});
    at += part::size(rows, sum.dim(t));
  }
  if (!fits || at != message.size())
    throw error(errc::incompatible, "sharded_tables: gradients that cannot be read", {{"from rank", rank}, {"bytes", message.size()}});
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
