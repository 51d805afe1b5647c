// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include <tessera/core/view.hpp>
#include <tessera/plan/cost_model.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A cost model whose kind is chosen at run time. It costs what the model that it holds does, bit for bit. Copies share that model.
///
///     auto const cost = has_measurements ? any_cost_model(load_learned_cost(exec, folder)) : any_cost_model(roofline_cost(rates));
class any_cost_model {
 public:
  /// Takes over a model.
  template <class M>
    requires(cost_model<M> && !std::same_as<M, any_cost_model>)
  explicit any_cost_model(M model) : self_(std::make_shared<held<M>>(std::move(model))) {}

  /// See `cost_model`, here and below.
  std::int64_t width() const { return self_->width(); }
  std::int64_t devices() const { return self_->devices(); }
  void represent(vector_view<table_profile const> shards, matrix_view<float> representations) const {
    self_->represent(shards, representations);
  }
  void compute_ms(matrix_view<float const> sums, vector_view<float> ms) const { self_->compute_ms(sums, ms); }
  void backward_ms(vector_view<float const> columns, vector_view<float> ms) const { self_->backward_ms(columns, ms); }
  void forward_ms(vector_view<float const> columns, vector_view<float const> starts_ms, vector_view<float> ms) const {
    self_->forward_ms(columns, starts_ms, ms);
  }

 private:
  struct any {
    any() = default;
    any(any const&) = delete;
    virtual ~any() = default;
    virtual std::int64_t width() const = 0;
    virtual std::int64_t devices() const = 0;
    virtual void represent(vector_view<table_profile const> shards, matrix_view<float> representations) const = 0;
    virtual void compute_ms(matrix_view<float const> sums, vector_view<float> ms) const = 0;
    virtual void backward_ms(vector_view<float const> columns, vector_view<float> ms) const = 0;
    virtual void forward_ms(vector_view<float const> columns, vector_view<float const> starts_ms, vector_view<float> ms) const = 0;
  };

  template <class M>
  struct held final : any {
    explicit held(M of) : model(std::move(of)) {}
    std::int64_t width() const override { return static_cast<std::int64_t>(model.width()); }
    std::int64_t devices() const override { return static_cast<std::int64_t>(model.devices()); }
    void represent(vector_view<table_profile const> shards, matrix_view<float> representations) const override {
      model.represent(shards, representations);
    }
    void compute_ms(matrix_view<float const> sums, vector_view<float> ms) const override { model.compute_ms(sums, ms); }
    void backward_ms(vector_view<float const> columns, vector_view<float> ms) const override { model.backward_ms(columns, ms); }
    void forward_ms(vector_view<float const> columns, vector_view<float const> starts_ms, vector_view<float> ms) const override {
      model.forward_ms(columns, starts_ms, ms);
    }
    M model;
  };

  std::shared_ptr<any const> self_;
};
static_assert(cost_model<any_cost_model>);

}  // namespace TESSERA_ABI
}  // namespace tessera
