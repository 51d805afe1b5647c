// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The bytes of contiguous elements, in memory order.
template <class T>
  requires std::is_trivially_copyable_v<T> vector_view<char const> as_bytes(vector_view<T> values)
noexcept { return {reinterpret_cast<char const*>(values.data()), values.size() * static_cast<std::int64_t>(sizeof(T))}; }

/// As above, to be written.
template <class T>
  requires(std::is_trivially_copyable_v<T> && !std::is_const_v<T>)
vector_view<char> as_writable_bytes(vector_view<T> values)
noexcept { return {reinterpret_cast<char*>(values.data()), values.size() * static_cast<std::int64_t>(sizeof(T))}; }

}  // namespace TESSERA_ABI
}  // namespace tessera
