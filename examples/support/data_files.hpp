// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <tessera/core/error.hpp>

namespace examples {

/// Of which kind a data file is, by its name.
enum class file_kind { parquet, comma_text, tab_text };

inline file_kind kind_of(std::string_view path) {
  if (path.ends_with(".parquet") || path.ends_with(".pq")) return file_kind::parquet;
  return path.ends_with(".csv") ? file_kind::comma_text : file_kind::tab_text;
}

/// The data files in a folder and the folders in it, by name; not what begins with '.' or '_', as Spark's marks do.
inline std::vector<std::string> files_in(char const* option, std::string const& folder) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  std::error_code failure;
  for (fs::recursive_directory_iterator at(folder, failure), end; !failure && at != end; at.increment(failure)) {
    auto const name = at->path().filename().string();
    bool const hidden = name.starts_with('.') || name.starts_with('_');
    if (hidden && at->is_directory()) at.disable_recursion_pending();
    if (!hidden && !at->is_directory()) files.push_back(at->path().string());
  }
  if (failure)
    throw tessera::error(tessera::errc::io_error, std::string("option ") + option + ": cannot read a folder",
                         {{"folder", folder}, {"reason", failure.message()}});
  if (files.empty())
    throw tessera::error(tessera::errc::io_error, std::string("option ") + option + ": a folder without data files", {{"folder", folder}});
  std::sort(files.begin(), files.end());
  return files;
}

/// The files that a pattern of the shell's fits, by name.
inline std::vector<std::string> files_like(char const* option, std::string const& pattern) {
  std::vector<std::string> files;
  ::glob_t found{};
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    for (std::size_t i = 0; i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  if (files.empty())
    throw tessera::error(tessera::errc::io_error, std::string("option ") + option + ": no file fits the pattern", {{"pattern", pattern}});
  return files;
}

/// The files that the names of an option stand for, all of one kind. A name that is there is a file or a folder; another one with `*`, `?` or
/// `[` in it is a pattern.
/// @throws tessera::error io_error naming a folder or a pattern without files; invalid_argument for files of several kinds.
inline std::vector<std::string> named_files(char const* option, std::vector<std::string> const& names) {
  std::vector<std::string> files;
  for (auto const& name : names) {
    std::error_code ignored;
    std::vector<std::string> some{name};
    if (std::filesystem::is_directory(name, ignored))
      some = files_in(option, name);
    else if (!std::filesystem::exists(name, ignored) && name.find_first_of("*?[") != std::string::npos)
      some = files_like(option, name);
    files.insert(files.end(), some.begin(), some.end());
  }
  for (auto const& file : files)
    if (kind_of(file) != kind_of(files[0]))
      throw tessera::error(tessera::errc::invalid_argument,
                           std::string("option ") + option + ": files of one kind, by the ends of their names",
                           {{"file", files[0]}, {"and", file}});
  return files;
}

}  // namespace examples
