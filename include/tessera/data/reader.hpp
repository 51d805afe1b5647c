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

/// Where the next batch begins: what a checkpoint saves to go on from. A position taken after an epoch's last batch is still of that epoch:
/// the first `next` of a reader that goes on from there returns false.
struct reader_position {
  std::int64_t epoch = 0;
  std::int64_t block = 0;   // ordinal in the epoch's order; after the last batch the number of blocks, until `next` returns false
  std::int64_t offset = 0;  // samples of that block before
  std::int64_t batch = 0;   // batches of the run before: the next batch's id

  friend bool operator==(reader_position const&, reader_position const&) = default;
};

/// Where batches come from, epoch after epoch, for one thread at a time.
/// - `next(exec, batch)`: the next batch, shown until the following call: true; or the end of an epoch: false, and the call after that
///   begins the next epoch. When it throws, the position is what it was.
/// - `position()`: of the batch that `next` gives next; `seek(position)` goes on from there, or throws and changes nothing. A reader that wraps
///   another and has a state of its own, such as which batches it holds back, gives a position that derives from `reader_position`.
/// - `epoch_samples()`: samples that this epoch had before the next batch.
template <class R>
concept reader = requires(R& r, R const& constant, host_exec const& exec, batch_view& batch) {
  { r.next(exec, batch) } -> std::same_as<bool>;
  { constant.position() } -> std::derived_from<reader_position>;
  { constant.position() == constant.position() } -> std::same_as<bool>;
  { constant.epoch_samples() } -> std::same_as<std::int64_t>;
  r.seek(constant.position());
};

/// What a reader's position is.
template <reader R>
using position_of = decltype(std::declval<R const&>().position());

}  // namespace TESSERA_ABI
}  // namespace tessera
