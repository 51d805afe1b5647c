// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include <tessera/comm/communicator.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

struct pending_base {
  virtual ~pending_base() = default;
};
template <class Pending>
struct pending_holder : pending_base {
  Pending held;
};

}  // namespace detail

/// What an exchange of an `any_communicator` has under way. The caller owns it, and may use it again. Move-only.
class any_pending {
 private:
  friend class any_communicator;
  std::unique_ptr<detail::pending_base> held_;
};

/// A communicator of the host whose model is chosen at run time; it is a model itself. What is written for it is compiled once.
///
///     any_communicator comm = is_launched_by_mpi ? any_communicator(mpi_communicator(mpi.world())) : any_communicator(self_communicator());
///
/// A copy is the same rank. A call costs one virtual call.
class any_communicator {
 public:
  using execution_type = host_exec;
  using pending_type = any_pending;

  /// Holds a communicator, which is the same rank as `comm`.
  template <communicator C>
    requires(!std::same_as<C, any_communicator> && std::same_as<typename C::execution_type, host_exec>)
  any_communicator(C comm)  // NOLINT: implicit, as a base
      : held_(std::make_shared<holder<C>>(std::move(comm))) {}

  /// Which of the ranks this is, from 0.
  int rank() const noexcept { return held_->rank(); }
  /// How many ranks there are.
  int size() const noexcept { return held_->size(); }
  /// Begins an exchange of the communicator that is held. @throws what that throws.
  void begin(host_exec const& exec, exchange_messages const& messages, any_pending& pending, std::exception_ptr failure = nullptr) {
    held_->begin(exec, messages, pending.held_, std::move(failure));
  }
  /// Finishes an exchange. @throws what the communicator that is held throws; invalid_argument where nothing is under way.
  received_messages finish(host_exec const& exec, any_pending& pending) {
    if (pending.held_ == nullptr) throw error(errc::invalid_argument, "communicator: no exchange is under way");
    return held_->finish(exec, pending.held_);
  }
  /// Tells all ranks that this one has left.
  void fail(std::string_view reason) { held_->fail(reason); }
  /// Makes a communicator of the ranks with the same color. All ranks call it. @throws what the communicator that is held throws.
  any_communicator split(host_exec const& exec, std::int64_t color, std::int64_t key) {
    return any_communicator(held_->split(exec, color, key));
  }

  /// Whether the communicator that is held has a `sum_native`.
  bool has_native_sum() const noexcept { return held_->has_native_sum(); }
  /// Sums as `sums_natively` says. @throws what the communicator that is held throws; invalid_argument where it has no such sum.
  void sum_native(host_exec const& exec, vector_view<float> values) { held_->sum_native(exec, values); }

 private:
  struct base {
    virtual ~base() = default;
    virtual int rank() const noexcept = 0;
    virtual int size() const noexcept = 0;
    virtual void begin(host_exec const& exec, exchange_messages const& messages, std::unique_ptr<detail::pending_base>& pending,
                       std::exception_ptr failure) = 0;
    virtual received_messages finish(host_exec const& exec, std::unique_ptr<detail::pending_base>& pending) = 0;
    virtual void fail(std::string_view reason) = 0;
    virtual std::shared_ptr<base> split(host_exec const& exec, std::int64_t color, std::int64_t key) = 0;
    virtual bool has_native_sum() const noexcept = 0;
    virtual void sum_native(host_exec const& exec, vector_view<float> values) = 0;
  };

  template <class C>
  struct holder final : base {
    using pending_holder = detail::pending_holder<typename C::pending_type>;

    explicit holder(C comm) : comm(std::move(comm)) {}
    int rank() const noexcept override { return comm.rank(); }
    int size() const noexcept override { return comm.size(); }
    void begin(host_exec const& exec, exchange_messages const& messages, std::unique_ptr<detail::pending_base>& pending,
               std::exception_ptr failure) override {
      if (dynamic_cast<pending_holder*>(pending.get()) == nullptr) pending = std::make_unique<pending_holder>();
      comm.begin(exec, messages, static_cast<pending_holder&>(*pending).held, std::move(failure));
    }
    received_messages finish(host_exec const& exec, std::unique_ptr<detail::pending_base>& pending) override {
      auto* const mine = dynamic_cast<pending_holder*>(pending.get());
      if (mine == nullptr) throw error(errc::invalid_argument, "communicator: the exchange is of another communicator");
      return comm.finish(exec, mine->held);
    }
    void fail(std::string_view reason) override { comm.fail(reason); }
    std::shared_ptr<base> split(host_exec const& exec, std::int64_t color, std::int64_t key) override {
      return std::make_shared<holder>(comm.split(exec, color, key));
    }
    bool has_native_sum() const noexcept override { return sums_natively<C>; }
    void sum_native([[maybe_unused]] host_exec const& exec, [[maybe_unused]] vector_view<float> values) override {
      if constexpr (sums_natively<C>)
        comm.sum_native(exec, values);
      else
        throw error(errc::invalid_argument, "any_communicator: the communicator has no sum_native", {{"ranks", comm.size()}});
    }

    C comm;
  };

  explicit any_communicator(std::shared_ptr<base> held) : held_(std::move(held)) {}

  std::shared_ptr<base> held_;
};
static_assert(communicator<any_communicator>);

}  // namespace TESSERA_ABI
}  // namespace tessera
