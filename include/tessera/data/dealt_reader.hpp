// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/data/block_walk.hpp>
#include <tessera/data/bound_pipeline.hpp>
#include <tessera/data/reader.hpp>
#include <tessera/data/sample_reader.hpp>
#include <tessera/data/sample_reader_options.hpp>
#include <tessera/data/sample_source.hpp>
#include <tessera/tensor/batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What ranks took of the blocks that an epoch had left for them.
struct block_deal {
  int ranks = 1;                ///< among whom the blocks were dealt out
  std::int64_t batch_size = 1;  ///< samples of all ranks, not below `ranks`
  std::int64_t batches = 0;     ///< that they took

  friend bool operator==(block_deal const&, block_deal const&) = default;
};

/// Where the next batch of a `dealt_reader` begins, on all ranks. `block` and `offset` are 0: each rank stands in a block of its own, which
/// follows from the deals.
struct dealt_position : reader_position {
  std::vector<block_deal> deals;  ///< of the epoch, the first of all blocks, each further one of what those before left

  friend bool operator==(dealt_position const&, dealt_position const&) = default;
};

/// Gives one rank's batches of a data set that ranks read together, each block on one rank, epoch after epoch.
///
///     dealt_reader reader(exec, log, prepare, {.batch_size = 512, .slice = {comm.rank(), comm.size()}});
///     for (batch_view batch; reader.next(exec, batch);) run.step(exec, batch);
///
/// It is a `sample_reader` of the same options but for this. The blocks of an epoch, in its order, are dealt out in turn: block i to rank
/// i % ranks. Each rank makes batches of its own blocks, of its `slice` of `batch_size` samples. All ranks have as many batches: one that has
/// no samples left gives empty ones, until all have none. With short_batch::drop an epoch ends before the first batch that some rank cannot
/// fill. What others have left by then is in no batch, unless other ranks go on from there before the next epoch.
///
/// Ranks say nothing to each other: as the data set says how many samples a block has, each knows where all stand. So a position of one rank
/// is that of all, and any number of ranks goes on from it. Ranks as many as before, with batches of the same size, have the batches that
/// came after. Else what is left is dealt anew, of blocks in the midst too: a new rank goes on where the one before stopped. So an epoch has
/// each sample once, whatever ranks read it. A block in the midst of which ranks change is read by two of them.
template <sample_source Source, class Pipeline = stored_ids>
class dealt_reader {
 public:
  /// Stands at the beginning of epoch 0, and reads nothing yet. @throws tessera::error as `sample_reader`, and invalid_argument for a
  /// batch_size below the number of ranks, and for chunks.
  dealt_reader(host_exec const& exec, Source const& source, Pipeline const& pipeline, sample_reader_options options = {})
      : reader_(exec, source, pipeline, checked(std::move(options))) {
    deal_anew(0, 0);
  }
  /// Makes a reader whose pipeline leaves ids as they are stored.
  dealt_reader(host_exec const& exec, Source const& source, sample_reader_options options = {}) requires std::same_as<Pipeline, stored_ids>
      : reader_(exec, source, checked(std::move(options))) {
    deal_anew(0, 0);
  }

  // What would be gone before the first batch.
  dealt_reader(host_exec const&, Source const&&, Pipeline const&, sample_reader_options = {}) = delete;
  dealt_reader(host_exec const&, Source const&, Pipeline const&&, sample_reader_options = {}) = delete;
  dealt_reader(host_exec const&, Source const&&, Pipeline const&&, sample_reader_options = {}) = delete;
  dealt_reader(host_exec const&, Source const&&, sample_reader_options = {}) = delete;

  /// The names of a batch's keys, in their order.
  std::vector<std::string> const& keys() const noexcept { return reader_.keys(); }
  /// How many samples the blocks of all ranks have.
  std::int64_t rows() const noexcept { return reader_.rows(); }
  /// How many batches this epoch has left, on every rank. Epochs may differ by some, as blocks of other sizes go to other ranks.
  std::int64_t batches_left() const noexcept { return batches_ - deals_.back().batches; }
  /// Seconds that all calls of `next` took.
  reader_times const& times() const noexcept { return reader_.times(); }

  /// Gives true, and `out` shows this rank's next batch until the next call. At the end of an epoch it gives false, on all ranks after as
  /// many calls, and the call after that begins the next epoch. Memory and errors are those of `sample_reader::next`.
  bool next(host_exec const& exec, batch_view& out) {
    if (batches_left() == 0) {
      auto const at = reader_.position();
      deal_anew(at.epoch + 1, at.batch);
      return false;
    }
    reader_.give(exec, 0, reader_.walk_.left(share()), 0, out);
    ++deals_.back().batches;
    return true;
  }

  /// Where the next batch begins, on all ranks.
  dealt_position position() const {
    auto const at = reader_.position();
    return {{at.epoch, 0, 0, at.batch}, deals_};
  }
  /// How many samples this epoch had before the next batch, on all ranks.
  std::int64_t epoch_samples() const noexcept {
    auto samples = samples_before_;
    for (std::size_t r = 0; r < dealt_.size(); ++r) samples += taken(deals_.back(), static_cast<int>(r), dealt_[r]);
    return samples;
  }
  /// Goes on from a position of any ranks, with the same data set, order and seed. It looks at every block.
  /// @throws tessera::error incompatible for a position that these blocks do not have; the position is then what it was.
  void seek(dealt_position const& position) {
    auto const refuse = [&](char const* why) {
      throw error(errc::incompatible, std::string("dealt_reader: ") + why, {{"epoch", position.epoch}, {"batch", position.batch}});
    };
    if (position.epoch < 0 || position.epoch >= std::int64_t{1} << 32 || position.batch < 0 || position.batch > most_counted ||
        position.block != 0 || position.offset != 0)
      refuse("a position of another data set");
    deal_state state{rests_of(position.epoch), position.deals, 0};
    auto& deals = state.deals;
    for (std::size_t i = 0; i < deals.size(); ++i) {
      auto const& deal = deals[i];
      if (deal.ranks < 1 || deal.ranks > most_ranks || deal.batch_size < deal.ranks || deal.batches < 0 ||
          deal.batches > batches_of(deal, dealt(state.rests, deal.ranks), short_batch::keep))
        refuse("a deal of another data set");
      if (i + 1 == deals.size() && deal.ranks == ranks() && deal.batch_size == options().batch_size) {
        if (deal.batches > batches_of(deal, dealt(state.rests, deal.ranks), options().last_batch)) refuse("an epoch with shorter batches");
        return stand(position.epoch, position.batch, std::move(state));
      }
      state.rests = left_by(deal, state.rests, &state.samples_before);
    }
    if (!deals.empty() && deals.back().batches == 0) deals.pop_back();
    deals.push_back({ranks(), options().batch_size, 0});
    stand(position.epoch, position.batch, std::move(state));
  }

  /// Bytes of the reader, the block in memory and the last batch.
  std::size_t bytes() const noexcept {
    return sizeof(*this) - sizeof(reader_) + reader_.bytes() + deals_.capacity() * sizeof(block_deal) +
           dealt_.capacity() * sizeof(std::int64_t);
  }

 private:
  using block_rests = std::vector<detail::block_rest>;
  static constexpr int most_ranks = 1 << 20;

  // What a deal is of.
  struct deal_state {
    block_rests rests;                // that it deals out, in the epoch's order
    std::vector<block_deal> deals;    // the last is this one
    std::int64_t samples_before = 0;  // that deals before it took
  };

  static sample_reader_options checked(sample_reader_options options) {
    if (options.batch_size < options.slice.ranks)
      throw error(errc::invalid_argument, "dealt_reader: option batch_size",
                  {{"batch_size", options.batch_size}, {"least", options.slice.ranks}});
    if (options.slice.chunk_samples != 1)
      throw error(errc::invalid_argument, "dealt_reader: option slice; ranks that run dry have no whole chunks",
                  {{"chunk_samples", options.slice.chunk_samples}});
    return options;
  }
  sample_reader_options const& options() const noexcept { return reader_.options_; }
  int ranks() const noexcept { return options().slice.ranks; }
  std::int64_t share() const noexcept { return options().slice.size(options().batch_size); }

  // The samples that a rank has taken, of those that were dealt to it.
  static std::int64_t taken(block_deal const& deal, int rank, std::int64_t dealt) noexcept {
    auto const share = batch_slice{rank, deal.ranks}.size(deal.batch_size);
    return deal.batches > dealt / share ? dealt : deal.batches * share;
  }
  // The samples that each rank is dealt, (ranks,).
  std::vector<std::int64_t> dealt(block_rests const& all, int ranks) const {
    std::vector<std::int64_t> samples(static_cast<std::size_t>(ranks));
    for (std::size_t i = 0; i < all.size(); ++i) samples[i % samples.size()] += reader_.source_->rows(all[i].block) - all[i].offset;
    return samples;
  }
  // The batches of a deal, were they all taken.
  static std::int64_t batches_of(block_deal const& deal, std::vector<std::int64_t> const& dealt, short_batch last) noexcept {
    std::int64_t least = 0, most = 0;
    for (int r = 0; r < deal.ranks; ++r) {
      auto const batches = epoch_batches(dealt[static_cast<std::size_t>(r)], batch_slice{r, deal.ranks}.size(deal.batch_size), last);
      least = r == 0 ? batches : std::min(least, batches);
      most = std::max(most, batches);
    }
    return last == short_batch::drop ? least : most;
  }
  // What ranks have not taken.
  block_rests left_by(block_deal const& deal, block_rests const& all, std::int64_t* samples) const {
    auto to_take = dealt(all, deal.ranks);
    for (int r = 0; r < deal.ranks; ++r) {
      auto& of_rank = to_take[static_cast<std::size_t>(r)];
      of_rank = taken(deal, r, of_rank);
      *samples += of_rank;
    }
    block_rests left;
    for (std::size_t i = 0; i < all.size(); ++i) {
      auto& of_rank = to_take[i % to_take.size()];
      auto const here = std::min(of_rank, reader_.source_->rows(all[i].block) - all[i].offset);
      of_rank -= here;
      if (all[i].offset + here < reader_.source_->rows(all[i].block)) left.push_back({all[i].block, all[i].offset + here});
    }
    return left;
  }
  // All blocks, in an epoch's order.
  block_rests rests_of(std::int64_t epoch) const {
    auto const& of = options();
    std::vector<std::int64_t> order(static_cast<std::size_t>(of.blocks.count));
    detail::order_blocks(of.blocks.first, of.order != sample_order::stored, of.seed, epoch, order);
    block_rests all;
    for (auto const block : order) all.push_back({block, 0});
    return all;
  }

  void deal_anew(std::int64_t epoch, std::int64_t batch) {
    stand(epoch, batch, {rests_of(epoch), {{ranks(), options().batch_size, 0}}, 0});
  }

  // Takes this rank's part of the deal, and moves over the batches that were taken.
  void stand(std::int64_t epoch, std::int64_t batch, deal_state state) {
    auto const& deal = state.deals.back();
    auto of_ranks = dealt(state.rests, deal.ranks);
    auto const own = static_cast<std::size_t>(options().slice.rank);
    block_rests mine;
    for (auto i = own; i < state.rests.size(); i += of_ranks.size()) mine.push_back(state.rests[i]);
    reader_.walk_.walk_over(epoch, batch, mine);
    auto place = reader_.position();
    reader_.skip(place, taken(deal, options().slice.rank, of_ranks[own]));
    reader_.walk_.stand_at(place);
    batches_ = batches_of(deal, of_ranks, options().last_batch);
    samples_before_ = state.samples_before;
    dealt_ = std::move(of_ranks);
    deals_ = std::move(state.deals);
  }

  sample_reader<Source, Pipeline> reader_;
  std::vector<block_deal> deals_;    // of the epoch
  std::vector<std::int64_t> dealt_;  // (ranks,), samples, by the last deal
  std::int64_t samples_before_ = 0;  // that deals before the last took
  std::int64_t batches_ = 0;         // of the last deal
};

}  // namespace TESSERA_ABI
}  // namespace tessera
