// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/hot/hot_inputs.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

TESSERA_INLINE input_thresholds::input_thresholds(access_profile const& profile, std::vector<table_spec> const& specs,
                                                  std::vector<double> const& percents, hot_row_options const& options)
    : profile_(&profile), percents_(percents), hot_(percents.size()) {
  hot_thresholds(profile, specs, percents, options);
  for (auto const& spec : specs) is_small_.push_back(is_small(spec, options));
}

TESSERA_INLINE void input_thresholds::add(host_exec const& exec, batch_view const& batch, std::vector<table_feature> const& features) {
  check_keys_of_features("hot_input_shares", batch, features);
  auto const view = batch.inverse_keyed();
  for (auto const& feature : features)
    if (feature.table < 0 || feature.table >= static_cast<std::int64_t>(is_small_.size()))
      throw error(errc::out_of_range, "hot_input_shares: a feature of no table", {{"table", feature.table}, {"tables", is_small_.size()}});
  // Of each sample, the share of its rarest id.
  buffer<double> rarest(exec, view.samples);
  std::fill(rarest.begin(), rarest.end(), std::numeric_limits<double>::infinity());
  for_each_piece(exec, view.samples, 1024, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t k = 0; k < view.keys(); ++k) {
      auto const t = static_cast<std::size_t>(features[static_cast<std::size_t>(k)].table);
      if (is_small_[t]) continue;
      auto const& accesses = profile_->tables[t];
      auto const rows = view.distinct.key(k);
      auto const inverse = view.inverse(k);
      for (auto i = first; i < last; ++i)
        for (auto const id : rows.row(inverse.empty() ? i : inverse[i])) {
          auto const count = accesses.count_of(id);
          rarest[i] = std::min(rarest[i], count == 0 ? -1 : percent_of(count, accesses.accesses()));
        }
    }
  });
  for (std::size_t p = 0; p < percents_.size(); ++p)
    for (auto const share : rarest) hot_[p] += share >= percents_[p] ? 1 : 0;
  samples_ += view.samples;
}

TESSERA_INLINE std::vector<double> input_thresholds::shares() const {
  std::vector<double> all;
  for (auto const hot : hot_) all.push_back(samples_ == 0 ? 0 : static_cast<double>(hot) / static_cast<double>(samples_));
  return all;
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
