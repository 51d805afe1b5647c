// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/files/posix_file.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// Folders of this prefix hold nothing that was committed: whoever finds one without a living owner may remove it.
inline constexpr std::string_view staging_prefix = ".tessera-staging-";

// A folder or a file, open and, where the file system can, locked: the lock dies with its process and says whether what is staged has an
// owner.
class path_handle {
 public:
  path_handle(std::string const& path, int flags) noexcept : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  path_handle(path_handle&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  path_handle& operator=(path_handle&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~path_handle() { close(); }

  bool is_open() const noexcept { return descriptor_ >= 0; }
  int descriptor() const noexcept { return descriptor_; }
  int release() noexcept { return std::exchange(descriptor_, -1); }
  void close() noexcept {
    if (is_open()) ::close(std::exchange(descriptor_, -1));
  }
  bool lock() const noexcept { return ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0; }
  /// Whether `path` still names this folder or file.
  bool is_at(std::string const& path) const noexcept {
    struct ::stat named {};
    return ::lstat(path.c_str(), &named) == 0 && is(named);
  }
  /// Whether it is the folder or file of that status.
  bool is(struct ::stat const& found) const noexcept {
    struct ::stat mine {};
    return ::fstat(descriptor_, &mine) == 0 && mine.st_dev == found.st_dev && mine.st_ino == found.st_ino;
  }
  void sync(std::string const& path) const {
    while (::fsync(descriptor_) != 0) {
      if (errno == EINVAL) return;  // a file system without syncing of folders
      if (errno != EINTR) throw_io_error("cannot sync", path, errno);
    }
  }

 private:
  int descriptor_;
};

struct folder_handle : path_handle {
  explicit folder_handle(std::string const& path, int more_flags = 0) noexcept : path_handle(path, O_RDONLY | O_DIRECTORY | more_flags) {}
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

// What is in a folder under names that begin so, as far as it can be listed.
inline std::vector<std::string> entries_of(std::string const& folder, std::string_view prefix) {
  std::error_code failure;
  std::vector<std::string> found;
  for (std::filesystem::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure))
    if (entry->path().filename().native().starts_with(prefix)) found.push_back(entry->path());
  return found;
}

// Removes a folder with all that is in it, as far as it can be, if its path still leads to the one that was found. Entries are removed from
// the folder that is open, so no link is followed, whoever puts one in its place meanwhile. Takes one handle, however deep it is:
// std::filesystem::remove_all takes one a level, which a program that failed for want of handles does not have.
inline void remove_tree(std::string const& path, struct ::stat const& found) {
  struct closer {
    void operator()(::DIR* listing) const noexcept { ::closedir(listing); }
  };
  std::vector<std::pair<std::string, struct ::stat>> folders;
  folder_handle folder(path, O_NOFOLLOW);
  if (!folder.is_open() || !folder.is(found)) return;
  std::unique_ptr<::DIR, closer> listing(::fdopendir(folder.descriptor()));
  if (listing == nullptr) return;
  auto const here = folder.release();
  std::vector<std::string> names;
  while (auto const* const entry = ::readdir(listing.get()))
    if (std::string_view const name = entry->d_name; name != "." && name != "..") names.emplace_back(name);
  for (auto const& name : names) {
    struct ::stat status {};
    if (::unlinkat(here, name.c_str(), 0) != 0 && ::fstatat(here, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISDIR(status.st_mode))
      folders.emplace_back(path + "/" + name, status);
  }
  listing.reset();
  for (auto const& [below, status] : folders) remove_tree(below, status);
  ::rmdir(path.c_str());
}
inline void remove_tree(std::string const& path) {
  struct ::stat found {};
  if (::lstat(path.c_str(), &found) == 0) remove_tree(path, found);
}

// Removes the staging folders of this user's processes that are gone.
inline void remove_leftovers(std::string const& parent) {
  for (auto const& path : entries_of(parent, staging_prefix)) {
    folder_handle const folder(path, O_NOFOLLOW);
    struct ::stat found {};
    if (folder.is_open() && ::fstat(folder.descriptor(), &found) == 0 && found.st_uid == ::geteuid() && folder.lock() && folder.is_at(path))
      remove_tree(path, found);
  }
}

inline std::string staging_path(std::string const& parent, char const* what, std::string const& name, int attempt) {
  return parent + "/" + std::string(staging_prefix) + what + "-" + name + "." + std::to_string(attempt);
}

inline void check_staged_name(std::string const& parent, std::string const& name) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != name.npos || name.find('\0') != name.npos ||
      name.starts_with(staging_prefix))
    throw error(errc::invalid_argument, "not a name for a file or folder", {{"folder", parent}, {"name", name}});
}

}  // namespace detail

/// A folder that appears whole or not at all.
///
/// Write files into `path()`, a folder beside the final one. `commit` syncs them, renames the folder and syncs the rename. When the process
/// ends before, the final name stays what it was. An existing folder is replaced in one step.
class staged_folder {
 public:
  /// Makes the folder to write into, and `parent` where it is missing. It removes what killed processes of the same user left in `parent`.
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

  /// The path to write to; empty after `commit`.
  std::string const& path() const noexcept { return path_; }
  /// The final path of the folder.
  std::string const& target() const noexcept { return target_; }

  /// Returns when the folder and all in it are on the device under its final name. @pre the files are closed
  /// @throws tessera::error io_error. The final name is then what it was, unless it was the sync of the rename that failed.
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

  // What stays is removed by the next staged folder.
  void remove() noexcept {
    handle_.close();  // there may be no other handle left to list the folder with
    if (!path_.empty()) detail::remove_tree(path_);
    path_.clear();
  }

  static detail::folder_handle make(std::string const& parent, std::string const& name, std::string& path) {
    detail::check_staged_name(parent, name);
    detail::make_folders(parent);
    detail::remove_leftovers(parent);
    for (int attempt = 0;; ++attempt) {
      path = detail::staging_path(parent, "new", name, attempt);
      if (::mkdir(path.c_str(), 0777) != 0) {
        if (errno == EEXIST) continue;
        detail::throw_io_error("cannot create folder", path, errno);
      }
      detail::folder_handle handle(path);
      if (!handle.is_open() && errno != ENOENT) {
        auto const failure = errno;
        ::rmdir(path.c_str());
        detail::throw_io_error("cannot open folder", path, failure);
      }
      // Another process may have taken the folder for a leftover before it was locked. Where nothing can be locked, nobody does.
      if (handle.is_open() && (handle.lock() || errno != EWOULDBLOCK) && handle.is_at(path)) return handle;
    }
  }

  std::string parent_;
  std::string target_;
  std::string path_;
  detail::folder_handle handle_;
};

/// Removes a committed folder. Its name is gone in one step, so that nobody finds half of it. @throws tessera::error invalid_argument,
/// io_error.
inline void remove_folder(std::string const& folder, std::string const& name) {
  std::string const parent(folder.empty() ? "." : folder);
  detail::check_staged_name(parent, name);
  for (int attempt = 0;; ++attempt) {
    auto const aside = detail::staging_path(parent, "removed", name, attempt);
    if (::rename((parent + "/" + name).c_str(), aside.c_str()) == 0) {
      detail::sync_folder(parent);
      return detail::remove_tree(aside);
    }
    if (errno != EEXIST && errno != ENOTEMPTY) detail::throw_io_error("cannot remove folder", parent + "/" + name, errno);
  }
}

}  // namespace TESSERA_ABI
}  // namespace tessera
