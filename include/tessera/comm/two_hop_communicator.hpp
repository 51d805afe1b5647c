// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/comm/communicator.hpp>
#include <tessera/comm/message_bundle.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of `two_hop_communicator`.
struct two_hop_options {
  std::string_view level = "host";  ///< name of the topology's level whose domains exchange one message a pair
};

template <communicator Base>
class two_hop_pending;

/// The ranks of another communicator, whose exchanges send one message from each host to each other one: a model of `communicator`.
///
///     two_hop_communicator comm(mpi_communicator(mpi.world()), detect_topology(exec, world));
///     sharded_tables tables(exec, comm, …);  // as over any other
///
/// A host is a domain of a level of a topology. Of a host's ranks, one carries all that they send to another host, and brings what comes from
/// there. Carriers take turns: of H hosts, a rank of a host with L ranks carries for (H - 1) / L hosts, rounded up or down. An exchange is
/// three of the base:
///
/// 1. within hosts: each rank sends each other rank of its host one message, with what that rank is to have and to carry;
/// 2. between hosts: each carrier sends one message to the carrier of the other host;
/// 3. within hosts: each carrier sends each other rank of its host one message with what came.
///
/// So there are L (L - 1) + (H - 1) + (L - 1) min(L, H - 1) messages a host, whatever ranks send. A flat exchange has L^2 (H - 1) between
/// hosts. What leaves a host travels twice within hosts, and is copied twice more. Where one host has all ranks, or each rank is a host,
/// exchanges are those of the base.
///
/// What arrives, failures and errors are those of the base, but for this:
///
/// - All ranks call `begin` and `finish` of each exchange, in the same order, also those that send and await nothing.
/// - Messages of an exchange meet those awaited in the same one. `finish` throws incompatible for one too few or too many.
/// - Between `begin` and `finish` the first of the three exchanges travels, the others in `finish`. That waits for up to three time limits of
///   the base. Where a rank does not come or has left, ranks of other hosts may name the carrier that waited for it. Its reason names the rank.
///
/// Sums go best level by level (`split_by_levels`), whose communicators exchange as the base does, or over `base()`.
/// A copy of a communicator is the same rank. Source: hierarchical all-to-all, as of DeepSpeed-MoE (2022) and Tutel (2023).
template <communicator Base>
class two_hop_communicator {
  static_assert(std::same_as<typename Base::execution_type, host_exec>, "messages are put together on the host");

 public:
  using execution_type = host_exec;
  using pending_type = two_hop_pending<Base>;

  /// The ranks of `base`, which lie as `ranks` says. All ranks make one, with the same topology. It sends nothing.
  /// @throws tessera::error invalid_argument for a topology of another number of ranks, and for a level that it does not have.
  two_hop_communicator(Base base, topology const& ranks, two_hop_options const& options = {})
      : two_hop_communicator(std::move(base), places_of(ranks, options)) {}

  /// Which of the ranks this is, from 0.
  int rank() const noexcept { return base_.rank(); }
  /// How many ranks there are.
  int size() const noexcept { return base_.size(); }
  /// How many hosts they lie on.
  int hosts() const noexcept { return static_cast<int>(places_->ranks.size()); }
  /// The communicator that messages travel by, of the same ranks.
  Base& base() noexcept { return base_; }

  /// Sends what goes to and through ranks of this host. It waits as `begin` of the base does.
  /// @throws tessera::error as `communicator` says. invalid_argument for a `pending` that is under way.
  void begin(host_exec const& exec, exchange_messages const& messages, pending_type& pending, std::exception_ptr failure = nullptr);

  /// Waits for what `begin` has sent and awaits, and carries on what other ranks send. @throws tessera::error as `communicator` says; what
  /// the memory throws, after which the rank has left; invalid_argument where nothing is under way.
  received_messages finish(host_exec const& exec, pending_type& pending);

  /// Tells all ranks that this one has left: what they await of it, or through it, throws.
  void fail(std::string_view reason) { base_.fail(reason); }

  /// Makes a communicator of the ranks with the same color, on the same hosts. All ranks call it. @throws tessera::error as `finish`.
  two_hop_communicator split(host_exec const& exec, std::int64_t color, std::int64_t key) {
    auto part = base_.split(exec, color, key);
    auto const own = places_->host_of[static_cast<std::size_t>(rank())];
    typename Base::pending_type pending;
    std::vector<int> host_of;
    for (auto const& one : all_gather<int>(exec, part, {&own, 1}, pending, "split")) host_of.push_back(one[0]);
    return {std::move(part), std::make_shared<host_places const>(host_of)};
  }

  /// Sums in the base's own order, as `sums_natively` says. @throws tessera::error as the base does.
  void sum_native(host_exec const& exec, vector_view<float> values) requires sums_natively<Base> { base_.sum_native(exec, values); }

 private:
  friend class two_hop_pending<Base>;

  struct host_places {
    std::vector<std::vector<int>> ranks;  // of each host
    std::vector<int> host_of, index_of;   // of each rank

    // From a number of each rank's host, of any numbers.
    explicit host_places(std::vector<int> const& numbers) : host_of(numbers.size()), index_of(numbers.size()) {
      std::vector<int> known;
      for (std::size_t r = 0; r < numbers.size(); ++r) {
        auto const found = std::find(known.begin(), known.end(), numbers[r]);
        auto const host = static_cast<std::size_t>(found - known.begin());
        if (found == known.end()) {
          known.push_back(numbers[r]);
          ranks.emplace_back();
        }
        host_of[r] = static_cast<int>(host);
        index_of[r] = static_cast<int>(ranks[host].size());
        ranks[host].push_back(static_cast<int>(r));
      }
    }
    int hosts() const noexcept { return static_cast<int>(ranks.size()); }
    bool is_flat() const noexcept { return hosts() == 1 || ranks.size() == host_of.size(); }
    std::vector<int> const& ranks_with(int rank) const noexcept {
      return ranks[static_cast<std::size_t>(host_of[static_cast<std::size_t>(rank)])];
    }
    // The rank of a host that carries what goes from there to another host, and what comes from that.
    int carrier(int host, int other) const noexcept {
      auto const& all = ranks[static_cast<std::size_t>(host)];
      return all[static_cast<std::size_t>(detail::carrier_index(host, other, hosts(), static_cast<std::int64_t>(all.size())))];
    }
    // How many of a host's ranks carry: the first ones.
    std::size_t carriers(std::size_t ranks_of_host) const noexcept { return std::min(ranks_of_host, ranks.size() - 1); }
  };

  two_hop_communicator(Base base, std::shared_ptr<host_places const> places) : base_(std::move(base)), places_(std::move(places)) {
    if (places_->host_of.size() != static_cast<std::size_t>(base_.size()))
      throw error(errc::invalid_argument, "two_hop_communicator: a topology of another number of ranks",
                  {{"topology", places_->host_of.size()}, {"ranks", base_.size()}});
  }
  static std::shared_ptr<host_places const> places_of(topology const& ranks, two_hop_options const& options) {
    auto const level = ranks.level(options.level);
    std::vector<int> host_of;
    for (std::int64_t r = 0; r < ranks.ranks(); ++r) host_of.push_back(static_cast<int>(ranks.domain_of(level, r)));
    return std::make_shared<host_places const>(host_of);
  }

  // What fails within leaves other ranks without what they await: the rank leaves. Errors of the base are told of the caller's operation.
  template <class F>
  void guarded(char const* operation, F const& f) {
    try {
      f();
    } catch (error const& e) {
      base_.fail(e.what());
      if (e.value("operation").empty()) throw;
      auto values = e.values();
      for (auto& value : values)
        if (value.name == "operation") value.value = operation;
      throw error(e.code(), e.sentence(), std::move(values));
    } catch (std::exception const& e) {
      base_.fail(e.what());
      throw;
    } catch (...) {
      base_.fail(operation);
      throw;
    }
  }

  using parts_list = std::vector<detail::bundle_part>;

  parts_list carry(host_exec const& exec, pending_type& pending);
  void carry_between(host_exec const& exec, pending_type& pending, std::vector<parts_list> const& of_hosts, parts_list& brought);
  void carry_inside(host_exec const& exec, pending_type& pending, parts_list const& brought, parts_list& own);
  void hand_out(pending_type& pending, parts_list own) const;

  Base base_;
  std::shared_ptr<host_places const> places_;
};
static_assert(communicator<two_hop_communicator<any_communicator>>);

/// What an exchange of a `two_hop_communicator` has under way. The caller owns it, and may use it again. Move-only.
template <communicator Base>
class two_hop_pending {
 public:
  two_hop_pending() = default;
  two_hop_pending(two_hop_pending&&) noexcept = default;
  /// What was under way here has ended before its `finish`.
  two_hop_pending& operator=(two_hop_pending&&) noexcept = default;

  /// Whether `finish` is still to come.
  bool under_way() const noexcept { return held_ != nullptr && held_->places != nullptr; }

 private:
  friend class two_hop_communicator<Base>;

  struct state {
    std::shared_ptr<typename two_hop_communicator<Base>::host_places const> places;  // none: nothing is under way
    char const* operation = "";
    std::exception_ptr failure;  // of this rank
    std::string reason;          // its text
    std::vector<awaited_message> awaited;
    std::vector<buffer<std::byte>> to_ranks, to_hosts, from_hosts;  // bundles, which go to ranks of this host first and last
    detail::message_boxes<host_exec> boxes;                         // views alone: what arrived lies in bundles
    typename Base::pending_type inside, between, onward;            // which end before what they send
  };

  std::unique_ptr<state> held_;
};

template <communicator Base>
void two_hop_communicator<Base>::begin(host_exec const& exec, exchange_messages const& messages, pending_type& pending,
                                       std::exception_ptr failure) {
  detail::check_messages(messages, size());
  if (pending.under_way())
    throw error(errc::invalid_argument, "communicator: an exchange is under way", {{"operation", pending.held_->operation}});
  if (pending.held_ == nullptr) pending.held_ = std::make_unique<typename pending_type::state>();
  auto& p = *pending.held_;
  if (places_->is_flat()) {
    base_.begin(exec, messages, p.inside, std::move(failure));
    p.operation = messages.operation;
    p.places = places_;
    return;
  }
  guarded(messages.operation, [&] {
    p.operation = messages.operation;
    p.failure = failure;
    p.reason = failure == nullptr ? std::string() : detail::reason_of(failure);
    p.awaited.assign(messages.receive.begin(), messages.receive.end());
    auto const& mine = places_->ranks_with(rank());
    auto const host = places_->host_of[static_cast<std::size_t>(rank())];
    std::vector<parts_list> parts(mine.size());
    for (auto const& m : messages.send) {
      auto const other = places_->host_of[static_cast<std::size_t>(m.to)];
      auto const by = other == host ? m.to : places_->carrier(host, other);
      auto const bytes = failure == nullptr ? m.bytes : message_bytes(vector_view<char const>(p.reason));
      parts[static_cast<std::size_t>(places_->index_of[static_cast<std::size_t>(by)])].push_back(
          {{rank(), m.to, bytes.size(), detail::operation_number(p.operation), failure == nullptr ? 0U : 1U}, bytes.data()});
    }
    if (p.to_ranks.size() < mine.size()) p.to_ranks.resize(mine.size());
    std::vector<sent_message> send;
    std::vector<awaited_message> receive;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      detail::write_bundle(exec, parts[i], p.to_ranks[i]);
      if (mine[i] == rank()) continue;
      send.push_back({mine[i], std::as_const(p.to_ranks[i]).view()});
      receive.push_back({mine[i]});
    }
    base_.begin(exec, {send, receive, "messages within hosts"}, p.inside);
    p.places = places_;
  });
}

template <communicator Base>
received_messages two_hop_communicator<Base>::finish(host_exec const& exec, pending_type& pending) {
  if (!pending.under_way()) throw error(errc::invalid_argument, "communicator: no exchange is under way");
  auto& p = *pending.held_;
  if (p.places != places_)
    throw error(errc::invalid_argument, "communicator: the exchange is of another communicator", {{"operation", p.operation}});
  p.places = nullptr;
  if (places_->is_flat()) return base_.finish(exec, p.inside);
  guarded(p.operation, [&] { hand_out(pending, carry(exec, pending)); });
  if (p.failure != nullptr) std::rethrow_exception(std::exchange(p.failure, nullptr));
  if (p.boxes.failure != nullptr) std::rethrow_exception(std::exchange(p.boxes.failure, nullptr));
  return p.boxes.views;
}

// Takes what came within the host, and returns what is for this rank: of one sender in its order. What is for others is carried on, in two
// more exchanges, which all ranks begin, as the base may want.
template <communicator Base>
typename two_hop_communicator<Base>::parts_list two_hop_communicator<Base>::carry(host_exec const& exec, pending_type& pending) {
  auto& p = *pending.held_;
  parts_list own, brought;
  std::vector<parts_list> of_hosts(places_->ranks.size());
  auto const take = [&](detail::bundle_part const& part) {
    if (part.head.to == rank())
      own.push_back(part);
    else
      of_hosts[static_cast<std::size_t>(places_->host_of[static_cast<std::size_t>(part.head.to)])].push_back(part);
  };
  auto const received = base_.finish(exec, p.inside);
  detail::read_bundle(std::as_const(p.to_ranks[static_cast<std::size_t>(places_->index_of[static_cast<std::size_t>(rank())])]).view(),
                      take);
  for (auto const& bundle : received) detail::read_bundle(bundle, take);
  carry_between(exec, pending, of_hosts, brought);
  carry_inside(exec, pending, brought, own);
  return own;
}

template <communicator Base>
void two_hop_communicator<Base>::carry_between(host_exec const& exec, pending_type& pending, std::vector<parts_list> const& of_hosts,
                                               parts_list& brought) {
  auto& p = *pending.held_;
  auto const host = places_->host_of[static_cast<std::size_t>(rank())];
  if (p.to_hosts.size() < of_hosts.size()) p.to_hosts.resize(of_hosts.size());
  std::vector<sent_message> send;
  std::vector<awaited_message> receive;
  for (int other = 0; other < hosts(); ++other) {
    if (other == host || places_->carrier(host, other) != rank()) continue;
    auto& bundle = p.to_hosts[static_cast<std::size_t>(other)];
    detail::write_bundle(exec, of_hosts[static_cast<std::size_t>(other)], bundle);
    auto const peer = places_->carrier(other, host);
    send.push_back({peer, std::as_const(bundle).view()});
    receive.push_back({peer});
  }
  base_.begin(exec, {send, receive, "messages between hosts"}, p.between);
  for (auto const& bundle : base_.finish(exec, p.between))
    detail::read_bundle(bundle, [&](detail::bundle_part const& part) { brought.push_back(part); });
}

template <communicator Base>
void two_hop_communicator<Base>::carry_inside(host_exec const& exec, pending_type& pending, parts_list const& brought, parts_list& own) {
  auto& p = *pending.held_;
  auto const& mine = places_->ranks_with(rank());
  auto const index_of = [&](int of) { return static_cast<std::size_t>(places_->index_of[static_cast<std::size_t>(of)]); };
  std::vector<parts_list> of_ranks(mine.size());
  for (auto const& part : brought) of_ranks[index_of(part.head.to)].push_back(part);
  own.insert(own.end(), of_ranks[index_of(rank())].begin(), of_ranks[index_of(rank())].end());
  if (p.from_hosts.size() < mine.size()) p.from_hosts.resize(mine.size());
  auto const carriers = places_->carriers(mine.size());
  bool const carries = index_of(rank()) < carriers;
  std::vector<sent_message> send;
  std::vector<awaited_message> receive;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    if (mine[i] == rank()) continue;
    if (i < carriers) receive.push_back({mine[i]});
    if (!carries) continue;
    detail::write_bundle(exec, of_ranks[i], p.from_hosts[i]);
    send.push_back({mine[i], std::as_const(p.from_hosts[i]).view()});
  }
  base_.begin(exec, {send, receive, "messages from other hosts"}, p.onward);
  for (auto const& bundle : base_.finish(exec, p.onward))
    detail::read_bundle(bundle, [&](detail::bundle_part const& part) { own.push_back(part); });
}

// Each awaited message meets the sender's next one.
template <communicator Base>
void two_hop_communicator<Base>::hand_out(pending_type& pending, parts_list own) const {
  auto& p = *pending.held_;
  std::stable_sort(own.begin(), own.end(), [](auto const& a, auto const& b) { return a.head.from < b.head.from; });
  std::vector<std::size_t> next(static_cast<std::size_t>(size()) + 1);
  for (auto const& part : own) ++next[static_cast<std::size_t>(part.head.from) + 1];
  for (std::size_t r = 1; r < next.size(); ++r) next[r] += next[r - 1];
  auto const end = next;
  p.boxes.reset(static_cast<std::int64_t>(p.awaited.size()));
  auto const refuse = [&](int from, char const* why) {
    p.boxes.note(from, {errc::incompatible, why, {{"operation", p.operation}, {"from rank", from}}});
  };
  for (std::size_t i = 0; i < p.awaited.size(); ++i) {
    auto const [from, bytes] = p.awaited[i];
    auto& at = next[static_cast<std::size_t>(from)];
    if (at == end[static_cast<std::size_t>(from) + 1]) {
      refuse(from, "ranks are out of step: fewer messages than awaited");
      continue;
    }
    auto const& [head, data] = own[at++];
    if (head.failed != 0)
      p.boxes.note(from,
                   detail::rank_failed(p.operation, from, {reinterpret_cast<char const*>(data), static_cast<std::size_t>(head.bytes)}));
    else if (head.operation != detail::operation_number(p.operation))
      p.boxes.note(from, detail::out_of_step(p.operation, from, "another"));
    else if (bytes != awaited_message::unknown && bytes != head.bytes)
      p.boxes.note(from, detail::wrong_size(p.operation, from, bytes, head.bytes));
    else
      p.boxes.views[i] = {data, head.bytes};
  }
  for (int r = 0; r < size(); ++r)
    if (next[static_cast<std::size_t>(r)] != end[static_cast<std::size_t>(r) + 1])
      refuse(r, "ranks are out of step: more messages than awaited");
}

}  // namespace TESSERA_ABI
}  // namespace tessera
