// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/files/checksum.hpp>
#include <tessera/files/file_digest.hpp>
#include <tessera/files/json.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A file of a folder, with the size and checksum that it must have.
struct manifest_section {
  std::string file;  ///< its name in the folder
  file_digest digest;
};

/// What a folder's `manifest.json` says about it.
struct manifest {
  std::string format;        ///< what the folder is, as "tessera.checkpoint"
  std::int64_t version = 1;  ///< of the format
  std::vector<manifest_section> sections;
  nlohmann::json state = nlohmann::json::object();  ///< whatever else the writer wants back; a number that is not finite becomes null
};

namespace detail {

inline std::string manifest_path(std::string const& folder) { return folder + "/manifest.json"; }

inline std::string hexadecimal(std::uint32_t value) {
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%08x", value);
  return text.data();
}

inline std::uint32_t json_hexadecimal(nlohmann::json const& object, std::string_view field, std::string const& file) {
  auto const& text = json_string(object, field, file);
  std::uint32_t value = 0;
  auto const [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 8 || failure != std::errc{} || end != text.data() + text.size())
    throw error(errc::parse_error, "manifest: not 8 hexadecimal digits", {{"file", file}, {"field", field}, {"found", text}});
  return value;
}

// A section is a file of the folder itself: a manifest cannot point elsewhere.
inline bool is_section_name(std::string_view name) noexcept {
  return !name.empty() && name.find('/') == name.npos && name.find('\0') == name.npos && name != "." && name != ".." &&
         name != "manifest.json";
}

// Of everything else in the manifest, so that an altered one is told from a sound one. Objects print with sorted keys.
inline std::string manifest_checksum(nlohmann::json const& manifest_without_checksum, std::string const& file) {
  return hexadecimal(crc32_of(std::string_view(print_json(manifest_without_checksum, file))));
}

}  // namespace detail

/// Writes `manifest.json` into a folder. It does not sync.
/// @throws tessera::error invalid_argument for a section whose name is no plain file name or occurs twice. invalid_argument also for a
/// state that is no object, and for strings that are not UTF-8. io_error.
inline void write_manifest(std::string const& folder, manifest const& content) {
  auto const path = detail::manifest_path(folder);
  if (!content.state.is_object())
    throw error(errc::invalid_argument, "manifest: the state is no JSON object", {{"file", path}, {"found", content.state.type_name()}});
  auto sections = nlohmann::json::array();
  std::set<std::string_view> names;
  for (auto const& s : content.sections) {
    if (!detail::is_section_name(s.file) || !names.insert(s.file).second)
      throw error(errc::invalid_argument, "manifest: not a name for a section", {{"file", path}, {"section", s.file}});
    sections.push_back({{"file", s.file}, {"bytes", s.digest.bytes}, {"crc32", detail::hexadecimal(s.digest.crc32)}});
  }
  nlohmann::json json{
      {"format", content.format}, {"version", content.version}, {"sections", std::move(sections)}, {"state", content.state}};
  auto checksum = detail::manifest_checksum(json, path);
  json["crc32"] = std::move(checksum);
  write_json(path, json);
}

/// Reads `manifest.json` of a folder, and none of its sections.
/// @post read_manifest gives back what write_manifest wrote
/// @throws tessera::error incompatible for another format or a version past `newest_version`. parse_error, naming the field, for text that
/// is no manifest. corrupt_file for an altered manifest. io_error.
inline manifest read_manifest(std::string const& folder, std::string_view format, std::int64_t newest_version) {
  auto const path = detail::manifest_path(folder);
  auto json = read_json(path);
  manifest content;
  content.format = json_string(json, "format", path);
  if (content.format != format)
    throw error(errc::incompatible, "manifest: another format", {{"file", path}, {"expected", format}, {"found", content.format}});
  content.version = json_integer(json, "version", path);
  if (content.version < 1 || content.version > newest_version)
    throw error(errc::incompatible, "manifest: another version", {{"file", path}, {"newest", newest_version}, {"found", content.version}});

  auto const expected = detail::hexadecimal(detail::json_hexadecimal(json, "crc32", path));
  json.erase("crc32");
  if (auto const found = detail::manifest_checksum(json, path); found != expected)
    throw error(errc::corrupt_file, "manifest: altered", {{"file", path}, {"expected crc32", expected}, {"found crc32", found}});

  std::set<std::string_view> names;
  for (auto const& s : json_array(json, "sections", path)) {
    auto const& file = json_string(s, "file", path);
    if (!detail::is_section_name(file) || !names.insert(file).second)
      throw error(errc::parse_error, "manifest: not a name for a section", {{"file", path}, {"section", file}});
    content.sections.push_back({file, {json_integer(s, "bytes", path), detail::json_hexadecimal(s, "crc32", path)}});
  }
  content.state = json_object(json, "state", path);
  return content;
}

/// Reads every section of a folder, and refuses one that is missing, torn or altered. Files that the manifest does not name may be there.
/// @throws tessera::error corrupt_file, naming section, expected and found; io_error.
inline void verify_sections(std::string const& folder, manifest const& content) {
  auto const refuse = [&](char const* sentence, manifest_section const& s, std::string expected, std::string found) {
    throw error(errc::corrupt_file, sentence,
                {{"file", folder + "/" + s.file}, {"section", s.file}, {"expected", std::move(expected)}, {"found", std::move(found)}});
  };
  // Sizes first: they cost nothing.
  for (auto const& s : content.sections) {
    struct ::stat status {};
    auto const bytes = std::to_string(s.digest.bytes) + " bytes";
    if (::stat((folder + "/" + s.file).c_str(), &status) != 0) refuse("manifest: section is missing", s, bytes, "nothing");
    if (status.st_size != s.digest.bytes) refuse("manifest: section has another size", s, bytes, std::to_string(status.st_size) + " bytes");
  }
  for (auto const& s : content.sections)
    if (auto const found = digest_of(folder + "/" + s.file); found != s.digest)
      refuse("manifest: section is altered", s, "crc32 " + detail::hexadecimal(s.digest.crc32),
             "crc32 " + detail::hexadecimal(found.crc32));
}

}  // namespace TESSERA_ABI
}  // namespace tessera
