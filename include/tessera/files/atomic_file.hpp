// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/files/atomic_folder.hpp>
#include <tessera/files/posix_file.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

inline constexpr std::string_view staged_file_prefix = ".tessera-staging-file-";

// Removes the staged files of this user's processes that are gone.
inline void remove_leftover_files(std::string const& parent) {
  for (auto const& path : entries_of(parent, staged_file_prefix)) {
    path_handle const file(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK);
    struct ::stat status {};
    if (file.is_open() && ::fstat(file.descriptor(), &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == ::geteuid() &&
        file.lock() && file.is_at(path))
      ::unlink(path.c_str());
  }
}

}  // namespace detail

/// A file that appears whole or not at all.
///
/// `path()` is an empty new file in the same folder, under a short name that no other file has. Open it and write into it, and do not put
/// another file in its place. `commit` syncs it, renames it and syncs the rename. When the process ends before, `target()` stays as it is.
/// An existing file is replaced in one step; the new one has its permissions, but not its owner. A symbolic link is replaced, not followed.
/// Names that begin with `.tessera-staging-` are reserved. Move-only.
class staged_file {
 public:
  /// Makes the file to write to. It removes what killed processes of the same user left in the folder.
  /// @throws tessera::error invalid_argument for a path that ends in no plain file name. io_error, naming `target`, where `commit` could
  /// not replace it. Such a target has too long a name, is a folder, a pipe or a device, or is another user's file in a sticky folder.
  /// io_error also where the permissions of the replaced file cannot be set.
  explicit staged_file(std::string target) : target_(std::move(target)), handle_(make(target_, path_)) {}

  staged_file(staged_file&& other) noexcept
      : target_(std::move(other.target_)), path_(std::exchange(other.path_, {})), handle_(std::move(other.handle_)) {}
  staged_file& operator=(staged_file&&) = delete;
  /// Removes what was not committed.
  ~staged_file() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  /// The path to write to; empty after `commit`.
  std::string const& path() const noexcept { return path_; }
  /// The final path of the file.
  std::string const& target() const noexcept { return target_; }

  /// Returns when the file is on the device under its final name. Flush or close your stream first. @pre `path()` is not empty
  /// @throws tessera::error io_error, also where another file was put at `path()`. `target()` is then unchanged. Only where the last sync
  /// failed, it is the new file, perhaps not yet on the device.
  void commit() {
    if (!handle_.is_at(path_)) detail::throw_io_error("cannot rename file", target_, "another file was put in place of the staged one");
    keep_permissions(handle_, target_, 0);
    handle_.sync(target_);
    auto const parent = parent_of(target_);
    detail::folder_handle const folder(parent);  // opened first, so that a want of handles fails before the rename
    if (!folder.is_open() && errno != EACCES) detail::throw_io_error("cannot open folder", parent, errno);
    if (std::rename(path_.c_str(), target_.c_str()) != 0) detail::throw_io_error("cannot rename file", target_, errno);
    path_.clear();
    if (folder.is_open()) folder.sync(parent);  // a folder that we may not read cannot be opened, hence not synced
  }

 private:
  static std::string parent_of(std::string const& target) {
    auto parent = std::filesystem::path(target).parent_path().string();
    return parent.empty() ? "." : parent;
  }

  static detail::path_handle make(std::string const& target, std::string& path) {
    auto const parent = parent_of(target);
    detail::check_staged_name(parent, std::filesystem::path(target).filename().string());
    if (target.find('\0') != target.npos) detail::throw_io_error("cannot create file", target, EINVAL);
    struct ::stat found {};
    if (::lstat(target.c_str(), &found) != 0) {
      if (errno != ENOENT) detail::throw_io_error("cannot create file", target, errno);
    } else if (S_ISDIR(found.st_mode)) {
      detail::throw_io_error("cannot create file", target, EISDIR);
    } else if (!S_ISREG(found.st_mode) && !S_ISLNK(found.st_mode)) {
      detail::throw_io_error("cannot create file", target, "not a regular file");
    } else if (is_kept_by_sticky(parent, found)) {
      detail::throw_io_error("cannot create file", target, EPERM);
    }
    detail::remove_leftover_files(parent);
    for (int attempt = 0;; ++attempt) {
      path = parent + "/" + std::string(detail::staged_file_prefix) + std::to_string(::getpid()) + "." + std::to_string(attempt);
      detail::path_handle handle(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW);
      if (!handle.is_open()) {
        if (errno == EEXIST) continue;
        detail::throw_io_error("cannot create file", target, errno);
      }
      // Another process may have taken the file for a leftover before it was locked. Where a file system has no locks,
      // nobody removes leftovers.
      if ((!handle.lock() && errno == EWOULDBLOCK) || !handle.is_at(path)) continue;
      try {
        keep_permissions(handle, target, S_IRUSR | S_IWUSR);
      } catch (...) {
        ::unlink(path.c_str());
        throw;
      }
      return handle;
    }
  }

  // Whether a rename onto it will fail: in a sticky folder, as /tmp is, a file is replaced only by its owner or the folder's.
  static bool is_kept_by_sticky(std::string const& parent, struct ::stat const& found) noexcept {
    struct ::stat folder {};
    auto const user = ::geteuid();
    return user != 0 && ::stat(parent.c_str(), &folder) == 0 && (folder.st_mode & S_ISVTX) != 0 && folder.st_uid != user &&
           found.st_uid != user;
  }

  // Gives a staged file the permissions of the one it will replace, and those besides which whoever writes to it needs. Where they are its
  // own already, nothing is asked of a file system that may refuse.
  static void keep_permissions(detail::path_handle const& staged, std::string const& target, ::mode_t besides) {
    struct ::stat old {};
    struct ::stat own {};
    if (::lstat(target.c_str(), &old) != 0 || !S_ISREG(old.st_mode)) return;
    auto const wanted = (old.st_mode & 07777U) | besides;
    if (::fstat(staged.descriptor(), &own) == 0 && (own.st_mode & 07777U) == wanted) return;
    if (::fchmod(staged.descriptor(), wanted) != 0) detail::throw_io_error("cannot set permissions", target, errno);
  }

  std::string target_;
  std::string path_;
  detail::path_handle handle_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
