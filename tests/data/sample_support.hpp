// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/core/thread_team.hpp>
#include <tessera/data/sample_source.hpp>

namespace sample_tests {

/// One sample with everything by value; floats by their bits, so that NaN equals itself.
struct sample {
  std::uint32_t label = 0;
  std::vector<std::uint32_t> dense;
  std::vector<std::vector<std::int64_t>> sparse;
  std::int64_t session = 0;
  std::int64_t time = 0;
  std::uint32_t weight = 0;
  std::vector<std::uint32_t> other_labels{};

  friend bool operator==(sample const&, sample const&) = default;
};

struct table_shape {
  std::int64_t rows = 100;
  std::int64_t dense = 3;
  std::int64_t sparse = 4;
  double mean_ids = 3;
  std::int64_t sessions = 10;  // distinct ones
  std::int64_t times = 50;     // distinct ones: some samples of a session have the same
  std::int64_t single = 0;     // of the sparse columns, the last ones
  std::int64_t other_labels = 0;
  bool weights = false;
};

inline tessera::sample_schema schema_of(table_shape const& shape, bool with_session = true, bool with_time = true) {
  std::vector<std::string> dense, sparse;
  for (std::int64_t i = 0; i < shape.dense; ++i) dense.push_back("d" + std::to_string(i));
  for (std::int64_t i = 0; i < shape.sparse; ++i) sparse.push_back("s" + std::to_string(i));
  tessera::sample_schema schema{"label", dense, sparse, with_session ? "session" : "", with_time ? "time" : ""};
  if (shape.weights) schema.weight = "weight";
  for (std::int64_t i = 0; i < shape.other_labels; ++i) schema.other_labels.push_back("l" + std::to_string(i));
  schema.single.assign(sparse.end() - shape.single, sparse.end());
  return schema;
}

inline std::vector<sample> random_samples(std::mt19937_64& random, table_shape const& shape) {
  std::poisson_distribution<int> length(shape.mean_ids);
  std::normal_distribution<float> number;
  std::vector<sample> samples(static_cast<std::size_t>(shape.rows));
  auto const below = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n)); };
  for (auto& s : samples) {
    s.label = std::bit_cast<std::uint32_t>(below(4) == 0 ? 1.0F : 0.0F);
    for (std::int64_t i = 0; i < shape.dense; ++i)
      s.dense.push_back(std::bit_cast<std::uint32_t>(below(20) == 0 ? std::numeric_limits<float>::quiet_NaN() : number(random)));
    for (std::int64_t i = 0; i < shape.sparse; ++i) {
      bool const single = i >= shape.sparse - shape.single;
      auto& ids = s.sparse.emplace_back(static_cast<std::size_t>(single ? 1 : below(5) == 0 ? 0 : length(random)));
      for (auto& id : ids) id = below(10) == 0 ? static_cast<std::int64_t>(random()) : below(1000);
      if (single && below(5) == 0) ids[0] = tessera::missing_id;
    }
    if (shape.weights) s.weight = std::bit_cast<std::uint32_t>(static_cast<float>(below(4)));
    for (std::int64_t i = 0; i < shape.other_labels; ++i)
      s.other_labels.push_back(std::bit_cast<std::uint32_t>(static_cast<float>(below(3))));
    s.session = static_cast<std::int64_t>(static_cast<std::uint64_t>(below(shape.sessions)) * 0x2545F4914F6CDD1D);  // of either sign
    s.time = below(shape.times) - 10;
  }
  return samples;
}

/// Memory of its own, on one thread.
struct plain_host {
  tessera::serial_team team;
  tessera::system_memory memory;
  tessera::host_exec exec{team, memory};
};

inline void fill(tessera::host_exec const& exec, tessera::sample_schema const& schema, std::vector<sample> const& samples,
                 tessera::sample_columns& out) {
  out = tessera::sample_columns(schema);
  out.resize(exec, static_cast<std::int64_t>(samples.size()));
  for (std::size_t i = 0; i < samples.size(); ++i) {
    auto const row = static_cast<std::int64_t>(i);
    out.labels()[row] = std::bit_cast<float>(samples[i].label);
    for (std::size_t c = 0; c < schema.dense.size(); ++c)
      out.dense()(static_cast<std::int64_t>(c), row) = std::bit_cast<float>(samples[i].dense[c]);
    if (!schema.session.empty()) out.sessions()[row] = samples[i].session;
    if (!schema.time.empty()) out.times()[row] = samples[i].time;
    if (!schema.weight.empty()) out.weights()[row] = std::bit_cast<float>(samples[i].weight);
    for (std::size_t c = 0; c < schema.other_labels.size(); ++c)
      out.other_labels()(static_cast<std::int64_t>(c), row) = std::bit_cast<float>(samples[i].other_labels[c]);
  }
  for (std::size_t c = 0; c < schema.sparse.size(); ++c) {
    auto const column = static_cast<std::int64_t>(c);
    if (schema.is_single(schema.sparse[c])) {
      for (std::size_t i = 0; i < samples.size(); ++i) out.single_ids(column)[static_cast<std::int64_t>(i)] = samples[i].sparse[c][0];
      continue;
    }
    out.offsets(column)[0] = 0;
    for (std::size_t i = 0; i < samples.size(); ++i)
      out.offsets(column)[static_cast<std::int64_t>(i) + 1] =
          out.offsets(column)[static_cast<std::int64_t>(i)] + static_cast<std::int64_t>(samples[i].sparse[c].size());
    auto const ids = out.ids(exec, column);
    std::int64_t at = 0;
    for (auto const& s : samples)
      for (auto const id : s.sparse[c]) ids[at++] = id;
  }
}

/// A table's samples; without sessions or times these are 0.
inline std::vector<sample> samples_of(tessera::sample_columns_view view) {
  std::vector<sample> samples(static_cast<std::size_t>(view.size()));
  for (std::int64_t row = 0; row < view.size(); ++row) {
    auto& s = samples[static_cast<std::size_t>(row)];
    s.label = std::bit_cast<std::uint32_t>(view.labels[row]);
    for (std::int64_t c = 0; c < view.dense.rows(); ++c) s.dense.push_back(std::bit_cast<std::uint32_t>(view.dense(c, row)));
    for (auto const& rows : view.sparse) {
      REQUIRE(rows.rows == view.size());
      s.sparse.emplace_back(rows.row(row).begin(), rows.row(row).end());
    }
    if (!view.sessions.empty()) s.session = view.sessions[row];
    if (!view.times.empty()) s.time = view.times[row];
    if (!view.weights.empty()) s.weight = std::bit_cast<std::uint32_t>(view.weights[row]);
    for (std::int64_t c = 0; c < view.other_labels.rows(); ++c)
      s.other_labels.push_back(std::bit_cast<std::uint32_t>(view.other_labels(c, row)));
  }
  return samples;
}

/// All blocks of a source in order; checks what the concept says of them.
template <tessera::sample_source Source>
std::vector<sample> read_all(tessera::host_exec const& exec, Source const& source) {
  std::vector<sample> all;
  tessera::sample_columns columns;
  for (std::int64_t block = 0; block < source.block_count(); ++block) {
    CHECK(source.first_row(block) == static_cast<std::int64_t>(all.size()));
    if (block % 2 == 1) {  // what is read becomes the block, whatever was there
      columns = tessera::sample_columns({.dense = 1, .sparse = 7, .times = true});
      columns.resize(exec, 3);
    }
    source.read(exec, block, columns);
    CHECK(columns.size() == source.rows(block));
    CHECK(columns.size() > 0);
    auto const some = samples_of(columns.view());
    all.insert(all.end(), some.begin(), some.end());
  }
  CHECK(source.rows() == static_cast<std::int64_t>(all.size()));
  return all;
}

}  // namespace sample_tests
