// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <tessera/core/check_finite.hpp>
#include <tessera/core/radix_sort.hpp>
#include <tessera/core/run_length_encode.hpp>
#include <tessera/core/scan.hpp>
#include <tessera/core/segmented_reduce.hpp>
#include <tessera/core/select.hpp>
#include <tessera/core/unique.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/pooled_lookup_backward.hpp>
#include <tessera/embed/row_transfer.hpp>
#include <tessera/embed/sequence_lookup_backward.hpp>
#include <tessera/embed/update_rows.hpp>
#include <tessera/tensor/bucketize.hpp>
#include <tessera/tensor/concat.hpp>
#include <tessera/tensor/expand.hpp>
#include <tessera/tensor/expand_rows.hpp>
#include <tessera/tensor/gather_backward.hpp>
#include <tessera/tensor/gather_vectors.hpp>
#include <tessera/tensor/jagged_products.hpp>
#include <tessera/tensor/jagged_softmax.hpp>
#include <tessera/tensor/masked_select.hpp>
#include <tessera/tensor/padded.hpp>
#include <tessera/tensor/padded_vectors.hpp>
#include <tessera/tensor/permute_keys.hpp>
#include <tessera/tensor/pool_segments.hpp>
#include <tessera/tensor/select_rows.hpp>
#include <tessera/tensor/select_vectors.hpp>
#include <tessera/tensor/slice_rows.hpp>
#include <tessera/tensor/transform_ids.hpp>
#include <tessera/tensor/truncate_rows.hpp>
#include <tessera/tensor/vector_arithmetic.hpp>

#if CASE == 0
using my_exec = tessera::host_exec;
#else
struct my_exec {
#if CASE != 1  // says: execution_concept|does not satisfy 'execution'
  using execution_concept = tessera::execution_tag;
#endif
};
#endif

template <class T>
T any();  // only its type matters

using ids = tessera::vector_view<std::int64_t>;
using floats = tessera::vector_view<float>;
using constants = tessera::vector_view<float const>;
using matrix = tessera::matrix_view<float>;
using rows = tessera::jagged_view<std::int64_t const>;
using batch = tessera::keyed_jagged_view<std::int64_t const>;
using inverse_batch = tessera::inverse_keyed_jagged_view<std::int64_t const>;
using vectors = tessera::jagged_vectors_view<float>;
using tables = std::vector<tessera::dense_table<>>&;
using features = std::vector<tessera::pooled_feature>;
using blocks = std::vector<tessera::matrix_view<float>>;
using gradients = std::vector<tessera::matrix_view<float const>>;

#if CASE != 1
using saved = tessera::basic_lookup_saved<my_exec>&;
#endif

struct next_id {
  std::int64_t operator()(std::int64_t id) const { return id + 1; }
};

void use(my_exec const& exec) {
#if CASE == 1
  tessera::for_each_index(exec, 1, 1, [](std::int64_t) {});
#else
  // CASE == 2 says: for_each_index: no back end for this execution; for CUDA include <tessera/core/for_each_index.cuh>
  tessera::for_each_index(exec, 1, 1, [](std::int64_t) {});
  // CASE == 2 says: check_finite: no back end for this execution; for CUDA include <tessera/core/check_finite.cuh>
  tessera::check_finite(exec, "values", any<floats>());
  // CASE == 2 says: exclusive_scan: no back end for this execution; for CUDA include <tessera/core/scan.cuh>
  tessera::exclusive_scan(exec, any<ids>(), any<ids>());
  // CASE == 2 says: lengths_to_offsets: no back end for this execution; for CUDA include <tessera/core/scan.cuh>
  tessera::lengths_to_offsets(exec, any<ids>(), any<ids>());
  // CASE == 2 says: radix_sort_pairs: no back end for this execution; for CUDA include <tessera/core/radix_sort.cuh>
  tessera::radix_sort_pairs(exec, any<ids>(), any<ids>());
  // CASE == 2 says: run_length_encode: no back end for this execution; for CUDA include <tessera/core/run_length_encode.cuh>
  tessera::run_length_encode(exec, any<ids>(), any<ids>(), any<ids>());
  // CASE == 2 says: select_flagged: no back end for this execution; for CUDA include <tessera/core/select.cuh>
  tessera::select_flagged(exec, any<ids>(), any<ids>(), any<ids>());
  // CASE == 2 says: segmented_reduce: no back end for this execution; for CUDA include <tessera/core/segmented_reduce.cuh>
  tessera::segmented_reduce(exec, any<float*>(), any<ids>(), any<floats>());
  // CASE == 2 says: unique: no back end for this execution; for CUDA include <tessera/core/unique.cuh>
  tessera::unique(exec, any<ids>(), any<ids>(), any<ids>());
  // CASE == 2 says: pooled_lookup: no back end for this execution; for CUDA include <tessera/embed/pooled_lookup.cuh>
  tessera::pooled_lookup(exec, any<tables>(), any<features>(), any<batch>(), any<blocks>(), any<saved>());
  // CASE == 2 says: pooled_lookup_backward: no back end for this execution; for CUDA include <tessera/embed/pooled_lookup_backward.cuh>
  tessera::pooled_lookup_backward(exec, any<tables>(), any<features>(), any<saved>(), any<gradients>(), tessera::sgd{});
  // CASE == 2 says: sequence_lookup: no back end for this execution; for CUDA include <tessera/embed/sequence_lookup.cuh>
  tessera::sequence_lookup(exec, any<tables>(), any<ids>(), any<batch>(), any<blocks>(), any<saved>());
  // CASE == 2 says: sequence_lookup_backward: no back end for this execution; for CUDA include <tessera/embed/sequence_lookup_backward.cuh>
  tessera::sequence_lookup_backward(exec, any<tables>(), any<ids>(), any<saved>(), any<gradients>(), tessera::sgd{});
  // CASE == 2 says: update_rows: no back end for this execution; for CUDA include <tessera/embed/row_gradients.cuh>
  tessera::update_rows(exec, any<tables>(), any<tessera::basic_row_gradients<my_exec>&>(), tessera::sgd{});
  // CASE == 2 says: read_rows, write_rows: no back end for this execution; for CUDA include <tessera/embed/row_transfer.cuh>
  tessera::read_rows(exec, any<tables>()[0], any<ids>(), any<matrix>(), any<matrix>());
  // CASE == 2 says: bucketize: no back end for this execution; for CUDA include <tessera/tensor/bucketize.cuh>
  tessera::bucketize(exec, any<batch>(), 2, tessera::hashed_buckets{});
  // CASE == 2 says: concat: no back end for this execution; for CUDA include <tessera/tensor/concat.cuh>
  tessera::concat_keys(exec, any<std::vector<batch>>());
  // CASE == 2 says: expand: no back end for this execution; for CUDA include <tessera/tensor/expand.cuh>
  tessera::expand(exec, any<inverse_batch>());
  // CASE == 2 says: expand_rows: no back end for this execution; for CUDA include <tessera/tensor/expand_rows.cuh>
  tessera::expand_rows(exec, any<rows>(), any<ids>());
  // CASE == 2 says: gather_backward: no back end for this execution; for CUDA include <tessera/tensor/gather_backward.cuh>
  tessera::gather_backward(exec, any<ids>(), any<constants>(), any<floats>());
  // CASE == 2 says: gather_vectors: no back end for this execution; for CUDA include <tessera/tensor/gather_vectors.cuh>
  tessera::gather_vectors(exec, any<matrix>(), any<ids>(), any<matrix>());
  // CASE == 2 says: jagged_dense_product, jagged_jagged_product: no back end for this execution; for CUDA include <tessera/tensor/jagged_products.cuh>
  tessera::jagged_dense_product(exec, any<vectors>(), any<matrix>(), any<vectors>());
  // CASE == 2 says: jagged_softmax: no back end for this execution; for CUDA include <tessera/tensor/jagged_softmax.cuh>
  tessera::jagged_softmax(exec, any<vectors>(), any<vectors>());
  // CASE == 2 says: masked_select: no back end for this execution; for CUDA include <tessera/tensor/masked_select.cuh>
  tessera::masked_select(exec, any<rows>(), any<tessera::vector_view<std::uint8_t>>());
  // CASE == 2 says: padded: no back end for this execution; for CUDA include <tessera/tensor/padded.cuh>
  tessera::to_padded(exec, any<rows>(), any<tessera::matrix_view<std::int64_t>>(), 0);
  // CASE == 2 says: to_padded_vectors, from_padded_vectors: no back end for this execution; for CUDA include <tessera/tensor/padded_vectors.cuh>
  tessera::to_padded_vectors(exec, any<vectors>(), any<matrix>());
  // CASE == 2 says: permute_keys: no back end for this execution; for CUDA include <tessera/tensor/permute_keys.cuh>
  tessera::permute_keys(exec, any<batch>(), any<ids>());
  // CASE == 2 says: pool_segments: no back end for this execution; for CUDA include <tessera/tensor/pool_segments.cuh>
  tessera::pool_segments(exec, any<vectors>(), tessera::segment_pooling::sum, any<matrix>());
  // CASE == 2 says: select_rows: no back end for this execution; for CUDA include <tessera/tensor/select_rows.cuh>
  tessera::select_rows(exec, any<rows>(), any<ids>());
  // CASE == 2 says: select_vectors: no back end for this execution; for CUDA include <tessera/tensor/select_vectors.cuh>
  tessera::select_vectors(exec, any<vectors>(), any<ids>(), any<vectors>());
  // CASE == 2 says: slice_rows: no back end for this execution; for CUDA include <tessera/tensor/slice_rows.cuh>
  tessera::slice_rows(exec, any<batch>(), 0, 1);
  // CASE == 2 says: transform_ids: no back end for this execution; for CUDA include <tessera/tensor/transform_ids.cuh>
  tessera::transform_ids(exec, any<tessera::keyed_jagged_view<std::int64_t>>(), next_id{});
  // CASE == 2 says: truncate_rows: no back end for this execution; for CUDA include <tessera/tensor/truncate_rows.cuh>
  tessera::truncate_rows(exec, any<rows>(), 1, tessera::kept_values::first);
  // CASE == 2 says: add_vectors, multiply_vectors: no back end for this execution; for CUDA include <tessera/tensor/vector_arithmetic.cuh>
  tessera::add_vectors(exec, any<vectors>(), any<matrix>(), any<vectors>());
#endif
}
