// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// All of tensor/: jagged and keyed jagged tensors, and rows of vectors.
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/bucketize.hpp>
#include <tessera/tensor/concat.hpp>
#include <tessera/tensor/concat_vectors.hpp>
#include <tessera/tensor/deduplicate.hpp>
#include <tessera/tensor/expand.hpp>
#include <tessera/tensor/expand_rows.hpp>
#include <tessera/tensor/gather_backward.hpp>
#include <tessera/tensor/gather_vectors.hpp>
#include <tessera/tensor/id_pipeline.hpp>
#include <tessera/tensor/id_steps.hpp>
#include <tessera/tensor/id_transforms.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/jagged_products.hpp>
#include <tessera/tensor/jagged_softmax.hpp>
#include <tessera/tensor/jagged_vectors.hpp>
#include <tessera/tensor/key_groups.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/masked_select.hpp>
#include <tessera/tensor/padded.hpp>
#include <tessera/tensor/padded_vectors.hpp>
#include <tessera/tensor/permute_keys.hpp>
#include <tessera/tensor/pool_segments.hpp>
#include <tessera/tensor/row_copies.hpp>
#include <tessera/tensor/rows_from.hpp>
#include <tessera/tensor/select_rows.hpp>
#include <tessera/tensor/select_slices.hpp>
#include <tessera/tensor/select_vectors.hpp>
#include <tessera/tensor/slice_rows.hpp>
#include <tessera/tensor/source_lists.hpp>
#include <tessera/tensor/sum_by_target.hpp>
#include <tessera/tensor/transform_ids.hpp>
#include <tessera/tensor/truncate_rows.hpp>
#include <tessera/tensor/vector_arithmetic.hpp>
