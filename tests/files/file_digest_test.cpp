// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>

#include <tessera/files/file_digest.hpp>

#include "temporary_folder.hpp"

TEST_CASE("digest_of is the length and the checksum of the whole file") {
  tessera_tests::temporary_folder const folder;
  auto const path = folder.file("data");
  for (std::size_t const size : {0U, 1U, 1048575U, 1048576U, 1048577U, 3000000U}) {
    std::string bytes(size, '?');
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31 + i / 251);
    tessera_tests::write_file(path, bytes);
    CHECK(tessera::digest_of(path) == tessera::file_digest{static_cast<std::int64_t>(size), tessera::crc32_of(bytes)});
  }
  CHECK(tessera_tests::error_of([&] { tessera::digest_of(folder.path()); }).code() == tessera::errc::io_error);
}
