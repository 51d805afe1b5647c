// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/types.hpp>
#include <tessera/synth/alias_table.hpp>
#include <tessera/synth/planted_model.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What a change does to a feature's list.
enum class session_feature_kind {
  sequence,  ///< the user's last ids, oldest first: new ids come behind, as many old ones leave in front; a session keeps the length
  user,      ///< any other list of the user: a change draws a new list of a new length
  item,      ///< a list of the item in question: changes as `user` does, and is meant to change with nearly every sample
};

/// How long lists are.
enum class list_lengths {
  geometric,  ///< least_length + k has probability (1 - q) q^k, cut off at most_length; q gives the mean mean_length
  uniform,    ///< each length of [least_length, most_length] is equally probable
};

/// One sparse feature of session clicks: a list of ids a sample. Within a session the list stays the same from one sample to the next with
/// probability `stays`; otherwise the list changes as `kind` says.
struct session_feature {
  std::string name{};                                      ///< the column's name, not empty
  session_feature_kind kind = session_feature_kind::user;  ///< what a change does
  std::int64_t group = -1;    ///< features of one group, >= 0, change at the same samples and by as many ids; -1: no group
  double stays = 0.9;         ///< probability in [0, 1], RecD's d(f); features of a group have the same
  std::int64_t most_new = 1;  ///< a change of a sequence brings 1 … most_new ids, equally probable; 1 to 255; one value a group
  list_lengths lengths = list_lengths::geometric;  ///< the law of lengths
  double mean_length = 10;                         ///< ids; geometric lengths alone read it
  std::int64_t least_length = 1;                   ///< ids, at least 0
  std::int64_t most_length = 100;                  ///< ids, least_length to 2^20
  std::int64_t ids = 100'000;                      ///< the list's ids are 0 … ids - 1; at most alias_table::most_numbers
  double exponent = 1.05;                          ///< exponent of the ids' Zipf law, 0 to 64; 0 makes all ids equally probable
  double linear = 0;                               ///< the feature's share of the logit's linear part, 0 to 1e6
  double interest = 0;                             ///< the feature's share of the logit's interest part, 0 to 1e6
};

/// Options of `session_clicks`: the sessions, the features, and the planted model that decides clicks.
struct session_clicks_options {
  std::vector<session_feature> features{};  ///< the sparse features, in the order of the log's columns
  std::int64_t dense_features = 13;         ///< columns of dense features
  double mean_samples = 16.5;               ///< mean samples of a session, 1 to most_samples
  double spread = 1.3;                     ///< deviation of the logarithm of a session's samples; 0 gives every session round(mean_samples)
  std::int64_t most_samples = 5000;        ///< a session has at most so many samples
  std::int64_t window_sessions = 59'000;   ///< sessions of one window of time; each session begins and ends in its window
  std::int64_t windows = 0;                ///< windows of the log; 0 means 2^22 of them
  std::int64_t window_us = 3'600'000'000;  ///< length of a window in microseconds; a window has at most as many samples
  std::int64_t target = -1;                ///< number of the feature that is the item in question; -1: the first item feature, if any
  double base_rate = 0.25;                 ///< share of samples with a click, above 0 and below 1
  double dense_signal = 0.7;               ///< standard deviation of the logit's dense part
  double linear_signal = 0.7;              ///< standard deviation of the logit's linear part, which single ids decide
  double interest_signal = 0.7;            ///< standard deviation of the logit's interest part, which similarity to the target decides
  double head_ids = 1000;                  ///< an id of rank r > head_ids has effects weakened by (head_ids / r)^tail_decay
  double tail_decay = 1;                   ///< exponent of that decay, 0 to 100
  random_seed seed{};                      ///< seed of model and samples
};

namespace detail {

// The probabilities of least_length, least_length + 1, … most_length.
inline std::vector<double> length_weights(session_feature const& feature) {
  auto const more = feature.most_length - feature.least_length;
  std::vector<double> weights(static_cast<std::size_t>(more) + 1, 1);
  if (feature.lengths == list_lengths::uniform) return weights;
  // The mean is least + q + q^2 + … + q^more, which grows with q.
  auto const [low, high] = halve(0, 1, [&](double q) {
    return static_cast<double>(feature.least_length) + q * (1 - std::pow(q, static_cast<double>(more))) / (1 - q) < feature.mean_length;
  });
  auto const q = feature.mean_length > static_cast<double>(feature.least_length) ? (low + high) / 2 : 0;
  for (std::size_t k = 0; k < weights.size(); ++k) weights[k] = (k + 1 < weights.size() ? 1 - q : 1) * std::pow(q, static_cast<double>(k));
  return weights;
}

// The probabilities of 1, 2, … most samples: a log-normal law rounded to the nearest of them, of this mean.
inline std::vector<double> session_size_weights(double mean, double spread, std::int64_t most) {
  std::vector<double> weights(static_cast<std::size_t>(most), 0);
  if (spread == 0) {
    weights[static_cast<std::size_t>(std::lround(mean)) - 1] = 1;
    return weights;
  }
  auto const at_least = [&](double location, std::int64_t samples) {
    return samples <= 1 ? 1 : std::erfc((std::log(static_cast<double>(samples) - 0.5) - location) / spread / std::sqrt(2.0)) / 2;
  };
  auto const is_low = [&](double location) {
    double sum = 0;
    for (std::int64_t n = 1; n <= most; ++n) sum += at_least(location, n);
    return sum < mean;
  };
  auto const location = halve(-100, 100, is_low).first;
  for (std::int64_t n = 1; n <= most; ++n)
    weights[static_cast<std::size_t>(n - 1)] = at_least(location, n) - (n < most ? at_least(location, n + 1) : 0);
  return weights;
}

inline void check_feature(session_feature const& f, std::int64_t number) {
  auto const refuse = [&](char const* what, auto value) {
    throw error(errc::invalid_argument, std::string("session_clicks: ") + what + " of a feature",
                {{"feature", number}, {"name", f.name}, {what, value}});
  };
  if (f.name.empty()) refuse("name", "");
  check_choice("session_clicks", "kind", f.kind, session_feature_kind::item);
  check_choice("session_clicks", "lengths", f.lengths, list_lengths::uniform);
  if (!(f.stays >= 0 && f.stays <= 1)) refuse("stays", f.stays);
  if (f.group < -1) refuse("group", f.group);
  if (f.most_new < 1 || f.most_new > 255) refuse("most_new", f.most_new);
  if (f.least_length < 0 || f.least_length > 1 << 20) refuse("least_length", f.least_length);
  if (f.most_length < f.least_length || f.most_length > 1 << 20) refuse("most_length", f.most_length);
  if (f.lengths == list_lengths::geometric &&
      !(f.mean_length >= static_cast<double>(f.least_length) && f.mean_length <= static_cast<double>(f.most_length)))
    refuse("mean_length", f.mean_length);
  if (f.ids < 1 || f.ids > alias_table::most_numbers) refuse("ids", f.ids);
  if (!(f.exponent >= 0 && f.exponent <= 64)) refuse("exponent", f.exponent);
  if (!(f.linear >= 0 && f.linear <= 1e6)) refuse("linear", f.linear);
  if (!(f.interest >= 0 && f.interest <= 1e6)) refuse("interest", f.interest);
}

// Their sessions and microseconds can still be counted.
inline constexpr std::int64_t most_windows = std::int64_t{1} << 22;

// The number of the target feature, or -1.
inline std::int64_t target_of(session_clicks_options const& options) {
  if (options.target >= 0) return options.target;
  for (std::size_t f = 0; f < options.features.size(); ++f)
    if (options.features[f].kind == session_feature_kind::item) return static_cast<std::int64_t>(f);
  return -1;
}

inline void check_options(session_clicks_options const& o) {
  auto const refuse = [](char const* option, auto value) {
    throw error(errc::invalid_argument, std::string("session_clicks: option ") + option, {{option, value}});
  };
  auto const count = static_cast<std::int64_t>(o.features.size());
  check_planted(o, refuse);
  for (std::int64_t f = 0; f < count; ++f) {
    auto const& feature = o.features[static_cast<std::size_t>(f)];
    check_feature(feature, f);
    for (std::int64_t g = 0; g < f && feature.group >= 0; ++g)
      if (auto const& other = o.features[static_cast<std::size_t>(g)]; other.group == feature.group) {
        if (other.stays != feature.stays || other.most_new != feature.most_new)
          throw error(errc::invalid_argument, "session_clicks: features of one group change otherwise",
                      {{"group", feature.group}, {"feature", g}, {"other feature", f}});
        break;
      }
  }
  if (o.most_samples < 1 || o.most_samples > 1 << 24) refuse("most_samples", o.most_samples);
  if (!(o.mean_samples >= 1 && o.mean_samples <= static_cast<double>(o.most_samples))) refuse("mean_samples", o.mean_samples);
  if (!(o.spread >= 0 && o.spread <= 5)) refuse("spread", o.spread);
  if (o.window_sessions < 1 || o.window_sessions > 1 << 28) refuse("window_sessions", o.window_sessions);
  if (o.windows < 0 || o.windows > most_windows) refuse("windows", o.windows);
  if (o.window_us < 1 || o.window_us > std::int64_t{1} << 40) refuse("window_us", o.window_us);
  if (o.target < -1 || o.target >= count) refuse("target", o.target);
  if (!(o.interest_signal >= 0 && o.interest_signal <= 100)) refuse("interest_signal", o.interest_signal);
}

}  // namespace detail

/// Returns the mean length of a feature's lists, in ids. @pre `session_clicks` accepts the feature.
inline double mean_length(session_feature const& feature) {
  return feature.lengths == list_lengths::uniform ? static_cast<double>(feature.least_length + feature.most_length) / 2
                                                  : feature.mean_length;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
