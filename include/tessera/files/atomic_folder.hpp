// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/files/posix_file.hpp>

namespace tessera::inline TESSERA_ABI {

namespace detail {

// Folders of this prefix hold nothing that was committed: whoever finds one without a living owner may remove it.
inline constexpr std::string_view staging_prefix = ".tessera-staging-";

// A folder, open and, where the file system can, locked: the lock dies with its process and says whether a staging folder has an owner.
class folder_handle {
 public:
  explicit folder_handle(std::string const& path) noexcept : descriptor_(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {}
  folder_handle(folder_handle&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  folder_handle& operator=(folder_handle&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~folder_handle() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  bool is_open() const noexcept { return descriptor_ >= 0; }
  bool lock() const noexcept { return ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0; }
  /// Whether the folder is still what `path` names.
  bool is_at(std::string const& path) const noexcept {
    struct ::stat mine {};
    struct ::stat named {};
    return ::fstat(descriptor_, &mine) == 0 && ::lstat(path.c_str(), &named) == 0 && mine.st_dev == named.st_dev &&
           mine.st_ino == named.st_ino;
  }
  void sync(std::string const& path) const {
    while (::fsync(descriptor_) != 0) {
      if (errno == EINVAL) return;  // a file system without syncing of folders
      if (errno != EINTR) throw_io_error("cannot sync folder", path, errno);
    }
  }

 private:
  int descriptor_;
};

inline void sync_folder(std::string const& path) {
  folder_handle const folder(path);
  if (!folder.is_open()) throw_io_error("cannot open folder", path, errno);
  folder.sync(path);
}

// Everything in a folder, then the folder.
inline void sync_tree(std::string const& path) {
  std::error_code failure;
  for (std::filesystem::directory_iterator entry(path, failure), end; !failure && entry != end; entry.increment(failure)) {
    auto const type = entry->symlink_status(failure).type();
    if (failure) break;
    if (type == std::filesystem::file_type::directory) sync_tree(entry->path());
    if (type == std::filesystem::file_type::regular) posix_file::open(entry->path()).sync();
  }
  if (failure) throw_io_error("cannot list folder", path, failure.message());
  sync_folder(path);
}

// Makes a folder and those above it, so that they outlive a loss of power.
inline void make_folders(std::filesystem::path const& path) {
  auto const make = [&] { return ::mkdir(path.c_str(), 0777) == 0 ? 0 : errno; };
  auto failure = make();
  if (failure == ENOENT && path.has_parent_path()) {
    make_folders(path.parent_path());
    failure = make();
  }
  std::error_code ignored;
  if (failure == 0) {
    sync_folder(path.has_parent_path() ? path.parent_path() : ".");
  } else if (!std::filesystem::is_directory(path, ignored)) {
    throw_io_error("cannot create folder", path, failure == EEXIST ? ENOTDIR : failure);
  }
}

// Removes the staging folders of processes that are gone.
inline void remove_leftovers(std::string const& parent) {
  std::error_code failure;
  std::vector<std::string> found;
  for (std::filesystem::directory_iterator entry(parent, failure), end; !failure && entry != end; entry.increment(failure))
    if (entry->path().filename().native().starts_with(staging_prefix)) found.push_back(entry->path());
  for (auto const& path : found) {
    folder_handle const folder(path);
    if (folder.is_open() && folder.lock() && folder.is_at(path)) std::filesystem::remove_all(path, failure);
  }
}

inline std::string staging_path(std::string const& parent, char const* what, std::string const& name, int attempt) {
  return parent + "/" + std::string(staging_prefix) + what + "-" + name + "." + std::to_string(attempt);
}

inline void check_folder_name(std::string const& parent, std::string const& name) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != name.npos || name.find('\0') != name.npos ||
      name.starts_with(staging_prefix))
    throw error(errc::invalid_argument, "not a name for a folder", {{"folder", parent}, {"name", name}});
}

}  // namespace detail

/// A folder that appears whole or not at all.
///
/// Files are written into `path()`, a folder beside the final one; `commit` syncs them, renames the folder and syncs the rename. Whatever
/// ends the process before, the final name stays what it was. A folder of that name is replaced in one step.
class staged_folder {
 public:
  /// Makes the folder to write into, and `parent` where it is missing; removes what killed processes left in `parent`.
  /// @throws tessera::error invalid_argument for a name that is no plain folder name; io_error.
  staged_folder(std::string const& parent, std::string const& name)
      : parent_(parent.empty() ? "." : parent), target_(parent_ + "/" + name), handle_(make(parent_, name, path_)) {}

  staged_folder(staged_folder&& other) noexcept
      : parent_(std::move(other.parent_)),
        target_(std::move(other.target_)),
        path_(std::exchange(other.path_, {})),
        handle_(std::move(other.handle_)) {}
  staged_folder& operator=(staged_folder&&) = delete;
  /// Removes what was not committed.
  ~staged_folder() { remove(); }

  /// Where to write; empty after `commit`.
  std::string const& path() const noexcept { return path_; }
  /// What the folder will be called.
  std::string const& target() const noexcept { return target_; }

  /// Returns when the folder and all in it are on the device under its final name. The files must be closed.
  /// @throws tessera::error io_error; the final name is then what it was, unless it is the sync of the rename that failed.
  void commit() {
    detail::sync_tree(path_);
    if (::rename(path_.c_str(), target_.c_str()) == 0) {
      path_.clear();
    } else if (errno != EEXIST && errno != ENOTEMPTY) {
      detail::throw_io_error("cannot rename folder", target_, errno);
    } else if (!exchange()) {
      detail::throw_io_error("cannot replace folder", target_, "the file system cannot swap two names");
    }
    detail::sync_folder(parent_);
    remove();
  }

 private:
  // Swaps the two names, so that there is no moment without a folder of the final name; the old one is then removed.
  bool exchange() const noexcept {
#ifdef RENAME_EXCHANGE
    return ::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0;
#else
    return false;
#endif
  }

  void remove() noexcept {
    std::error_code ignored;  // what stays is removed by the next staged folder
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
    path_.clear();
  }

  static detail::folder_handle make(std::string const& parent, std::string const& name, std::string& path) {
    detail::check_folder_name(parent, name);
    detail::make_folders(parent);
    detail::remove_leftovers(parent);
    for (int attempt = 0;; ++attempt) {
      path = detail::staging_path(parent, "new", name, attempt);
      if (::mkdir(path.c_str(), 0777) != 0) {
        if (errno == EEXIST) continue;
        detail::throw_io_error("cannot create folder", path, errno);
      }
      detail::folder_handle handle(path);
      if (!handle.is_open() && errno != ENOENT) detail::throw_io_error("cannot open folder", path, errno);
      // Another process may have taken the folder for a leftover before it was locked. Where nothing can be locked, nobody does.
      if (handle.is_open() && (handle.lock() || errno != EWOULDBLOCK) && handle.is_at(path)) return handle;
    }
  }

  std::string parent_;
  std::string target_;
  std::string path_;
  detail::folder_handle handle_;
};

/// Removes a committed folder: its name is gone in one step, so nobody finds half of it. @throws tessera::error invalid_argument, io_error.
inline void remove_folder(std::string const& folder, std::string const& name) {
  std::string const parent(folder.empty() ? "." : folder);
  detail::check_folder_name(parent, name);
  for (int attempt = 0;; ++attempt) {
    auto const aside = detail::staging_path(parent, "removed", name, attempt);
    if (::rename((parent + "/" + name).c_str(), aside.c_str()) == 0) {
      detail::sync_folder(parent);
      std::error_code ignored;
      std::filesystem::remove_all(aside, ignored);
      return;
    }
    if (errno != EEXIST && errno != ENOTEMPTY) detail::throw_io_error("cannot remove folder", parent + "/" + name, errno);
  }
}

}  // namespace tessera::inline TESSERA_ABI
