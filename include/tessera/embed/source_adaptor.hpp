// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/view.hpp>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/embed/table_places.hpp>
#include <tessera/tensor/batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A source that owns another and passes every call on to it, those for dense parameters included. An adaptor inherits it and hides the
/// calls that it changes, `begin` in both its forms. What it keeps of a batch stands beside what the inner source keeps. A checkpoint has
/// the inner source's tables alone: it does not name the adaptors around them.
///
/// For example, this one changes the sign of all vectors of a source without parameters:
///
///     template <embedding_source Inner>
///     struct negated : source_adaptor<Inner> {
///       using base = source_adaptor<Inner>;
///       using base::base;
///       struct saved_type : Inner::saved_type {
///         std::vector<std::vector<float>> memory;      // of the gradients for the inner source
///         std::vector<matrix_view<float const>> gradients;
///       };
///
///       void finish(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float> const> out) {
///         base::finish(exec, saved, out);
///         negate(out);
///       }
///       void predict(…) const;                         // the same way
///       void begin_backward(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float const> const> gradients) {
///         copy_negated(gradients, saved);              // those of the caller are not to be written
///         base::begin_backward(exec, saved, saved.gradients);
///       }
///     };
template <embedding_source Inner>
class source_adaptor {
 public:
  using inner_type = Inner;
  using execution_type = typename Inner::execution_type;
  using saved_type = typename Inner::saved_type;
  using prepared_type = typename Inner::prepared_type;
  using gradients_type = typename Inner::gradients_type;
  /// Whether hot rows come from replicas of them: what the inner source says.
  static constexpr bool has_hot_replicas = reads_hot_replicas<Inner>;

  /// Owns `inner`.
  template <std::same_as<Inner> S>  // no conversion: another adaptor is not asked whether it makes an Inner
  explicit source_adaptor(S inner) : inner_(std::move(inner)) {}

  /// The source that is wrapped.
  Inner& inner() noexcept { return inner_; }
  /// As above, to read.
  Inner const& inner() const noexcept { return inner_; }

  vector_view<embedding_output const> outputs() const noexcept { return inner_.outputs(); }
  void begin(execution_type const& exec, batch_view const& batch, saved_type& saved) { inner_.begin(exec, batch, saved); }
  void begin(execution_type const& exec, batch_view const& batch, saved_type& saved, prepared_type& prepared) {
    inner_.begin(exec, batch, saved, prepared);
  }
  void finish(execution_type const& exec, saved_type& saved, vector_view<matrix_view<float> const> out) { inner_.finish(exec, saved, out); }
  void predict(execution_type const& exec, batch_view const& batch, vector_view<matrix_view<float> const> out) const {
    inner_.predict(exec, batch, out);
  }
  void begin_backward(execution_type const& exec, saved_type& saved,
                      vector_view<matrix_view<float const> const> gradients) requires(!owns_parameters<Inner>) {
    inner_.begin_backward(exec, saved, gradients);
  }
  void begin_backward(execution_type const& exec, saved_type& saved, vector_view<matrix_view<float const> const> gradients,
                      vector_view<float> of_parameters) requires owns_parameters<Inner> {
    inner_.begin_backward(exec, saved, gradients, of_parameters);
  }
  void finish_backward(execution_type const& exec, saved_type& saved) { inner_.finish_backward(exec, saved); }
  void gradients(execution_type const& exec, saved_type const& saved, gradients_type& sum) const { inner_.gradients(exec, saved, sum); }
  void apply(execution_type const& exec, gradients_type const& sum) { inner_.apply(exec, sum); }
  void prepare(execution_type const& exec, batch_view const& batch, prepared_type& prepared) const {
    inner_.prepare(exec, batch, prepared);
  }
  table_parts parts() { return inner_.parts(); }
  /// Where in the whole tables the parts lie, as the inner source says.
  table_places places() const requires places_parts<Inner> { return inner_.places(); }
  /// Which tables' gradients another rank counts, as the inner source says.
  std::vector<bool> counted_elsewhere() const { return counted_elsewhere_of(inner_); }
  /// The ranks that share the inner source's tables.
  auto comm() const requires requires(Inner const& inner) { inner.comm(); }
  { return inner_.comm(); }
  std::size_t bytes() const noexcept { return inner_.bytes(); }

  auto groups() requires owns_parameters<Inner> { return inner_.groups(); }
  auto blocks() requires owns_parameters<Inner> { return inner_.blocks(); }
  std::int64_t parameter_count() const requires owns_parameters<Inner> { return inner_.parameter_count(); }

 private:
  Inner inner_;
};

template <class Inner>
source_adaptor(Inner) -> source_adaptor<Inner>;

}  // namespace TESSERA_ABI
}  // namespace tessera
