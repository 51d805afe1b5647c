// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/hot/hot_rows.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/masked_select.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// Through what a batch's vectors come.
enum class hot_way : std::uint8_t { none, twins, inner, both };

/// What `hot_source` makes of each key of a batch.
struct hot_key {
  std::int64_t table = 0;
  std::int64_t output = 0;  ///< which of the source's outputs is made of it
};

/// A batch whose ids are parted: those of hot rows, by their numbers, and those of cold ones. Its memory is kept from batch to batch.
class parted_batch {
 public:
  /// Numbers the ids of all keys; -1 of cold ones. The batch stays as it is as long as this is used.
  void number(host_exec const& exec, batch_view const& batch, std::vector<hot_key> const& keys, hot_rows const& hot);
  /// Parts the numbered batch.
  void part(host_exec const& exec);

  /// The batch with numbers in the ids' place. After `number`.
  batch_view numbered() const;
  /// The first cold id. @return its error; null where there is none. After `number`.
  std::exception_ptr cold_id(std::vector<hot_key> const& keys) const;
  /// The parts, in the same samples and groups. After `part`.
  batch_view hot() const;
  batch_view cold() const;

  /// Calls f(table, number) for each hot id, repeats included. After `number`.
  template <class F>
  void for_each_hot(std::vector<hot_key> const& keys, F const& f) const {
    for (std::int64_t k = 0; k < batch_.sparse.keys; ++k) {
      auto const rows = batch_.sparse.key(k);
      auto const last = rows.first_value() + rows.size();
      for (auto p = rows.first_value(); p < last; ++p)
        if (numbers_[p] >= 0) f(keys[static_cast<std::size_t>(k)].table, numbers_[p]);
    }
  }

  /// How many hot and cold ids a sample's bag has. After `part`.
  struct lengths {
    std::int64_t hot, cold;
  };
  lengths of_bag(std::int64_t key, std::int64_t sample) const;

  /// Blocks for the vectors of both parts: of pooled outputs `cold_out` are the caller's, which get the sum; of sequences they lie here.
  void make_blocks(host_exec const& exec, std::vector<hot_key> const& keys, vector_view<embedding_output const> outputs,
                   vector_view<matrix_view<float> const> out);
  vector_view<matrix_view<float> const> cold_out() const noexcept { return cold_out_; }  // in the order of outputs
  vector_view<matrix_view<float> const> hot_out() const noexcept { return hot_out_; }    // in the order of keys
  /// Joins the vectors of both parts: in a bag of both, cold ids come first in the sum.
  void join(host_exec const& exec, std::vector<hot_key> const& keys, vector_view<embedding_output const> outputs,
            vector_view<matrix_view<float> const> out) const;
  /// Makes the gradients of both parts.
  void split(host_exec const& exec, std::vector<hot_key> const& keys, vector_view<embedding_output const> outputs,
             vector_view<matrix_view<float const> const> gradients);
  vector_view<matrix_view<float const> const> cold_gradients() const noexcept { return cold_gradients_; }
  vector_view<matrix_view<float const> const> hot_gradients() const noexcept { return hot_gradients_; }

  std::size_t bytes() const noexcept {
    return numbers_.capacity_bytes() + masks_.capacity_bytes() + memory_.capacity_bytes() + gradient_memory_.capacity_bytes() +
           hot_.bytes() + cold_.bytes();
  }

 private:
  // Calls f(hot, place) for each vector of a sequence's block: whether its row is hot, and its place in the block of that part. `of_samples`:
  // of the batch that groups stand for.
  template <class F>
  void for_each_vector(std::int64_t key, bool of_samples, F const& f) const;
  template <class Matrix>
  void check_blocks(char const* call, std::vector<hot_key> const& keys, vector_view<embedding_output const> outputs,
                    vector_view<Matrix const> blocks, bool of_samples) const;

  batch_view batch_;
  buffer<std::int64_t> numbers_;  // by place in the batch's values
  buffer<std::uint8_t> masks_;    // hot ones of all values, then cold ones
  keyed_jagged<> hot_, cold_;
  buffer<float> memory_, gradient_memory_;
  std::vector<matrix_view<float>> cold_out_, hot_out_;
  std::vector<matrix_view<float const>> cold_gradients_, hot_gradients_;
};

template <class F>
void parted_batch::for_each_vector(std::int64_t key, bool of_samples, F const& f) const {
  auto const inverse = batch_.inverse_keyed().inverse(key);
  auto const rows = batch_.sparse.key(key);
  std::int64_t hot = 0, cold = 0;
  auto const row = [&](std::int64_t r) {
    for (auto p = rows.begin_of(r); p < rows.end_of(r); ++p) numbers_[p] >= 0 ? f(true, hot++) : f(false, cold++);
  };
  if (of_samples && !inverse.empty())
    for (auto const r : inverse) row(r);
  else
    for (std::int64_t r = 0; r < rows.rows; ++r) row(r);
}

template <class Matrix>
void parted_batch::check_blocks(char const* call, std::vector<hot_key> const& keys, vector_view<embedding_output const> outputs,
                                vector_view<Matrix const> blocks, bool of_samples) const {
  if (blocks.size() != outputs.size())
    throw error(errc::shape_mismatch, std::string(call) + ": a block an output", {{"blocks", blocks.size()}, {"outputs", outputs.size()}});
  for (std::size_t k = 0; k < keys.size(); ++k) {
    auto const& output = outputs[keys[k].output];
    auto const& block = blocks[keys[k].output];
    auto vectors = batch_.samples();
    if (output.sequence) {
      vectors = 0;
      for_each_vector(static_cast<std::int64_t>(k), of_samples && output.expanded_gradients, [&](bool, std::int64_t) { ++vectors; });
    }
    if (block.rows() != vectors || block.columns() != output.width)
      throw error(errc::shape_mismatch, std::string(call) + ": a block of another shape",
                  {{"key", k}, {"rows", block.rows()}, {"expected", vectors}, {"columns", block.columns()}, {"width", output.width}});
  }
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/hot/parted_batch.ipp>
#endif
