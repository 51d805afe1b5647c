// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/four_elements.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/embed/eviction.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>

/// A bucket table as kernels see it, and how they find ids in it and insert new ones.
namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// The use of a slot as one word; of two slots, the one with the lesser word leaves first. Specialised for the policies that a device has.
/// `words_of(use)` and `of_words(words)` convert to and from what a checkpoint keeps, in the words of the host's tables.
template <class Eviction>
struct slot_use;

template <>
struct slot_use<keep_all> {};

// The last batch.
template <>
struct slot_use<evict_lru> {
  TESSERA_HOST_DEVICE static constexpr std::int64_t first(std::int64_t batch) noexcept { return batch; }
  TESSERA_HOST_DEVICE static constexpr std::int64_t last_batch(std::int64_t use) noexcept { return use; }
  static constexpr std::array<std::int64_t, 1> words_of(std::int64_t use) noexcept { return {use}; }
  static constexpr std::int64_t of_words(std::array<std::int64_t, 1> const& words) noexcept { return words[0]; }
  template <class Block>
  TESSERA_DEVICE static void used(Block& block, std::int64_t* use, std::int64_t batch) {
    if (block.load(use) < batch) block.maximum(use, batch);
  }
};

// How many batches used it, up to 2^23 - 1, then the last of them: batches are counted up to 2^40.
template <>
struct slot_use<evict_lfu> {
  static constexpr int batch_bits = 40;
  static constexpr std::int64_t one = std::int64_t{1} << batch_bits, most_count = (std::int64_t{1} << (63 - batch_bits)) - 1;

  TESSERA_HOST_DEVICE static constexpr std::int64_t first(std::int64_t batch) noexcept { return one + batch; }
  TESSERA_HOST_DEVICE static constexpr std::int64_t last_batch(std::int64_t use) noexcept { return use & (one - 1); }
  static constexpr std::array<std::int64_t, 2> words_of(std::int64_t use) noexcept { return {use >> batch_bits, last_batch(use)}; }
  /// Counts above what a slot has room for become the greatest. @throws tessera::error out_of_range for words that no row has.
  static std::int64_t of_words(std::array<std::int64_t, 2> const& words) {
    if (words[0] < 1 || words[1] < 0 || words[1] >= one)
      throw error(errc::out_of_range, "evict_lfu: a use that no row has", {{"count", words[0]}, {"batch", words[1]}, {"most", one - 1}});
    return std::min(words[0], most_count) * one + words[1];
  }
  template <class Block>
  TESSERA_DEVICE static void used(Block& block, std::int64_t* use, std::int64_t batch) {
    auto const before = block.load(use);
    if (last_batch(before) == batch) return;
    auto const count = before >> batch_bits;
    block.compare_exchange(use, before, (count < most_count ? count + 1 : count) * one + batch);  // else another has counted this batch
  }
};

/// What became of an id that claimed a slot.
enum class claim_kind : std::uint8_t { refused, repeated, inserted, evicted };

/// The slot that an id got, and how.
struct slot_claim {
  std::int64_t slot = -1;
  claim_kind kind = claim_kind::refused;
};

/// Events of ids are counted in so many places of four words each, as threads would wait for each other at one.
inline constexpr std::int64_t count_places = 64, count_words = 4 * count_places;

/// The four words added up over all places, then what is counted after them. Synchronises.
template <class Exec>
std::array<std::int64_t, 5> added_counts(Exec const& exec, buffer<std::int64_t, Exec> const& counts) {
  std::vector<std::int64_t> words(static_cast<std::size_t>(counts.size()));
  exec.copy_out(words.data(), counts.data(), words.size() * sizeof words[0]);
  std::array<std::int64_t, 5> sums{};
  for (std::size_t i = 0; i < words.size(); ++i) sums[i < std::size_t{count_words} ? i % 4 : 4] += words[i];
  return sums;
}

/// One byte for each of a group's 32 slots, read by two accesses of one sector. It is 0 where no id ever was, else a part of the id's hash.
struct alignas(16) slot_tags {
  static constexpr int words = 4;
  std::uint64_t word[words];
};

/// Finds bytes in a word.
struct tag_bytes {
  static constexpr std::uint64_t ones = 0x0101010101010101, tops = 0x8080808080808080;

  /// Sets the top bit of each byte that is 0, and perhaps of a few above one.
  TESSERA_HOST_DEVICE static constexpr std::uint64_t zeros(std::uint64_t word) noexcept { return (word - ones) & ~word & tops; }
  TESSERA_HOST_DEVICE static constexpr std::uint64_t equal(std::uint64_t word, std::uint64_t tag) noexcept {
    return zeros(word ^ tag * ones);
  }
  /// The number of the lowest byte whose top bit is set in `found`, which is not 0.
  TESSERA_HOST_DEVICE static constexpr int first(std::uint64_t found) noexcept {
    return static_cast<int>((((found & (~found + 1)) - 1) & ones) * ones >> 56) - 1;
  }
};

/// How the groups of a table, each of 32 slots, are divided into buckets.
struct bucket_shape {
  static constexpr int group_slots = 32;

  std::int64_t groups = 0;
  std::int64_t buckets = 1;
  std::int64_t each = 0;  // groups of a bucket; the first `more` buckets have one more
  std::int64_t more = 0;

  constexpr bucket_shape() = default;
  /// `groups_each`: groups a bucket. Buckets take up to as many again less one where they do not come out even.
  constexpr bucket_shape(std::int64_t groups, std::int64_t groups_each) noexcept
      : groups(groups), buckets(groups < groups_each ? 1 : groups / groups_each), each(groups / buckets), more(groups % buckets) {}
};

/// The order in which an id tries slots. The id tries the groups of its bucket from its own group on, and the slots of each group from its
/// own four slots on. Both orders are cyclic.
class bucket_place {
 public:
  /// @pre the table has groups
  TESSERA_HOST_DEVICE constexpr bucket_place(std::int64_t id, bucket_shape const& shape) noexcept {
    auto const hash = mix_bits(static_cast<std::uint64_t>(id));
    auto const bucket = static_cast<std::int64_t>((hash >> 32) * static_cast<std::uint64_t>(shape.buckets) >> 32);
    first_group_ = bucket * shape.each + (bucket < shape.more ? bucket : shape.more);
    groups_ = static_cast<int>(shape.each + (bucket < shape.more ? 1 : 0));
    own_group_ = static_cast<int>((hash & 0xFFFF) * static_cast<std::uint64_t>(groups_) >> 16);
    tag_ = 1 + ((hash >> 16 & 0xFF) * 255 >> 8);
    own_slot_ = static_cast<int>(hash >> 24 & (group_slots - 4));
  }

  TESSERA_HOST_DEVICE constexpr std::uint64_t tag() const noexcept { return tag_; }
  TESSERA_HOST_DEVICE constexpr int groups() const noexcept { return groups_; }
  /// The number, in the table, of the i-th group that the id tries.
  TESSERA_HOST_DEVICE constexpr std::int64_t group(int i) const noexcept {
    auto const at = own_group_ + i;
    return first_group_ + (at < groups_ ? at : at - groups_);
  }
  /// The k-th slot that the id tries.
  TESSERA_HOST_DEVICE constexpr std::int64_t slot(int k) const noexcept {
    return group(k / group_slots) * group_slots + ((own_slot_ + k) & (group_slots - 1));
  }
  TESSERA_HOST_DEVICE constexpr int slots() const noexcept { return groups_ * group_slots; }

 private:
  static constexpr int group_slots = bucket_shape::group_slots;
  std::int64_t first_group_ = 0;
  int groups_ = 0, own_group_ = 0, own_slot_ = 0;
  std::uint64_t tag_ = 0;
};

}  // namespace detail

/// A bucket table as kernels see it. The view has rows and states by slot, the id and the use of each slot, and the tags of the groups of
/// 32 slots.
///
/// `find` first reads the first four slots that an id tries, one sector of 32 bytes. Most ids are there where no row leaves. Then it reads
/// a group's tags, another sector, and those entries whose tag fits. An id that is present costs one sector more; an absent one costs one
/// in one of eight cases. After a full group comes the next of the bucket, if there is one. Counted over 2^20 slots, a present id takes
/// 1.34 sectors in a table that is 4/5 full and keeps all. In one that evicts it takes 2.06, full or not; the use of the entry is in the
/// same sector.
///
/// New ids come in three launches. In `claim` ids may compete for a slot; `settle` makes those that stay visible to `find`; the third
/// writes their rows. Between the first two, a slot holds -2 - id. An id claims slots in a fixed order of preference. Free slots come
/// first, then slots of ids that leave, the first to leave first. Slots of greater new ids come last, the greatest first. What a slot holds
/// only moves later in that order. Ids that come in at once thus agree on a slot each, and who stays and who leaves does not depend on who
/// was first.
template <row_element Element, class Eviction>
struct bucket_rows {
  using element = Element;
  static constexpr bool slots_are_ids = false;
  static constexpr bool evicts = Eviction::evicts;
  static constexpr int group_slots = detail::bucket_shape::group_slots;
  /// Groups a bucket. It is one where rows leave, so that few sectors are read to choose a victim. Else a bucket has so many slots that, of
  /// as many ids as fill 4/5 of them, practically none finds its bucket full.
  static constexpr std::int64_t groups_each = evicts ? 1 : 32;
  static constexpr std::int64_t words = evicts ? 2 : 1;  ///< an entry: the id, its use
  static constexpr std::int64_t no_id = -1;
  static constexpr std::int64_t greatest = std::numeric_limits<std::int64_t>::max();

  Element* weights;         ///< (slots, dim), each behind its scale
  float* states;            ///< (slots, state width)
  std::int64_t* entries;    ///< (slots, words)
  detail::slot_tags* tags;  ///< (groups,)
  std::int64_t* counts;     ///< (count_words,): in each place inserted, evicted, not admitted; in the first then those of `leaving`
  std::int64_t* leaving;    ///< slots whose ids left and these ids, by turns; nullptr where nobody asks
  table_options table;
  std::int64_t state_width;
  float initial_state;
  detail::bucket_shape shape;
  std::int64_t batch;       ///< the present one
  std::int64_t first_kept;  ///< rows used in this batch or later do not leave
  step_count step;

  TESSERA_HOST_DEVICE constexpr table_options const& options() const noexcept { return table; }
  TESSERA_HOST_DEVICE constexpr std::int64_t dim() const noexcept { return table.dim; }
  TESSERA_HOST_DEVICE constexpr step_count steps() const noexcept { return step; }
  TESSERA_HOST_DEVICE constexpr std::int64_t slot_bound() const noexcept { return shape.groups * group_slots; }
  TESSERA_HOST_DEVICE constexpr bool holds(std::int64_t slot) const noexcept {
    return static_cast<std::uint64_t>(slot) < static_cast<std::uint64_t>(slot_bound());
  }
  TESSERA_HOST_DEVICE constexpr std::int64_t& id_of(std::int64_t slot) const noexcept { return entries[slot * words]; }
  /// The use of a slot, as one word (`slot_use`).
  TESSERA_HOST_DEVICE constexpr std::int64_t& use_of(std::int64_t slot) const noexcept { return entries[slot * words + 1]; }
  TESSERA_HOST_DEVICE constexpr Element* row(std::int64_t slot) const noexcept { return detail::row_at(weights, slot, table.dim); }
  TESSERA_HOST_DEVICE constexpr float* state(std::int64_t slot) const noexcept { return states + slot * state_width; }

  /// Whether the table can hold an id: any but negative ones and the greatest, whose mark would be no int64.
  TESSERA_HOST_DEVICE static constexpr bool in_range(std::int64_t id) noexcept { return id >= 0 && id != greatest; }

  /// The slot of an id, or -1. @pre no claim or settle is in the same launch
  TESSERA_HOST_DEVICE std::int64_t find(std::int64_t id) const noexcept {
    using detail::tag_bytes;
    if (!in_range(id) || shape.groups == 0) return -1;
    detail::bucket_place const place(id, shape);
    if constexpr (!evicts) {
      auto const own = place.slot(0);
      auto const ids = detail::read_four(entries + own, 4, true);
      for (int i = 0; i < 4; ++i)
        if (ids[i] == id) return own + i;
    }
    for (int g = 0; g < place.groups(); ++g) {
      auto const group = place.group(g);
      auto const seen = tags[group];
      std::uint64_t never_used = 0;
      for (int w = 0; w < detail::slot_tags::words; ++w) {
        for (auto found = tag_bytes::equal(seen.word[w], place.tag()); found != 0; found &= found - 1) {
          auto const slot = group * group_slots + 8 * w + tag_bytes::first(found);
          if (id_of(slot) == id) return slot;
        }
        never_used |= tag_bytes::zeros(seen.word[w]);
      }
      if (never_used != 0) return -1;  // the id would have come here
    }
    return -1;
  }

  /// Notes that this batch uses the row.
  template <class Block>
  TESSERA_DEVICE void use(Block& block, std::int64_t slot) const {
    if constexpr (evicts) detail::slot_use<Eviction>::used(block, &use_of(slot), batch);
  }

  /// Claims a slot for an id that `find` did not find. Several threads may claim for one id: one inserts it, the others get `repeated`.
  template <class Block>
  TESSERA_DEVICE detail::slot_claim claim(Block& block, std::int64_t id) const {
    using detail::claim_kind;
    if (shape.groups == 0) return {};
    detail::bucket_place const place(id, shape);
    auto const mark = marked(id);
    for (;;) {
      leaver first;
      std::int64_t last_mark = mark, slot_of_last = -1;  // of the greatest new id
      for (int k = 0; k < place.slots(); ++k) {
        auto const slot = place.slot(k);
        auto held = block.load(&id_of(slot));
        if (held == no_id) {
          held = block.compare_exchange(&id_of(slot), no_id, mark);
          if (held == no_id) return {slot, claim_kind::inserted};
        }
        if (held == mark) return {slot, claim_kind::repeated};
        if (held >= 0) {
          first.consider(*this, slot, held);
        } else if (held < last_mark) {
          last_mark = held;
          slot_of_last = slot;
        }
      }
      auto const slot = first.slot >= 0 ? first.slot : slot_of_last;
      if (slot < 0) return {};
      auto const held = first.slot >= 0 ? first.id : last_mark;
      if (block.compare_exchange(&id_of(slot), held, mark) != held) continue;
      if (first.slot < 0) return {slot, claim_kind::inserted};
      note_leaving(block, slot, held);
      return {slot, claim_kind::evicted};
    }
  }

  /// Whether the id still has its slot. The thread whose claim inserted the id makes it visible. @pre all claims were in earlier launches
  template <class Block>
  TESSERA_DEVICE bool settle(Block& block, std::int64_t id, detail::slot_claim const& claim) const {
    if (claim.slot < 0) return false;
    auto const held = block.load(&id_of(claim.slot));
    if (held != marked(id) && held != id) return false;
    if (claim.kind == detail::claim_kind::repeated) return true;
    if constexpr (evicts) use_of(claim.slot) = detail::slot_use<Eviction>::first(batch);
    reinterpret_cast<unsigned char*>(tags)[claim.slot] =
        static_cast<unsigned char>(detail::bucket_place(id, shape).tag());  // bytes of words, the lowest first
    block.store(&id_of(claim.slot), id);
    return true;
  }

  /// Takes an id's row away. It is false where the id has none, or another thread was first.
  template <class Block>
  TESSERA_DEVICE bool erase(Block& block, std::int64_t slot, std::int64_t id) const {
    return block.compare_exchange(&id_of(slot), id, no_id) == id;
  }

  /// Lists a slot whose id leaves, and the id, where anybody asks.
  template <class Block>
  TESSERA_DEVICE void note_leaving(Block& block, std::int64_t slot, std::int64_t id) const {
    count(block, 1);
    if (leaving == nullptr) return;
    auto const at = block.add(counts + 3, std::int64_t{1});
    leaving[2 * at] = slot;
    leaving[2 * at + 1] = id;
  }
  /// Counts one id as inserted, evicted or not admitted.
  template <class Block>
  TESSERA_DEVICE void count(Block& block, int what) const {
    block.add(counts + (block.index() + block.thread()) % detail::count_places * 4 + what, std::int64_t{1});
  }
  /// Whether a row that is in use may leave.
  TESSERA_HOST_DEVICE constexpr bool may_leave(std::int64_t slot) const noexcept {
    if constexpr (evicts) return detail::slot_use<Eviction>::last_batch(use_of(slot)) < first_kept;
    return false;
  }

 private:
  TESSERA_HOST_DEVICE static constexpr std::int64_t marked(std::int64_t id) noexcept { return -2 - id; }

  // Of the ids that may leave, the one used least; of several the least.
  struct leaver {
    std::int64_t slot = -1, id = 0, use = 0;

    TESSERA_HOST_DEVICE constexpr void consider(bucket_rows const& rows, std::int64_t other, std::int64_t other_id) noexcept {
      if constexpr (evicts) {
        if (!rows.may_leave(other)) return;
        auto const other_use = rows.use_of(other);
        if (slot >= 0 && (use < other_use || (use == other_use && id < other_id))) return;
        slot = other;
        id = other_id;
        use = other_use;
      }
    }
  };
};

}  // namespace TESSERA_ABI
}  // namespace tessera
