// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

/// What libFuzzer calls with each input, in every program of this folder.
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

namespace fuzz {

/// Ends the program, so that libFuzzer keeps the input, unless `holds`.
inline void require(bool holds, char const* what) {
  if (holds) return;
  std::fprintf(stderr, "tessera_fuzz: does not hold: %s\n", what);
  std::abort();
}

inline std::string_view text_of(std::uint8_t const* data, std::size_t size) { return {reinterpret_cast<char const*>(data), size}; }

/// A file without a disk: `path()` can be opened as any other while the object lives.
class memory_file {
 public:
  memory_file() : descriptor_(::memfd_create("tessera_fuzz", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(descriptor_)) {
    if (descriptor_ < 0) throw std::runtime_error("no file in memory");
  }
  memory_file(memory_file const&) = delete;
  memory_file& operator=(memory_file const&) = delete;
  ~memory_file() { ::close(descriptor_); }

  std::string const& path() const noexcept { return path_; }
  void write(std::string_view bytes) {
    auto const size = static_cast<::ssize_t>(bytes.size());
    if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) != size)
      throw std::runtime_error("cannot write a file in memory");
  }
  std::string contents() const {
    std::string bytes(static_cast<std::size_t>(::lseek(descriptor_, 0, SEEK_END)), '\0');
    if (::pread(descriptor_, bytes.data(), bytes.size(), 0) != static_cast<::ssize_t>(bytes.size()))
      throw std::runtime_error("cannot read a file in memory");
    return bytes;
  }

 private:
  int descriptor_;
  std::string path_;
};

/// Numbers out of an input, from its front; zeros once it is used up.
class number_source {
 public:
  explicit number_source(std::string_view bytes) noexcept : bytes_(bytes) {}

  bool empty() const noexcept { return bytes_.empty(); }
  template <class T>
    requires std::is_arithmetic_v<T> T take()
  noexcept {
    T value{};
    auto const count = bytes_.size() < sizeof value ? bytes_.size() : sizeof value;
    std::memcpy(&value, bytes_.data(), count);
    bytes_.remove_prefix(count);
    return value;
  }
  /// In [0, bound), from a byte.
  std::int64_t below(std::int64_t bound) noexcept { return take<std::uint8_t>() % bound; }
  std::string_view rest() const noexcept { return bytes_; }

 private:
  std::string_view bytes_;
};

}  // namespace fuzz
