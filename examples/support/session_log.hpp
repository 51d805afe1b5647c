// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <parquet/file_reader.h>
#include <parquet/schema.h>

#include <tessera/data/checked_samples.hpp>
#include <tessera/data/parquet_log.hpp>
#include <tessera/tessera_files.hpp>

namespace examples {

/// Samples of Parquet files that a model can learn from. A missing number is 0.
using session_log = tessera::checked_samples<tessera::parquet_log>;

/// The columns of a Parquet file by what they may be, for a person who has named none.
inline std::vector<tessera::error_value> kinds_of_columns(std::string const& path) {
  std::shared_ptr<parquet::FileMetaData> metadata;
  try {
    metadata = parquet::ParquetFileReader::OpenFile(path)->metadata();
  } catch (std::exception const& e) {
    throw tessera::error(tessera::errc::corrupt_file, "no Parquet file", {{"file", path}, {"reason", e.what()}});
  }
  auto const& root = *metadata->schema()->group_node();
  std::string lists, integers, numbers, others;
  for (int i = 0; i < root.field_count(); ++i) {
    auto const& field = *root.field(i);
    auto* kind = &others;
    if (field.is_group() || field.is_repeated()) {
      kind = &lists;
    } else {
      switch (static_cast<parquet::schema::PrimitiveNode const&>(field).physical_type()) {
        case parquet::Type::INT32:
        case parquet::Type::INT64: kind = &integers; break;
        case parquet::Type::BOOLEAN:
        case parquet::Type::FLOAT:
        case parquet::Type::DOUBLE: kind = &numbers; break;
        default: break;
      }
    }
    *kind += (kind->empty() ? "" : ",") + field.name();
  }
  std::vector<tessera::error_value> found{{"file", path}};
  for (auto const& [kind, names] :
       {std::pair("lists", lists), std::pair("integers", integers), std::pair("other numbers", numbers), std::pair("of no use", others)})
    if (!names.empty()) found.emplace_back(kind, names);
  return found;
}

}  // namespace examples
