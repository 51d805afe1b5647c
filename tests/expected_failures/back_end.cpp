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
#include <tessera/tensor/rows_from.hpp>
#include <tessera/tensor/select_rows.hpp>
#include <tessera/tensor/select_vectors.hpp>
#include <tessera/tensor/slice_rows.hpp>
#include <tessera/tensor/source_lists.hpp>
#include <tessera/tensor/sum_by_target.hpp>
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
  // CASE == 2 says: back_end<[a-z_:]*for_each_index_tag, my_exec>
  tessera::for_each_index(exec, 1, 1, [](std::int64_t) {});
  // CASE == 2 says: back_end<[a-z_:]*check_finite_tag, my_exec>
  tessera::check_finite(exec, "values", any<floats>());
  // CASE == 2 says: back_end<[a-z_:]*exclusive_scan_tag, my_exec>
  tessera::exclusive_scan(exec, any<ids>(), any<ids>());
  // CASE == 2 says: back_end<[a-z_:]*lengths_to_offsets_tag, my_exec>
  tessera::lengths_to_offsets(exec, any<ids>(), any<ids>());
  // CASE == 2 says: back_end<[a-z_:]*radix_sort_tag, my_exec>
  tessera::radix_sort_pairs(exec, any<ids>(), any<ids>());
  // CASE == 2 says: back_end<[a-z_:]*run_length_encode_tag, my_exec>
  tessera::run_length_encode(exec, any<ids>(), any<ids>(), any<ids>());
  // CASE == 2 says: back_end<[a-z_:]*select_flagged_tag, my_exec>
  tessera::select_flagged(exec, any<ids>(), any<ids>(), any<ids>());
  // CASE == 2 says: back_end<[a-z_:]*segmented_reduce_tag, my_exec>
  tessera::segmented_reduce(exec, any<float*>(), any<ids>(), any<floats>());
  // CASE == 2 says: back_end<[a-z_:]*unique_tag, my_exec>
  tessera::unique(exec, any<ids>(), any<ids>(), any<ids>());
  // CASE == 2 says: back_end<[a-z_:]*pooled_lookup_tag, my_exec>
  tessera::pooled_lookup(exec, any<tables>(), any<features>(), any<batch>(), any<blocks>(), any<saved>());
  // CASE == 2 says: back_end<[a-z_:]*pooled_lookup_backward_tag, my_exec>
  tessera::pooled_lookup_backward(exec, any<tables>(), any<features>(), any<saved>(), any<gradients>(), tessera::sgd{});
  // CASE == 2 says: back_end<[a-z_:]*sequence_lookup_tag, my_exec>
  tessera::sequence_lookup(exec, any<tables>(), any<ids>(), any<batch>(), any<blocks>(), any<saved>());
  // CASE == 2 says: back_end<[a-z_:]*sequence_lookup_backward_tag, my_exec>
  tessera::sequence_lookup_backward(exec, any<tables>(), any<ids>(), any<saved>(), any<gradients>(), tessera::sgd{});
  // CASE == 2 says: back_end<[a-z_:]*update_rows_tag, my_exec>
  tessera::update_rows(exec, any<tables>(), any<tessera::basic_row_gradients<my_exec>&>(), tessera::sgd{});
  // CASE == 2 says: back_end<[a-z_:]*row_transfer_tag, my_exec>
  tessera::read_rows(exec, any<tables>()[0], any<ids>(), any<matrix>(), any<matrix>());
  // CASE == 2 says: back_end<[a-z_:]*bucketize_tag, my_exec>
  tessera::bucketize(exec, any<batch>(), 2, tessera::hashed_buckets{});
  // CASE == 2 says: back_end<[a-z_:]*concat_tag, my_exec>
  tessera::concat_keys(exec, any<std::vector<batch>>());
  // CASE == 2 says: back_end<[a-z_:]*expand_tag, my_exec>
  tessera::expand(exec, any<inverse_batch>());
  // CASE == 2 says: back_end<[a-z_:]*expand_rows_tag, my_exec>
  tessera::expand_rows(exec, any<rows>(), any<ids>());
  // CASE == 2 says: back_end<[a-z_:]*gather_backward_tag, my_exec>
  tessera::gather_backward(exec, any<ids>(), any<constants>(), any<floats>());
  // CASE == 2 says: back_end<[a-z_:]*gather_vectors_tag, my_exec>
  tessera::gather_vectors(exec, any<matrix>(), any<ids>(), any<matrix>());
  // CASE == 2 says: back_end<[a-z_:]*jagged_products_tag, my_exec>
  tessera::jagged_dense_product(exec, any<vectors>(), any<matrix>(), any<vectors>());
  // CASE == 2 says: back_end<[a-z_:]*jagged_softmax_tag, my_exec>
  tessera::jagged_softmax(exec, any<vectors>(), any<vectors>());
  // CASE == 2 says: back_end<[a-z_:]*masked_select_tag, my_exec>
  tessera::masked_select(exec, any<rows>(), any<tessera::vector_view<std::uint8_t>>());
  // CASE == 2 says: back_end<[a-z_:]*padded_tag, my_exec>
  tessera::to_padded(exec, any<rows>(), any<tessera::matrix_view<std::int64_t>>(), 0);
  // CASE == 2 says: back_end<[a-z_:]*padded_vectors_tag, my_exec>
  tessera::to_padded_vectors(exec, any<vectors>(), any<matrix>());
  // CASE == 2 says: back_end<[a-z_:]*permute_keys_tag, my_exec>
  tessera::permute_keys(exec, any<batch>(), any<ids>());
  // CASE == 2 says: back_end<[a-z_:]*pool_segments_tag, my_exec>
  tessera::pool_segments(exec, any<vectors>(), tessera::segment_pooling::sum, any<matrix>());
  // CASE == 2 says: back_end<[a-z_:]*select_rows_tag, my_exec>
  tessera::select_rows(exec, any<rows>(), any<ids>());
  // CASE == 2 says: back_end<[a-z_:]*rows_from_tag, my_exec>
  tessera::rows_from(exec, any<rows>(), 1, [](std::int64_t) { return tessera::value_range<>{}; });
  // CASE == 2 says: back_end<[a-z_:]*source_lists_tag, my_exec>
  tessera::source_lists(exec, any<ids>(), 1);
  // CASE == 2 says: back_end<[a-z_:]*sum_by_target_tag, my_exec>
  tessera::sum_by_target(exec, any<tessera::source_pairs_view>(), any<constants>(), any<floats>());
  // CASE == 2 says: back_end<[a-z_:]*select_vectors_tag, my_exec>
  tessera::select_vectors(exec, any<vectors>(), any<ids>(), any<vectors>());
  // CASE == 2 says: back_end<[a-z_:]*slice_rows_tag, my_exec>
  tessera::slice_rows(exec, any<batch>(), 0, 1);
  // CASE == 2 says: back_end<[a-z_:]*transform_ids_tag, my_exec>
  tessera::transform_ids(exec, any<tessera::keyed_jagged_view<std::int64_t>>(), next_id{});
  // CASE == 2 says: back_end<[a-z_:]*rows_from_tag, my_exec>
  tessera::truncate_rows(exec, any<rows>(), 1, tessera::kept_values::first);
  // CASE == 2 says: back_end<[a-z_:]*combine_vectors_tag, my_exec>
  tessera::add_vectors(exec, any<vectors>(), any<matrix>(), any<vectors>());
#endif
}
