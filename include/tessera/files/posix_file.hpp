// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

static_assert(sizeof(::off_t) >= sizeof(std::int64_t), "files of more than 2 GiB need a 64-bit off_t: define _FILE_OFFSET_BITS=64");

namespace detail {

[[noreturn]] inline void throw_io_error(std::string_view sentence, std::string const& path, std::string_view reason) {
  throw error(errc::io_error, sentence, {{"file", path}, {"reason", reason}});
}
[[noreturn]] inline void throw_io_error(std::string_view sentence, std::string const& path, int os_error) {
  throw_io_error(sentence, path, std::generic_category().message(os_error));
}

// The system moves fewer bytes than it is asked to when a signal arrives, at 2 GiB, and at the end of a file.
// `some(done)` moves more bytes after the first `done` and returns how many, 0 at the end, -1 with errno set.
template <class Some>
std::int64_t transfer_fully(std::int64_t bytes, Some some) {
  std::int64_t done = 0;
  while (done < bytes) {
    auto const moved = static_cast<std::int64_t>(some(done));
    if (moved == 0) break;
    if (moved > 0) {
      done += moved;
    } else if (errno != EINTR) {
      return -1;
    }
  }
  return done;
}

}  // namespace detail

/// A regular file, open as long as the object lives. Positions and sizes are in bytes. Move-only.
///
/// Reads take their offset as an argument, so that threads may read through one object at once.
/// @throws tessera::error in every function io_error, naming `file` and the system's `reason`.
class posix_file {
 public:
  /// Opens a file to be read. A missing file is refused, and so is what is no regular file, such as a directory or a pipe.
  static posix_file open(std::string path) { return open("cannot open file", std::move(path), O_RDONLY); }
  /// Opens a file to be written, empty; an existing one loses its contents.
  static posix_file create(std::string path) { return open("cannot create file", std::move(path), O_RDWR | O_CREAT | O_TRUNC); }

  posix_file(posix_file&& other) noexcept
      : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), end_(std::exchange(other.end_, 0)) {}
  posix_file& operator=(posix_file&& other) noexcept {
    posix_file moved(std::move(other));
    std::swap(path_, moved.path_);
    std::swap(descriptor_, moved.descriptor_);
    std::swap(end_, moved.end_);
    return *this;
  }
  /// Closes without a check: call `close` for a file that was written.
  ~posix_file() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  std::string const& path() const noexcept { return path_; }

  /// The number of bytes in the file now.
  std::int64_t size() const { return status().st_size; }

  /// Fills `out` from byte `offset` on. It returns the number of bytes read, fewer than asked for only at the end of the file.
  std::int64_t read_at(std::int64_t offset, vector_view<char> out) const {
    auto const done = detail::transfer_fully(out.size(), [&](std::int64_t from) {
      return ::pread(descriptor_, out.data() + from, static_cast<std::size_t>(out.size() - from), offset + from);
    });
    if (done < 0) detail::throw_io_error("cannot read", path_, errno);
    return done;
  }

  /// Writes all of `bytes` from byte `offset` on.
  void write_at(std::int64_t offset, vector_view<char const> bytes) {
    auto const done = detail::transfer_fully(bytes.size(), [&](std::int64_t from) {
      return ::pwrite(descriptor_, bytes.data() + from, static_cast<std::size_t>(bytes.size() - from), offset + from);
    });
    if (done < 0) detail::throw_io_error("cannot write", path_, errno);
    if (done < bytes.size()) detail::throw_io_error("cannot write", path_, "the system takes no more bytes");
    if (offset + bytes.size() > end_) end_ = offset + bytes.size();
  }

  /// Writes after the last byte that this object has written.
  void append(vector_view<char const> bytes) { write_at(end_, bytes); }

  /// Returns when the contents are on the device, as far as the system knows.
  void sync() const {
    while (::fsync(descriptor_) != 0)
      if (errno != EINTR) detail::throw_io_error("cannot sync", path_, errno);
  }

  /// Closes, and reports what the system could not write. After that the object can only be destroyed or assigned to.
  void close() {
    // Not repeated after EINTR: the descriptor is gone by then, and its number may be another file's.
    if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) detail::throw_io_error("cannot close", path_, errno);
  }

 private:
  posix_file(std::string path, int descriptor) noexcept : path_(std::move(path)), descriptor_(descriptor) {}

  static posix_file open(std::string_view sentence, std::string path, int flags) {
    if (path.find('\0') != std::string::npos) detail::throw_io_error(sentence, path, EINVAL);
    int descriptor = -1;
    do {
      descriptor = ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0666);  // without O_NONBLOCK a pipe would block here
    } while (descriptor < 0 && errno == EINTR);
    if (descriptor < 0) detail::throw_io_error(sentence, path, errno);
    posix_file file(std::move(path), descriptor);
    auto const mode = file.status().st_mode;
    if (S_ISDIR(mode)) detail::throw_io_error(sentence, file.path(), EISDIR);
    if (!S_ISREG(mode)) detail::throw_io_error(sentence, file.path(), "not a regular file");
    return file;
  }

  struct ::stat status() const {
    struct ::stat result {};
    if (::fstat(descriptor_, &result) != 0) detail::throw_io_error("cannot inspect file", path_, errno);
    return result;
  }

  std::string path_;
  int descriptor_;
  std::int64_t end_ = 0;  // behind the last byte written
};

/// The contents of a small file. @throws tessera::error incompatible past `limit_bytes`, io_error.
inline std::string read_text(std::string const& path, std::int64_t limit_bytes) {
  auto const file = posix_file::open(path);
  auto const bytes = file.size();
  if (bytes > limit_bytes)
    throw error(errc::incompatible, "file larger than what is read at once", {{"file", path}, {"bytes", bytes}, {"limit", limit_bytes}});
  std::string text(static_cast<std::size_t>(bytes), '\0');
  text.resize(static_cast<std::size_t>(file.read_at(0, vector_view<char>(text.data(), bytes))));
  return text;
}

/// Creates a file that holds `text`. @throws tessera::error io_error.
inline void write_text(std::string const& path, std::string_view text) {
  auto file = posix_file::create(path);
  file.append(text);
  file.close();
}

}  // namespace TESSERA_ABI
}  // namespace tessera
