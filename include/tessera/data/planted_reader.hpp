// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/data/planted_clicks.hpp>
#include <tessera/data/reader.hpp>
#include <tessera/tensor/batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

struct planted_reader_options {
  std::int64_t first = 0;          ///< number of the first sample: other ranges for training and test data
  std::int64_t samples = 1 << 20;  ///< an epoch has
  std::int64_t batch_size = 128;   ///< samples; the last batch of an epoch may have fewer
};

/// Batches of planted clicks, made as they are asked for. Every epoch has the same samples in the same order, which says nothing, as they
/// are independent. A position's block is 0, or 1 behind the last batch of an epoch. Allocates when a batch has more ids than all before.
/// The generator outlives it. One thread at a time.
class planted_reader {
 public:
  /// @throws tessera::error invalid_argument for batch_size < 1, first < 0, samples < 0 or a last sample of 2^62 or more.
  planted_reader(planted_clicks const& clicks, planted_reader_options options) : clicks_(&clicks), options_(options) {
    if (options.batch_size < 1 || options.first < 0 || options.samples < 0 || options.samples > (std::int64_t{1} << 62) - options.first)
      throw error(errc::invalid_argument, "planted_reader: options",
                  {{"first", options.first}, {"samples", options.samples}, {"batch_size", options.batch_size}});
  }

  /// The next batch: true, and `out` shows it until the next call. Or the end of an epoch: false; the call after that begins the next.
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

  /// The samples of the last batch, with their true logits.
  planted_samples const& samples() const noexcept { return samples_; }
  /// Of the batch that `next` gives next.
  reader_position position() const noexcept { return position_; }
  /// Samples that this epoch had before the next batch.
  std::int64_t epoch_samples() const noexcept { return position_.block == 1 ? options_.samples : position_.offset; }

  /// Goes on from there. @throws tessera::error incompatible for a position that these options do not have.
  void seek(reader_position position) {
    auto const bound = position.block == 0 ? std::max<std::int64_t>(1, options_.samples) : 1;
    if (position.epoch < 0 || position.batch < 0 || position.block < 0 || position.block > 1 || position.offset < 0 ||
        position.offset >= bound)
      throw error(errc::incompatible, "planted_reader: a position of other samples",
                  {{"epoch", position.epoch}, {"block", position.block}, {"offset", position.offset}, {"batch", position.batch}});
    position_ = position;
  }

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
