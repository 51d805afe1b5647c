// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <tessera/files/manifest.hpp>
#include <tessera/files/safetensors.hpp>

#include "temporary_folder.hpp"

using tessera::errc;
using tessera::manifest;
using tessera_tests::contents;
using tessera_tests::error_of;
using tessera_tests::temporary_folder;
using tessera_tests::write_file;

namespace {

manifest small_folder(temporary_folder const& folder) {
  write_file(folder.file("a.bin"), "123456789");
  write_file(folder.file("empty.bin"), "");
  manifest content;
  content.format = "test.format";
  content.version = 3;
  for (auto const* const name : {"a.bin", "empty.bin"}) content.sections.push_back({name, tessera::digest_of(folder.file(name))});
  content.state = {{"step", 17}, {"lr", 0.1}, {"name", "\u00e9\n"}, {"position", {{"epoch", 1}, {"offset", 9223372036854775807}}}};
  tessera::write_manifest(folder.path(), content);
  return content;
}

bool equal(manifest const& a, manifest const& b) {
  bool same = a.format == b.format && a.version == b.version && a.state == b.state && a.sections.size() == b.sections.size();
  for (std::size_t i = 0; same && i < a.sections.size(); ++i)
    same = a.sections[i].file == b.sections[i].file && a.sections[i].digest == b.sections[i].digest;
  return same;
}

}  // namespace

TEST_CASE("read_manifest gives back what write_manifest wrote") {
  temporary_folder const folder;
  auto const content = small_folder(folder);
  auto const found = tessera::read_manifest(folder.path(), "test.format", 3);
  CHECK(equal(found, content));
  CHECK_NOTHROW(tessera::verify_sections(folder.path(), found));
  CHECK(contents(folder.file("manifest.json")).find("\"cbf43926\"") != std::string::npos);  // what any tool says of 123456789

  manifest const empty{"f", 1, {}, nlohmann::json::object()};
  tessera::write_manifest(folder.path(), empty);
  CHECK(equal(tessera::read_manifest(folder.path(), "f", 1), empty));
}

TEST_CASE("read_manifest refuses another format and a version it does not know") {
  temporary_folder const folder;
  small_folder(folder);
  auto const format = error_of([&] { tessera::read_manifest(folder.path(), "other", 3); });
  CHECK(format.code() == errc::incompatible);
  CHECK(format.value("expected") == "other");
  CHECK(format.value("found") == "test.format");
  auto const version = error_of([&] { tessera::read_manifest(folder.path(), "test.format", 2); });
  CHECK(version.code() == errc::incompatible);
  CHECK(version.value("found") == "3");
  CHECK_NOTHROW(tessera::read_manifest(folder.path(), "test.format", 4));
}

TEST_CASE("read_manifest names the field that is missing or wrong") {
  temporary_folder const folder;
  auto const path = folder.file("manifest.json");
  small_folder(folder);
  auto const sound = tessera::read_json(path);
  auto const refused = [&](nlohmann::json json, bool with_checksum) {
    if (with_checksum) {
      json.erase("crc32");
      auto checksum = tessera::detail::manifest_checksum(json, path);
      json["crc32"] = checksum;
    }
    tessera::write_json(path, json);
    auto const e = error_of([&] { tessera::read_manifest(folder.path(), "test.format", 3); });
    CHECK(e.value("file") == path);
    return e;
  };
  for (auto const* const field : {"format", "version", "sections", "state", "crc32"}) {
    auto json = sound;
    json.erase(field);
    auto const e = refused(json, field != std::string("crc32"));
    CHECK(e.code() == errc::parse_error);
    CHECK(e.value("field") == field);
  }
  for (auto const* const field : {"file", "bytes", "crc32"}) {
    auto json = sound;
    json["sections"][0].erase(field);
    CHECK(refused(json, true).value("field") == field);
    json["sections"][0][field] = 1.5;
    CHECK(refused(json, true).value("field") == field);
  }
  for (auto const* const text : {"", "cbf4392", "cbf43926a", "cbf4392g", "-bf43926", " cbf4392"}) {
    auto json = sound;
    json["sections"][0]["crc32"] = text;
    CHECK(refused(json, true).value("found") == text);
  }
  for (auto const* const name : {"", ".", "..", "../a.bin", "/etc/passwd", "manifest.json", "empty.bin"}) {
    auto json = sound;
    json["sections"][0]["file"] = name;
    CHECK(refused(json, true).value("section") == name);
  }
  auto json = sound;
  json["version"] = 0;
  CHECK(refused(json, true).code() == errc::incompatible);
  json = sound;
  json["state"]["step"] = 18;
  CHECK(refused(json, false).code() == errc::corrupt_file);
  CHECK(refused(nlohmann::json::array(), false).code() == errc::parse_error);
}

TEST_CASE("write_manifest refuses what read_manifest would") {
  temporary_folder const folder;
  manifest content{"f", 1, {}, nlohmann::json::object()};
  for (auto const* const name : {"", ".", "..", "a/b", "manifest.json"}) {
    content.sections = {{name, {}}};
    CHECK(error_of([&] { tessera::write_manifest(folder.path(), content); }).code() == errc::invalid_argument);
  }
  content.sections = {{"a", {}}, {"a", {}}};
  CHECK(error_of([&] { tessera::write_manifest(folder.path(), content); }).value("section") == "a");
  content.sections.clear();
  content.state = 7;
  CHECK(error_of([&] { tessera::write_manifest(folder.path(), content); }).code() == errc::invalid_argument);
  content.state = {{"k", "\xff"}};
  CHECK(error_of([&] { tessera::write_manifest(folder.path(), content); }).code() == errc::invalid_argument);
  CHECK(!std::filesystem::exists(folder.file("manifest.json")));
  content.state = nlohmann::json::object();
  CHECK(error_of([&] { tessera::write_manifest(folder.file("missing"), content); }).code() == errc::io_error);
  CHECK(error_of([&] { tessera::read_manifest(folder.file("missing"), "f", 1); }).code() == errc::io_error);
}

TEST_CASE("read_manifest of every prefix and with any one byte changed refuses, or finds the same") {
  temporary_folder const folder;
  auto const path = folder.file("manifest.json");
  auto const content = small_folder(folder);
  auto const sound = contents(path);
  auto const try_text = [&](std::string const& text) {
    write_file(path, text);
    try {
      return equal(tessera::read_manifest(folder.path(), "test.format", 3), content) ? 1 : -1;
    } catch (tessera::error const&) {
      return 0;
    }
  };
  for (std::size_t size = 0; size + 2 < sound.size(); ++size) CHECK(try_text(sound.substr(0, size)) == 0);
  CHECK(try_text(sound.substr(0, sound.size() - 1)) == 1);  // without the newline behind
  int unnoticed = 0;
  for (std::size_t i = 0; i < sound.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      auto text = sound;
      text[i] = static_cast<char>(text[i] ^ (1 << bit));
      CAPTURE(text);
      auto const outcome = try_text(text);
      CHECK(outcome >= 0);
      unnoticed += outcome;
    }
  CHECK(unnoticed < 400);  // white space and the case of hexadecimal digits
}

TEST_CASE("verify_sections refuses every torn or altered section by its name") {
  temporary_folder const folder;
  auto const content = small_folder(folder);
  auto const refused = [&](std::string const& section) {
    auto const e = error_of([&] { tessera::verify_sections(folder.path(), content); });
    CHECK(e.code() == errc::corrupt_file);
    CHECK(e.value("section") == section);
    CHECK(e.value("file") == folder.file(section));
    return std::string(e.value("expected")) + " / " + std::string(e.value("found"));
  };
  std::string const sound = "123456789";
  for (std::size_t size = 0; size < sound.size(); ++size) {
    write_file(folder.file("a.bin"), sound.substr(0, size));
    CHECK(refused("a.bin") == "9 bytes / " + std::to_string(size) + " bytes");
  }
  for (std::size_t i = 0; i < sound.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      auto text = sound;
      text[i] = static_cast<char>(text[i] ^ (1 << bit));
      write_file(folder.file("a.bin"), text);
      CHECK(refused("a.bin").starts_with("crc32 cbf43926 / crc32 "));
    }
  write_file(folder.file("a.bin"), sound);
  write_file(folder.file("empty.bin"), "x");
  CHECK(refused("empty.bin") == "0 bytes / 1 bytes");
  std::filesystem::remove(folder.file("empty.bin"));
  CHECK(refused("empty.bin") == "0 bytes / nothing");
}

TEST_CASE("a manifest covers a safetensors section without a second read") {
  temporary_folder const folder;
  auto const path = folder.file("w.safetensors");
  tessera::safetensors_writer writer(path, {{"w", tessera::safetensors_dtype::f32, {2}}});
  std::vector<float> const w{1, 2};
  writer.append("w", tessera::vector_view(w));
  manifest const content{"f", 1, {{"w.safetensors", writer.finish()}}, nlohmann::json::object()};
  tessera::write_manifest(folder.path(), content);
  auto const found = tessera::read_manifest(folder.path(), "f", 1);
  CHECK_NOTHROW(tessera::verify_sections(folder.path(), found));
  auto const sound = contents(path);
  for (std::size_t i = 0; i < sound.size(); ++i) {
    auto bytes = sound;
    bytes[i] = static_cast<char>(bytes[i] ^ 0x10);
    write_file(path, bytes);
    CHECK(error_of([&] { tessera::verify_sections(folder.path(), found); }).value("section") == "w.safetensors");
  }
}
