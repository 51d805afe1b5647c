// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/core/execution.hpp>
#include <tessera/data/preprocessing.hpp>
#include <tessera/data/sample_classes.hpp>
#include <tessera/data/sample_reader_options.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/hot/access_profile.hpp>
#include <tessera/hot/choose_hot_rows.hpp>
#include <tessera/hot/class_reader.hpp>
#include <tessera/hot/class_schedules.hpp>
#include <tessera/hot/hot_rows.hpp>
#include <tessera/shard/table_spec.hpp>

#include "settings.hpp"
#include "training_reader.hpp"

namespace examples {

/// As --hot-schedule says: a rate that follows the test loss, or one that stays.
class chosen_schedule {
 public:
  using state_type = tessera::loss_schedule::state_type;

  explicit chosen_schedule(std::string const& schedule) : follows_loss_(schedule == "loss") {
    if (!follows_loss_) parse_number(schedule, percent_);
  }

  bool follows_loss() const noexcept { return follows_loss_; }
  double percent() const noexcept { return follows_loss_ ? of_loss_.percent() : percent_; }
  void tell_loss(double loss) noexcept { of_loss_.tell_loss(loss); }
  state_type state() const noexcept { return of_loss_.state(); }
  void restore(state_type const& state) { of_loss_.restore(state); }

 private:
  bool follows_loss_;
  double percent_ = 0;  // of one that stays
  tessera::loss_schedule of_loss_;
};

/// What is hot in a run: rows, and samples of the training data. In train_ctr/hot_batches.cpp.
struct hot_batches {
  /// Profiles a twentieth of the training data's blocks, and reads all of them once for the classes. All ranks find the same. `copied`: specs of
  /// dense tables of the same kinds, for copies of hot rows.
  /// @throws tessera::error naming --hot-budget where small tables do not fit into it.
  hot_batches(settings const& s, tessera::host_exec const& exec, sample_log const& train, tessera::preprocessing const& preprocess,
              tessera::sample_reader_options reader, std::vector<tessera::table_feature> const& features,
              std::vector<tessera::table_spec> const& specs, std::vector<tessera::table_spec> copied);
  hot_batches(hot_batches const&) = delete;

  tessera::hot_rows choose_rows(tessera::host_exec const& exec, std::vector<tessera::table_spec> const& specs) const;

  std::vector<tessera::table_spec> copied;
  tessera::hot_row_options options;
  tessera::access_profile profile;
  std::int64_t rows = 0, bytes = 0;                // that are hot, on each rank
  double percent = 0;                              // of a table's reads that make a row hot
  std::vector<tessera::hot_threshold> thresholds;  // others and their shares of samples, where there is a --report
  std::vector<double> shares_of_samples;
  tessera::sample_classes classes;
  sample_log hot, cold;  // the training data's samples
};

/// Batches that are all hot or all cold. A position has where each class is.
class class_run_reader : public run_reader {
 public:
  std::int64_t epoch_samples() const { return position().samples; }
  /// Goes on from what `class_json` made; false where that is of other hot rows or batches.
  virtual bool seek(nlohmann::json const& position, std::string const& file) = 0;
  /// Begins an epoch, so many batches after the first one.
  virtual void begin_epoch(std::int64_t epoch, std::int64_t batch) = 0;
};

/// What a checkpoint keeps of a position.
nlohmann::json class_json(settings const& s, hot_batches const& hot, class_position const& position);

/// Reads the batches of a run that has hot rows, ahead on threads of its own where asked.
std::unique_ptr<class_run_reader> make_class_reader(settings const& s, tessera::host_exec const& exec, hot_batches const& hot,
                                                    tessera::preprocessing const& preprocess, tessera::sample_reader_options const& options,
                                                    bool reads_ahead);

}  // namespace examples
