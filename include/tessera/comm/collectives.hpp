// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/communicator.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Values as the bytes of a message.
template <class T>
vector_view<std::byte const> message_bytes(vector_view<T> values) noexcept {
  static_assert(std::is_trivially_copyable_v<T>, "a message is plain data");
  return {reinterpret_cast<std::byte const*>(values.data()), values.size() * static_cast<std::int64_t>(sizeof(T))};
}
/// The bytes of a message as values. @throws tessera::error incompatible for bytes that are no whole number of values.
template <class T>
vector_view<T const> message_values(vector_view<std::byte const> bytes) {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= detail::message_alignment, "a message is plain data");
  constexpr auto each = static_cast<std::int64_t>(sizeof(T));
  if (bytes.size() % each != 0)
    throw error(errc::incompatible, "communicator: a message of no whole number of values",
                {{"bytes", bytes.size()}, {"bytes a value", each}});
  return {reinterpret_cast<T const*>(bytes.data()), bytes.size() / each};
}

/// Sends values of a rank to all ranks, whose numbers of values may differ. The result has an entry for each rank, which lies in `pending`.
/// All ranks call it. With a `failure`, all ranks throw, as `communicator` says. @throws tessera::error as `communicator` says.
template <class T, communicator C>
std::vector<vector_view<T const>> all_gather(typename C::execution_type const& exec, C& comm, vector_view<T const> own,
                                             typename C::pending_type& pending, char const* operation = "all_gather",
                                             std::exception_ptr failure = nullptr) {
  std::vector<sent_message> send;
  std::vector<awaited_message> receive;
  for (int r = 0; r < comm.size(); ++r) {
    send.push_back({r, message_bytes(own)});
    receive.push_back({r});
  }
  comm.begin(exec, {send, receive, operation}, pending, failure);
  std::vector<vector_view<T const>> all;
  for (auto const& bytes : comm.finish(exec, pending)) all.push_back(message_values<T>(bytes));
  return all;
}

namespace detail {

// The ranks that have this rank's color, by (key, rank), and the number of colors below this one. All ranks call it.
struct split_members {
  std::vector<int> ranks;
  int place = 0;   // of this rank among them
  int colors = 0;  // below its own

  struct wish {
    std::int64_t color, key;
  };

  template <communicator C>
  static split_members of(typename C::execution_type const& exec, C& comm, std::int64_t color, std::int64_t key) {
    wish const own{color, key};
    typename C::pending_type pending;
    std::vector<wish> wishes;
    for (auto const& one : all_gather<wish>(exec, comm, {&own, 1}, pending, "split")) wishes.push_back(one[0]);
    return of(wishes, comm.rank());
  }
  static split_members of(std::vector<wish> const& wishes, int rank) {
    auto const color = wishes[static_cast<std::size_t>(rank)].color;
    std::vector<std::pair<std::int64_t, int>> same;
    std::vector<std::int64_t> below;
    for (std::size_t r = 0; r < wishes.size(); ++r) {
      if (wishes[r].color == color) same.emplace_back(wishes[r].key, static_cast<int>(r));
      if (wishes[r].color < color) below.push_back(wishes[r].color);
    }
    std::sort(same.begin(), same.end());
    std::sort(below.begin(), below.end());
    split_members members;
    members.colors = static_cast<int>(std::unique(below.begin(), below.end()) - below.begin());
    members.ranks.reserve(same.size());
    for (auto const& one : same) members.ranks.push_back(one.second);
    members.place = static_cast<int>(std::find(members.ranks.begin(), members.ranks.end(), rank) - members.ranks.begin());
    return members;
  }
};

}  // namespace detail

/// Waits until all ranks have called it. With a `failure`, all ranks throw: this one the failure, others rank_failed. So ranks agree before
/// they go on to what only all of them can do.
/// @throws tessera::error as `communicator` says.
template <communicator C>
void barrier(typename C::execution_type const& exec, C& comm, char const* operation = "barrier", std::exception_ptr failure = nullptr) {
  typename C::pending_type pending;
  all_gather<std::byte>(exec, comm, {}, pending, operation, failure);
}

/// Overwrites `values` with those of rank `root`. All ranks call it, with as many values, and return when they have them.
/// @throws tessera::error invalid_argument for a root that is not there; incompatible for another number of values than the root's; and as
/// `communicator` says.
template <class T, communicator C>
void broadcast(host_exec const& exec, C& comm, vector_view<T> values, int root) {
  std::vector<sent_message> send;
  std::vector<awaited_message> receive;
  if (comm.rank() != root)
    receive.push_back({root, message_bytes(values).size()});
  else
    for (int r = 0; r < comm.size(); ++r)
      if (r != root) send.push_back({r, message_bytes(values)});
  if (root < 0 || root >= comm.size())
    throw error(errc::invalid_argument, "broadcast: no such rank", {{"root", root}, {"ranks", comm.size()}});
  typename C::pending_type pending;
  comm.begin(exec, {send, receive, "broadcast"}, pending);
  for (auto const& bytes : comm.finish(exec, pending)) {
    auto const from = message_values<T>(bytes);
    std::copy(from.begin(), from.end(), values.begin());
  }
}

/// Refuses ranks that give another text than rank 0, such as a list of options, a line each. All ranks call it; with a `failure`, all throw.
/// @throws tessera::error as `communicator` says; incompatible, on ranks that differ, naming the first line that does, here and on rank 0.
/// Then all other ranks throw rank_failed.
template <communicator C>
void check_same_text(host_exec const& exec, C& comm, std::string_view text, char const* operation, std::exception_ptr failure = nullptr) {
  typename C::pending_type pending;
  auto const all =
      all_gather<char>(exec, comm, {text.data(), static_cast<std::int64_t>(text.size())}, pending, operation, std::move(failure));
  std::string_view const first(all[0].data(), static_cast<std::size_t>(all[0].size()));
  std::exception_ptr difference;
  if (first != text) {
    auto const same = static_cast<std::size_t>(std::mismatch(first.begin(), first.end(), text.begin(), text.end()).first - first.begin());
    auto const line = [&](std::string_view of) {
      auto const begin = of.substr(0, same).rfind('\n') + 1;  // 0 where there is none
      return of.substr(begin, of.find('\n', begin) - begin);
    };
    difference = std::make_exception_ptr(
        error(errc::incompatible, "communicator: ranks disagree",
              {{"operation", operation}, {"rank", comm.rank()}, {"there", line(text)}, {"on rank 0", line(first)}}));
  }
  barrier(exec, comm, operation, difference);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
