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
#include <tessera/data/sample_source.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A data set that gives only what a click model can learn from. The label is 0 or 1, further labels are finite, dense numbers are
/// finite or missing (NaN), and weights are finite and not negative. Reading a block with anything else refuses the block and names what was
/// found. Ids are not looked at. Each read looks at every label, number and weight once more. Owns its source.
///
///     checked_samples const log(parquet_log({"clicks.parquet"}, schema));
template <sample_source Source>
class checked_samples {
 public:
  /// Takes over the source, and reads nothing yet.
  explicit checked_samples(Source source) : source_(std::move(source)) {}

  /// The data set that it checks.
  Source const& source() const noexcept { return source_; }
  sample_schema const& schema() const { return source_.schema(); }
  std::int64_t rows() const { return source_.rows(); }
  std::int64_t block_count() const { return source_.block_count(); }
  std::int64_t rows(std::int64_t block) const { return source_.rows(block); }
  std::int64_t first_row(std::int64_t block) const { return source_.first_row(block); }
  /// The file of a block.
  std::string file_of(std::int64_t block) const requires requires(Source const& s) { s.file_of(block); }
  { return source_.file_of(block); }
  /// The fingerprint of the source.
  std::uint32_t fingerprint() const requires fingerprinted_source<Source> { return source_.fingerprint(); }

  /// `out` becomes the samples of a block.
  /// @throws what the source throws. tessera::error incompatible for a value that no model learns from, naming column, value and the
  /// sample's number in the data set. The error names the file, too, where the source has `file_of(block)`.
  void read(host_exec const& exec, std::int64_t block, sample_columns& out) const {
    source_.read(exec, block, out);
    auto const samples = out.view();
    for (std::int64_t i = 0; i < samples.size(); ++i)
      if (samples.labels[i] != 0 && samples.labels[i] != 1)
        refuse("a label is neither 0 nor 1", block, schema().label, i, samples.labels[i]);
    for (std::int64_t c = 0; c < samples.other_labels.rows(); ++c)
      for (std::int64_t i = 0; i < samples.size(); ++i)
        if (!std::isfinite(samples.other_labels(c, i)))
          refuse("a label that is not finite", block, schema().other_labels[static_cast<std::size_t>(c)], i, samples.other_labels(c, i));
    for (std::int64_t c = 0; c < samples.dense.rows(); ++c)
      for (std::int64_t i = 0; i < samples.size(); ++i)
        if (std::isinf(samples.dense(c, i)))
          refuse("a number that is not finite", block, schema().dense[static_cast<std::size_t>(c)], i, samples.dense(c, i));
    for (std::int64_t i = 0; i < samples.weights.size(); ++i)
      if (!std::isfinite(samples.weights[i]) || samples.weights[i] < 0)
        refuse("a weight is neither 0 nor a positive number", block, schema().weight, i, samples.weights[i]);
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
