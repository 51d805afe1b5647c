// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/data/reader.hpp>
#include <tessera/synth/planted_clicks.hpp>
#include <tessera/tensor/batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of `planted_reader`.
struct planted_reader_options {
  std::int64_t first = 0;          ///< number of the first sample; training and test data take ranges that do not overlap
  std::int64_t samples = 1 << 20;  ///< samples of an epoch
  std::int64_t batch_size = 128;   ///< samples of a batch; the last batch of an epoch may have fewer
};

/// Generates batches of planted clicks on demand, a model of `reader`.
///
/// Every epoch has the same samples in the same order. The samples are independent, so their order says nothing. The block of a position is 0,
/// or 1 behind the last batch of an epoch. A call allocates when a batch has more ids than all before. One thread at a time uses an object.
class planted_reader {
 public:
  /// Makes a reader of samples first … first + samples - 1. @pre `clicks` outlives the reader.
  /// @throws tessera::error invalid_argument for batch_size < 1, first < 0, samples < 0 or a last sample of 2^62 or more.
  planted_reader(planted_clicks const& clicks, planted_reader_options options) : clicks_(&clicks), options_(options) {
    if (options.batch_size < 1 || options.first < 0 || options.samples < 0 || options.samples > (std::int64_t{1} << 62) - options.first)
      throw error(errc::invalid_argument, "planted_reader: options",
                  {{"first", options.first}, {"samples", options.samples}, {"batch_size", options.batch_size}});
  }

  /// Makes the next batch and returns true; `out` shows the batch until the next call. At the end of an epoch the call returns false, and the
  /// next call begins another epoch.
  bool next(host_exec const& exec, batch_view& out) {
    if (position_.offset == options_.samples || position_.block == 1) {
      position_ = {position_.epoch + 1, 0, 0, position_.batch};
      return false;
    }
    auto const size = std::min(options_.batch_size, options_.samples - position_.offset);
    clicks_->generate(exec, options_.first + position_.offset, size, samples_);
    out = samples_.view();
    out.id = position_.batch++;
    out.epoch = position_.epoch;
    position_.offset += size;
    if (position_.offset == options_.samples) position_ = {position_.epoch, 1, 0, position_.batch};
    return true;
  }

  /// Shows the samples of the last batch, with their true logits, until the next call.
  planted_samples const& samples() const noexcept { return samples_; }
  /// Returns the position of the batch that `next` makes next.
  reader_position position() const noexcept { return position_; }
  /// Returns the samples of this epoch that come before the next batch.
  std::int64_t epoch_samples() const noexcept { return position_.block == 1 ? options_.samples : position_.offset; }

  /// Makes the batch at `position` the next one. @throws tessera::error incompatible for a position that these options do not have.
  void seek(reader_position position) {
    auto const bound = position.block == 0 ? std::max<std::int64_t>(1, options_.samples) : 1;
    if (position.epoch < 0 || position.batch < 0 || position.block < 0 || position.block > 1 || position.offset < 0 ||
        position.offset >= bound)
      throw error(errc::incompatible, "planted_reader: a position of other samples",
                  {{"epoch", position.epoch}, {"block", position.block}, {"offset", position.offset}, {"batch", position.batch}});
    position_ = position;
  }

  /// Returns the bytes of memory in use, without the generator.
  std::size_t bytes() const noexcept { return sizeof(*this) + samples_.bytes(); }

 private:
  planted_clicks const* clicks_;
  planted_reader_options options_;
  reader_position position_;
  planted_samples samples_;
};
static_assert(reader<planted_reader>);

}  // namespace TESSERA_ABI
}  // namespace tessera
