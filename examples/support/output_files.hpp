// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/core/error.hpp>
#include <tessera/data/batch_reader.hpp>
#include <tessera/files/json.hpp>

namespace examples {

[[noreturn]] inline void refuse_output(char const* option, std::string const& path) {
  throw tessera::error(tessera::errc::io_error, std::string("option ") + option + ": cannot write", {{"file", path}});
}

/// A file that is there whole, after `commit`, or stays what it was. A device, a pipe or a link is written to directly.
class whole_file {
 public:
  whole_file(char const* option, std::string path) : option_(option), path_(std::move(path)) {
    std::error_code ignored;
    auto const type = std::filesystem::symlink_status(path_, ignored).type();
    bool const replaces = type == std::filesystem::file_type::regular || type == std::filesystem::file_type::not_found;
    written_ = replaces ? path_ + ".partial" : path_;
    text.open(written_);
    if (!text) refuse_output(option_, path_);
  }
  whole_file(whole_file const&) = delete;
  ~whole_file() {
    if (written_ != path_) std::remove(written_.c_str());
  }

  /// Finds out whether it could be written; changes nothing.
  static void check(char const* option, std::string const& path) {
    namespace fs = std::filesystem;
    std::error_code ignored;
    auto const type = fs::symlink_status(path, ignored).type();
    if (type == fs::file_type::regular || type == fs::file_type::not_found) return void(whole_file(option, path));
    // Opening would empty what a link leads to, and a pipe's reader would see its end.
    if (fs::is_directory(path, ignored) || (fs::exists(path, ignored) && ::access(path.c_str(), W_OK) != 0)) refuse_output(option, path);
  }

  void commit() {
    text.close();
    if (!text || (written_ != path_ && std::rename(written_.c_str(), path_.c_str()) != 0)) refuse_output(option_, path_);
    written_ = path_;
  }

  std::ofstream text;

 private:
  char const* option_;
  std::string path_, written_;
};

/// One JSON object a line, each with "step", "epoch" and "event".
class metrics_file {
 public:
  metrics_file(std::string const& path, bool append) : path_(path) {
    if (path.empty()) return;
    out_.open(path, append ? std::ios::app : std::ios::trunc);
    if (!out_) refuse_output("--metrics", path);
  }
  bool is_open() const { return out_.is_open(); }
  void write(nlohmann::json const& line) {
    if (is_open() && !(out_ << line.dump() << std::endl)) refuse_output("--metrics", path_);
  }

 private:
  std::string path_;
  std::ofstream out_;
};

/// Takes away what a run wrote to its metrics behind the position from which another goes on, and will write again.
inline void drop_metrics_behind(std::string const& path, tessera::reader_position position) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return;
  std::ifstream in(path);
  whole_file kept("--metrics", path);
  for (std::string line; std::getline(in, line) && !in.eof();) {  // a last line without an end is of a run that was killed
    auto const found = tessera::parse_json(line, path);
    auto const step = tessera::json_integer(found, "step", path);
    // At the end of an epoch, a position is before its test.
    bool const tested_again = found.value("event", "") == "test" && found.value("epoch", std::int64_t{-1}) >= position.epoch;
    if (step <= position.batch && !tested_again) kept.text << line << '\n';
  }
  kept.commit();
}

/// A file that an option names.
using named_file = std::pair<char const*, std::string>;

/// Refuses an output that would take the place of an input, or of the output before it.
inline void check_distinct(std::vector<named_file> const& inputs, std::vector<named_file> const& outputs) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  auto files = inputs;
  for (auto const& [option, path] : outputs) {
    if (path.empty() || (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored))) continue;
    for (auto const& [other_option, other] : files)
      if (fs::equivalent(path, other, ignored) || fs::absolute(path).lexically_normal() == fs::absolute(other).lexically_normal())
        throw tessera::error(tessera::errc::invalid_argument, std::string("option ") + option + ": the file of another option",
                             {{"file", path}, {"other option", other_option}});
    files.emplace_back(option, path);
  }
}

/// Finds out now, not after hours of training, that a result could not be written; leaves nothing behind. An empty path is no wish.
inline void check_outputs(std::string const& predictions, std::string const& metrics, std::string const& checkpoints,
                          std::string const& report) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!predictions.empty()) whole_file::check("--predict", predictions);
  if (!report.empty()) whole_file::check("--report", report);
  if (!metrics.empty()) {
    bool const is_new = !fs::exists(metrics, ignored);
    if (!std::ofstream(metrics, std::ios::app)) refuse_output("--metrics", metrics);
    if (is_new) fs::remove(metrics, ignored);
  }
  if (!checkpoints.empty()) {
    auto folder = fs::absolute(checkpoints);  // or the one that it will be made in
    while (!fs::exists(folder, ignored) && folder.has_relative_path()) folder = folder.parent_path();
    if (!fs::is_directory(folder, ignored) || ::access(folder.c_str(), W_OK | X_OK) != 0) refuse_output("--checkpoint", checkpoints);
  }
}

}  // namespace examples
