// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/types.hpp>
#include <tessera/files/atomic_folder.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A committed folder `step-000000000123`: what a training run was after that many steps.
struct step_folder {
  step_count step;
  std::string path;
};

/// The folder's name. It has at least 12 digits, so that names sort as steps do. @pre step >= 0
inline std::string step_folder_name(step_count step) {
  auto digits = std::to_string(step.value);
  if (digits.size() < 12) digits.insert(0, 12 - digits.size(), '0');
  return "step-" + digits;
}

/// The step of a folder's name; none for any other name. @post step_of_folder_name(step_folder_name(step)) == step
inline std::optional<step_count> step_of_folder_name(std::string_view name) {
  step_count step;
  if (!name.starts_with("step-")) return {};
  std::from_chars(name.data() + 5, name.data() + name.size(), step.value);
  if (step.value < 0 || name != step_folder_name(step)) return {};
  return step;
}

/// The committed folders in `parent`, the oldest first; none where there is no `parent`. An older one may still be loadable when the last,
/// the newest, is not. @throws tessera::error io_error.
inline std::vector<step_folder> list_step_folders(std::string const& parent) {
  std::vector<step_folder> found;
  std::error_code failure;
  for (std::filesystem::directory_iterator entry(parent.empty() ? "." : parent, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    std::error_code unreadable;
    if (auto const step = step_of_folder_name(entry->path().filename().native()); step && entry->is_directory(unreadable))
      found.push_back({*step, entry->path().string()});
  }
  if (failure && failure != std::errc::no_such_file_or_directory) detail::throw_io_error("cannot list folder", parent, failure.message());
  std::sort(found.begin(), found.end(), [](auto const& a, auto const& b) { return a.step < b.step; });
  return found;
}

/// Removes all but the newest `keep` of the folders up to step `newest`. Later ones stay. A training run that went back to an earlier step
/// removes those itself, with remove_folder. @throws tessera::error invalid_argument unless keep >= 1; io_error.
inline void prune_step_folders(std::string const& parent, step_count newest, std::int64_t keep) {
  if (keep < 1) throw error(errc::invalid_argument, "prune_step_folders: how many to keep", {{"folder", parent}, {"keep", keep}});
  auto folders = list_step_folders(parent);
  std::erase_if(folders, [&](auto const& f) { return f.step > newest; });
  for (std::int64_t i = 0; i + keep < static_cast<std::int64_t>(folders.size()); ++i)
    remove_folder(parent, step_folder_name(folders[static_cast<std::size_t>(i)].step));
}

}  // namespace TESSERA_ABI
}  // namespace tessera
