// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "keyed_support.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include <tessera/core/memory.hpp>
#include <tessera/tensor/bucketize.hpp>
#include <tessera/tensor/concat.hpp>
#include <tessera/tensor/expand_rows.hpp>
#include <tessera/tensor/gather_backward.hpp>
#include <tessera/tensor/masked_select.hpp>
#include <tessera/tensor/padded.hpp>
#include <tessera/tensor/permute_keys.hpp>
#include <tessera/tensor/select_rows.hpp>
#include <tessera/tensor/slice_rows.hpp>
#include <tessera/tensor/truncate_rows.hpp>

namespace {
std::atomic<std::int64_t> heap_allocations = 0;  // other tests of the program have threads
}

// Replaced for this program: whoever asks the heap is counted. Inlined, g++ would see new beside free and warn.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++heap_allocations;
  if (void* const pointer = std::malloc(bytes == 0 ? 1 : bytes)) return pointer;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* pointer) noexcept { std::free(pointer); }
[[gnu::noinline]] void operator delete(void* pointer, std::size_t) noexcept { std::free(pointer); }

using namespace tensor_tests;

TEST_CASE("operations on views take memory from the execution alone, and none from upstream of an arena after the first step") {
  tessera_tests::serial_host host;
  auto const batch = named_batch(host.exec());
  auto const whole = batch.view();
  ids const order{1, 0}, indices{1, 0, 1}, repeats{2, 0, 1, 1, 3}, first{1, 0}, most{1, 2}, lengths{2, 0, 1, 2, 1};
  std::vector<std::uint8_t> const mask{1, 0, 1, 0, 0, 1, 1};
  std::array const inputs{whole, whole};
  ids positions(7), matrix(10);
  floats gradient(7, 1), by_values(7);

  auto const step = [&](tessera::host_exec const& exec) {
    auto const a = tessera::permute_keys(exec, whole, order);
    auto const b = tessera::concat_rows(exec, inputs);
    auto const c = tessera::concat_keys(exec, inputs);
    auto const d = tessera::select_rows(exec, whole, indices);
    auto const e = tessera::expand_rows(exec, whole, repeats);
    auto const f = tessera::slice_rows(exec, whole, first, first);
    auto const g = tessera::truncate_rows(exec, whole, most, tessera::kept_values::last);
    auto const h = tessera::masked_select(exec, whole, mask);
    auto const i = tessera::bucketize(exec, whole, 3, tessera::hashed_buckets{}, positions);
    tessera::to_padded(exec, whole.flat(), tessera::matrix_view<std::int64_t>(matrix.data(), 5, 2), 0);
    auto const j = tessera::from_padded(exec, tessera::matrix_view<std::int64_t>(matrix.data(), 5, 2), lengths);
    tessera::gather_backward(exec, positions, gradient, tessera::vector_view<float>(by_values));
    return a.view().size() + b.view().size() + c.view().size() + d.view().size() + e.view().size() + f.view().size() + g.view().size() +
           h.view().size() + i.view().size() + j.size();
  };
  tessera::arena arena(host.memory());
  auto const exec = host.exec().with_memory(arena);
  auto const values = step(exec);
  step(exec);
  auto const upstream = host.memory().allocations();
  auto const heap = heap_allocations.load();
  auto const again = step(exec);
  // The checked build names the argument it checks.
  if constexpr (!tessera::checked) CHECK(heap_allocations.load() == heap);
  CHECK(host.memory().allocations() == upstream);
  CHECK(again == values);
}

TEST_CASE("a checked build refuses offsets that decrease, or are not there, in every operation, and names it") {
  if constexpr (tessera::checked) {
    tessera_tests::serial_host host;
    auto const& exec = host.exec();
    ids values{1, 2, 3, 4};
    ids const decreasing{0, 3, 1}, first_row{0, 1, 2}, two{1, 1};
    ids positions(1), matrix(4);
    std::vector<std::uint8_t> const mask{1};
    for (auto const* const offsets : {decreasing.data(), static_cast<std::int64_t const*>(nullptr)}) {
      CAPTURE(offsets == nullptr);
      tessera::keyed_jagged_view<std::int64_t const> const bad{values.data(), nullptr, offsets, first_row.data(), 2};
      tessera::jagged_view<std::int64_t const> const rows{values.data(), offsets, 2};
      std::array const inputs{bad};
      std::array const flat_inputs{rows};
      auto const refused = [&](std::string const& name, auto const& call) {
        CAPTURE(name);
        auto const e = error_of(call);
        CHECK(e.code() == tessera::errc::invalid_argument);
        CHECK(std::string(e.what()) == name + (offsets == nullptr ? ": jagged: no offsets (rows 2)"
                                                                  : ": jagged: offsets decrease (row 1, offset 3, next offset 1)"));
      };
      refused("permute_keys: in", [&] { tessera::permute_keys(exec, bad, two); });
      refused("concat_keys: inputs[0]", [&] { tessera::concat_keys(exec, inputs); });
      refused("concat_rows: inputs[0]", [&] { tessera::concat_rows(exec, inputs); });
      refused("concat_rows: inputs[0]", [&] { tessera::concat_rows(exec, flat_inputs); });
      refused("select_rows: in", [&] { tessera::select_rows(exec, bad, two); });
      refused("select_rows: in", [&] { tessera::select_rows(exec, rows, two); });
      refused("expand_rows: in", [&] { tessera::expand_rows(exec, bad, two); });
      refused("expand_rows: in", [&] { tessera::expand_rows(exec, rows, two); });
      refused("slice_rows: in", [&] { tessera::slice_rows(exec, bad, 0, 1); });
      refused("truncate_rows: in", [&] { tessera::truncate_rows(exec, bad, 1, tessera::kept_values::last); });
      refused("truncate_rows: in", [&] { tessera::truncate_rows(exec, rows, 1, tessera::kept_values::last); });
      refused("masked_select: in", [&] { tessera::masked_select(exec, bad, mask); });
      refused("masked_select: in", [&] { tessera::masked_select(exec, rows, mask); });
      refused("bucketize: in", [&] { tessera::bucketize(exec, bad, 3, tessera::hashed_buckets{}, positions); });
      refused("to_padded: in", [&] { tessera::to_padded(exec, rows, tessera::matrix_view<std::int64_t>(matrix.data(), 2, 2), 0); });
    }
  }
}
