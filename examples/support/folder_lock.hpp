// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <tessera/core/error.hpp>

namespace examples {

/// Keeps other runs out of a folder, which is made where it is missing and goes again where nothing came into it.
class folder_lock {
 public:
  explicit folder_lock(std::string const& folder) {
    namespace fs = std::filesystem;
    std::error_code failure;
    for (auto path = fs::absolute(folder); !fs::exists(path, failure) && path.has_relative_path(); path = path.parent_path())
      made_.push_back(path);
    fs::create_directories(folder, failure);
    descriptor_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor_ >= 0 && ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
    bool const in_use = descriptor_ >= 0 && errno == EWOULDBLOCK;
    auto const reason = std::generic_category().message(errno);
    leave();
    throw tessera::error(
        tessera::errc::io_error,
        in_use ? "option --checkpoint: another run is at work in this folder" : "option --checkpoint: cannot lock the folder",
        {{"folder", folder}, {"reason", reason}});
  }
  folder_lock(folder_lock const&) = delete;
  folder_lock& operator=(folder_lock const&) = delete;
  ~folder_lock() { leave(); }

 private:
  void leave() noexcept {
    for (auto const& path : made_) ::rmdir(path.c_str());  // not where something is in it
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }

  std::vector<std::filesystem::path> made_;
  int descriptor_ = -1;
};

}  // namespace examples
