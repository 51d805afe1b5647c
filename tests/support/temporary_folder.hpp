// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <tessera/core/error.hpp>

namespace tessera_tests {

/// A folder of its own name, removed with all that is in it.
class temporary_folder {
 public:
  temporary_folder() : path_((std::filesystem::temp_directory_path() / "tessera-test-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no temporary folder: " + path_);
  }
  temporary_folder(temporary_folder const&) = delete;
  temporary_folder& operator=(temporary_folder const&) = delete;
  ~temporary_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string const& path() const noexcept { return path_; }
  std::string file(std::string const& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline void write_file(std::string const& path, std::string const& bytes) {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);  // some file systems sync what is truncated and written again, which is slow
  std::ofstream(path, std::ios::binary | std::ios::trunc).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string contents(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Names of the entries of a folder, in order.
inline std::vector<std::string> names_in(std::string const& folder) {
  std::vector<std::string> names;
  for (auto const& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// What `call` throws; fails the test when that is no tessera::error.
template <class F>
tessera::error error_of(F const& call) {
  try {
    call();
  } catch (tessera::error const& e) {
    return e;
  }
  FAIL("nothing was thrown");
  throw std::logic_error("not reached");
}

}  // namespace tessera_tests
