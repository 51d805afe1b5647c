// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/tensor/batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A reader position: where the next batch begins. A checkpoint saves the position, and a reader goes on from it.
///
/// A position that was taken after an epoch's last batch belongs to that epoch. A reader that goes on from there gives false first.
struct reader_position {
  std::int64_t epoch = 0;
  std::int64_t block = 0;   ///< counted in the epoch's order of blocks; the number of blocks, where all samples are behind
  std::int64_t offset = 0;  ///< samples of that block before the next batch
  std::int64_t batch = 0;   ///< batches of the run before: the next batch's id

  friend bool operator==(reader_position const&, reader_position const&) = default;
};

/// Gives batches, epoch after epoch, to one thread at a time.
/// - `next(exec, batch)` gives true and the next batch, which is shown until the following call. At the end of an epoch it gives false, and
///   the call after that begins the next epoch. Where it throws, the position is what it was.
/// - `position()` says where the next batch begins.
/// - `seek(position)` goes on from a position, or throws and changes nothing. @post the batches are those that came after `position()` gave
///   it.
/// - `epoch_samples()` counts the samples that this epoch gave before the next batch.
///
/// A reader that wraps another may have a state of its own, such as which batches it holds back. Its position then derives from
/// `reader_position`.
template <class R>
concept reader = requires(R& r, R const& constant, host_exec const& exec, batch_view& batch) {
  { r.next(exec, batch) } -> std::same_as<bool>;
  { constant.position() } -> std::derived_from<reader_position>;
  { constant.position() == constant.position() } -> std::same_as<bool>;
  { constant.epoch_samples() } -> std::same_as<std::int64_t>;
  r.seek(constant.position());
};

/// The type of a reader's positions.
template <reader R>
using position_of = decltype(std::declval<R const&>().position());

}  // namespace TESSERA_ABI
}  // namespace tessera
