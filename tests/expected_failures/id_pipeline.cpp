// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include <tessera/tensor/id_pipeline.hpp>

struct my_transform {
#if CASE == 1  // says: id_pipeline: a step is a function of ids, a transform with of_key
  auto of_name(char const*) const {
#else
  auto of_key(tessera::transformed_key) const {
#endif
      return [](std::int64_t id) { return id + 1; };
}
}
;

auto use(tessera::host_exec const& exec, tessera::keyed_jagged_view<std::int64_t const> batch) {
  return tessera::id_pipeline(exec, {"a"}, my_transform{})(exec, batch);
}

#if CASE == 2  // says: transform_ids: ids are integers, and written in place
void write(tessera::host_exec const& exec, tessera::keyed_jagged_view<std::int64_t const> batch) {
  tessera::transform_ids(exec, batch, [](std::int64_t id) { return id; });
}
#endif
