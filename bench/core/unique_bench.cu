// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// The distinct ids of 32 M on a GPU, ascending, and which of them each id is: of 40 bits, nearly all distinct; of 10^5. Time at the ceiling: CUB's
// sort of the ids with positions of 4 bytes, by as many bits.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/unique.cuh>

#include "../cuda_bench.cuh"
#include "../cuda_ceiling.cuh"

namespace {

using namespace tessera_bench;

cuda_report unique(gpu& on, std::int64_t bound) {
  auto const n = sized(std::int64_t{1} << 25);
  tessera::radix_bits const bits{0, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(bound - 1)))};
  gpu_ceilings ceilings(on);
  auto const copy = ceilings.copy_rate(), sort = ceilings.sort_seconds<std::int64_t, std::int32_t>(n, bits.end_bit);
  std::vector<gpu_buffer<std::int64_t>> ids;
  for (std::uint64_t b = 0; b < 3; ++b) ids.push_back(drawn<std::int64_t>(on, n, bound, b));
  gpu_buffer<std::int64_t> distinct(on.lasting, n), inverse(on.lasting, n), count(on.lasting, 1);
  auto const seconds = on.measure([&](std::int64_t i) {
    auto const list = std::as_const(ids[static_cast<std::size_t>(i) % ids.size()]).view();
    tessera::unique(on.exec, list, distinct.view(), inverse.view(), count.view(), bits);
  });
  auto const found = static_cast<double>(tessera::read_one(on.exec, count.data()));
  return {seconds, 8 * (2 * static_cast<double>(n) + found), sort, copy, {{"sort_seconds", sort}, {"distinct", found}}};
}

}  // namespace

int main(int argc, char** argv) {
  cuda_program program(argc, argv);
  program.add("unique", [](gpu& on) { return unique(on, std::int64_t{1} << 40); });
  program.add("unique_repeated", [](gpu& on) { return unique(on, 100'000); });
  return program.run();
}
