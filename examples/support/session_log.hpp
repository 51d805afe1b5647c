// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <parquet/file_reader.h>
#include <parquet/schema.h>

#include <tessera/data/parquet_log.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/tessera_files.hpp>

namespace examples {

/// Samples of Parquet files that a model can learn from: labels are 0 or 1, numbers finite. A missing number is 0.
class session_log {
 public:
  session_log(std::vector<std::string> const& files, tessera::sample_schema schema) : log_(files, std::move(schema)) {}

  tessera::sample_schema const& schema() const noexcept { return log_.schema(); }
  std::int64_t rows() const noexcept { return log_.rows(); }
  std::int64_t block_count() const noexcept { return log_.block_count(); }
  std::int64_t rows(std::int64_t block) const noexcept { return log_.rows(block); }
  std::int64_t first_row(std::int64_t block) const noexcept { return log_.first_row(block); }
  std::uint32_t fingerprint() const noexcept { return log_.fingerprint(); }

  void read(tessera::host_exec const& exec, std::int64_t block, tessera::sample_columns& out) const {
    log_.read(exec, block, out);
    auto const samples = out.view();
    auto const refuse = [&](char const* what, std::string const& column, std::int64_t row, float value) {
      throw tessera::error(tessera::errc::incompatible, what, {{"column", column}, {"sample", first_row(block) + row}, {"found", value}});
    };
    for (std::int64_t i = 0; i < samples.size(); ++i)
      if (samples.labels[i] != 0 && samples.labels[i] != 1) refuse("a label is neither 0 nor 1", schema().label, i, samples.labels[i]);
    for (std::int64_t c = 0; c < samples.dense.rows(); ++c)
      for (std::int64_t i = 0; i < samples.size(); ++i)
        if (!std::isfinite(samples.dense(c, i)))
          refuse("a number that is not finite", schema().dense[static_cast<std::size_t>(c)], i, samples.dense(c, i));
  }

 private:
  tessera::parquet_log log_;
};
static_assert(tessera::fingerprinted_source<session_log>);

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
