// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/core/faults.hpp>
#include <tessera/embed/bucket_table.hpp>

struct my_device {
  using execution_concept = tessera::device_execution_tag;
  tessera::memory_ref<my_device> const& memory() const;
  void copy_in(void*, void const*, std::size_t) const;
  void copy_out(void*, void const*, std::size_t) const;
  void fill(void*, unsigned char, std::size_t) const;
};

#if CASE == 1  // says: bucket_eviction
using my_eviction = tessera::evict_ttl;
#else
using my_eviction = tessera::keep_all;
#endif

#if CASE == 2  // says: device_execution
using my_exec = tessera::host_exec;
#else
using my_exec = my_device;
#endif

using table = tessera::bucket_table<float, my_exec, my_eviction>;

std::size_t use(table& t) {
  (void)tessera::table_bytes(table::bytes_for(t.options(), t.state_layout()));
#if CASE == 3  // says: back_end<[a-z_:]*bucket_table_tag
  return static_cast<std::size_t>(t.rows());
#elif CASE == 4  // says: evict
  return static_cast<std::size_t>(t.evict(*static_cast<my_exec const*>(nullptr), 1));
#else
  return t.bytes();
#endif
}
