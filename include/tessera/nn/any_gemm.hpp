// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include <tessera/core/view.hpp>
#include <tessera/nn/gemm.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A gemm policy that is chosen at run time. It holds any policy and multiplies by it, with the same bits, at one virtual call a tile and
/// four for a product's workspace. Copies share the held policy. Only the constructor from another policy allocates. It is never empty.
class any_gemm {
 public:
  /// Holds a copy of `policy`, or `policy` itself where that is moved from.
  template <class Gemm>
    requires(!std::same_as<std::remove_cvref_t<Gemm>, any_gemm> && gemm_policy<std::remove_cvref_t<Gemm>>)
  any_gemm(Gemm&& policy)  // NOLINT: implicit
      : policy_(std::make_shared<held<std::remove_cvref_t<Gemm>> const>(std::forward<Gemm>(policy))) {}
  any_gemm(any_gemm const&) = default;  // and no moves, which would leave empty ones behind
  any_gemm& operator=(any_gemm const&) = default;

  /// @throws what the policy throws.
  void multiply(gemm_operand a, gemm_operand b, matrix_view<float> c, float* workspace) const { policy_->multiply(a, b, c, workspace); }
  std::int64_t workspace(std::int64_t m, std::int64_t n, std::int64_t k) const { return policy_->workspace(m, n, k); }

 private:
  struct any_policy {
    any_policy() = default;
    any_policy(any_policy const&) = delete;
    any_policy& operator=(any_policy const&) = delete;
    virtual ~any_policy() = default;
    virtual void multiply(gemm_operand a, gemm_operand b, matrix_view<float> c, float* workspace) const = 0;
    virtual std::int64_t workspace(std::int64_t m, std::int64_t n, std::int64_t k) const = 0;
  };

  template <class Gemm>
  struct held final : any_policy {
    explicit held(Gemm const& from) : policy(from) {}
    explicit held(Gemm&& from) : policy(std::move(from)) {}
    void multiply(gemm_operand a, gemm_operand b, matrix_view<float> c, float* workspace) const override {
      policy.multiply(a, b, c, workspace);
    }
    std::int64_t workspace(std::int64_t m, std::int64_t n, std::int64_t k) const override { return policy.workspace(m, n, k); }

    [[no_unique_address]] Gemm policy;
  };

  std::shared_ptr<any_policy const> policy_;
};
static_assert(gemm_policy<any_gemm>);

}  // namespace TESSERA_ABI
}  // namespace tessera
