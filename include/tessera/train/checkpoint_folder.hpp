// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/files/atomic_folder.hpp>
#include <tessera/files/checksum.hpp>
#include <tessera/files/json.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/files/posix_file.hpp>
#include <tessera/files/step_folders.hpp>
#include <tessera/train/checkpoint_ranks.hpp>
#include <tessera/train/checkpoint_shards.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What a checkpoint holds beside its tensors.
struct checkpoint_state {
  std::int64_t step = 0;                               ///< batches trained
  nlohmann::json options = nlohmann::json::object();   ///< how the caller set up the model and the run
  nlohmann::json position = nlohmann::json::object();  ///< where the caller's reader goes on
};

/// A checkpoint that was found whole. Each file in its folder was read and has its checksum, but for the manifest and hidden names.
struct open_checkpoint {
  std::string folder;      ///< path of the checkpoint's folder
  manifest content;        ///< what its manifest says
  checkpoint_state state;  ///< what `save_checkpoint` was given
};

/// Opens the newest checkpoint of a directory, or the checkpoint that the path itself names. It reads all files once.
/// One process or any number of ranks may have written it.
/// @post `state` is what `save_checkpoint` was given.
/// @throws tessera::error io_error where there is no checkpoint. corrupt_file naming the section that is torn or altered.
/// corrupt_file also for a file or subfolder that the manifest does not list, unless its name begins with a dot.
/// corrupt_file naming the table, where the files of ranks leave a gap in it or overlap.
/// parse_error naming a field of the manifest that is not valid. incompatible for a format or version that is not known.
/// If there is an older checkpoint, the error names it, and its own path opens it.
inline open_checkpoint open_newest_checkpoint(std::string const& directory);

/// Opens the newest checkpoint that rank 0 finds in the directory, on all ranks. All of them call it. Each reads some of the files, so
/// that all ranks together read all of them once.
/// @throws tessera::error as above, on a rank that finds something wrong; rank_failed on the others. incompatible for ranks whose manifest
/// is not that of rank 0, as where they do not share the directory.
inline open_checkpoint open_newest_checkpoint(host_exec const& exec, any_communicator comm, std::string const& directory);

/// Refuses, on all ranks, a directory that ranks do not share, or that some cannot write to. All ranks call it before they train, so that the
/// first checkpoint does not fail. It makes the directory where it is missing. Names of the directory may differ from rank to rank.
/// @throws tessera::error io_error naming the rank and its directory, on that rank; rank_failed on the others.
inline void check_shared_folder(host_exec const& exec, any_communicator comm, std::string const& directory);

namespace detail {

inline constexpr std::int64_t one_process_version = 3;
inline constexpr std::int64_t checkpoint_version = 4;  // the newest, which knows shards
inline constexpr char const* checkpoint_format = "tessera.checkpoint";

// Whatever is read from the folder is a section, and so has been compared with its checksum. Hidden files are a file system's or a desktop's.
inline void check_all_listed(std::string const& folder, manifest const& content) {
  auto const check = [&](std::string const& name) {
    if (std::none_of(content.sections.begin(), content.sections.end(), [&](auto const& section) { return section.file == name; }))
      throw error(errc::corrupt_file, "checkpoint: a section that its manifest does not list",
                  {{"file", folder + "/" + name}, {"section", name}});
  };
  check("dense.safetensors");
  auto const all = shards_of(content, folder + "/manifest.json");
  if (!all.of_ranks) check("tables.safetensors");
  for (auto const& shard : all.shards) check(shard.file);
  std::error_code failure;
  for (std::filesystem::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure))
    if (auto const name = entry->path().filename().string(); name != "manifest.json" && !name.starts_with('.')) check(name);
  if (failure) throw_io_error("cannot list folder", folder, failure.message());
}

// The folders to look at: names in the directory, or empty for the directory itself and for none.
struct found_folders {
  std::string newest, before;

  std::string path_of_newest(std::string const& directory) const { return newest.empty() ? directory : path(directory, newest); }
  std::string path_of_before(std::string const& directory) const { return path(directory, before); }

 private:
  static std::string path(std::filesystem::path const& directory, std::string const& name) {
    return ((directory.empty() ? "." : directory) / name).string();
  }
};

inline found_folders find_folders(std::string const& directory) {
  auto const steps = list_step_folders(directory);
  std::error_code ignored;
  if (steps.empty() && !std::filesystem::exists(directory + "/manifest.json", ignored))
    throw error(errc::io_error, "checkpoint: none in this folder", {{"folder", directory}});
  found_folders found;
  if (!steps.empty()) found.newest = step_folder_name(steps.back().step);
  if (steps.size() > 1) found.before = step_folder_name(steps[steps.size() - 2].step);
  return found;
}

// Opens a folder. Of its sections, it reads each `ranks`-th from number `rank` on.
inline open_checkpoint open_found(std::string const& directory, found_folders const& at, int rank, int ranks) {
  auto const folder = at.path_of_newest(directory);
  try {
    open_checkpoint found{folder, read_manifest(folder, checkpoint_format, checkpoint_version), {}};
    check_all_listed(folder, found.content);
    auto share = found.content;
    std::size_t number = 0;
    std::erase_if(share.sections, [&](auto const&) { return static_cast<int>(number++ % static_cast<std::size_t>(ranks)) != rank; });
    verify_sections(folder, share);
    auto const file = folder + "/manifest.json";
    found.state.step = json_count(found.content.state, "step", file);
    found.state.options = json_object(found.content.state, "options", file);
    found.state.position = json_object(found.content.state, "position", file);
    return found;
  } catch (error const& e) {
    if (at.before.empty()) throw;
    auto values = e.values();
    values.emplace_back("checkpoint before", at.path_of_before(directory));
    throw error(e.code(), std::string(e.sentence()), std::move(values));
  }
}

// A few words of a manifest, a line each, from which ranks tell that theirs are the same.
inline std::string manifest_lines(manifest const& content, std::string const& file) {
  auto lines = "manifest, crc32 " + hexadecimal(crc32_of(std::string_view(print_json(content.state, file)))) + "\n";
  for (auto const& s : content.sections)
    lines += s.file + ", " + std::to_string(s.digest.bytes) + " bytes, crc32 " + hexadecimal(s.digest.crc32) + "\n";
  return lines;
}

// A hidden file, removed at the end.
class hidden_file {
 public:
  hidden_file(std::string path, std::string_view text) : path_(std::move(path)) { write_text(path_, text); }
  hidden_file(hidden_file const&) = delete;
  hidden_file& operator=(hidden_file const&) = delete;
  ~hidden_file() { ::unlink(path_.c_str()); }

 private:
  std::string path_;
};

}  // namespace detail

inline open_checkpoint open_newest_checkpoint(std::string const& directory) {
  return detail::open_found(directory, detail::find_folders(directory), 0, 1);
}

inline open_checkpoint open_newest_checkpoint(host_exec const& exec, any_communicator comm, std::string const& directory) {
  auto const told = detail::texts_of_ranks(exec, comm, "checkpoint: the newest", [&] {
    if (comm.rank() != 0) return std::string();
    auto const found = detail::find_folders(directory);
    return found.newest + "\n" + found.before;
  });
  auto const line = told[0].find('\n');
  detail::found_folders const at{told[0].substr(0, line), told[0].substr(line + 1)};
  open_checkpoint found;
  std::string lines;
  std::exception_ptr failure;
  try {
    found = detail::open_found(directory, at, comm.rank(), comm.size());
    lines = detail::manifest_lines(found.content, found.folder + "/manifest.json");
  } catch (...) {
    failure = std::current_exception();
  }
  check_same_text(exec, comm, lines, "checkpoint: the same manifest", failure);
  return found;
}

inline void check_shared_folder(host_exec const& exec, any_communicator comm, std::string const& directory) {
  auto const folder = directory.empty() ? std::string(".") : directory;
  auto const path_of = [&](std::string const& token, int rank) {
    return folder + "/.tessera-shared-" + token + "-" + std::to_string(rank);
  };
  std::optional<detail::hidden_file> own;
  auto const told = detail::texts_of_ranks(exec, comm, "checkpoint: a folder for all ranks", [&] {
    std::random_device device;
    std::string token;
    for (int i = 0; i < 4; ++i) token += detail::hexadecimal(device());
    if (comm.rank() != 0) return token;
    detail::make_folders(folder);
    own.emplace(path_of(token, 0), token);
    return token;
  });
  detail::optional_ranks ranks(comm);
  detail::on_all_ranks(exec, ranks, "checkpoint: a folder that all ranks share", [&] {
    if (comm.rank() == 0) return;
    auto const refuse = [&](std::string const& reason) {
      throw error(errc::io_error, "checkpoint: a folder that ranks do not share",
                  {{"rank", comm.rank()}, {"folder", folder}, {"reason", reason}});
    };
    auto const reason_of = [](error const& e) { return std::string(e.sentence()) + ": " + std::string(e.value("reason")); };
    try {
      if (read_text(path_of(told[0], 0), 1024) != told[0]) refuse("the file of rank 0 has another text");
      own.emplace(path_of(told[0], comm.rank()), told[0]);
    } catch (error const& e) {
      if (e.value("rank").empty()) refuse(reason_of(e));
      throw;
    }
  });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
