// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// What reads Parquet files, where Apache Arrow is.
#include "../support/data_columns.hpp"

#ifdef TESSERA_TRAIN_PARQUET

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <parquet/file_reader.h>
#include <parquet/schema.h>

#include <tessera/data/parquet_log.hpp>

tessera::any_sample_source examples::open_parquet(std::vector<std::string> const& files, tessera::sample_schema const& schema) {
  return tessera::any_sample_source(tessera::parquet_log(files, schema));
}

std::vector<tessera::error_value> examples::parquet_columns(std::string const& path) {
  std::shared_ptr<parquet::FileMetaData> metadata;
  try {
    metadata = parquet::ParquetFileReader::OpenFile(path)->metadata();
  } catch (std::exception const& e) {
    throw tessera::error(tessera::errc::corrupt_file, "no Parquet file", {{"file", path}, {"reason", e.what()}});
  }
  auto const& root = *metadata->schema()->group_node();
  std::string lists, integers, texts, numbers, others;
  for (int i = 0; i < root.field_count(); ++i) {
    auto const& field = *root.field(i);
    auto* kind = &others;
    if (field.is_group() || field.is_repeated()) {
      kind = &lists;
    } else {
      switch (static_cast<parquet::schema::PrimitiveNode const&>(field).physical_type()) {
        case parquet::Type::INT32:
        case parquet::Type::INT64: kind = &integers; break;
        case parquet::Type::BYTE_ARRAY: kind = &texts; break;
        case parquet::Type::BOOLEAN:
        case parquet::Type::FLOAT:
        case parquet::Type::DOUBLE: kind = &numbers; break;
        default: break;
      }
    }
    *kind += (kind->empty() ? "" : ",") + field.name();
  }
  std::vector<tessera::error_value> found{{"file", path}};
  for (auto const& [kind, names] : {std::pair("lists", lists), std::pair("integers", integers), std::pair("texts", texts),
                                    std::pair("other numbers", numbers), std::pair("of no use", others)})
    if (!names.empty()) found.emplace_back(kind, names);
  return found;
}

#else

#include "../support/cluster_job.hpp"

namespace {

[[noreturn]] void refuse(std::string const& file) {
  throw tessera::error(tessera::errc::incompatible,
                       "this build reads no Parquet files: it needs Apache Arrow. `sh cmake/bootstrap.sh deps` installs it; then configure "
                       "with -D TESSERA_PARQUET=ON and build again",
                       {{"file", file}});
}

}  // namespace

tessera::any_sample_source examples::open_parquet(std::vector<std::string> const& files, tessera::sample_schema const&) {
  refuse(files[0]);
}

std::vector<tessera::error_value> examples::parquet_columns(std::string const& path) { refuse(path); }

int examples::run_cluster(tessera::host_exec const&, cluster_settings const& s) { refuse(s.out); }

int examples::run_cluster(tessera::host_exec const&, tessera::any_sample_source const&, cluster_settings const& s) { refuse(s.out); }

#endif
