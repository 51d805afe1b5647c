// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/radix_sort.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The sources of a gather, sorted by the target that each reads: source sources[i] reads target targets[i]. Trivially copyable.
struct source_pairs_view {
  vector_view<std::int64_t const> targets;  ///< (sources,), ascending
  vector_view<std::int64_t const> sources;  ///< (sources,), in the order given among those of one target
};

/// The sources of a gather as a list for each target (CSR). Trivially copyable.
struct source_lists_view {
  vector_view<std::int64_t const> starts;   ///< (targets + 1,), ascending from 0
  vector_view<std::int64_t const> sources;  ///< (>= starts[targets],), in the order given among those of one target

  /// How many targets have a list, perhaps an empty one.
  TESSERA_HOST_DEVICE constexpr std::int64_t targets() const noexcept { return starts.size() - 1; }
  /// The sources of one target, in place.
  TESSERA_HOST_DEVICE constexpr vector_view<std::int64_t const> of(std::int64_t target) const noexcept(!checks_indices) {
    return sources.slice(starts[target], starts[target + 1] - starts[target]);
  }
};

/// Sorts the sources of a gather by the target that they read. Memory and work follow the sources, however many targets there are.
/// Move-only.
///
/// `target_of` (sources,): source i reads target target_of[i] of `targets`; of {2, 0, 2} `targets()` becomes {0, 2, 2}, `sources()` {1, 0,
/// 2}. Sources whose target is negative or not below `targets` stand behind all others, with target `targets`. Memory: 16 bytes a source,
/// and 16 more while it sorts; nothing waits. @throws tessera::error invalid_argument for negative `targets`.
template <execution Exec = host_exec>
class source_pairs {
 public:
  /// Sorts a copy of `target_of` (sources,).
  source_pairs(Exec const& exec, vector_view<std::int64_t const> target_of, std::int64_t targets);
  /// Source source_of[i] reads target target_of[i]; takes the memory over. @throws tessera::error shape_mismatch, too.
  source_pairs(Exec const& exec, buffer<std::int64_t, Exec> target_of, buffer<std::int64_t, Exec> source_of, std::int64_t targets);

  /// (sources,), ascending.
  vector_view<std::int64_t const> targets() const noexcept { return targets_.view(); }
  /// (sources,), in the order given among those of one target.
  vector_view<std::int64_t const> sources() const noexcept { return sources_.view(); }
  source_pairs_view view() const noexcept { return {targets(), sources()}; }

 private:
  template <execution>
  friend class source_lists;

  buffer<std::int64_t, Exec> targets_, sources_;
};

/// Lists for each target the sources that read it, in ascending order: what the backward of a gather goes through. Move-only.
///
/// The arguments are those of `source_pairs`; of {2, 0, 2} and 3 targets `starts()` becomes {0, 1, 1, 3}, `sources()` {1, 0, 2}. Sources
/// without a target stand behind all lists. Memory: 8 bytes a target and 8 a source, or while it sorts 32 a source. The host counts instead
/// of sorting where there are at most 65,536 of either. Nothing waits. @throws tessera::error as `source_pairs`.
template <execution Exec = host_exec>
class source_lists {
 public:
  /// Lists the sources of `target_of` (sources,).
  source_lists(Exec const& exec, vector_view<std::int64_t const> target_of, std::int64_t targets);
  /// Source source_of[i] reads target target_of[i]; takes the memory over. @throws tessera::error shape_mismatch, too.
  source_lists(Exec const& exec, buffer<std::int64_t, Exec> target_of, buffer<std::int64_t, Exec> source_of, std::int64_t targets);

  /// Where the list of each target begins in `sources()`, (targets + 1,), ascending from 0.
  vector_view<std::int64_t const> starts() const noexcept { return starts_.view(); }
  /// (sources,), in the order given among those of one target.
  vector_view<std::int64_t const> sources() const noexcept { return sources_.view(); }
  source_lists_view view() const noexcept { return {starts(), sources()}; }

 private:
  // `make_pairs()`: the pairs of the same sources, where these are too many to be counted.
  template <class MakePairs>
  void list(Exec const& exec, vector_view<std::int64_t const> target_of, std::int64_t const* source_of, std::int64_t targets,
            MakePairs const& make_pairs);

  buffer<std::int64_t, Exec> starts_, sources_;
};

/// Counts the lists of `source_lists` into memory of the caller's, on the calling thread. So several threads can make a list each.
///
/// `target_of` (sources,); `starts` (targets + 1,) and `sources` (sources,), both written. @throws tessera::error shape_mismatch.
inline void count_sources(vector_view<std::int64_t const> target_of, vector_view<std::int64_t> starts, vector_view<std::int64_t> sources);

namespace detail {

inline constexpr std::int64_t most_counted_sources = std::int64_t{1} << 16;  // and targets
inline constexpr std::int64_t sources_per_piece = 4096;

/// The target that a source is sorted by: `targets` where it has none.
TESSERA_HOST_DEVICE constexpr std::int64_t sorted_target(std::int64_t target, std::int64_t targets) noexcept {
  return target < 0 || target > targets ? targets : target;
}

/// `source_of`: nullptr is source i.
inline void count_pairs(vector_view<std::int64_t const> target_of, std::int64_t const* source_of, vector_view<std::int64_t> starts,
                        vector_view<std::int64_t> sources) {
  auto const targets = starts.size() - 1;
  std::fill(starts.begin(), starts.end(), std::int64_t{0});
  for (auto const target : target_of)
    if (target >= 0 && target < targets) ++starts[target];
  std::int64_t before = 0;
  for (auto& start : starts) start = before += start;  // where the target's sources end
  auto none = target_of.size();
  for (auto i = target_of.size() - 1; i >= 0; --i) {
    auto const target = target_of[i];
    sources[target >= 0 && target < targets ? --starts[target] : --none] = source_of == nullptr ? i : source_of[i];
  }
}

struct source_lists_tag {};

template <>
struct back_end<source_lists_tag, host_exec> {
  static bool counts(std::int64_t sources, std::int64_t targets) noexcept {
    return sources <= most_counted_sources && targets <= most_counted_sources;
  }

  /// `sources` may be nullptr: nothing is written there.
  static void number(host_exec const& exec, vector_view<std::int64_t const> target_of, std::int64_t targets, std::int64_t* to,
                     std::int64_t* sources) {
    for_each_index(exec, target_of.size(), sources_per_piece, [=](std::int64_t i) {
      to[i] = sorted_target(target_of[i], targets);
      if (sources != nullptr) sources[i] = i;
    });
  }

  // Each piece of the targets finds its first source by search, and the others from there on in steps that double.
  static void find_starts(host_exec const& exec, vector_view<std::int64_t const> sorted, vector_view<std::int64_t> starts) {
    for_each_piece(exec, starts.size(), sources_per_piece, [=](std::int64_t first, std::int64_t last) {
      auto const *at = std::lower_bound(sorted.begin(), sorted.end(), first), *const end = sorted.end();
      for (auto target = first; target < last; ++target) {
        for (std::int64_t step = 1; at != end && *at < target; step *= 2) {
          auto const* const next = at + std::min<std::int64_t>(step, end - at);
          if (next == end || *next >= target) {
            at = std::lower_bound(at, next, target);
            break;
          }
          at = next;
        }
        starts[target] = at - sorted.begin();
      }
    });
  }
};

inline void check_targets(std::int64_t targets) {
  if (targets < 0) throw error(errc::invalid_argument, "source_lists: negative number of targets", {{"targets", targets}});
}

inline void check_pairs(std::int64_t targets_given, std::int64_t sources, std::int64_t targets) {
  check_targets(targets);
  if (targets_given != sources)
    throw error(errc::shape_mismatch, "source_lists: one target a source", {{"targets given", targets_given}, {"sources", sources}});
}

template <execution Exec>
void sort_by_target(Exec const& exec, std::int64_t targets, buffer<std::int64_t, Exec>& target_of, buffer<std::int64_t, Exec>& source_of) {
  radix_sort_pairs(exec, target_of, source_of, {0, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(targets)))});
}

}  // namespace detail

inline void count_sources(vector_view<std::int64_t const> target_of, vector_view<std::int64_t> starts, vector_view<std::int64_t> sources) {
  if (starts.empty() || sources.size() != target_of.size())
    throw error(errc::shape_mismatch, "count_sources: one start a target and one more, one source a target given",
                {{"starts", starts.size()}, {"targets given", target_of.size()}, {"sources", sources.size()}});
  detail::count_pairs(target_of, nullptr, starts, sources);
}

template <execution Exec>
source_pairs<Exec>::source_pairs(Exec const& exec, vector_view<std::int64_t const> target_of, std::int64_t targets) {
  detail::check_targets(targets);
  targets_.resize(exec, target_of.size());
  sources_.resize(exec, target_of.size());
  detail::back_end<detail::source_lists_tag, Exec>::number(exec, target_of, targets, targets_.data(), sources_.data());
  detail::sort_by_target(exec, targets, targets_, sources_);
}

template <execution Exec>
source_pairs<Exec>::source_pairs(Exec const& exec, buffer<std::int64_t, Exec> target_of, buffer<std::int64_t, Exec> source_of,
                                 std::int64_t targets)
    : targets_(std::move(target_of)), sources_(std::move(source_of)) {
  detail::check_pairs(targets_.size(), sources_.size(), targets);
  detail::back_end<detail::source_lists_tag, Exec>::number(exec, std::as_const(targets_).view(), targets, targets_.data(), nullptr);
  detail::sort_by_target(exec, targets, targets_, sources_);
}

template <execution Exec>
source_lists<Exec>::source_lists(Exec const& exec, vector_view<std::int64_t const> target_of, std::int64_t targets) {
  detail::check_targets(targets);
  list(exec, target_of, nullptr, targets, [&] { return source_pairs<Exec>(exec, target_of, targets); });
}

template <execution Exec>
source_lists<Exec>::source_lists(Exec const& exec, buffer<std::int64_t, Exec> target_of, buffer<std::int64_t, Exec> source_of,
                                 std::int64_t targets) {
  detail::check_pairs(target_of.size(), source_of.size(), targets);
  list(exec, std::as_const(target_of).view(), source_of.data(), targets,
       [&] { return source_pairs<Exec>(exec, std::move(target_of), std::move(source_of), targets); });
}

template <execution Exec>
template <class MakePairs>
void source_lists<Exec>::list(Exec const& exec, vector_view<std::int64_t const> target_of, std::int64_t const* source_of,
                              std::int64_t targets, MakePairs const& make_pairs) {
  using back_end = detail::back_end<detail::source_lists_tag, Exec>;
  if (back_end::counts(target_of.size(), targets)) {
    starts_.resize(exec, targets + 1);
    sources_.resize(exec, target_of.size());
    return detail::count_pairs(target_of, source_of, starts_.view(), sources_.view());
  }
  source_pairs<Exec> pairs = make_pairs();
  starts_.resize(exec, targets + 1);
  back_end::find_starts(exec, pairs.targets(), starts_.view());
  sources_ = std::move(pairs.sources_);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
