// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/embed/row_gradients.hpp>
#include <tessera/embed/row_order.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/embed/table_places.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/tensor/batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

class any_source;

/// A source that `any_source` holds: of the host, with the library's sorted ids and gradients of rows. `local_tables`, `sharded_tables`,
/// `sptt_tables` and `tower_source` are such.
template <class S>
concept host_source = embedding_source<S> && std::move_constructible<S> && std::same_as<typename S::execution_type, host_exec> &&
    std::same_as<typename S::prepared_type, row_order> && std::same_as<typename S::gradients_type, row_gradients>;

/// What an `any_source` keeps of a batch: what the held source keeps, made by the first `begin`. Move-only.
class any_source_saved {
 public:
  std::int64_t chunk_samples = 0;  ///< as of a source that owns parameters; other sources do not read it, nor the next
  std::int64_t first_chunk = 0;

 private:
  friend class any_source;

  struct base {
    base() = default;
    base(base const&) = delete;
    base& operator=(base const&) = delete;
    virtual ~base() = default;
  };
  template <class Saved>
  struct kept final : base {
    Saved saved;
  };

  std::unique_ptr<base> held_;
};

/// An embedding source whose kind is chosen at run time. It holds any source of the host, at one virtual call a stage and with the same bits,
/// so that a program has one model for all of them:
///
///     any_source source = flat ? any_source(sharded_tables(exec, comm, …)) : any_source(sptt_tables(exec, comm, …));
///     click_model<any_source, eigen_gemm, dot_products> model(exec, options, std::move(source));
///
/// It counts as a source with dense parameters of its own; those of a source without any are none. A source that was moved from takes
/// assignment alone. See `embedding_source`.
class any_source {
 public:
  using execution_type = host_exec;
  using saved_type = any_source_saved;
  using prepared_type = row_order;
  using gradients_type = row_gradients;

  /// Holds `source`.
  template <class S>
    requires(!std::same_as<std::remove_cvref_t<S>, any_source> && host_source<S>)
  any_source(S source) : held_(std::make_unique<holder<S>>(std::move(source))) {}  // NOLINT: implicit

  /// The held source where it is an S, else nullptr. It stays where it is when this source moves.
  template <host_source S>
  S* get_if() noexcept {
    return held_->type() == typeid(S) ? static_cast<S*>(held_->address()) : nullptr;
  }

  vector_view<embedding_output const> outputs() const noexcept { return held_->outputs(); }
  void prepare(host_exec const& exec, batch_view const& batch, row_order& prepared) const { held_->prepare(exec, batch, prepared); }
  void begin(host_exec const& exec, batch_view const& batch, any_source_saved& saved) { held_->begin(exec, batch, saved, nullptr); }
  void begin(host_exec const& exec, batch_view const& batch, any_source_saved& saved, row_order& prepared) {
    held_->begin(exec, batch, saved, &prepared);
  }
  /// @throws tessera::error invalid_argument for what another source began, here and below; else as the held source.
  void finish(host_exec const& exec, any_source_saved& saved, vector_view<matrix_view<float> const> out) {
    held_->finish(exec, saved, out);
  }
  /// Modules run by chunks of so many samples, where the held source has any; 0: by the whole batch.
  void predict(host_exec const& exec, batch_view const& batch, vector_view<matrix_view<float> const> out,
               std::int64_t chunk_samples = 0) const {
    held_->predict(exec, batch, out, chunk_samples);
  }
  void begin_backward(host_exec const& exec, any_source_saved& saved, vector_view<matrix_view<float const> const> gradients,
                      vector_view<float> of_parameters) {
    held_->begin_backward(exec, saved, gradients, of_parameters);
  }
  void finish_backward(host_exec const& exec, any_source_saved& saved) { held_->finish_backward(exec, saved); }
  void gradients(host_exec const& exec, any_source_saved const& saved, row_gradients& sum) const { held_->gradients(exec, saved, sum); }
  void apply(host_exec const& exec, row_gradients const& sum) { held_->apply(exec, sum); }

  table_parts parts() { return held_->parts(); }
  /// Where in the whole tables the parts lie, as `places_of`.
  table_places places() const { return held_->places(); }
  /// Which tables' gradients another rank counts, as `counted_elsewhere_of`.
  std::vector<bool> counted_elsewhere() const { return held_->counted_elsewhere(); }
  /// The ranks that share the held source's tables; this process alone where it does not say.
  any_communicator comm() const { return held_->comm(); }
  std::size_t bytes() const noexcept { return held_->bytes(); }

  std::vector<parameter_group> groups() { return held_->groups(); }
  std::vector<parameter_block> blocks() { return held_->blocks(); }
  std::int64_t parameter_count() const noexcept { return held_->parameter_count(); }
  /// Of a source with tower modules, else empty.
  std::string towers_text() const { return held_->towers_text(); }

 private:
  using matrices = vector_view<matrix_view<float> const>;
  using const_matrices = vector_view<matrix_view<float const> const>;

  struct base {
    base() = default;
    base(base const&) = delete;
    base& operator=(base const&) = delete;
    virtual ~base() = default;
    virtual std::type_info const& type() const noexcept = 0;
    virtual void* address() noexcept = 0;
    virtual vector_view<embedding_output const> outputs() const noexcept = 0;
    virtual void prepare(host_exec const& exec, batch_view const& batch, row_order& prepared) const = 0;
    virtual void begin(host_exec const& exec, batch_view const& batch, any_source_saved& saved, row_order* prepared) = 0;
    virtual void finish(host_exec const& exec, any_source_saved& saved, matrices out) = 0;
    virtual void predict(host_exec const& exec, batch_view const& batch, matrices out, std::int64_t chunk_samples) const = 0;
    virtual void begin_backward(host_exec const& exec, any_source_saved& saved, const_matrices gradients,
                                vector_view<float> of_parameters) = 0;
    virtual void finish_backward(host_exec const& exec, any_source_saved& saved) = 0;
    virtual void gradients(host_exec const& exec, any_source_saved const& saved, row_gradients& sum) const = 0;
    virtual void apply(host_exec const& exec, row_gradients const& sum) = 0;
    virtual table_parts parts() = 0;
    virtual table_places places() const = 0;
    virtual std::vector<bool> counted_elsewhere() const = 0;
    virtual any_communicator comm() const = 0;
    virtual std::size_t bytes() const noexcept = 0;
    virtual std::vector<parameter_group> groups() = 0;
    virtual std::vector<parameter_block> blocks() = 0;
    virtual std::int64_t parameter_count() const noexcept = 0;
    virtual std::string towers_text() const = 0;
  };

  template <class S>
  struct holder final : base {
    using saved_of_source = typename S::saved_type;
    using kept = any_source_saved::kept<saved_of_source>;

    explicit holder(S source) : source(std::move(source)) {}

    static saved_of_source& begun(any_source_saved const& saved) {
      auto* const mine = dynamic_cast<kept*>(saved.held_.get());
      if (mine == nullptr) throw error(errc::invalid_argument, "any_source: the batch was not begun, or by a source of another kind");
      return mine->saved;
    }

    std::type_info const& type() const noexcept override { return typeid(S); }
    void* address() noexcept override { return &source; }
    vector_view<embedding_output const> outputs() const noexcept override { return source.outputs(); }
    void prepare(host_exec const& exec, batch_view const& batch, row_order& prepared) const override {
      source.prepare(exec, batch, prepared);
    }
    void begin(host_exec const& exec, batch_view const& batch, any_source_saved& saved, row_order* prepared) override {
      if (dynamic_cast<kept*>(saved.held_.get()) == nullptr) saved.held_ = std::make_unique<kept>();
      auto& own = begun(saved);
      if constexpr (requires { own.chunk_samples = own.first_chunk; }) {
        own.chunk_samples = saved.chunk_samples;
        own.first_chunk = saved.first_chunk;
      }
      prepared == nullptr ? source.begin(exec, batch, own) : source.begin(exec, batch, own, *prepared);
    }
    void finish(host_exec const& exec, any_source_saved& saved, matrices out) override { source.finish(exec, begun(saved), out); }
    void predict(host_exec const& exec, batch_view const& batch, matrices out, [[maybe_unused]] std::int64_t chunk_samples) const override {
      if constexpr (requires { source.predict(exec, batch, out, chunk_samples); })
        source.predict(exec, batch, out, chunk_samples);
      else
        source.predict(exec, batch, out);
    }
    void begin_backward(host_exec const& exec, any_source_saved& saved, const_matrices gradients,
                        [[maybe_unused]] vector_view<float> of_parameters) override {
      if constexpr (owns_parameters<S>)
        source.begin_backward(exec, begun(saved), gradients, of_parameters);
      else
        source.begin_backward(exec, begun(saved), gradients);
    }
    void finish_backward(host_exec const& exec, any_source_saved& saved) override { source.finish_backward(exec, begun(saved)); }
    void gradients(host_exec const& exec, any_source_saved const& saved, row_gradients& sum) const override {
      source.gradients(exec, begun(saved), sum);
    }
    void apply(host_exec const& exec, row_gradients const& sum) override { source.apply(exec, sum); }
    table_parts parts() override { return source.parts(); }
    table_places places() const override {
      if constexpr (places_parts<S>)
        return source.places();  // whose parts may have to come home
      else
        return places_of(std::as_const(source), source.parts());
    }
    std::vector<bool> counted_elsewhere() const override { return counted_elsewhere_of(source); }
    any_communicator comm() const override {
      if constexpr (requires { source.comm(); })
        return source.comm();
      else
        return self_communicator();
    }
    std::size_t bytes() const noexcept override { return source.bytes(); }
    std::vector<parameter_group> groups() override {
      if constexpr (owns_parameters<S>)
        return source.groups();
      else
        return {};
    }
    std::vector<parameter_block> blocks() override {
      if constexpr (owns_parameters<S>)
        return source.blocks();
      else
        return {};
    }
    std::int64_t parameter_count() const noexcept override {
      if constexpr (owns_parameters<S>)
        return source.parameter_count();
      else
        return 0;
    }
    std::string towers_text() const override {
      if constexpr (requires { source.towers_text(); })
        return source.towers_text();
      else
        return {};
    }

    mutable S source;  // its parts are listed by a call that is not const
  };

  std::unique_ptr<base> held_;
};
static_assert(embedding_source<any_source> && owns_parameters<any_source>);

}  // namespace TESSERA_ABI
}  // namespace tessera
