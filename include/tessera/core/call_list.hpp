// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// A list that a call makes in the host's memory. Of the host's execution it is a buffer, in that execution's memory.
template <class T, class Exec>
class call_list {
 public:
  call_list(Exec const& exec, std::int64_t size) {
    if constexpr (device_execution<Exec>)
      items_.resize(static_cast<std::size_t>(size));
    else
      items_.resize(exec, size);
  }
  T& operator[](std::int64_t i) noexcept { return items_.data()[i]; }
  T const& operator[](std::int64_t i) const noexcept { return items_.data()[i]; }
  vector_view<T> view() noexcept { return {items_.data(), static_cast<std::int64_t>(items_.size())}; }
  vector_view<T const> view() const noexcept { return {items_.data(), static_cast<std::int64_t>(items_.size())}; }

 private:
  std::conditional_t<device_execution<Exec>, std::vector<T>, buffer<T>> items_;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
