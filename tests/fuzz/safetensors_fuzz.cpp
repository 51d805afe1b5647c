// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// A safetensors file of any bytes is refused by an error that names it, or what was read is the same after it was written again.
// An input that begins with { is a header up to its first newline and the data behind it; any other is a file with its length and all.
#include <tessera/files/safetensors.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz_support.hpp"

using fuzz::require;
using tessera::errc;

namespace {

std::string file_of(std::string_view input) {
  if (!input.starts_with('{')) return std::string(input);
  auto const header = input.substr(0, input.find('\n'));
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  file += header;
  return file += input.substr(std::min(header.size() + 1, input.size()));
}

std::optional<tessera::safetensors_reader> open(std::string const& path) {
  try {
    return tessera::safetensors_reader(path);
  } catch (tessera::error const& e) {
    require(e.code() == errc::corrupt_file || e.code() == errc::parse_error || e.code() == errc::incompatible,
            "the code of a refused file");
    require(e.value("file").starts_with(path), "a refused file is named");
    return std::nullopt;
  }
}

std::string bytes_of(tessera::safetensors_reader const& reader, tessera::safetensors_entry const& entry) {
  std::string bytes(static_cast<std::size_t>(entry.bytes), '\0');
  reader.read_bytes(entry, 0, {bytes.data(), entry.bytes});
  return bytes;
}

// Each tensor in two pieces, the first pieces of all before the second ones.
tessera::file_digest write(std::string const& path, tessera::safetensors_reader const& reader) {
  std::vector<tessera::safetensors_tensor> const tensors(reader.entries().begin(), reader.entries().end());
  tessera::safetensors_writer writer(path, tensors, reader.metadata());
  for (bool const second : {false, true})
    for (auto const& entry : reader.entries()) {
      auto const bytes = bytes_of(reader, entry);
      auto const cut = bytes.size() / 2;
      writer.append_bytes(entry.name, second ? std::string_view(bytes).substr(cut) : std::string_view(bytes).substr(0, cut));
    }
  return writer.finish();
}

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  static fuzz::memory_file in, out;
  auto const file = file_of(fuzz::text_of(data, size));
  in.write(file);
  auto const reader = open(in.path());
  if (!reader) return 0;

  std::int64_t data_bytes = 0;
  for (auto const& entry : reader->entries()) data_bytes += entry.bytes;
  auto const header_bytes = fuzz::number_source(file).take<std::int64_t>();
  require(8 + header_bytes + data_bytes == static_cast<std::int64_t>(file.size()), "header and tensors are the whole file");

  // The format lets a tensor have an empty name, and we write none.
  if (reader->find("") != nullptr) {
    try {
      write(out.path(), *reader);
      require(false, "a tensor without a name is not written");
    } catch (tessera::error const& e) {
      require(e.code() == errc::invalid_argument, "a tensor without a name is an invalid argument");
    }
    return 0;
  }
  auto const digest = write(out.path(), *reader);
  auto const written = out.contents();
  require(digest.bytes == static_cast<std::int64_t>(written.size()) && digest.crc32 == tessera::crc32_of(std::string_view(written)),
          "the digest is that of the file");

  tessera::safetensors_reader const again(out.path());
  require(again.metadata() == reader->metadata(), "metadata are read as they were written");
  require(again.entries().size() == reader->entries().size(), "as many tensors are read as were written");
  for (auto const& entry : reader->entries()) {
    auto const& found = again.expect(entry.name, entry.dtype, entry.shape);
    require(found.offset % element_bytes(found.dtype) == 0, "tensors are aligned to their elements");
    require(bytes_of(again, found) == bytes_of(*reader, entry), "a tensor is read as it was written");
  }
  return 0;
}
