// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/reader.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/hot/access_profile.hpp>
#include <tessera/hot/choose_hot_rows.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/tensor/batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Returns the share of the reader's samples, from 0 to 1, that each threshold makes hot: (percents,). A threshold is in percent of a table's
/// accesses. One epoch is read, once. A sample without ids is hot at every threshold.
///
///     sampled_blocks const rest(log, {.percent = 5, .rest = true});  // blocks that the profile did not see
///     sample_reader unseen(exec, rest, prepare, {.batch_size = 4096});
///     auto const shares = hot_input_shares(exec, unseen, features, profile, specs, percents);
///
/// A profile knows its own samples better than others: shares of those that it has seen are too high. Source: FAE, Figure 5.
/// @throws tessera::error what the reader throws; as `hot_thresholds`; shape_mismatch for batches of other keys than features; out_of_range for a
/// feature of no table.
template <reader Reader>
std::vector<double> hot_input_shares(host_exec const& exec, Reader& samples, std::vector<table_feature> const& features,
                                     access_profile const& profile, std::vector<table_spec> const& specs,
                                     std::vector<double> const& percents, hot_row_options const& options = {});

namespace detail {

/// Counts samples by the thresholds at which they are hot.
class input_thresholds {
 public:
  /// Refuses what `hot_thresholds` refuses.
  input_thresholds(access_profile const& profile, std::vector<table_spec> const& specs, std::vector<double> const& percents,
                   hot_row_options const& options);
  void add(host_exec const& exec, batch_view const& batch, std::vector<table_feature> const& features);
  std::vector<double> shares() const;

 private:
  access_profile const* profile_;
  std::vector<double> percents_;
  std::vector<bool> is_small_;
  std::vector<std::int64_t> hot_;  // samples that each threshold makes hot
  std::int64_t samples_ = 0;
};

}  // namespace detail

template <reader Reader>
std::vector<double> hot_input_shares(host_exec const& exec, Reader& samples, std::vector<table_feature> const& features,
                                     access_profile const& profile, std::vector<table_spec> const& specs,
                                     std::vector<double> const& percents, hot_row_options const& options) {
  detail::input_thresholds thresholds(profile, specs, percents, options);
  for (batch_view batch; samples.next(exec, batch);) thresholds.add(exec, batch, features);
  return thresholds.shares();
}

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/hot/hot_inputs.ipp>
#endif
