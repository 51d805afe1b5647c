// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// What a codec costs beside the copy that it saves: encode and decode of 2^24 floats, in rows of 16, 128 and 1,024, from one end of memory to the
// other. Time at the ceiling: floats and encoded bytes, one read and the other written, at the rate of a copy.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <tessera/comm/codec.hpp>
#include <tessera/core/buffer.hpp>

#include "../inputs.hpp"
#include "../memory_ceilings.hpp"
#include "../report.hpp"

namespace {

using namespace tessera_bench;

struct workload {
  explicit workload(std::int64_t width) : width(width), rows(sized(std::int64_t{1} << 24) / width), copy(copy_ceiling(host.exec)) {
    floats.resize(host.exec, rows * width);
    bytes.resize(host.exec, rows * width * 4 + rows * 4);
    draws draw(1);
    for (auto& value : floats.view()) value = static_cast<float>(draw.unit() - 0.5);
    std::fill_n(bytes.data(), bytes.size(), std::byte{0});
  }

  void run(tessera::codec with, bool decodes) {
    auto const encoded = bytes.view().slice(0, tessera::encoded_bytes(with, rows, width));
    tessera::matrix_view<float> const matrix(floats.data(), rows, width);
    if (decodes)
      tessera::decode(host.exec, with, encoded, matrix);
    else
      tessera::encode(host.exec, with, matrix, encoded);
  }
  double moved(tessera::codec with) const {
    return static_cast<double>(rows * width * 4) + static_cast<double>(tessera::encoded_bytes(with, rows, width));
  }

  machine host;
  std::int64_t width, rows;
  tessera::buffer<float> floats;
  tessera::buffer<std::byte> bytes;
  ceiling copy;
};

void add(tessera::codec with, std::int64_t width, bool decodes) {
  auto const of_width = "w" + std::to_string(width);
  auto const benchmark = (decodes ? "decode_" : "encode_") + std::string(name(with)) + "_" + of_width;
  benchmark::RegisterBenchmark(benchmark.c_str(),
                               [=](benchmark::State& state) {
                                 auto& work = kept<workload>(of_width, [&] { return std::make_shared<workload>(width); });
                                 if (decodes) work.run(with, false);  // what is read
                                 for (auto _ : state) work.run(with, decodes);
                                 report_machine(state, work.copy);
                                 report(state, work.moved(with), work.moved(with) / work.copy.rate(), 0);
                               })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  for (std::int64_t const width : {16, 128, 1024})
    for (auto const with : tessera::all_codecs)
      for (bool const decodes : {false, true}) add(with, width, decodes);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
