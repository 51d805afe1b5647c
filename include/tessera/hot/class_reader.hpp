// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <utility>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/data/reader.hpp>
#include <tessera/hot/class_schedules.hpp>
#include <tessera/tensor/batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A reader that says how many batches an epoch has.
template <class R>
concept counted_reader = reader<R> && requires(R const& r) {
  { r.epoch_batches() } -> std::same_as<std::int64_t>;
};

/// A position of a `class_reader`: those of its two readers, and the run between them. Of the base, only epoch and batch are set.
template <class HotPosition, class ColdPosition, class State>
struct class_reader_position : reader_position {
  HotPosition hot;
  ColdPosition cold;
  std::int64_t hot_batches = 0, cold_batches = 0;  ///< that this epoch gave before the next batch
  batch_class run = batch_class::cold;             ///< the class of the run
  std::int64_t left = 0;                           ///< batches of the run still to come; 0: the next batch begins one
  State schedule;

  friend bool operator==(class_reader_position const&, class_reader_position const&) = default;
};

/// Gives the batches of two readers, of hot samples and of cold ones, in runs of one class: cold ones first, then by turns. The schedule says
/// how long a run is. Batches say their class.
///
///     sample_reader hots(exec, hot_log, prepare, options), colds(exec, cold_log, prepare, options);
///     class_reader batches(hots, colds, loss_schedule{});
///     for (batch_view batch; batches.next(exec, batch);) {
///       run.step(exec, batch);
///       if (batches.class_ends()) batches.tell_loss(test_loss());
///     }
///
/// An epoch has each batch of both readers once. Where one class has no batches left, the other's rest is one run. Order within a class is
/// its reader's. Either reader may read ahead. What comes depends on readers, schedule and told losses alone: all ranks tell the same loss.
/// Sample numbers are those of the class's data set. Both readers outlive it, and nobody else uses them meanwhile. One thread at a time.
/// Source: FAE, Section 4.3.
template <counted_reader Hot, counted_reader Cold, class_schedule Schedule>
class class_reader {
 public:
  using position_type = class_reader_position<position_of<Hot>, position_of<Cold>, typename Schedule::state_type>;

  /// @throws tessera::error invalid_argument for readers that do not stand at the beginning of one epoch.
  class_reader(Hot& hot, Cold& cold, Schedule schedule) : hot_(&hot), cold_(&cold), schedule_(std::move(schedule)) {
    auto const hot_at = hot.position(), cold_at = cold.position();
    if (hot_at.epoch != cold_at.epoch || hot.epoch_samples() != 0 || cold.epoch_samples() != 0)
      throw error(errc::invalid_argument, "class_reader: readers begin an epoch together",
                  {{"epoch of hot batches", hot_at.epoch},
                   {"samples before", hot.epoch_samples()},
                   {"epoch of cold batches", cold_at.epoch},
                   {"samples before", cold.epoch_samples()}});
    state_.epoch = hot_at.epoch;
  }

  /// Gives true and the next batch; false at the end of an epoch. @throws what the readers throw; the position is then what it was.
  /// tessera::error corrupt_file for a reader that has fewer or more batches than it says.
  bool next(host_exec const& exec, batch_view& out) {
    auto const [is_hot, left] = run_of_next();
    if (left == 0) {
      end_epoch(exec, out);
      return false;
    }
    if (is_hot ? !hot_->next(exec, out) : !cold_->next(exec, out)) refuse_count(is_hot, "fewer");
    state_.is_hot = is_hot;
    state_.left = left - 1;
    ++(is_hot ? state_.hot_batches : state_.cold_batches);
    out.kind = is_hot ? batch_class::hot : batch_class::cold;
    out.epoch = state_.epoch;
    out.id = state_.batch++;
    return true;
  }

  /// Whether the batch that `next` gave last ends its run: the next one is of the other class, or of another epoch.
  bool class_ends() const {
    if (state_.left > 0) return false;
    auto const [is_hot, left] = run_of_next();
    return left == 0 || is_hot != state_.is_hot;
  }
  /// Tells the schedule the test loss after a run. It counts for the runs that have not begun.
  void tell_loss(double loss) { schedule_.tell_loss(loss); }
  Schedule const& schedule() const noexcept { return schedule_; }

  position_type position() const {
    position_type position;
    position.epoch = state_.epoch;
    position.batch = state_.batch;
    position.hot = hot_->position();
    position.cold = cold_->position();
    position.hot_batches = state_.hot_batches;
    position.cold_batches = state_.cold_batches;
    position.run = state_.is_hot ? batch_class::hot : batch_class::cold;
    position.left = state_.left;
    position.schedule = schedule_.state();
    return position;
  }
  /// Goes on from a position. @throws what the readers throw; tessera::error incompatible for a position that these readers do not have.
  void seek(position_type const& position) {
    check(position);
    auto const before = this->position();
    try {
      hot_->seek(position.hot);
      cold_->seek(position.cold);
      schedule_.restore(position.schedule);
    } catch (...) {
      hot_->seek(before.hot);
      cold_->seek(before.cold);
      throw;
    }
    state_ = {position.epoch, position.batch, position.hot_batches, position.cold_batches, position.left, position.run == batch_class::hot};
  }
  /// How many samples this epoch gave before the next batch.
  std::int64_t epoch_samples() const {
    auto const of = [&](auto const& reader) { return reader.position().epoch == state_.epoch ? reader.epoch_samples() : 0; };
    return of(*hot_) + of(*cold_);
  }
  /// How many batches an epoch has.
  std::int64_t epoch_batches() const { return hot_->epoch_batches() + cold_->epoch_batches(); }

 private:
  struct run_state {
    std::int64_t epoch = 0, batch = 0;
    std::int64_t hot_batches = 0, cold_batches = 0;  // of the epoch so far
    std::int64_t left = 0;                           // of the run
    bool is_hot = false;                             // the run
  };

  std::int64_t rest(bool is_hot) const {
    return is_hot ? hot_->epoch_batches() - state_.hot_batches : cold_->epoch_batches() - state_.cold_batches;
  }
  bool has_begun() const noexcept { return state_.hot_batches + state_.cold_batches > 0; }

  // The class of the next batch, and how many batches of its run are left with it; none at the end of the epoch.
  std::pair<bool, std::int64_t> run_of_next() const {
    if (state_.left > 0) return {state_.is_hot, state_.left};
    bool is_hot = has_begun() && !state_.is_hot;
    if (rest(is_hot) == 0) is_hot = !is_hot;
    if (rest(!is_hot) == 0) return {is_hot, rest(is_hot)};
    auto const all = is_hot ? hot_->epoch_batches() : cold_->epoch_batches();
    auto const share = static_cast<std::int64_t>(std::ceil(schedule_.percent() * static_cast<double>(all) / 100));
    return {is_hot, std::clamp<std::int64_t>(share, 1, rest(is_hot))};
  }

  // Each reader's epoch ends once, also where the other one throws meanwhile.
  void end_epoch(host_exec const& exec, batch_view& out) {
    if (hot_->position().epoch == state_.epoch && hot_->next(exec, out)) refuse_count(true, "more");
    if (cold_->position().epoch == state_.epoch && cold_->next(exec, out)) refuse_count(false, "more");
    state_ = {.epoch = state_.epoch + 1, .batch = state_.batch};
  }

  [[noreturn]] void refuse_count(bool is_hot, char const* what) const {
    throw error(
        errc::corrupt_file, "class_reader: a reader has another number of batches than it says",
        {{"class", is_hot ? "hot" : "cold"}, {"batches", what}, {"expected", is_hot ? hot_->epoch_batches() : cold_->epoch_batches()}});
  }

  void check(position_type const& position) const {
    bool const is_hot = position.run == batch_class::hot;
    auto const hot = hot_->epoch_batches(), cold = cold_->epoch_batches();
    auto const is_of = [&](std::int64_t epoch) { return epoch == position.epoch || epoch == position.epoch + 1; };  // in between at its end
    bool const known = position.run != batch_class::mixed && is_of(position.hot.epoch) && is_of(position.cold.epoch) &&
                       position.epoch >= 0 && position.batch >= 0 && position.hot_batches >= 0 && position.hot_batches <= hot &&
                       position.cold_batches >= 0 && position.cold_batches <= cold && position.left >= 0 &&
                       position.left <= (is_hot ? hot - position.hot_batches : cold - position.cold_batches);
    if (!known)
      throw error(errc::incompatible, "class_reader: a position of other readers",
                  {{"hot batches", position.hot_batches},
                   {"of", hot},
                   {"cold batches", position.cold_batches},
                   {"of", cold},
                   {"left of the run", position.left}});
  }

  Hot* hot_;
  Cold* cold_;
  Schedule schedule_;
  run_state state_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
