// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <tessera/core/error.hpp>
#include <tessera/data/sample_classes.hpp>
#include <tessera/files/json.hpp>
#include <tessera/files/tensor_folder.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The version of a folder of classes that is written, and the newest that is read.
inline constexpr std::int64_t sample_classes_version = 1;

/// Writes which samples are hot to a folder, which appears whole or not at all. Together with the data set as it is, this is what FAE calls its
/// format. @throws tessera::error io_error.
inline void save_sample_classes(std::string const& folder, sample_classes const& classes) {
  write_tensor_folder(folder, "tessera.sample_classes", sample_classes_version, {{"hot", classes.words()}},
                      {{"samples", classes.size()},
                       {"hot", classes.hot()},
                       {"data", detail::hexadecimal(classes.data())},
                       {"hot_rows", detail::hexadecimal(classes.rows())}});
}

/// Reads what `save_sample_classes` wrote. @throws tessera::error incompatible, parse_error, corrupt_file and io_error, as `tensor_folder`.
inline sample_classes load_sample_classes(std::string const& folder) {
  tensor_folder const in(folder, "tessera.sample_classes", sample_classes_version);
  auto const samples = json_integer(in.state(), "samples", in.path());
  if (samples < 0)
    throw error(errc::parse_error, "sample_classes: samples", {{"file", in.path()}, {"field", "samples"}, {"found", samples}});
  return sample_classes::from_words(samples, in.read<std::uint64_t>("hot", samples / 64 + (samples % 64 != 0)),
                                    detail::json_hexadecimal(in.state(), "data", in.path()),
                                    detail::json_hexadecimal(in.state(), "hot_rows", in.path()));
}

}  // namespace TESSERA_ABI
}  // namespace tessera
