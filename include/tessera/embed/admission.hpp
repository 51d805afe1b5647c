// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/linked_numbers.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_store.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Decides which ids get a row. The policy is its options; what it remembers is its `state`, one a table:
/// - `state(exec, policy, table)` takes all its memory at once, `policy.bytes_for(table)`, and refuses options out of range.
/// - `admits(exec, id, batch)` says whether an id without a row, seen in this batch, gets one. An id counts once a batch, so that
///   repetitions within a batch change nothing.
/// - `admitted(id)` is called once the id has got a row.
/// - `save(words)` and `restore(exec, words)`, (saved_rows(), saved_width), are what a checkpoint keeps under the policy's `name`. A width
///   of 0 keeps nothing.
/// - `name()` and `saved_width()` of a state are optional: they replace those of the policy, whose width is then the upper bound.
template <class A>
concept admission = std::is_trivially_copyable_v<A> && std::default_initializable<A> &&
    std::constructible_from<typename A::state, host_exec const&, A const&, table_options const&> &&
    requires(A const& policy, typename A::state& state, typename A::state const& held, host_exec const& exec, table_options const& table,
             std::int64_t number, matrix_view<std::int64_t> words, matrix_view<std::int64_t const> saved) {
  { A::name } -> std::convertible_to<char const*>;
  { A::saved_width } -> std::convertible_to<std::int64_t>;
  { policy.bytes_for(table) } -> std::same_as<std::size_t>;
  { state.admits(exec, number, number) } -> std::same_as<bool>;
  state.admitted(number);
  { held.bytes() } -> std::same_as<std::size_t>;
  { held.saved_rows() } -> std::same_as<std::int64_t>;
  held.save(words);
  state.restore(exec, saved);
};

namespace detail {
// Of a policy that remembers nothing.
struct nothing_remembered {
  static constexpr std::size_t bytes() noexcept { return 0; }
  static constexpr std::int64_t saved_rows() noexcept { return 0; }
  static constexpr void admitted(std::int64_t) noexcept {}
  static constexpr void save(matrix_view<std::int64_t>) noexcept {}
  static constexpr void restore(host_exec const&, matrix_view<std::int64_t const>) noexcept {}
};
}  // namespace detail

/// Every id gets a row at once.
struct admit_all {
  static constexpr char const* name = "all";
  static constexpr std::int64_t saved_width = 0;
  static constexpr std::size_t bytes_for(table_options const&) noexcept { return 0; }

  struct state : detail::nothing_remembered {
    state(host_exec const&, admit_all const&, table_options const&) noexcept {}
    static constexpr bool admits(host_exec const&, std::int64_t, std::int64_t) noexcept { return true; }
  };
};
static_assert(admission<admit_all>);

/// An id gets a row with this probability in each batch in which it is seen. The decision depends on the table's seed and id, on the id and
/// on the batch alone.
struct admit_by_probability {
  double probability = 0.5;

  static constexpr char const* name = "probability";
  static constexpr std::int64_t saved_width = 0;
  static constexpr std::size_t bytes_for(table_options const&) noexcept { return 0; }

  class state : public detail::nothing_remembered {
   public:
    state(host_exec const&, admit_by_probability const& policy, table_options const& table)
        : probability_(policy.probability), seed_(mix_bits(table.seed.value ^ stream)), table_(static_cast<std::uint32_t>(table.id.value)) {
      if (!(policy.probability >= 0 && policy.probability <= 1))
        throw error(errc::invalid_argument, "admit_by_probability: a probability lies in [0, 1]",
                    {{"table", table.id.value}, {"probability", policy.probability}});
    }
    bool admits(host_exec const&, std::int64_t id, std::int64_t batch) const noexcept {
      auto const words = philox(random_seed(seed_ + (static_cast<std::uint64_t>(batch) >> 32)), static_cast<std::uint64_t>(id), table_,
                                static_cast<std::uint32_t>(batch));
      auto const draw = std::uint64_t{words[0]} << 21 | words[1] >> 11;  // 53 bits
      return static_cast<double>(draw) * 0x1p-53 < probability_;
    }

   private:
    static constexpr std::uint64_t stream = 0x61646D6974;  // apart from the initial weights, which draw from the seed itself
    double probability_;
    std::uint64_t seed_;
    std::uint32_t table_;
  };
};
static_assert(admission<admit_by_probability>);

/// An id gets a row in the batch in which it is seen for the `sightings`-th time.
///
/// Counts are kept for the `candidates` ids without a row that were seen last; the one not seen for longest is forgotten first. A count is
/// exact as long as fewer than `candidates` other such ids are seen between two sightings; else it begins again. A count is never too high.
/// Memory: about 70 bytes a candidate, taken when the table is built.
struct admit_by_frequency {
  std::int64_t sightings = 2;
  std::int64_t candidates = std::int64_t{1} << 16;

  static constexpr char const* name = "sightings";
  static constexpr std::int64_t saved_width = 3;  ///< id, count, last batch; the one not seen for longest first
  std::size_t bytes_for(table_options const&) const noexcept {
    return id_map::bytes_for(candidates) + linked_numbers<sighting>::bytes_for(candidates);
  }

 private:
  struct sighting {
    std::int64_t count;
    std::int64_t batch;  // the last
  };

 public:
  class state {
   public:
    state(host_exec const& exec, admit_by_frequency const& policy, table_options const& table)
        : sightings_(policy.sightings), candidates_(policy.candidates) {
      constexpr auto most = std::int64_t{1} << 40;
      if (policy.sightings < 1 || policy.candidates < 1 || policy.candidates > most)
        throw error(errc::invalid_argument, "admit_by_frequency: at least one sighting and one candidate",
                    {{"table", table.id.value}, {"sightings", policy.sightings}, {"candidates", policy.candidates}, {"most", most}});
      ids_.reserve(exec, policy.candidates);
      counts_.reserve(exec, policy.candidates);
    }

    bool admits(host_exec const& exec, std::int64_t id, std::int64_t batch) {
      if (sightings_ == 1) return true;
      auto number = ids_.find(id);
      if (number == id_map::absent) {
        number = add(exec, id, {1, batch});
      } else if (counts_[number].batch != batch) {
        ++counts_[number].count;
        counts_[number].batch = batch;
        counts_.remove(seen_, number);
        counts_.push_back(seen_, number);
      }
      return counts_[number].count >= sightings_;
    }
    void admitted(std::int64_t id) noexcept {
      if (auto const number = ids_.erase(id); number != id_map::absent) counts_.remove(seen_, number);
    }

    std::size_t bytes() const noexcept { return ids_.bytes() + counts_.bytes(); }
    std::int64_t saved_rows() const noexcept { return ids_.size(); }
    void save(matrix_view<std::int64_t> words) const {
      auto number = seen_.first;
      for (std::int64_t i = 0; i < words.rows(); ++i, number = counts_.next(number)) {
        words(i, 0) = ids_.ids()[number];
        words(i, 1) = counts_[number].count;
        words(i, 2) = counts_[number].batch;
      }
    }
    void restore(host_exec const& exec, matrix_view<std::int64_t const> words) {
      for (std::int64_t i = 0; i < words.rows(); ++i) {
        if (words(i, 1) < 1 || words(i, 1) > most_counted)
          throw error(errc::out_of_range, "admit_by_frequency: a count that no id has",
                      {{"id", words(i, 0)}, {"count", words(i, 1)}, {"most", most_counted}});
        admitted(words(i, 0));
        add(exec, words(i, 0), {words(i, 1), words(i, 2)});
      }
    }

   private:
    std::int64_t add(host_exec const& exec, std::int64_t id, sighting first) {
      if (ids_.size() == candidates_) admitted(ids_.ids()[seen_.first]);
      auto const number = ids_.insert(exec, id).first;  // has room
      counts_[number] = first;
      counts_.push_back(seen_, number);
      return number;
    }

    std::int64_t sightings_, candidates_;
    id_map ids_;
    linked_numbers<sighting> counts_;
    number_list seen_;  // least recently first
  };
};
static_assert(admission<admit_by_frequency>);

}  // namespace TESSERA_ABI
}  // namespace tessera
