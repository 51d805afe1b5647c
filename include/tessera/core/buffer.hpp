// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Owns uninitialised storage for `size()` elements, aligned to 64 bytes, from the memory of the execution that made it. Move-only.
template <class T, execution Exec = host_exec>
class buffer {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>, "a buffer holds plain data");

 public:
  static constexpr std::size_t alignment = alignof(T) > 64 ? alignof(T) : 64;

  buffer() = default;
  /// Makes a buffer with room for `size` elements. @throws tessera::error as `resize`.
  buffer(Exec const& exec, std::int64_t size) { resize(exec, size); }
  buffer(buffer&& other) noexcept
      : exec_(std::exchange(other.exec_, std::nullopt)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  buffer& operator=(buffer&& other) noexcept {
    buffer moved(std::move(other));
    std::swap(exec_, moved.exec_);
    std::swap(data_, moved.data_);
    std::swap(size_, moved.size_);
    std::swap(capacity_, moved.capacity_);
    return *this;
  }
  ~buffer() { release(); }

  /// Makes room for `size` elements. Their values are kept where the capacity suffices, else lost. The first capacity is exact. Later it
  /// grows by half at least and never shrinks, so that a buffer that lives from step to step soon stops allocating.
  /// @throws tessera::error invalid_argument for a size that is negative or has more bytes than can be counted; and what the memory throws.
  /// Values are lost then only where the buffer had to grow.
  void resize(Exec const& exec, std::int64_t size) {
    constexpr auto most = std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(sizeof(T));
    if (size < 0 || size > most) throw error(errc::invalid_argument, "buffer: size", {{"size", size}, {"element bytes", sizeof(T)}});
    if (size > capacity_) {
      auto const capacity = std::max(size, std::min(capacity_ + capacity_ / 2, most));
      if constexpr (device_execution<Exec>)
        if (exec_) exec_ = exec.with_memory(exec_->memory());  // whose stream comes behind all that used the storage
      release();
      data_ = static_cast<T*>(exec.memory().allocate(exec, static_cast<std::size_t>(capacity) * sizeof(T), alignment));
      exec_ = exec;
      capacity_ = capacity;
    }
    size_ = size;
  }

  T* data() noexcept { return data_; }
  T const* data() const noexcept { return data_; }
  std::int64_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  std::size_t capacity_bytes() const noexcept { return static_cast<std::size_t>(capacity_) * sizeof(T); }

  T& operator[](std::int64_t i) noexcept(!checks_indices) { return view()[i]; }
  T const& operator[](std::int64_t i) const noexcept(!checks_indices) { return view()[i]; }
  T* begin() noexcept { return data_; }
  T* end() noexcept { return data_ + size_; }
  T const* begin() const noexcept { return data_; }
  T const* end() const noexcept { return data_ + size_; }

  vector_view<T> view() noexcept { return {data_, size_}; }
  vector_view<T const> view() const noexcept { return {data_, size_}; }

 private:
  void release() noexcept {
    if (data_ != nullptr) exec_->memory().deallocate(*exec_, data_, capacity_bytes(), alignment);
    data_ = nullptr;
    size_ = capacity_ = 0;
  }

  std::optional<Exec> exec_;  // whose memory holds the storage
  T* data_ = nullptr;
  std::int64_t size_ = 0;
  std::int64_t capacity_ = 0;
};

/// Makes room for at least `size` elements, and for twice as many as before where the buffer has to grow. All values stay; new ones are
/// uninitialised.
template <class T>
void grow(host_exec const& exec, buffer<T>& values, std::int64_t size) {
  if (size <= values.size()) return;
  buffer<T> larger(exec, std::max(size, 2 * values.size()));
  std::copy(values.begin(), values.end(), larger.begin());
  values = std::move(larger);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
