// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/partial_inverse_keyed_jagged.hpp>
#include <tessera/tensor/row_copies.hpp>
#include <tessera/tensor/run_overlaps.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Lets each session's lists of a feature share the ids in which they overlap: a batch becomes a partial IKJT.
///
/// `batch` is a KJT whose keys have a row a sample each; the result is unnamed of a view, and has the names of an owner. `sessions`
/// (samples,): the session of each sample, any number; samples of a session need not follow each other. A list takes the place of the
/// longest overlap, bit for bit and with its weights, with an earlier run of its session and feature: within the run, past its end (ids
/// were appended, the list shifted), before its begin (ids came in front), or both; the run then grows by what is new. Without an overlap
/// it becomes a run. Runs of a key stand by session, in the order of their first lists.
///
/// A list of n ids is compared with the last runs of its session until 32 n + 1024 ids have been looked at; overlaps with what came earlier
/// are not found. Those searches are linear, so work is bounded for any lists. One thread does all samples of a key and session. On the
/// host, where batches are made; `partial_inverse_keyed_jagged::copy_of` takes the result to a device. Workspace: two values, weights and
/// an offset more an id, 64 bytes a row. @throws tessera::error shape_mismatch naming a key with other rows. Source: RecD, Section 7; the
/// search is Knuth, Morris and Pratt's.
template <class T, class Offset>
partial_inverse_keyed_jagged<std::remove_const_t<T>, Offset> deduplicate_partial(host_exec const& exec, keyed_jagged_view<T, Offset> batch,
                                                                                 vector_view<std::int64_t const> sessions,
                                                                                 result_room room = {});
template <class T, class Offset>
partial_inverse_keyed_jagged<T, Offset> deduplicate_partial(host_exec const& exec, keyed_jagged<T, Offset> const& batch,
                                                            vector_view<std::int64_t const> sessions, result_room room = {});

namespace detail {

/// Samples by session: those of session s, in their order, are samples[first_of[s], first_of[s + 1]). Sessions in the order of their first.
struct session_order {
  std::int64_t sessions = 0;
  buffer<std::int64_t> samples, first_of;

  session_order(host_exec const& exec, vector_view<std::int64_t const> ids) : samples(exec, ids.size()), first_of(exec, ids.size() + 1) {
    id_map numbers;
    buffer<std::int64_t> session(exec, ids.size());
    std::fill(first_of.begin(), first_of.end(), std::int64_t{0});
    for (std::int64_t i = 0; i < ids.size(); ++i) {
      session[i] = i > 0 && ids[i] == ids[i - 1] ? session[i - 1] : numbers.insert(exec, ids[i]).first;
      ++first_of[session[i]];
    }
    sessions = numbers.size();
    std::int64_t sum = 0;
    for (std::int64_t s = 0; s <= sessions; ++s) sum += std::exchange(first_of[s], sum);
    for (std::int64_t i = 0; i < ids.size(); ++i) samples[first_of[session[i]]++] = i;
    for (auto s = sessions; s > 0; --s) first_of[s] = first_of[s - 1];
    first_of[0] = 0;
  }
};

/// A number of each key and session, (keys, sessions); once summed, of all before, and of all at the end.
class session_numbers {
 public:
  session_numbers(host_exec const& exec, std::int64_t keys, std::int64_t sessions) : numbers_(exec, keys * sessions + 1) {}
  std::int64_t& operator[](std::int64_t i) { return numbers_[i]; }
  std::int64_t operator[](std::int64_t i) const { return numbers_[i]; }
  /// From counts to how many come before.
  void sum() {
    std::int64_t before = 0;
    numbers_[numbers_.size() - 1] = 0;
    for (auto& number : numbers_) before += std::exchange(number, before);
  }

 private:
  buffer<std::int64_t> numbers_;
};

struct partial_deduplication {
  static constexpr std::int64_t samples_per_piece = 256;

  template <class T, class Offset>
  static partial_inverse_keyed_jagged<T, Offset> run(host_exec const& exec, keyed_jagged_view<T const, Offset> in,
                                                     vector_view<std::int64_t const> ids, std::vector<std::string> const* names,
                                                     result_room room) {
    check_rows("deduplicate_partial", "batch", in);
    for (std::int64_t key = 0; key < in.keys; ++key)
      if (in.rows(key) != ids.size())
        throw error(errc::shape_mismatch, "deduplicate_partial: a row a sample in every key",
                    {{"key", key_label(names, key)}, {"rows", in.rows(key)}, {"sessions", ids.size()}});
    session_order const order(exec, ids);
    workspace<T, Offset> work(exec, in, order);
    for_each_session(exec, in.keys, order, [&](std::int64_t key, std::int64_t s) { lay(in, order, key, s, work); });
    work.runs_before.sum();
    work.values_before.sum();

    auto const all = in.keys * order.sessions;
    check_room("deduplicate_partial", work.values_before[all], room);
    auto runs = keyed_jagged<T, Offset>::with_room(exec, in.keys, work.runs_before[all], work.values_before[all], in.weighted());
    for (std::int64_t key = 0; key <= in.keys; ++key) runs.first_row()[key] = work.runs_before[key * order.sessions];
    runs.offsets()[work.runs_before[all]] = static_cast<Offset>(work.values_before[all]);
    for_each_session(exec, in.keys, order, [&](std::int64_t key, std::int64_t s) { finish(order, key, s, work, runs); });
    return partial_inverse_keyed_jagged<T, Offset>::from_parts(std::move(runs), std::move(work.slices), ids.size());
  }

 private:
  template <class T, class Offset>
  struct workspace {
    std::int64_t samples;
    session_numbers values_of, runs_before, values_before;  // values of the input before a key's session; counts first, then sums
    buffer<T> values;                                       // (2 * values of the input,)
    buffer<float> weights;
    buffer<Offset> borders;                // (values of the input,)
    buffer<session_run> runs;              // (keys, samples), those of a session from its first sample in order on
    buffer<std::int64_t> heights, run_of;  // (keys, samples): likewise; of each sample
    buffer<run_slice<Offset>> slices;      // (keys, samples): first from the first value of the run's first list

    workspace(host_exec const& exec, keyed_jagged_view<T const, Offset> in, session_order const& order)
        : samples(order.samples.size()),
          values_of(exec, in.keys, order.sessions),
          runs_before(exec, in.keys, order.sessions),
          values_before(exec, in.keys, order.sessions),
          values(exec, 2 * in.size()),
          weights(exec, in.weighted() ? 2 * in.size() : 0),
          borders(exec, in.size()),
          runs(exec, in.keys * samples),
          heights(exec, in.keys * samples),
          run_of(exec, in.keys * samples),
          slices(exec, in.keys * samples) {
      for_each_session(exec, in.keys, order, [&](std::int64_t key, std::int64_t s) {
        auto const rows = in.key(key);
        std::int64_t sum = 0;
        for (auto i = order.first_of[s]; i < order.first_of[s + 1]; ++i) sum += rows.length(order.samples[i]);
        values_of[key * order.sessions + s] = sum;
      });
      values_of.sum();
    }
    typename session_runs<T, Offset>::memory memory_of(std::int64_t key, std::int64_t s, session_order const& order) {
      auto const first = values_of[key * order.sessions + s], first_run = key * samples + order.first_of[s];
      return {values.data() + 2 * first, weights.empty() ? nullptr : weights.data() + 2 * first, borders.data() + first,
              runs.data() + first_run, heights.data() + first_run};
    }
  };

  // f(key, session) for all, those of about as many samples by one thread at a time.
  template <class F>
  static void for_each_session(host_exec const& exec, std::int64_t keys, session_order const& order, F const& f) {
    auto const pieces = divide_up(order.samples.size(), samples_per_piece);
    auto const first_session = [&](std::int64_t piece) {
      auto const* const first_of = order.first_of.data();
      return std::lower_bound(first_of, first_of + order.sessions, piece * samples_per_piece) - first_of;
    };
    exec.run(keys * pieces, [&](std::int64_t chunk) {
      auto const key = chunk / pieces, piece = chunk % pieces;
      for (auto s = first_session(piece), last = first_session(piece + 1); s < last; ++s) f(key, s);
    });
  }

  template <class T, class Offset>
  static void lay(keyed_jagged_view<T const, Offset> in, session_order const& order, std::int64_t key, std::int64_t s,
                  workspace<T, Offset>& work) {
    auto const rows = in.key(key);
    session_runs<T, Offset> runs(work.memory_of(key, s, order));
    value_list<T> before;
    typename session_runs<T, Offset>::place place{};
    for (auto i = order.first_of[s]; i < order.first_of[s + 1]; ++i) {
      auto const at = key * work.samples + order.samples[i];
      auto const begin = rows.begin_of(order.samples[i]);
      value_list<T> const list{in.values + begin, in.weighted() ? in.weights + begin : nullptr, rows.length(order.samples[i])};
      work.run_of[at] = -1;
      work.slices[at] = {};
      if (list.size == 0) continue;
      if (list.size != before.size || !list.same(before)) place = runs.add(list);
      before = list;
      work.run_of[at] = place.run;
      work.slices[at] = {static_cast<Offset>(place.first), static_cast<Offset>(list.size)};
    }
    work.runs_before[key * order.sessions + s] = runs.count();
    work.values_before[key * order.sessions + s] = runs.values();
  }

  template <class T, class Offset>
  static void finish(session_order const& order, std::int64_t key, std::int64_t s, workspace<T, Offset>& work,
                     keyed_jagged<T, Offset>& result) {
    auto const from = work.memory_of(key, s, order);
    auto const first_run = work.runs_before[key * order.sessions + s], count = work.runs_before[key * order.sessions + s + 1] - first_run;
    auto to = work.values_before[key * order.sessions + s];
    for (std::int64_t r = 0; r < count; ++r) {
      auto& run = from.runs[r];
      result.offsets()[first_run + r] = static_cast<Offset>(to);
      std::copy_n(from.values + run.begin, run.size, result.view().values + to);
      if (from.weights != nullptr) std::copy_n(from.weights + run.begin, run.size, result.weights().data() + to);
      run.begin = to;
      to += run.size;
    }
    for (auto i = order.first_of[s]; i < order.first_of[s + 1]; ++i) {
      auto const at = key * work.samples + order.samples[i];
      if (work.run_of[at] < 0) continue;
      auto const& run = from.runs[work.run_of[at]];
      work.slices[at].begin = static_cast<Offset>(run.begin + run.front + work.slices[at].begin);
    }
  }
};

}  // namespace detail

template <class T, class Offset>
partial_inverse_keyed_jagged<std::remove_const_t<T>, Offset> deduplicate_partial(host_exec const& exec, keyed_jagged_view<T, Offset> batch,
                                                                                 vector_view<std::int64_t const> sessions,
                                                                                 result_room room) {
  keyed_jagged_view<std::remove_const_t<T> const, Offset> const in = batch;
  return detail::partial_deduplication::run(exec, in, sessions, nullptr, room);
}

template <class T, class Offset>
partial_inverse_keyed_jagged<T, Offset> deduplicate_partial(host_exec const& exec, keyed_jagged<T, Offset> const& batch,
                                                            vector_view<std::int64_t const> sessions, result_room room) {
  return detail::partial_deduplication::run(exec, batch.view(), sessions, &batch.keys(), room).named(batch.keys());
}

}  // namespace TESSERA_ABI
}  // namespace tessera
