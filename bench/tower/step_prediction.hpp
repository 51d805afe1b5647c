// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/comm/link_model.hpp>
#include <tessera/tower/exchange_costs.hpp>
#include <tessera/tower/tower_costs.hpp>

/// Steps of nets on GPUs that are predicted from shapes and data sheets, as the DMT paper reports them. Every constant says where it is from;
/// one number is fitted, and one is read off a figure.
namespace tessera_bench {

/// A GPU and its links. Peak, network and NVLink: Table 1 of "Disaggregated Multi-Tower". Memory: NVIDIA's data sheets of V100 SXM2, A100 SXM
/// 80 GB and H100 SXM. Ranks: the paper's Figure 10 and its footnote 2.
struct gpu {
  char const* name;
  double flops;             ///< a second
  double memory;            ///< bytes a second, here and below
  double network;           ///< of one GPU, one way
  double nvlink;            ///< the same
  std::int64_t most_ranks;  ///< that the paper reports
};
inline constexpr gpu v100{"V100", 15.7e12, 0.9e12, 100e9 / 8, 150e9, 128};
inline constexpr gpu a100{"A100", 156e12, 2.039e12, 200e9 / 8, 300e9, 512};
inline constexpr gpu h100{"H100", 989e12, 3.35e12, 400e9 / 8, 450e9, 512};
inline constexpr gpu const* all_gpus[] = {&v100, &a100, &h100};

inline constexpr std::int64_t samples_of_gpu = 16 * 1024;  ///< the paper, 5.3.1: the local batch
inline constexpr std::int64_t host_gpus = 8;               ///< the paper, Figure 5
inline constexpr std::int64_t vector_dim = 128;            ///< the paper, 5.2.2: N
inline constexpr std::int64_t criteo_features = 26;        ///< the paper, 5.2.2
/// NCCL, hwLatencies of src/graph/tuning.cc: a step of a ring, protocol "simple", over NVLink and over the network.
inline constexpr double nvlink_latency = 3.4e-6, network_latency = 14e-6;
/// PyTorch, DistributedDataParallel: the default of bucket_cap_mb. The last bucket has no backward left to hide behind.
inline constexpr double bucket_bytes = 25 * 1024 * 1024;
/// The paper, section 1 and Figure 1: DCN on 64 H100 waits for the network for up to 30 % of a step.
inline constexpr double waiting_share = 0.3;
/// The paper, abstract and 5.3.1: the largest speed-up of DLRM over all GPUs and sizes.
inline constexpr double fitted_speedup = 1.9;
/// The paper, 5.1: XLRM's MFLOPs a sample, over those of DLRM and of DCN (Table 4).
inline constexpr double xlrm_of_dlrm = 700 / 14.74, xlrm_of_dcn = 700 / 96.22;

/// What is on no sheet.
struct calibration {
  double fall = 0;              ///< an all-to-all of W ranks over the network reaches W^-fall of its links: the free parameter
  double share = 1;             ///< of peak and memory bandwidth that kernels reach, on every GPU
  bool is_logarithmic = false;  ///< another law: 1 / (1 + fall log2 W)

  double efficiency(std::int64_t world) const {
    auto const ranks = static_cast<double>(world);
    return is_logarithmic ? 1 / (1 + fall * std::log2(ranks)) : std::pow(ranks, -fall);
  }
};

enum class net_kind { dlrm, dcn };
enum class step_kind { flat, sptt, dmt };

struct job {
  net_kind net = net_kind::dlrm;
  step_kind how = step_kind::flat;
  std::int64_t hosts = 8;
  /// Two bytes a number: the paper's baseline sends vectors and gradients quantised, but it does not say to what.
  tessera::exchange_codecs codecs{tessera::codec::fp16, tessera::codec::bf16};
  std::int64_t module_dim = 0;  ///< of a DLRM's modules as in Table 5; 0: as in Table 4
  double compression = 0;       ///< of modules that make vectors smaller and change nothing else; 0: none such
  double scale = 1;             ///< a net that is so many times as large, in vectors and in products

  std::int64_t numbers() const { return vector_dim * std::llround(scale * static_cast<double>(criteo_features)); }
};

struct step_seconds {
  double compute = 0;    ///< of the dense net
  double embedding = 0;  ///< waiting for vectors and their gradients
  double dense = 0;      ///< waiting for sums of the dense net's gradients
  double rest = 0;       ///< lookups, updates, and what an exchange copies

  double all() const { return compute + embedding + dense + rest; }
};

/// The nets of Table 4, of 2 to 16 towers, one a host. More hosts take its row of 26 towers, with tables cut by columns (its footnote 1);
/// that is SPTT alone for DCN (5.2.2).
inline tessera::tower_net_costs net_of(job const& j) {
  if (j.how == step_kind::dmt && j.compression == 0) {
    auto const towers = tessera::even_towers(criteo_features, std::min<std::int64_t>(j.hosts, j.hosts > 16 ? 26 : 16));
    if (j.net == net_kind::dcn && j.hosts <= 16) return tessera::dcn_costs({}, towers, tessera::dcn_tower_shape{});
    if (j.net == net_kind::dlrm) {
      tessera::click_net_shape above;
      above.top_hidden = {1024, 512, 256};
      tessera::dlrm_tower_shape const of_sixteen{0, 1, 128}, of_others{1, 0, j.module_dim > 0 ? j.module_dim : 64};
      return tessera::dlrm_costs(above, towers, j.hosts == 16 && j.module_dim == 0 ? of_sixteen : of_others);
    }
  }
  tessera::tower_net_costs costs;
  costs.above = j.net == net_kind::dlrm ? tessera::dlrm_costs({}) : tessera::dcn_costs({});
  auto const numbers = static_cast<double>(j.numbers());
  costs.outputs = std::llround(j.how == step_kind::dmt && j.compression > 0 ? numbers / j.compression : numbers);
  return costs;
}

/// Columns of all tables, dealt out in fours so that ranks have as many; towers are hosts.
inline std::vector<tessera::exchanged_feature> dealt_columns(std::int64_t numbers, std::int64_t dim, std::int64_t ranks) {
  std::vector<tessera::exchanged_feature> all;
  auto const fours = numbers / 4, of_feature = dim / 4;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    auto const last = (rank + 1) * fours / ranks;
    for (auto at = rank * fours / ranks; at < last;) {
      auto const end = std::min(last, (at / of_feature + 1) * of_feature);
      all.push_back({rank, 4 * (end - at)});
      at = end;
    }
  }
  return all;
}

inline tessera::exchange_shape exchange_of(job const& j, std::int64_t outputs) {
  tessera::exchange_shape shape;
  bool const has_towers = j.how != step_kind::flat && j.hosts > 1;
  shape.route = has_towers ? tessera::exchange_route::towers : tessera::exchange_route::flat;
  shape.grid = {j.hosts * host_gpus, j.hosts};
  shape.features = dealt_columns(j.numbers(), vector_dim, shape.grid.ranks);
  shape.samples = samples_of_gpu;
  shape.codecs = shape.inside = j.codecs;
  if (has_towers && outputs < j.numbers())
    for (std::int64_t t = 0; t < j.hosts; ++t) shape.outputs.push_back((t + 1) * outputs / j.hosts - t * outputs / j.hosts);
  return shape;
}

inline tessera::link_model links_of(gpu const& on) {
  return {{{"host", nvlink_latency, 1 / on.nvlink}, {"network", network_latency, 1 / on.network}}};
}

/// The mean over ranks of what they send: tables and towers are balanced. All messages of a hop are under way at once, so that their latency
/// counts once. A flat exchange uses both links at once; hops come one after the other.
inline double exchange_seconds(gpu const& on, calibration const& c, tessera::exchange_shape const& shape,
                               std::vector<tessera::rank_exchange_costs> const& costs) {
  tessera::exchange_costs sum;
  for (auto const& of_rank : costs) sum += of_rank.sent;
  auto const links = links_of(on);
  auto const seconds = [&](tessera::link_traffic const& traffic, std::size_t level, double efficiency) {
    auto const mean = static_cast<double>(traffic.bytes) / static_cast<double>(shape.grid.ranks);
    auto const& link = links.links[level];
    return traffic.messages == 0 ? 0 : link.seconds_per_message + link.seconds_per_byte * mean / efficiency;
  };
  bool const is_flat = shape.route == tessera::exchange_route::flat;
  auto const inside = seconds(sum.inside_host, 0, 1);
  auto const between = seconds(sum.between_hosts, 1, c.efficiency(is_flat ? shape.grid.ranks : shape.grid.groups()));
  return is_flat ? std::max(inside, between) : inside + between;
}

/// A sum over the ranks of so many hosts: reduced inside hosts, then over hosts, each rank a part; latencies as NCCL counts those of a tree.
inline double sum_seconds(gpu const& on, double bytes, std::int64_t hosts) {
  double const l = host_gpus, h = static_cast<double>(hosts);
  double const inside = 2 * (l - 1) * nvlink_latency + 2 * bytes * (l - 1) / l / on.nvlink;
  if (hosts == 1) return inside;
  return inside + 2 * std::ceil(std::log2(h)) * network_latency + 2 * bytes / l * (h - 1) / h / on.network;
}

inline step_seconds predict(gpu const& on, calibration const& c, job const& j) {
  auto const net = net_of(j);
  auto const all = net.total();
  auto const shape = exchange_of(j, net.outputs);
  double const flops = c.share * on.flops, memory = c.share * on.memory, rows = samples_of_gpu;
  step_seconds s;
  s.compute = j.scale * rows * (static_cast<double>(all.training_flops()) / flops + 4 * static_cast<double>(all.moved_floats) / memory);
  // Ids travel during the step before (pipelined input); vectors and gradients hide behind nothing.
  s.embedding = exchange_seconds(on, c, shape, tessera::vector_exchange_costs(shape)) +
                exchange_seconds(on, c, shape, tessera::gradient_exchange_costs(shape));
  // Sums hide behind the dense backward, two thirds of the compute, but for the last bucket. Those of a tower stay in it.
  double const parameters = j.scale * static_cast<double>(all.parameters), bytes = 4 * j.scale * static_cast<double>(net.above.parameters);
  double const last = sum_seconds(on, std::min(bytes, bucket_bytes), j.hosts);
  s.dense = std::max(last, sum_seconds(on, bytes, j.hosts) - s.compute * 2 / 3);
  if (!net.towers.empty()) s.dense += sum_seconds(on, (4 * parameters - bytes) / static_cast<double>(net.towers.size()), 1);
  // Bytes in memory of a number that is looked up: 8 read and written; 12 a hop and direction to encode and decode; 8 a direction to be moved
  // to the order of peers; 28 for its gradient, its row and two states of Adam. Dense parameters take 28 too.
  double const of_outputs = static_cast<double>(net.outputs) / static_cast<double>(j.numbers());
  bool const has_towers = shape.route == tessera::exchange_route::towers;
  double const of_number = 8 + 24 + 28 + (has_towers ? 16 + 24 * of_outputs : 0);
  s.rest = (rows * static_cast<double>(j.numbers()) * of_number + 28 * parameters) / memory;
  return s;
}

/// With the share of the sheets' rates at which DCN on 64 H100 waits as long as the paper says.
inline calibration with_share(double fall) {
  calibration c{fall, 1};
  job const of_figure{net_kind::dcn, step_kind::flat, 8};
  for (int i = 0; i < 50; ++i) {
    auto const s = predict(h100, c, of_figure);
    c.share *= (s.compute + s.rest) / ((s.embedding + s.dense) * (1 / waiting_share - 1));
  }
  return c;
}

/// A speed-up, and where it is.
struct speedup {
  double ratio = 0;
  gpu const* on = nullptr;
  std::int64_t hosts = 0;
};

/// The numbers of hosts that the paper reports, from 16 GPUs on.
inline std::vector<std::int64_t> reported_hosts(gpu const& on) {
  std::vector<std::int64_t> all;
  for (std::int64_t hosts = 2; hosts * host_gpus <= on.most_ranks; hosts *= 2) all.push_back(hosts);
  return all;
}

inline double ratio_of(gpu const& on, calibration const& c, job const& slow, job const& fast) {
  return predict(on, c, slow).all() / predict(on, c, fast).all();
}

/// The largest over all that the paper reports: "up to".
inline speedup largest_speedup(calibration const& c, net_kind net, step_kind slow, step_kind fast) {
  speedup found;
  for (auto const* on : all_gpus)
    for (auto const hosts : reported_hosts(*on))
      if (auto const ratio = ratio_of(*on, c, {net, slow, hosts}, {net, fast, hosts}); ratio > found.ratio) found = {ratio, on, hosts};
  return found;
}

/// The fall with which the largest speed-up of DLRM is the paper's. `make` gives a calibration with a fall.
template <class Make>
calibration fit_fall(Make const& make) {
  double low = 0, high = 8;
  for (int i = 0; i < 40; ++i) {
    double const middle = (low + high) / 2;
    auto const largest = largest_speedup(make(middle), net_kind::dlrm, step_kind::flat, step_kind::dmt).ratio;
    (largest < fitted_speedup ? low : high) = middle;
  }
  return make((low + high) / 2);
}

}  // namespace tessera_bench
