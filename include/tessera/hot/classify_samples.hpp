// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/picked_samples.hpp>
#include <tessera/data/reader.hpp>
#include <tessera/data/sample_classes.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/sample_source.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/hot/access_profile.hpp>
#include <tessera/hot/hot_rows.hpp>
#include <tessera/tensor/batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Writes whether each sample of a batch is hot: whether the rows of all its ids are. `out` (samples,) gets 1 or 0. A sample without ids is
/// hot. Samples are shared out to the threads. Key k of the batch reads the table of feature k.
/// @throws tessera::error shape_mismatch for a batch of other keys than features, or another `out`; out_of_range for a feature of no table.
void classify_batch(host_exec const& exec, batch_view const& batch, std::vector<table_feature> const& features, hot_rows const& hot,
                    vector_view<std::uint8_t> out);

/// Says of each sample that the reader gives in an epoch whether it is hot.
///
///     sample_reader all(exec, log, prepare, {.batch_size = 65536});  // of the whole data set
///     auto const classes = classify_samples(exec, all, features, hot);
///     picked_samples const hot_log(log, classes, batch_class::hot), cold_log(log, classes, batch_class::cold);
///
/// Batches name the samples' numbers in the data set (`batch_view::sample_ids`), each once. Where the reader tells its data set, by
/// `source()`, all of its samples come, and the classes have its fingerprint. Source: FAE, Section 4.2.
/// @throws tessera::error what the reader throws, and as `classify_batch`. invalid_argument for a batch that does not number its samples, and
/// for a sample that comes twice, or not at all.
template <reader Reader>
sample_classes classify_samples(host_exec const& exec, Reader& all, std::vector<table_feature> const& features, hot_rows const& hot);

/// Hands the hot samples of a data set to one writer, the cold ones to another, in their order. A writer is anything with
/// `append(exec, samples)`; the caller closes it. So files of a class stand in any format, for programs that read no classes.
/// @throws tessera::error as `picked_samples`; what data set and writers throw.
template <sample_source Source, class HotWriter, class ColdWriter>
void split_by_class(host_exec const& exec, Source const& source, sample_classes const& classes, HotWriter& hot, ColdWriter& cold);

namespace detail {

// Clears the flags of those of a key's rows [first, last) that have a cold id.
void clear_cold(jagged_view<std::int64_t const> rows, table_hot_rows const& hot, std::int64_t first, std::int64_t last,
                std::uint8_t* flags) noexcept;

/// Collects the classes of samples that come in any order.
class collected_classes {
 public:
  void add(host_exec const& exec, batch_view const& batch, std::vector<table_feature> const& features, hot_rows const& hot);
  // Of so many samples at least.
  sample_classes finish(std::int64_t samples, std::uint32_t data, std::uint32_t rows) const;

 private:
  static constexpr std::uint8_t unknown_class = 2;

  std::vector<std::uint8_t> classes_;  // of each sample so far: 0 cold, 1 hot, or `unknown_class`
  std::vector<std::uint8_t> of_batch_;
};

}  // namespace detail

template <reader Reader>
sample_classes classify_samples(host_exec const& exec, Reader& all, std::vector<table_feature> const& features, hot_rows const& hot) {
  detail::collected_classes classes;
  for (batch_view batch; all.next(exec, batch);) classes.add(exec, batch, features, hot);
  std::uint32_t data = 0;
  std::int64_t samples = 0;
  if constexpr (requires { all.source().fingerprint(); }) data = all.source().fingerprint();
  if constexpr (requires { all.source().rows(); }) samples = all.source().rows();
  return classes.finish(samples, data, hot.digest());
}

template <sample_source Source, class HotWriter, class ColdWriter>
void split_by_class(host_exec const& exec, Source const& source, sample_classes const& classes, HotWriter& hot, ColdWriter& cold) {
  check_classes("split_by_class", source, classes);
  sample_columns block, of_class(source.schema());
  std::vector<std::int64_t> rows[2];
  for (std::int64_t b = 0; b < source.block_count(); ++b) {
    source.read(exec, b, block);
    detail::check_block_rows("split_by_class", b, block.size(), source.rows(b));
    for (auto& of_one : rows) of_one.clear();
    for (std::int64_t i = 0; i < block.size(); ++i) rows[classes.is_hot(source.first_row(b) + i) ? 1 : 0].push_back(i);
    auto const hand_on = [&](std::vector<std::int64_t> const& some, auto& writer) {
      if (some.empty()) return;
      of_class.clear();
      of_class.append(exec, block.view(), vector_view<std::int64_t const>(some));
      writer.append(exec, of_class.view());
    };
    hand_on(rows[1], hot);
    hand_on(rows[0], cold);
  }
}

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/hot/classify_samples.ipp>
#endif
