// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/any_gemm.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/tower/pass_through.hpp>
#include <tessera/tower/tower_module.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

class any_tower_recipe;

/// The module that an `any_tower_recipe` makes: one of any kind, with its bits, at one virtual call a pass. See `tower_module`.
class any_tower_module {
  struct saved_base {
    saved_base() = default;
    saved_base(saved_base const&) = delete;
    saved_base& operator=(saved_base const&) = delete;
    virtual ~saved_base() = default;
  };

 public:
  /// What `backward` needs of `forward`: what the held module saves, made by the first forward. Move-only.
  class saved {
    friend class any_tower_module;
    std::unique_ptr<saved_base> held_;
  };

  /// Holds `module`.
  template <class M>
    requires(!std::same_as<std::remove_cvref_t<M>, any_tower_module> && tower_module<M>)
  explicit any_tower_module(M module) : held_(std::make_unique<holder<M>>(std::move(module))) {}

  std::vector<tower_output> const& outputs() const noexcept { return held_->outputs(); }
  std::int64_t output_width() const noexcept { return held_->output_width(); }
  vector_view<float> parameters() noexcept { return held_->parameters(); }
  vector_view<float const> parameters() const noexcept { return std::as_const(*held_).parameters(); }
  std::vector<parameter_block> blocks(std::string_view prefix) { return held_->blocks(prefix); }
  std::size_t bytes() const noexcept { return held_->bytes(); }

  /// @throws tessera::error as the held module.
  void forward(host_exec const& exec, any_gemm const& policy, vector_view<matrix_view<float const> const> features, matrix_view<float> out,
               saved& saved) const {
    held_->forward(exec, policy, features, out, saved.held_);
  }
  /// @throws tessera::error as the held module; invalid_argument for what another kind of module saved.
  void backward(host_exec const& exec, any_gemm const& policy, saved const& saved, matrix_view<float const> out_gradient,
                vector_view<float> parameter_gradient, vector_view<matrix_view<float> const> feature_gradients) const {
    held_->backward(exec, policy, saved.held_.get(), out_gradient, parameter_gradient, feature_gradients);
  }

 private:
  struct base {
    base() = default;
    base(base const&) = delete;
    base& operator=(base const&) = delete;
    virtual ~base() = default;
    virtual std::vector<tower_output> const& outputs() const noexcept = 0;
    virtual std::int64_t output_width() const noexcept = 0;
    virtual vector_view<float> parameters() noexcept = 0;
    virtual vector_view<float const> parameters() const noexcept = 0;
    virtual std::vector<parameter_block> blocks(std::string_view prefix) = 0;
    virtual std::size_t bytes() const noexcept = 0;
    virtual void forward(host_exec const& exec, any_gemm const& policy, vector_view<matrix_view<float const> const> features,
                         matrix_view<float> out, std::unique_ptr<saved_base>& saved) const = 0;
    virtual void backward(host_exec const& exec, any_gemm const& policy, saved_base* saved, matrix_view<float const> out_gradient,
                          vector_view<float> parameter_gradient, vector_view<matrix_view<float> const> feature_gradients) const = 0;
  };

  template <class M>
  struct holder final : base {
    struct kept final : saved_base {
      typename M::saved of_module;
    };

    explicit holder(M from) : own(std::move(from)) {}

    std::vector<tower_output> const& outputs() const noexcept override { return own.outputs(); }
    std::int64_t output_width() const noexcept override { return own.output_width(); }
    vector_view<float> parameters() noexcept override { return own.parameters(); }
    vector_view<float const> parameters() const noexcept override { return own.parameters(); }
    std::vector<parameter_block> blocks(std::string_view prefix) override { return own.blocks(prefix); }
    std::size_t bytes() const noexcept override { return own.bytes(); }
    void forward(host_exec const& exec, any_gemm const& policy, vector_view<matrix_view<float const> const> features,
                 matrix_view<float> out, std::unique_ptr<saved_base>& saved) const override {
      if (dynamic_cast<kept*>(saved.get()) == nullptr) saved = std::make_unique<kept>();
      own.forward(exec, policy, features, out, static_cast<kept&>(*saved).of_module);
    }
    void backward(host_exec const& exec, any_gemm const& policy, saved_base* saved, matrix_view<float const> out_gradient,
                  vector_view<float> parameter_gradient, vector_view<matrix_view<float> const> feature_gradients) const override {
      kept nothing;  // as of no forward, which the module refuses
      auto* const of = saved == nullptr ? &nothing : dynamic_cast<kept*>(saved);
      if (of == nullptr) throw error(errc::invalid_argument, "any_tower_module: a module of another kind saved this");
      own.backward(exec, policy, of->of_module, out_gradient, parameter_gradient, feature_gradients);
    }

    M own;
  };

  std::unique_ptr<base> held_;
};
static_assert(tower_module<any_tower_module>);

/// A recipe whose kind is chosen at run time. It holds any recipe with modules, so that a program has one `sptt_tables` and one
/// `tower_source` for all of them:
///
///     any_tower_recipe const recipe = by_dot ? any_tower_recipe(dot_tower{.dim = 64}) : any_tower_recipe(dlrm_tower{.dim = 64, .c = 1});
///
/// `pass_through`, which has no modules, stays a type of its own: sources without dense parameters are made with it. Copies share what is
/// held. See `tower_recipe`.
class any_tower_recipe {
 public:
  using module = any_tower_module;
  std::string_view name;  ///< the held recipe's

  /// Holds a copy of `recipe`.
  template <class R>
    requires(!std::same_as<R, any_tower_recipe> && !std::same_as<R, pass_through> && tower_recipe<R>)
  any_tower_recipe(R const& recipe)  // NOLINT: implicit
      : any_tower_recipe(std::make_shared<holder<R> const>(recipe)) {}

  /// @throws tessera::error as the held recipe, here and below.
  std::vector<tower_output> outputs(vector_view<std::int64_t const> widths) const { return held_->outputs(widths); }
  tower_cost cost(vector_view<std::int64_t const> widths) const { return held_->cost(widths); }
  /// Makes a module of the held recipe's kind.
  any_tower_module make(host_exec const& exec, vector_view<std::int64_t const> widths, random_seed seed, std::uint32_t stream) const {
    return held_->make(exec, widths, seed, stream);
  }

 private:
  struct base {
    base() = default;
    base(base const&) = delete;
    base& operator=(base const&) = delete;
    virtual ~base() = default;
    virtual std::vector<tower_output> outputs(vector_view<std::int64_t const> widths) const = 0;
    virtual tower_cost cost(vector_view<std::int64_t const> widths) const = 0;
    virtual any_tower_module make(host_exec const& exec, vector_view<std::int64_t const> widths, random_seed seed,
                                  std::uint32_t stream) const = 0;
  };

  template <class R>
  struct holder final : base {
    explicit holder(R const& from) : recipe(from) {}
    std::vector<tower_output> outputs(vector_view<std::int64_t const> widths) const override { return recipe.outputs(widths); }
    tower_cost cost(vector_view<std::int64_t const> widths) const override { return recipe.cost(widths); }
    any_tower_module make(host_exec const& exec, vector_view<std::int64_t const> widths, random_seed seed,
                          std::uint32_t stream) const override {
      return any_tower_module(recipe.make(exec, widths, seed, stream));
    }

    R recipe;
  };

  // The name is that of the recipe that is held: the argument's may end before.
  template <class R>
  explicit any_tower_recipe(std::shared_ptr<holder<R> const> held) : name(held->recipe.name), held_(std::move(held)) {}

  std::shared_ptr<base const> held_;
};
static_assert(tower_recipe<any_tower_recipe>);

}  // namespace TESSERA_ABI
}  // namespace tessera
