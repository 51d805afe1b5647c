// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <tessera/core/config.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {
inline double share_of(std::int64_t part, std::int64_t whole) noexcept {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}
}  // namespace detail

/// What a profile counts, and in how much memory.
struct profile_options {
  std::int64_t id_limit = 1 << 18;    ///< distinct ids held of a column, and sessions held: below 54 bytes each, 107 while growing
  std::int64_t list_limit = 1 << 18;  ///< different lists of sessions that are held for a column: twice as many bytes each
  std::vector<double> quantiles{0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99};  ///< shares in [0, 1]
  std::vector<double> top_shares{0.001, 0.01, 0.1};                        ///< shares of the distinct ids, in [0, 1]

  friend bool operator==(profile_options const&, profile_options const&) = default;
};

/// A number of things: counted, or estimated from a random sample of them.
struct estimated_count {
  std::int64_t value = 0;
  bool is_exact = true;
  double standard_error = 0;  ///< as a share of `value`; 0 where exact

  friend bool operator==(estimated_count const&, estimated_count const&) = default;
};

/// A quantile: at least a share `share` of some numbers is `value` or less.
struct quantile_value {
  double share = 0;
  double value = 0;

  friend bool operator==(quantile_value const&, quantile_value const&) = default;
};

/// What a column of numbers is to a model.
enum class number_role : std::uint8_t { label, other_label, weight, dense };

/// The role as words, "other label" for instance, as profiles print it.
constexpr char const* name_of(number_role role) noexcept {
  switch (role) {
    case number_role::label: return "label";
    case number_role::other_label: return "other label";
    case number_role::weight: return "weight";
    case number_role::dense: return "dense";
  }
  return "";
}

/// What a column of numbers holds. Of a label, one_share() is the rate of ones.
struct number_profile {
  std::string name;
  number_role role = number_role::dense;
  std::int64_t rows = 0;
  std::int64_t missing = 0;   ///< rows of NaN
  std::int64_t infinite = 0;  ///< numbers that count neither in mean nor deviation
  std::int64_t zeros = 0;
  std::int64_t ones = 0;
  // NaN where there are no numbers to take it from.
  double least = std::numeric_limits<double>::quiet_NaN();
  double largest = std::numeric_limits<double>::quiet_NaN();
  double mean = std::numeric_limits<double>::quiet_NaN();
  double deviation = std::numeric_limits<double>::quiet_NaN();  ///< of all numbers, not of a sample
  /// The quantiles that options().quantiles asks for, approximate: towards 0 by less than 1/128 of the value. Integers below 256 are exact.
  /// Empty without numbers.
  std::vector<quantile_value> quantiles{};

  /// Rows that have a number, finite or not.
  std::int64_t numbers() const noexcept { return rows - missing; }
  /// The share of rows without a number; 0 without rows.
  double missing_share() const noexcept { return detail::share_of(missing, rows); }
  /// The share of numbers that are 0; 0 without numbers.
  double zero_share() const noexcept { return detail::share_of(zeros, numbers()); }
  /// The share of numbers that are 1; 0 without numbers.
  double one_share() const noexcept { return detail::share_of(ones, numbers()); }

  friend bool operator==(number_profile const&, number_profile const&) = default;
};

/// How many ids the rows of a column have.
struct length_profile {
  std::int64_t least = 0;
  std::int64_t largest = 0;
  double mean = 0;
  std::vector<quantile_value> quantiles{};  ///< approximate, as those of numbers; lengths below 256 are exact. Empty without rows.

  friend bool operator==(length_profile const&, length_profile const&) = default;
};

/// How skewed accesses are: the share of lookups that go to the most frequent ids.
struct top_ids {
  double ids = 0;             ///< the share of distinct ids, which are one at least
  double lookups = 0;         ///< their share of lookups; 0 without lookups
  double standard_error = 0;  ///< of `lookups`, in the same unit; 0 where exact

  friend bool operator==(top_ids const&, top_ids const&) = default;
};

/// What repeats of a column inside sessions. The sessions that were looked at are all of them or a random sample.
struct session_repeats {
  double sessions = 1;         ///< the share of sessions that were looked at
  std::int64_t rows = 0;       ///< in these sessions
  std::int64_t kept_rows = 0;  ///< rows left where every session keeps each list of ids once
  std::int64_t ids = 0;        ///< in `rows`
  std::int64_t kept_ids = 0;   ///< in `kept_rows`

  /// Whether all sessions were looked at.
  bool is_exact() const noexcept { return sessions == 1; }
  /// How many times fewer rows there are without repeats; 1 where there are no rows.
  double row_factor() const noexcept { return kept_rows == 0 ? 1 : detail::share_of(rows, kept_rows); }
  /// How many times fewer ids there are without repeats; 1 where there are no ids.
  double id_factor() const noexcept { return kept_ids == 0 ? 1 : detail::share_of(ids, kept_ids); }

  friend bool operator==(session_repeats const&, session_repeats const&) = default;
};

/// What a column of single ids or of lists holds. A `missing_id` does not count as an id, in a list neither.
struct id_profile {
  std::string name;
  bool is_single = false;
  std::int64_t rows = 0;
  std::int64_t missing = 0;  ///< rows without an id
  std::int64_t lookups = 0;  ///< ids in all rows
  estimated_count distinct{};
  length_profile lengths{};
  std::vector<top_ids> top{};                ///< of options().top_shares; exact where `distinct` is
  std::optional<session_repeats> repeats{};  ///< none without sessions, or where one session alone was too large to look at

  /// The share of rows without an id; 0 without rows.
  double missing_share() const noexcept { return detail::share_of(missing, rows); }

  friend bool operator==(id_profile const&, id_profile const&) = default;
};

/// The sessions of a data set.
struct session_profile {
  std::string name;
  estimated_count sessions{};
  double mean_samples = 0;                  ///< of a session; estimated where `sessions` is
  std::vector<quantile_value> quantiles{};  ///< of a session's samples: exact where `sessions` is, else of a random sample of sessions

  friend bool operator==(session_profile const&, session_profile const&) = default;
};

/// The first and the last time, in the unit of the data set.
struct time_profile {
  std::string name;
  std::int64_t least = 0;
  std::int64_t largest = 0;

  friend bool operator==(time_profile const&, time_profile const&) = default;
};

/// What a data set's columns hold.
struct data_profile {
  std::int64_t rows = 0;
  std::vector<number_profile> numbers{};  ///< the label, other labels, the weight, dense columns in the schema's order
  std::vector<id_profile> ids{};          ///< sparse columns in the schema's order
  std::optional<session_profile> sessions{};
  std::optional<time_profile> times{};  ///< none without rows

  friend bool operator==(data_profile const&, data_profile const&) = default;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
