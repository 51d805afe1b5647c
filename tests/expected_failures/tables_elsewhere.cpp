// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <tessera/core/faults.hpp>
#include <tessera/embed/dense_table.cuh>
#include <tessera/embed/pooled_lookup.cuh>

struct my_device {
  using execution_concept = tessera::device_execution_tag;
  tessera::memory_ref<my_device> const& memory() const;
  my_device with_memory(tessera::memory_ref<my_device> memory) const;
  template <class Kernel>
  void launch(tessera::launch_shape, Kernel const&) const;
  void copy_in(void*, void const*, std::size_t) const;
  void copy_out(void*, void const*, std::size_t) const;
  void fill(void*, unsigned char, std::size_t) const;
  tessera::detail::fault_reporter faults(tessera::detail::fault_kind const&) const;
};

#if CASE == 0
using table = tessera::dense_table<float, my_device>;
#elif CASE == 1  // says: the tables lie in another execution's memory
using table = tessera::dense_table<float>;
#endif

void use(my_device const& exec, std::vector<table> const& tables, std::vector<tessera::pooled_feature> const& features,
         tessera::keyed_jagged_view<std::int64_t const> batch, std::vector<tessera::matrix_view<float>> const& out) {
  tessera::pooled_lookup(exec, tables, features, batch, out);
}
