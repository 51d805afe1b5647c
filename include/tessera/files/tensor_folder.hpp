// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/files/atomic_folder.hpp>
#include <tessera/files/byte_view.hpp>
#include <tessera/files/json.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/files/safetensors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Values with a name, in memory of others.
struct named_values {
  std::string name;
  safetensors_dtype dtype;
  std::int64_t count;
  vector_view<char const> bytes;

  /// Shows numbers of any type that a file has.
  template <class T>
  named_values(std::string name, vector_view<T const> values)
      : name(std::move(name)), dtype(safetensors_dtype_of<T>()), count(values.size()), bytes(as_bytes(values)) {}
};

/// Writes a folder of one `tensors.safetensors`, with these values, and a `manifest.json`, with its checksum and this state. It appears whole
/// or not at all. @throws tessera::error as `safetensors_writer` and `write_manifest`; io_error.
inline void write_tensor_folder(std::string const& folder, std::string const& format, std::int64_t version,
                                std::vector<named_values> const& values, nlohmann::json state) {
  constexpr auto file = "tensors.safetensors";
  std::filesystem::path const path(folder);
  staged_folder staged(path.parent_path().string(), path.filename().string());
  std::vector<safetensors_tensor> declared;
  declared.reserve(values.size());
  for (auto const& one : values) declared.push_back({one.name, one.dtype, {one.count}});
  safetensors_writer out(staged.path() + "/" + file, std::move(declared));
  for (auto const& one : values) out.append_bytes(one.name, one.bytes);
  write_manifest(staged.path(), {format, version, {{file, out.finish()}}, std::move(state)});
  staged.commit();
}

/// Reads what `write_tensor_folder` wrote.
class tensor_folder {
 public:
  /// Reads all of the folder once, to check it. @throws tessera::error incompatible for another format or a newer version; corrupt_file for a
  /// folder that was altered; parse_error naming the field; io_error.
  tensor_folder(std::string const& folder, std::string_view format, std::int64_t newest_version)
      : path_(detail::manifest_path(folder)),
        content_(checked(folder, format, newest_version)),
        file_(folder + "/" + content_.sections[0].file) {}

  /// The manifest's path, for errors about the state.
  std::string const& path() const noexcept { return path_; }
  nlohmann::json const& state() const noexcept { return content_.state; }
  /// All values of a name. @throws tessera::error incompatible where there are none, or of another type or number.
  template <class T>
  std::vector<T> read(std::string const& name, std::int64_t count) const {
    file_.expect(name, safetensors_dtype_of<T>(), {count});
    std::vector<T> values(static_cast<std::size_t>(count));
    file_.read(name, 0, vector_view<T>(values));
    return values;
  }

 private:
  static manifest checked(std::string const& folder, std::string_view format, std::int64_t newest_version) {
    auto content = read_manifest(folder, format, newest_version);
    if (content.sections.size() != 1)
      throw error(errc::parse_error, "manifest: a folder of tensors has one section",
                  {{"file", detail::manifest_path(folder)}, {"field", "sections"}, {"found", content.sections.size()}});
    verify_sections(folder, content);
    return content;
  }

  std::string path_;
  manifest content_;
  safetensors_reader file_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
