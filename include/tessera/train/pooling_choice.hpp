// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/train/sequence_pooler.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// One of several kinds of pooling, chosen at run time by the type of its options. See `sequence_pooler`.
/// A choice costs one branch a group and stage, and the bits are those of the chosen kind alone.
/// `Poolings` are different types, and so are their options.
///
///     using any_pooling = pooling_choice<encoder_pooling, target_pooling>;
///     std::vector<sequence_group<any_pooling>> groups;
///     groups.emplace_back(tables_of_history, transformer_encoder_options{.heads = 2});
///     groups.emplace_back(tables_of_clicks, target_attention_options{}, target);
template <sequence_pooler... Poolings>
class pooling_choice {
 public:
  using options = std::variant<typename Poolings::options...>;
  class saved;
  static constexpr std::string_view name = "choice";
  static constexpr bool uses_target = (Poolings::uses_target || ...);

  /// Makes the pooling whose options `chosen` holds. @throws what the constructor of that pooling throws.
  pooling_choice(host_exec const& exec, options const& chosen, std::int64_t dim, random_seed seed, std::uint32_t stream)
      : pooling_(make(exec, chosen, dim, seed, stream)) {}

  /// What the chosen kind says of itself, for checkpoints.
  static std::string describe(options const& chosen) {
    return of_kind(chosen, []<class P>(typename P::options const& own, P const*) { return P::describe(own); });
  }
  /// Whether the chosen kind reads a target.
  static bool reads_target(options const& chosen) {
    return of_kind(chosen, []<class P>(typename P::options const& own, P const*) { return detail::reads_target<P>(own); });
  }

  /// The number of the chosen kind among `Poolings`, from 0.
  std::size_t index() const noexcept { return pooling_.index(); }
  vector_view<float> parameters() noexcept {
    return std::visit([](auto& pooling) { return pooling.parameters(); }, pooling_);
  }
  vector_view<float const> parameters() const noexcept {
    return std::visit([](auto const& pooling) { return vector_view<float const>(pooling.parameters()); }, pooling_);
  }
  std::vector<parameter_block> blocks(std::string_view prefix) {
    return std::visit([&](auto& pooling) { return pooling.blocks(prefix); }, pooling_);
  }
  std::size_t bytes() const noexcept {
    return std::visit([](auto const& pooling) -> std::size_t { return pooling.bytes(); }, pooling_);
  }

  /// Pools as the chosen kind does. @throws what that kind throws.
  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const& policy, shared_sequences sequences, matrix_view<float const> targets,
               matrix_view<float> out, saved& saved) const {
    std::visit([&]<class P>(P const& pooling) { pooling.forward(exec, policy, sequences, targets, out, saved.template become<P>()); },
               pooling_);
  }
  /// Predicts as the chosen kind does. @throws what that kind throws.
  template <gemm_policy Gemm>
  void predict(host_exec const& exec, Gemm const& policy, shared_sequences sequences, matrix_view<float const> targets,
               matrix_view<float> out) const {
    std::visit([&](auto const& pooling) { pooling.predict(exec, policy, sequences, targets, out); }, pooling_);
  }
  /// Goes back as the chosen kind does. @throws tessera::error invalid_argument where the forward of another kind filled `saved`;
  /// and what the chosen kind throws.
  template <gemm_policy Gemm>
  void backward(host_exec const& exec, Gemm const& policy, saved& saved, matrix_view<float const> out_gradient,
                vector_view<float> parameter_gradient, matrix_view<float> vector_gradient, matrix_view<float> target_gradient) const {
    std::visit(
        [&]<class P>(P const& pooling) {
          pooling.backward(exec, policy, saved.template of<P>(), out_gradient, parameter_gradient, vector_gradient, target_gradient);
        },
        pooling_);
  }

 private:
  // Tells apart what two kinds save as one type.
  template <class P>
  struct saved_of {
    typename P::saved value;
  };

  template <class F>
  static auto of_kind(options const& chosen, F const& f) {
    return of_kind<0, F, Poolings...>(chosen, f);
  }
  template <std::size_t I, class F, class P, class... Rest>
  static auto of_kind(options const& chosen, F const& f) {
    if constexpr (sizeof...(Rest) > 0)
      if (chosen.index() != I) return of_kind<I + 1, F, Rest...>(chosen, f);
    return f(std::get<I>(chosen), static_cast<P const*>(nullptr));
  }
  static std::variant<Poolings...> make(host_exec const& exec, options const& chosen, std::int64_t dim, random_seed seed,
                                        std::uint32_t stream) {
    return of_kind(chosen, [&]<class P>(typename P::options const& own, P const*) {
      return std::variant<Poolings...>(std::in_place_type<P>, exec, own, dim, seed, stream);
    });
  }

  std::variant<Poolings...> pooling_;
};

/// What the forward of the chosen kind saves. Its memory stays from one forward to the next of the same kind.
template <sequence_pooler... Poolings>
class pooling_choice<Poolings...>::saved {
 public:
  /// What kind `P` saves, to be written. @post It is that of `P`, and empty if it was that of another kind.
  template <class P>
  typename P::saved& become() {
    if (auto* const own = std::get_if<saved_of<P>>(&value_)) return own->value;
    return value_.template emplace<saved_of<P>>().value;
  }
  /// What kind `P` has saved. @throws tessera::error invalid_argument where it is that of another kind.
  template <class P>
  typename P::saved& of() {
    if (auto* const own = std::get_if<saved_of<P>>(&value_)) return own->value;
    throw error(errc::invalid_argument, "pooling_choice: a backward of what another kind's forward saved",
                {{"backward", P::name}, {"index of the forward's kind", value_.index()}});
  }

 private:
  std::variant<saved_of<Poolings>...> value_;
};
static_assert(sequence_pooler<pooling_choice<encoder_pooling, target_pooling>>);

}  // namespace TESSERA_ABI
}  // namespace tessera
