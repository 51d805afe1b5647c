// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/data/sample_columns.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A data set that gives only what a click model can learn from: labels are 0 or 1, dense values finite. Where a table has others, as a file
/// written by pandas that has NaN for what is missing, reading the block refuses them by name; a null is no NaN, and the source's matter.
/// Looks at each label and dense value once more. Owns its source.
///
///     checked_samples const log(parquet_log({"clicks.parquet"}, schema));
template <sample_source Source>
class checked_samples {
 public:
  explicit checked_samples(Source source) : source_(std::move(source)) {}

  Source const& source() const noexcept { return source_; }
  decltype(auto) schema() const { return source_.schema(); }
  std::int64_t rows() const { return source_.rows(); }
  std::int64_t block_count() const { return source_.block_count(); }
  std::int64_t rows(std::int64_t block) const { return source_.rows(block); }
  std::int64_t first_row(std::int64_t block) const { return source_.first_row(block); }
  std::uint32_t fingerprint() const requires fingerprinted_source<Source> { return source_.fingerprint(); }

  /// @throws tessera::error incompatible naming the file, where the source has `file_of(block)`, the column, the sample's number in the data
  /// set, and what was found; and as the source.
  void read(host_exec const& exec, std::int64_t block, sample_columns& out) const {
    source_.read(exec, block, out);
    auto const samples = out.view();
    for (std::int64_t i = 0; i < samples.size(); ++i)
      if (samples.labels[i] != 0 && samples.labels[i] != 1)
        refuse("a label is neither 0 nor 1", block, schema().label, i, samples.labels[i]);
    for (std::int64_t c = 0; c < samples.dense.rows(); ++c)
      for (std::int64_t i = 0; i < samples.size(); ++i)
        if (!std::isfinite(samples.dense(c, i)))
          refuse("a number that is not finite", block, schema().dense[static_cast<std::size_t>(c)], i, samples.dense(c, i));
  }

 private:
  [[noreturn]] void refuse(char const* what, std::int64_t block, std::string const& column, std::int64_t row, float value) const {
    std::vector<error_value> values;
    if constexpr (requires { source_.file_of(block); }) values.emplace_back("file", source_.file_of(block));
    values.emplace_back("column", column);
    values.emplace_back("sample", source_.first_row(block) + row);
    values.emplace_back("found", value);
    throw error(errc::incompatible, what, std::move(values));
  }

  Source source_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
