// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/data/sample_source.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// In which order an epoch has its samples.
enum class sample_order : std::uint8_t {
  stored,    ///< that of the data set
  samples,   ///< blocks shuffled, and the samples of each
  sessions,  ///< blocks shuffled, and the sessions of each: neighbours of one session stay neighbours
};

/// What becomes of the samples at the end of an epoch that are too few for a batch.
enum class short_batch : std::uint8_t {
  keep,  ///< they are a batch
  drop,  ///< no batch has them in this epoch: all batches have the same size
};

/// The part of every batch that a reader gives: `rank` of `ranks` parts, which follow each other and differ by one chunk at most.
struct batch_slice {
  int rank = 0;                    ///< 0 … ranks - 1
  int ranks = 1;                   ///< at least 1: ranks that train together, each with a reader of the same options but for `rank`
  std::int64_t chunk_samples = 1;  ///< at least 1: parts begin at multiples of it (`trainer_options::chunk_samples`)

  /// How many of a batch's samples come before the part.
  constexpr std::int64_t first(std::int64_t samples) const noexcept {
    auto const chunks = divide_up(samples, chunk_samples);
    return std::min(samples, (chunks / ranks * rank + std::min<std::int64_t>(chunks % ranks, rank)) * chunk_samples);
  }
  /// How many of a batch's samples are in the part.
  constexpr std::int64_t size(std::int64_t samples) const noexcept {
    return batch_slice{rank + 1, ranks, chunk_samples}.first(samples) - first(samples);
  }
};

/// Options of `sample_reader`.
struct sample_reader_options {
  std::int64_t batch_size = 2048;  ///< samples, at least 1
  sample_order order = sample_order::stored;
  random_seed seed{};
  block_range blocks{0, -1};  ///< the blocks to be read, as `part_of` gives them; count -1: from `first` to the end
  short_batch last_batch = short_batch::keep;
  std::vector<std::vector<std::string>> groups{};  ///< sparse columns whose repeated rows are kept once (IKJT); none: a row a sample
  batch_slice slice{};                             ///< of each batch of `batch_size` samples
};

/// Seconds that a reader's calls of `next` took so far.
struct reader_times {
  double fill = 0;     ///< reading and decoding blocks, and picking rows of them
  double convert = 0;  ///< making tensors of columns, and rows distinct
  double process = 0;  ///< what becomes of ids and numbers
};

/// Returns how many batches an epoch of so many samples has. @pre batch_size >= 1.
constexpr std::int64_t epoch_batches(std::int64_t samples, std::int64_t batch_size, short_batch last) noexcept {
  return last == short_batch::drop ? samples / batch_size : divide_up(samples, batch_size);
}

/// Returns how many batches an epoch has in each part of a data set, (parts,), as `part_of` cuts it. Processes that step together take as
/// many as the least.
/// @throws tessera::error invalid_argument for batch_size < 1, out_of_range for parts < 1.
template <sample_source Source>
std::vector<std::int64_t> epoch_batches_of_parts(Source const& source, std::int64_t parts, std::int64_t batch_size, short_batch last) {
  if (batch_size < 1) throw error(errc::invalid_argument, "epoch_batches_of_parts: batch_size", {{"batch_size", batch_size}, {"least", 1}});
  std::vector<std::int64_t> batches;
  std::int64_t part = 0;
  do batches.push_back(epoch_batches(rows_of(source, part_of(source, part, parts)), batch_size, last));
  while (++part < parts);
  return batches;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
