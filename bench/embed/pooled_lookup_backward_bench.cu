// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Backward of pooled lookups with the update of the rows on a GPU, alone and as the step of lookup, backward and update: 8 tables of 10 M rows of
// 128 floats, 16,384 samples, bags of 20 ids, uniform or Zipf(1.05).
// Time at the ceiling, of the backward: distinct rows and their states read and written, gradients of vectors read once, ids read, all at the
// rate of a copy, and the sort of as many pairs of 32 bits as there are ids by CUB, by as many bits as slots of all tables have. Of the step:
// that, and the lookup as in pooled_lookup_bench.cu.

#include <bit>
#include <cstdint>
#include <string>
#include <utility>

#include "../cuda_bench.cuh"
#include "../cuda_ceiling.cuh"
#include "cuda_lookups.cuh"

namespace {

using namespace tessera_bench;

template <class Optimizer>
cuda_report run(gpu& on, gpu_lookup_shape const& shape, Optimizer const& optimizer, bool is_step) {
  gpu_ceilings ceilings(on);
  auto const copy = ceilings.copy_rate();
  auto const slots = static_cast<std::uint64_t>(shape.tables * sized(shape.rows));
  auto const sort = ceilings.sort_seconds<std::uint32_t, std::uint32_t>(shape.ids_a_batch(), static_cast<int>(std::bit_width(slots)));
  auto tables = gpu_tables<float>(on.lasting, shape, optimizer);
  gpu_lookups lookups(on, shape);
  auto const distinct = lookups.distinct_rows();
  auto const row = shape.dim * 4, state = tables[0].state_layout().width(shape.dim) * 4;
  auto bytes = distinct * static_cast<double>(2 * (row + state)) + lookups.stream_bytes();
  if (is_step) bytes += lookups.row_bytes(row) + lookups.stream_bytes();
  auto const backward = [&](std::int64_t i) { lookups.backward(tables, i, optimizer); };
  auto const forward = [&](std::int64_t i) { lookups.forward(tables, i); };
  auto const seconds = is_step ? on.measure([&](std::int64_t i) { forward(i), backward(i); }) : on.measure(forward, backward);
  return {seconds, bytes, bytes / copy + sort, copy, {{"sort_seconds", sort}, {"distinct_rows", distinct}}};
}

template <class Optimizer>
void add(cuda_program& program, std::string const& optimizer_name, Optimizer const& optimizer, bool alone) {
  for (auto const& [name, exponent] : {std::pair{"d128", 0.0}, std::pair{"zipf", 1.05}}) {
    gpu_lookup_shape const shape{.exponent = exponent};
    auto const both = optimizer_name + "_" + name;
    if (alone) program.add("backward_" + both, [=](gpu& on) { return run(on, shape, optimizer, false); });
    program.add("step_" + both, [=](gpu& on) { return run(on, shape, optimizer, true); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  cuda_program program(argc, argv);
  add(program, "rowwise_adagrad", tessera::rowwise_adagrad{.learning_rate = 0.01F}, true);
  add(program, "sgd", tessera::sgd{0.01F}, false);
  add(program, "adagrad", tessera::adagrad{.learning_rate = 0.01F}, false);
  return program.run();
}
