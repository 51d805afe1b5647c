// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/communicator.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

template <communicator C>
class named_ranks_communicator;

/// What an exchange of a `named_ranks_communicator` has under way. The caller owns it, and may use it again. Move-only.
template <communicator C>
class named_ranks_pending {
 private:
  friend class named_ranks_communicator<C>;
  typename C::pending_type held_;
  std::exception_ptr failure_;  // of this rank, whose values stay as they are
};

/// A communicator that another one split off, and whose errors name ranks by the numbers that they have there. Else it is the one below.
///
///     named_ranks_communicator part(comm.split(exec, color, comm.rank()), {1, 3});  // of ranks 1 and 3 of comm
///     part.finish(exec, pending);  // throws "another rank failed (rank 3, …)" where its rank 1 failed
///
/// So are the values "rank", "from rank" and "ranks" of rank_failed, timed_out and incompatible. The text of "reason" stays as the rank wrote
/// it that failed: a rank that left as others did not come names them as the communicator below does.
template <communicator C>
class named_ranks_communicator {
 public:
  using execution_type = typename C::execution_type;
  using pending_type = named_ranks_pending<C>;

  /// `numbers` has the number of each rank of `comm`, in order. @throws tessera::error invalid_argument for another number of them.
  named_ranks_communicator(C comm, std::vector<int> numbers) : comm_(std::move(comm)), numbers_(std::move(numbers)) {
    if (numbers_.size() != static_cast<std::size_t>(comm_.size()))
      throw error(errc::invalid_argument, "named_ranks_communicator: one number a rank",
                  {{"numbers", numbers_.size()}, {"ranks", comm_.size()}});
  }

  /// Which of the ranks this is, from 0, of those of the communicator below.
  int rank() const noexcept { return comm_.rank(); }
  /// How many ranks there are.
  int size() const noexcept { return comm_.size(); }
  /// Begins an exchange of the communicator below. @throws what that throws.
  void begin(execution_type const& exec, exchange_messages const& messages, pending_type& pending, std::exception_ptr failure = nullptr) {
    named(failure, [&] { comm_.begin(exec, messages, pending.held_, failure); });
    pending.failure_ = std::move(failure);
  }
  /// Finishes an exchange of the communicator below. @throws what that throws, with ranks named as above; the rank's own failure as it is.
  received_messages finish(execution_type const& exec, pending_type& pending) {
    auto const failure = std::exchange(pending.failure_, nullptr);
    received_messages received;
    named(failure, [&] { received = comm_.finish(exec, pending.held_); });
    return received;
  }
  /// Tells all ranks that this one has left.
  void fail(std::string_view reason) { comm_.fail(reason); }
  /// Makes a communicator of the ranks with the same color, which names them as this one does. All ranks call it. @throws as `finish`.
  named_ranks_communicator split(execution_type const& exec, std::int64_t color, std::int64_t key) {
    auto const members = detail::split_members::of(exec, *this, color, key);
    std::vector<int> numbers;
    for (auto const rank : members.ranks) numbers.push_back(numbers_[static_cast<std::size_t>(rank)]);
    return {comm_.split(exec, color, key), std::move(numbers)};
  }

 private:
  template <class F>
  void named(std::exception_ptr const& own, F const& f) const {
    try {
      f();
    } catch (error const& e) {
      if (std::current_exception() == own) throw;
      if (e.code() != errc::rank_failed && e.code() != errc::timed_out && e.code() != errc::incompatible) throw;
      auto values = e.values();
      for (auto& value : values)
        if (value.name == "rank" || value.name == "from rank" || value.name == "ranks") value.value = renamed(value.value);
      throw error(e.code(), e.sentence(), std::move(values));
    }
  }
  // A list of ranks, with a blank between them.
  std::string renamed(std::string_view text) const {
    std::string result;
    while (!text.empty()) {
      auto const one = text.substr(0, text.find(' '));
      std::size_t rank = numbers_.size();
      std::from_chars(one.data(), one.data() + one.size(), rank);
      result += rank < numbers_.size() ? std::to_string(numbers_[rank]) : std::string(one);
      text.remove_prefix(one.size());
      if (text.empty()) break;
      result += ' ';
      text.remove_prefix(1);
    }
    return result;
  }

  C comm_;
  std::vector<int> numbers_;
};
static_assert(communicator<named_ranks_communicator<self_communicator>>);

}  // namespace TESSERA_ABI
}  // namespace tessera
