// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/files/checksum.hpp>
#include <tessera/files/posix_file.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The size and checksum that a file must still have for its contents to be trusted.
struct file_digest {
  std::int64_t bytes = 0;
  std::uint32_t crc32 = 0;

  friend bool operator==(file_digest const&, file_digest const&) = default;
};

/// Reads all of a file, through 1 MiB of memory. @throws tessera::error io_error.
inline file_digest digest_of(std::string const& path) {
  auto const file = posix_file::open(path);
  std::vector<char> piece(std::size_t{1} << 20);
  file_digest result;
  crc32_sum sum;
  for (std::int64_t found = -1; found != 0; result.bytes += found) {
    found = file.read_at(result.bytes, piece);
    sum.update({piece.data(), found});
  }
  result.crc32 = sum.value();
  return result;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
