// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/bucketize.hpp>

struct my_buckets {
#if CASE == 1  // says: policy.place\(key, id, buckets\)
  std::int64_t place(std::int64_t, std::int64_t id, std::int64_t buckets) const { return id % buckets; }
#else
  tessera::placed_id place(std::int64_t, std::int64_t id, std::int64_t buckets) const { return {id % buckets, id / buckets}; }
#endif
};

auto use(tessera::host_exec const& exec, tessera::keyed_jagged_view<std::int64_t const> batch) {
  return tessera::bucketize(exec, batch, 4, my_buckets{});
}
