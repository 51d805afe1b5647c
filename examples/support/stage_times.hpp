// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/comm/communicator.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/stopwatch.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/embed/source_adaptor.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/tower/tower_module.hpp>

namespace examples {

/// Seconds that a rank spent in the stages of its steps. Stages stand inside others: exchanges and modules in the source's calls, these in the step.
struct stage_times {
  double between_hosts = 0;  ///< exchanges of ranks of several hosts: sending, waiting
  double inside_hosts = 0;   ///< exchanges of ranks of one host
  double modules = 0;
  double source = 0;  ///< all calls of the source
  double step = 0;
};

/// A communicator that adds up how long another one's exchanges take: those in which a rank awaits or tells ranks of its own host alone, and
/// the others. A model of `communicator`.
class timed_communicator {
 public:
  using execution_type = tessera::host_exec;
  struct pending_type {
    tessera::any_pending held;
    double* seconds = nullptr;
  };

  /// @pre `times` outlives this, its copies and what they split off.
  timed_communicator(tessera::any_communicator comm, tessera::topology const& where, stage_times& times)
      : comm_(std::move(comm)), times_(&times) {
    for (std::int64_t r = 0; r < where.ranks(); ++r) host_of_.push_back(where.domain_of(where.level("host"), r));
  }

  int rank() const noexcept { return comm_.rank(); }
  int size() const noexcept { return comm_.size(); }
  void begin(tessera::host_exec const& exec, tessera::exchange_messages const& messages, pending_type& pending,
             std::exception_ptr failure = nullptr) {
    auto const is_near = [&](int other) { return host_of_[static_cast<std::size_t>(other)] == host_of_[static_cast<std::size_t>(rank())]; };
    bool const stays = std::all_of(messages.send.begin(), messages.send.end(), [&](auto const& m) { return is_near(m.to); }) &&
                       std::all_of(messages.receive.begin(), messages.receive.end(), [&](auto const& m) { return is_near(m.from); });
    pending.seconds = stays ? &times_->inside_hosts : &times_->between_hosts;
    tessera::stopwatch watch;
    comm_.begin(exec, messages, pending.held, std::move(failure));
    *pending.seconds += watch.lap();
  }
  tessera::received_messages finish(tessera::host_exec const& exec, pending_type& pending) {
    tessera::stopwatch watch;
    auto received = comm_.finish(exec, pending.held);
    *pending.seconds += watch.lap();
    return received;
  }
  void fail(std::string_view reason) { comm_.fail(reason); }
  timed_communicator split(tessera::host_exec const& exec, std::int64_t color, std::int64_t key) {
    timed_communicator part(*this);
    part.comm_ = comm_.split(exec, color, key);
    auto const own = host_of_[static_cast<std::size_t>(rank())];
    tessera::any_pending pending;
    part.host_of_.clear();
    for (auto const& one : tessera::all_gather<std::int64_t>(exec, part.comm_, {&own, 1}, pending, "split"))
      part.host_of_.push_back(one[0]);
    return part;
  }

 private:
  tessera::any_communicator comm_;
  std::vector<std::int64_t> host_of_;
  stage_times* times_;
};
static_assert(tessera::communicator<timed_communicator>);

/// A tower module that adds up how long another one runs. A model of `tower_module`.
template <tessera::tower_module Module>
class timed_module {
 public:
  using saved = typename Module::saved;

  timed_module(Module held, stage_times& times) : held_(std::move(held)), times_(&times) {}

  std::vector<tessera::tower_output> const& outputs() const noexcept { return held_.outputs(); }
  std::int64_t output_width() const noexcept { return held_.output_width(); }
  tessera::vector_view<float> parameters() noexcept { return held_.parameters(); }
  tessera::vector_view<float const> parameters() const noexcept { return held_.parameters(); }
  std::vector<tessera::parameter_block> blocks(std::string_view prefix) { return held_.blocks(prefix); }
  std::size_t bytes() const noexcept { return held_.bytes(); }
  template <class... Arguments>
  void forward(Arguments&&... all) const {
    tessera::stopwatch watch;
    held_.forward(std::forward<Arguments>(all)...);
    times_->modules += watch.lap();
  }
  template <class... Arguments>
  void backward(Arguments&&... all) const {
    tessera::stopwatch watch;
    held_.backward(std::forward<Arguments>(all)...);
    times_->modules += watch.lap();
  }

 private:
  Module held_;
  stage_times* times_;
};

/// The recipe of such modules. A model of `tower_recipe`.
template <tessera::tower_recipe Recipe>
struct timed_recipe {
  using module = timed_module<typename Recipe::module>;
  static constexpr std::string_view name = Recipe::name;

  Recipe held;
  stage_times* times;

  std::vector<tessera::tower_output> outputs(tessera::vector_view<std::int64_t const> widths) const { return held.outputs(widths); }
  tessera::tower_cost cost(tessera::vector_view<std::int64_t const> widths) const { return held.cost(widths); }
  module make(tessera::host_exec const& exec, tessera::vector_view<std::int64_t const> widths, tessera::random_seed seed,
              std::uint32_t stream) const {
    return module(held.make(exec, widths, seed, stream), *times);
  }
};

/// A source that adds up how long another one's calls take.
template <tessera::embedding_source Inner>
class timed_source : public tessera::source_adaptor<Inner> {
  using base = tessera::source_adaptor<Inner>;

 public:
  using saved_type = typename Inner::saved_type;

  timed_source(Inner inner, stage_times& times) : base(std::move(inner)), times_(&times) {}

  template <class... Arguments>
  void begin(Arguments&&... all) {
    timed([&] { base::begin(std::forward<Arguments>(all)...); });
  }
  template <class... Arguments>
  void finish(Arguments&&... all) {
    timed([&] { base::finish(std::forward<Arguments>(all)...); });
  }
  template <class... Arguments>
    requires(sizeof...(Arguments) == (tessera::owns_parameters<Inner> ? 4 : 3))
  void begin_backward(Arguments&&... all) {
    timed([&] { base::begin_backward(std::forward<Arguments>(all)...); });
  }
  template <class... Arguments>
  void finish_backward(Arguments&&... all) {
    timed([&] { base::finish_backward(std::forward<Arguments>(all)...); });
  }

 private:
  template <class F>
  void timed(F const& f) {
    tessera::stopwatch watch;
    f();
    times_->source += watch.lap();
  }

  stage_times* times_;
};

}  // namespace examples
