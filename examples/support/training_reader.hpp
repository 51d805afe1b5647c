// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/data/batch_copy.hpp>
#include <tessera/data/checked_samples.hpp>
#include <tessera/data/dealt_reader.hpp>
#include <tessera/data/preprocessing.hpp>
#include <tessera/data/reader.hpp>
#include <tessera/data/sample_reader.hpp>
#include <tessera/data/sample_reader_options.hpp>
#include <tessera/data/sample_source.hpp>
#include <tessera/embed/row_order.hpp>
#include <tessera/hot/class_reader.hpp>
#include <tessera/hot/class_schedules.hpp>
#include <tessera/tensor/batch.hpp>

namespace examples {

/// Samples that a model can learn from, of files of any kind.
using sample_log = tessera::checked_samples<tessera::any_sample_source>;

/// This rank's batches of a training run, as --read says: its slice of every batch, or those of blocks that it reads alone. A position of
/// slices has no deals.
class training_reader {
 public:
  using slices = tessera::sample_reader<sample_log, tessera::preprocessing>;
  using blocks = tessera::dealt_reader<sample_log, tessera::preprocessing>;

  training_reader(tessera::host_exec const& exec, sample_log const& log, tessera::preprocessing const& preprocess,
                  tessera::sample_reader_options options, bool reads_blocks)
      : reader_(std::in_place_type<slices>, exec, log, preprocess, options) {
    if (reads_blocks) reader_.emplace<blocks>(exec, log, preprocess, std::move(options));
  }

  bool next(tessera::host_exec const& exec, tessera::batch_view& out) {
    return std::visit([&](auto& reader) { return reader.next(exec, out); }, reader_);
  }
  tessera::dealt_position position() const {
    if (auto const* const dealt = std::get_if<blocks>(&reader_)) return dealt->position();
    return {std::get<slices>(reader_).position(), {}};
  }
  void seek(tessera::dealt_position const& position) {
    std::visit([&](auto& reader) { reader.seek(position); }, reader_);
  }
  std::int64_t epoch_samples() const {
    return std::visit([](auto const& reader) { return reader.epoch_samples(); }, reader_);
  }
  /// How many batches an epoch has; of slices.
  std::int64_t epoch_batches() const { return std::get<slices>(reader_).epoch_batches(); }

 private:
  std::variant<slices, blocks> reader_;
};
static_assert(tessera::reader<training_reader>);

/// Where each class of a run with hot rows stands.
using class_position = tessera::class_reader_position<tessera::dealt_position, tessera::dealt_position, tessera::loss_schedule::state_type>;

/// Where a run's next batch begins.
struct run_position : tessera::dealt_position {
  std::int64_t samples = 0;               ///< of the epoch, before that batch
  std::optional<class_position> classes;  ///< of a run with hot rows; of the base, only epoch and batch are then set
};

/// The batches of a training run, read ahead or not: what trains on them is compiled once for all kinds.
class run_reader {
 public:
  run_reader() = default;
  run_reader(run_reader const&) = delete;
  run_reader& operator=(run_reader const&) = delete;
  virtual ~run_reader() = default;

  virtual bool next(tessera::host_exec const& exec, tessera::batch_view& out) = 0;
  virtual run_position position() const = 0;
  /// What was sorted ahead for the batch that `next` gave last; nullptr where nothing was.
  virtual tessera::row_order* prepared() { return nullptr; }
  /// Whether the batch that `next` gave last ends a run of one class.
  virtual bool class_ends() const { return false; }
  /// Whether later runs hang on the test loss, which is then told after each.
  virtual bool follows_loss() const { return false; }
  virtual void tell_loss(double) {}
};

/// As a reader has them.
template <tessera::reader Reader>
class run_reader_of final : public run_reader {
 public:
  explicit run_reader_of(Reader& reader) : reader_(&reader) {}

  bool next(tessera::host_exec const& exec, tessera::batch_view& out) override { return reader_->next(exec, out); }
  run_position position() const override { return {reader_->position(), reader_->epoch_samples(), std::nullopt}; }
  tessera::row_order* prepared() override {
    if constexpr (requires { reader_->prepared(); })
      return &reader_->prepared();
    else
      return nullptr;
  }

 private:
  Reader* reader_;
};

/// Gives the batches of a reader to the steps of a trainer, with the lookups of later batches of the epoch begun: over ranks, their ids travel
/// meanwhile. With none ahead it passes batches on as they are.
template <class Trainer>
class batches_ahead {
 public:
  batches_ahead(run_reader& reader, Trainer& run, std::int64_t ahead) : reader_(&reader), run_(&run), at_(reader.position()) {
    if (ahead > 0) slots_.resize(static_cast<std::size_t>(ahead) + 1);  // and the one whose step runs
  }

  /// Gives the reader's next batch. Its step is the next one of the trainer.
  bool next(tessera::host_exec const& exec, tessera::batch_view& out) {
    if (slots_.empty()) {
      bool const more = reader_->next(exec, out);
      at_ = reader_->position();
      return more;
    }
    while (!ended_ && filled_ - given_ < static_cast<std::int64_t>(slots_.size())) {
      tessera::batch_view batch;
      ended_ = !reader_->next(exec, batch);
      if (ended_) break;
      auto& slot = slot_of(filled_);
      slot.batch.assign(exec, batch);
      slot.after = reader_->position();
      if constexpr (Trainer::looks_ahead) run_->look_ahead(exec, slot.batch.view());
      ++filled_;
    }
    if (given_ == filled_) {
      ended_ = false;
      at_ = reader_->position();
      return false;
    }
    auto const& slot = slot_of(given_++);
    at_ = slot.after;
    out = slot.batch.view();
    return true;
  }
  run_position const& position() const noexcept { return at_; }
  std::int64_t epoch_samples() const noexcept { return at_.samples; }
  /// As the reader, of which no batch is ahead.
  bool class_ends() const { return slots_.empty() && reader_->class_ends(); }
  bool follows_loss() const { return reader_->follows_loss(); }
  /// After the last batch of a run of one class. Changes the position.
  void tell_loss(double loss) {
    reader_->tell_loss(loss);
    at_ = reader_->position();
  }

  /// Trains on the batch that `next` gave last.
  double step(tessera::host_exec const& exec, tessera::batch_view const& batch) {
    auto* const prepared = slots_.empty() ? reader_->prepared() : nullptr;
    return prepared != nullptr ? run_->step(exec, batch, *prepared) : run_->step(exec, batch);
  }

 private:
  struct ring_slot {
    tessera::batch_copy batch;
    run_position after;
  };

  ring_slot& slot_of(std::int64_t number) { return slots_[static_cast<std::size_t>(number) % slots_.size()]; }

  run_reader* reader_;
  Trainer* run_;
  std::vector<ring_slot> slots_;  // none: nothing is ahead
  run_position at_;
  std::int64_t filled_ = 0, given_ = 0;
  bool ended_ = false;  // the epoch has no further batch than those that are ahead
};

}  // namespace examples
