// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/core/error.hpp>
#include <tessera/data/reader.hpp>
#include <tessera/files/atomic_file.hpp>
#include <tessera/files/json.hpp>
#include <tessera/files/step_folders.hpp>

#include "settings.hpp"

namespace examples {

[[noreturn]] inline void refuse_output(char const* option, std::string const& path, std::string const& reason = {}) {
  std::vector<tessera::error_value> values{{"file", path}};
  if (!reason.empty()) values.emplace_back("reason", reason);
  throw tessera::error(tessera::errc::io_error, std::string("option ") + option + ": cannot write", std::move(values));
}
[[noreturn]] inline void refuse_output(char const* option, std::string const& path, int os_error) {
  refuse_output(option, path, std::generic_category().message(os_error));
}

/// Whether this is the file that the program prints to, as /dev/stdout may be: it is open and stays so.
inline bool is_printed_to(std::string const& path) {
  struct ::stat named {};
  if (::stat(path.c_str(), &named) != 0) return false;
  for (int const descriptor : {STDOUT_FILENO, STDERR_FILENO}) {
    struct ::stat open {};
    if (::fstat(descriptor, &open) == 0 && open.st_dev == named.st_dev && open.st_ino == named.st_ino) return true;
  }
  return false;
}

/// The file that an output replaces: the one of that name or, where a link stands, the one it leads to. None for a pipe or a device, which
/// is written to directly. Refuses what cannot be written; opens nothing, since a pipe's reader would see its end.
inline std::optional<std::string> replaced_file(char const* option, std::string const& path) {
  namespace fs = std::filesystem;
  using fs::file_type;
  std::error_code failure;
  auto const own = fs::symlink_status(path, failure).type();
  if (own == file_type::regular || own == file_type::not_found) return path;
  auto const type = fs::status(path, failure).type();
  if (type == file_type::none) refuse_output(option, path, failure.message());
  if (type == file_type::not_found) refuse_output(option, path, "a link that leads nowhere");
  if (type == file_type::directory) refuse_output(option, path, EISDIR);
  if (type == file_type::socket) refuse_output(option, path, "a socket");
  if (type == file_type::regular && !is_printed_to(path)) {
    auto const found = fs::canonical(path, failure);
    if (failure) refuse_output(option, path, failure.message());
    return found.string();
  }
  if (::access(path.c_str(), W_OK) != 0) refuse_output(option, path, errno);
  return std::nullopt;
}

/// Calls `f`, whose errors name the option.
template <class F>
auto for_option(char const* option, std::string const& path, F const& f) {
  try {
    return f();
  } catch (tessera::error const& e) {
    auto const reason = e.value("reason");
    refuse_output(option, path, std::string(reason.empty() ? e.sentence() : reason));
  }
}

/// A file beside the one that will be replaced, where one will be.
inline std::optional<tessera::staged_file> stage(char const* option, std::string const& path) {
  auto const replaced = replaced_file(option, path);
  if (!replaced) return std::nullopt;
  return for_option(option, path, [&] { return std::optional<tessera::staged_file>(std::in_place, *replaced); });
}

/// A file that is there whole, after `commit`, or stays what it was; a link to it stays a link. A device or a pipe is written to directly.
class whole_file {
 public:
  whole_file(char const* option, std::string path) : option_(option), path_(std::move(path)), staged_(stage(option_, path_)) {
    text.open(staged_ ? staged_->path() : path_);
    if (!text) refuse_output(option_, path_, errno);
  }

  /// Finds out whether it could be written; changes nothing.
  static void check(char const* option, std::string const& path) { stage(option, path); }

  void commit() {
    text.close();
    if (!text) refuse_output(option_, path_);
    if (staged_) for_option(option_, path_, [&] { staged_->commit(); });
  }

  std::ofstream text;

 private:
  char const* option_;
  std::string path_;
  std::optional<tessera::staged_file> staged_;
};

/// One JSON object a line, each with "step", "epoch" and "event".
class metrics_file {
 public:
  /// Finds out whether lines could be written, and changes no file. What is no file is opened, once: a pipe waits for its reader.
  explicit metrics_file(settings const& s) : path_(s.metrics), adds_(s.resume || s.eval_only) {
    std::error_code ignored;
    if (!is_wanted()) return;
    if (!replaced_file(option, path_)) {
      open();
    } else {
      bool const exists = std::filesystem::exists(path_, ignored);
      if (exists && ::access(path_.c_str(), W_OK) != 0) refuse_output(option, path_, errno);
      if (!exists || s.resume) stage(option, path_);
    }
  }

  bool is_wanted() const { return !path_.empty(); }
  /// Comes before the first line. The lines of an earlier run go here, unless this run goes on from it or only tests.
  void begin() {
    if (is_wanted() && !out_.is_open()) open();
  }
  void write(nlohmann::json const& line) {
    if (is_wanted() && !(out_ << line.dump() << std::endl)) refuse_output(option, path_);
  }

  /// Takes away what a run wrote behind the position from which another goes on, and will write again.
  void drop_behind(tessera::reader_position position) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path_, ignored)) return;
    std::ifstream in(path_);
    if (!in) throw tessera::error(tessera::errc::io_error, "option --metrics: cannot read", {{"file", path_}});
    whole_file kept(option, path_);
    std::int64_t number = 0;
    for (std::string line; std::getline(in, line) && !in.eof();) {  // a last line without an end is of a run that was killed
      auto const where = path_ + " line " + std::to_string(++number);
      auto const found = tessera::parse_json(line, where);
      if (tessera::json_integer(found, "step", where) > position.batch) continue;
      if (tessera::json_string(found, "event", where) == "test" && found.contains("epoch"))
        tested_ = tessera::json_integer(found, "epoch", where);
      kept.text << line << '\n';
    }
    if (in.bad()) throw tessera::error(tessera::errc::io_error, "option --metrics: cannot read", {{"file", path_}});
    kept.commit();
  }
  /// Whether the lines kept have the test after this epoch: at the end of an epoch, a position is before its test.
  bool has_test_of(std::int64_t epoch) const { return epoch <= tested_; }

 private:
  static constexpr char const* option = "--metrics";

  void open() {
    out_.open(path_, adds_ ? std::ios::app : std::ios::trunc);
    if (!out_) refuse_output(option, path_, errno);
  }

  std::string path_;
  bool adds_;
  std::ofstream out_;
  std::int64_t tested_ = -1;
};

/// A file that an option names.
using named_file = std::pair<char const*, std::string>;

[[noreturn]] inline void refuse_same(named_file const& output, char const* other) {
  throw tessera::error(tessera::errc::invalid_argument, std::string("option ") + output.first + ": the file of another option",
                       {{"file", output.second}, {"other option", other}});
}

/// Where a file is or would be, whatever links lead there.
inline std::filesystem::path place_of(std::string const& path) {
  namespace fs = std::filesystem;
  std::error_code failure;
  auto const known = fs::weakly_canonical(fs::absolute(path), failure);
  auto const found = failure ? fs::absolute(path).lexically_normal() : known;
  return found.has_filename() ? found : found.parent_path();
}

/// Refuses an output that would take the place of an input, or of the output before it.
inline void check_distinct(std::vector<named_file> const& inputs, std::vector<named_file> const& outputs) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  auto files = inputs;
  for (auto const& [option, path] : outputs) {
    if (path.empty() || (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored))) continue;
    for (auto const& [other_option, other] : files)
      if (fs::equivalent(path, other, ignored) || place_of(path) == place_of(other)) refuse_same({option, path}, other_option);
    files.emplace_back(option, path);
  }
}

/// Refuses an output that stands where checkpoints do or will: in place of their folder or one above it, in a checkpoint, which a foreign
/// file makes unreadable, or under a name that is a checkpoint's.
inline void check_apart(settings const& s, std::vector<named_file> const& outputs) {
  if (s.checkpoint.empty()) return;
  auto const folder = place_of(s.checkpoint);
  std::error_code ignored;
  bool const is_one = std::filesystem::exists(folder / "manifest.json", ignored);
  for (auto const& output : outputs) {
    if (output.second.empty()) continue;
    auto const file = place_of(output.second);
    if (*folder.lexically_relative(file).begin() != "..") refuse_same(output, "--checkpoint");
    auto const below = file.lexically_relative(folder);
    bool const in_step =
        std::any_of(below.begin(), below.end(), [](auto const& name) { return tessera::step_of_folder_name(name.string()).has_value(); });
    if (in_step || (is_one && *below.begin() != "..") || below == "manifest.json")
      throw tessera::error(tessera::errc::invalid_argument, std::string("option ") + output.first + ": a name that checkpoints have",
                           {{"file", output.second}, {"--checkpoint", s.checkpoint}});
  }
}

/// Finds out now, not after hours of training, that there could be no checkpoints.
inline void check_checkpoints(std::string const& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  auto folder = fs::absolute(path);  // or the one that it will be made in
  while (!fs::exists(folder, ignored) && folder.has_relative_path()) folder = folder.parent_path();
  if (!fs::is_directory(folder, ignored)) refuse_output("--checkpoint", path, ENOTDIR);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) refuse_output("--checkpoint", path, errno);
}

}  // namespace examples
