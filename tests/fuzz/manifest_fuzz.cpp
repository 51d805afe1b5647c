// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// A manifest of any text is refused by an error that names it, or is the same after it was written again. As few texts have the right checksum,
// each is read a second time with the one that it should have.
#include <tessera/files/manifest.hpp>

#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "fuzz_support.hpp"

using fuzz::require;
using tessera::errc;

namespace {

constexpr char const* format = "tessera.fuzz";
constexpr std::int64_t newest_version = 3;

class temporary_folder {
 public:
  temporary_folder() : path_((std::filesystem::temp_directory_path() / "tessera-fuzz-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no temporary folder: " + path_);
  }
  temporary_folder(temporary_folder const&) = delete;
  temporary_folder& operator=(temporary_folder const&) = delete;
  ~temporary_folder() { std::filesystem::remove_all(path_); }

  std::string const& path() const noexcept { return path_; }
  std::string file(char const* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::optional<tessera::manifest> read(std::string const& folder) {
  try {
    return tessera::read_manifest(folder, format, newest_version);
  } catch (tessera::error const& e) {
    require(e.code() == errc::corrupt_file || e.code() == errc::parse_error || e.code() == errc::incompatible,
            "the code of a refused manifest");
    require(e.value("file") == folder + "/manifest.json", "a refused manifest is named");
    return std::nullopt;
  }
}

void verify(std::string const& folder, tessera::manifest const& content) {
  try {
    tessera::verify_sections(folder, content);
  } catch (tessera::error const& e) {
    require(e.code() == errc::corrupt_file, "the code of a section that is not as it should be");
    require(!e.value("section").empty(), "a section that is not as it should be is named");
  }
}

void check(std::string const& folder, std::string const& other_folder) {
  auto const content = read(folder);
  if (!content) return;
  require(content->format == format && content->version >= 1 && content->version <= newest_version, "format and version are known");
  verify(folder, *content);
  tessera::write_manifest(other_folder, *content);
  auto const again = read(other_folder);
  require(again.has_value(), "a manifest that was written is read");
  require(again->version == content->version && again->state == content->state, "version and state are read as they were written");
  require(again->sections.size() == content->sections.size(), "as many sections are read as were written");
  for (std::size_t i = 0; i < again->sections.size(); ++i)
    require(again->sections[i].file == content->sections[i].file && again->sections[i].digest == content->sections[i].digest,
            "a section is read as it was written");
}

// With the CRC-32 of all else, printed on one line with sorted keys; nothing for what is no such text.
std::optional<std::string> with_checksum(std::string_view text) {
  try {
    auto json = tessera::parse_json(text, "text");
    if (!json.is_object()) return std::nullopt;
    json.erase("crc32");
    char digits[9];
    std::snprintf(digits, sizeof digits, "%08x", tessera::crc32_of(std::string_view(json.dump())));
    json["crc32"] = digits;
    return json.dump();
  } catch (tessera::error const&) {
    return std::nullopt;
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  static temporary_folder const folder, other_folder;
  static bool const has_section = (tessera::write_text(folder.file("section"), "nine bytes"), true);
  require(has_section, "there is a section");
  auto const text = fuzz::text_of(data, size);
  tessera::write_text(folder.file("manifest.json"), text);
  check(folder.path(), other_folder.path());
  if (auto const mended = with_checksum(text)) {
    tessera::write_text(folder.file("manifest.json"), *mended);
    check(folder.path(), other_folder.path());
  }
  return 0;
}
