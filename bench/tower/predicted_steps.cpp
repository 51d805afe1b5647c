// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Steps that are predicted, not measured. The same numbers come out on every machine.
//
//   build/release/bench/predicted_steps         DLRM and DCN on 8 to 1,024 GPUs, as in the DMT paper: the tables of bench/results/dmt_scale.md
//   build/release/bench/predicted_steps svg     bench/results/dmt_scale.svg
//   build/release/bench/predicted_steps flops   MFLOPs of the nets of the DMT paper's Tables 4 and 5: that of bench/results/dmt.md
//   build/release/bench/predicted_steps flat    flat exchanges of 8 to 1,024 ranks on emulated hosts: that of bench/results/comm.md

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <vector>

#include <tessera/tower/exchange_costs.hpp>
#include <tessera/tower/tower_costs.hpp>

#include "step_prediction.hpp"

namespace {

using namespace tessera_bench;

int number(std::int64_t n) { return static_cast<int>(n); }
char const* name(net_kind net) { return net == net_kind::dlrm ? "DLRM" : "DCN"; }
char const* name(step_kind how) { return how == step_kind::flat ? "flat" : how == step_kind::sptt ? "SPTT" : "DMT"; }

void print_held(calibration const& fitted, calibration const& sheets, calibration const& logarithmic) {
  std::printf(
      "| what | paper | predicted | off | where | rates as on the sheets | the same, logarithmic fall |\n|---|---|---|---|---|---|---|\n");
  auto const print = [](char const* what, double paper, double predicted, char const* where, double of_sheets, double of_law) {
    std::printf("| %s | %.1f | %.2f | %+.0f %% | %s | %.2f | %.2f |\n", what, paper, predicted, 100 * (predicted / paper - 1), where,
                of_sheets, of_law);
  };
  auto const print_largest = [&](char const* what, double paper, net_kind net, step_kind slow, step_kind fast) {
    auto const found = largest_speedup(fitted, net, slow, fast);
    char where[64];
    std::snprintf(where, sizeof where, "%d %s", number(found.hosts * host_gpus), found.on->name);
    print(what, paper, found.ratio, where, largest_speedup(sheets, net, slow, fast).ratio,
          largest_speedup(logarithmic, net, slow, fast).ratio);
  };
  print_largest("DLRM, DMT over flat (fitted)", fitted_speedup, net_kind::dlrm, step_kind::flat, step_kind::dmt);
  print_largest("DCN, DMT over flat", 1.8, net_kind::dcn, step_kind::flat, step_kind::dmt);
  print_largest("DLRM, modules over SPTT", 1.4, net_kind::dlrm, step_kind::sptt, step_kind::dmt);

  // The paper's Figure 12, of 8 towers.
  auto const of_ratio = [](calibration const& c) {
    speedup found;
    for (auto const* on : all_gpus)
      if (auto const ratio = ratio_of(*on, c, {.how = step_kind::sptt}, {.how = step_kind::dmt, .module_dim = 8}); ratio > found.ratio)
        found = {ratio, on, 8};
    return found;
  };
  char where[64];
  std::snprintf(where, sizeof where, "64 %s", of_ratio(fitted).on->name);
  print("DLRM, compression 16 over SPTT", 2, of_ratio(fitted).ratio, where, of_ratio(sheets).ratio, of_ratio(logarithmic).ratio);

  // The paper's Figure 13.
  auto const of_stage = [](calibration const& c, double step_seconds::*stage) {
    return predict(h100, c, {net_kind::dcn, step_kind::flat}).*stage / (predict(h100, c, {net_kind::dcn, step_kind::dmt}).*stage);
  };
  print("DCN, embedding exchange", 4.6, of_stage(fitted, &step_seconds::embedding), "64 H100", of_stage(sheets, &step_seconds::embedding),
        of_stage(logarithmic, &step_seconds::embedding));
  print("DCN, compute", 1.4, of_stage(fitted, &step_seconds::compute), "64 H100", of_stage(sheets, &step_seconds::compute),
        of_stage(logarithmic, &step_seconds::compute));

  // XLRM's shape is not published: as large as its MFLOPs, in the proportions of DCN and of DLRM; modules that halve what is sent.
  auto const of_xlrm = [](calibration const& c, net_kind net) {
    tessera::exchange_codecs const fp8{tessera::codec::fp8_e4m3, tessera::codec::fp8_e5m2};
    job flat{.net = net, .how = step_kind::flat, .hosts = 128, .codecs = fp8};
    flat.scale = net == net_kind::dlrm ? xlrm_of_dlrm : xlrm_of_dcn;
    auto towers = flat;
    towers.how = step_kind::dmt;
    towers.compression = 2;
    return ratio_of(h100, c, flat, towers);
  };
  print("XLRM as a large DCN, FP8", 1.2, of_xlrm(fitted, net_kind::dcn), "1,024 H100", of_xlrm(sheets, net_kind::dcn),
        of_xlrm(logarithmic, net_kind::dcn));
  print("XLRM as a large DLRM, FP8", 1.2, of_xlrm(fitted, net_kind::dlrm), "1,024 H100", of_xlrm(sheets, net_kind::dlrm),
        of_xlrm(logarithmic, net_kind::dlrm));
}

void print_steps(gpu const& on, calibration const& c, net_kind net) {
  std::printf("| GPUs | %s on %s | compute | embedding | dense | rest | step, ms | samples/s a GPU | over flat |\n", name(net), on.name);
  std::printf("|---|---|---|---|---|---|---|---|---|\n");
  for (std::int64_t hosts = 1; hosts <= 128; hosts *= 2) {
    auto const flat = predict(on, c, {net, step_kind::flat, hosts}).all();
    for (auto const how : {step_kind::flat, step_kind::sptt, step_kind::dmt}) {
      if (hosts == 1 && how != step_kind::flat) continue;  // one host is one tower
      auto const s = predict(on, c, {net, how, hosts});
      std::printf("| %d | %s | %.2f | %.2f | %.2f | %.2f | %.2f | %.0f | %.2f |\n", number(hosts * host_gpus), name(how), 1e3 * s.compute,
                  1e3 * s.embedding, 1e3 * s.dense, 1e3 * s.rest, 1e3 * s.all(), static_cast<double>(samples_of_gpu) / s.all(),
                  flat / s.all());
    }
  }
}

void print_ratios(calibration const& c) {
  std::printf("| GPUs |");
  for (auto const* what : {"DLRM, DMT over flat", "DCN, DMT over flat", "DLRM, SPTT over flat", "DLRM, DMT over SPTT"})
    std::printf(" %s |", what);
  std::printf("\n|---|---|---|---|---|\n");
  for (std::int64_t hosts = 2; hosts <= 64; hosts *= 2) {
    std::printf("| %d |", number(hosts * host_gpus));
    auto const print = [&](net_kind net, step_kind slow, step_kind fast) {
      char const* between = " ";
      for (auto const* on : all_gpus) {
        if (hosts * host_gpus > on->most_ranks)
          std::printf("%s-", between);
        else
          std::printf("%s%.2f", between, ratio_of(*on, c, {net, slow, hosts}, {net, fast, hosts}));
        between = " / ";
      }
      std::printf(" |");
    };
    print(net_kind::dlrm, step_kind::flat, step_kind::dmt);
    print(net_kind::dcn, step_kind::flat, step_kind::dmt);
    print(net_kind::dlrm, step_kind::flat, step_kind::sptt);
    print(net_kind::dlrm, step_kind::sptt, step_kind::dmt);
    std::printf("\n");
  }
}

/// As nccl-tests count it: the bytes that cross a rank's link, over the time. 256 MB of vectors, 64 MB of gradients (the paper's 2.3.1).
void print_bandwidths(calibration const& c) {
  std::printf("| GPUs |");
  for (auto const* on : all_gpus) std::printf(" %s |", on->name);
  std::printf("\n|---|---|---|---|\n");
  for (std::int64_t hosts = 1; hosts <= 16; hosts *= 2) {
    std::printf("| %d |", number(hosts * host_gpus));
    for (auto const* on : all_gpus) {
      double const ranks = static_cast<double>(hosts * host_gpus), h = static_cast<double>(hosts), bytes = 256 * 1024 * 1024;
      auto const exchanged = [&](double share_of_network, std::int64_t world) {
        double const inside = bytes * (host_gpus - 1) / ranks / on->nvlink;
        if (hosts == 1) return inside + nvlink_latency;
        return std::max(inside, network_latency + bytes * share_of_network / on->network / c.efficiency(world));
      };
      double const of_all = bytes * (ranks - 1) / ranks / exchanged((h - 1) / h, hosts * host_gpus);
      double const peers = network_latency + bytes * (h - 1) / h / on->network / c.efficiency(hosts);
      double const sums = 64 * 1024 * 1024, of_sums = 2 * sums * (ranks - 1) / ranks / sum_seconds(*on, sums, hosts);
      std::printf(" %.1f / ", 1e-9 * of_all);
      if (hosts == 1)
        std::printf("-");
      else
        std::printf("%.1f", 1e-9 * bytes * (h - 1) / h / peers);
      std::printf(" / %.1f |", 1e-9 * of_sums);
    }
    std::printf("\n");
  }
}

void print_compressions(calibration const& c) {
  std::printf("| GPU | 2 | 4 | 8 | 16 |\n|---|---|---|---|---|\n");
  for (auto const* on : all_gpus) {
    std::printf("| %s |", on->name);
    for (std::int64_t const dim : {64, 32, 16, 8})
      std::printf(" %.2f |", ratio_of(*on, c, {.how = step_kind::sptt}, {.how = step_kind::dmt, .module_dim = dim}));
    std::printf("\n");
  }
}

void print_parts(calibration const& c) {
  std::printf("| DCN on 64 H100 | compute | embedding | dense | rest | step |\n|---|---|---|---|---|---|\n");
  std::vector<step_seconds> steps;
  for (auto const how : {step_kind::flat, step_kind::sptt, step_kind::dmt}) {
    auto const s = steps.emplace_back(predict(h100, c, {net_kind::dcn, how}));
    std::printf("| %s, ms (share of the step) |", name(how));
    for (double const part : {s.compute, s.embedding, s.dense, s.rest}) std::printf(" %.2f (%.0f %%) |", 1e3 * part, 100 * part / s.all());
    std::printf(" %.2f |\n", 1e3 * s.all());
  }
  auto const& flat = steps.front();
  auto const& dmt = steps.back();
  std::printf("| flat over DMT | %.2f | %.2f | %.2f | %.2f | %.2f |\n", flat.compute / dmt.compute, flat.embedding / dmt.embedding,
              flat.dense / dmt.dense, flat.rest / dmt.rest, flat.all() / dmt.all());
}

/// Bars of DLRM on H100, from left to right compute, embedding, dense and rest.
void print_picture(calibration const& c) {
  constexpr char const* colours[] = {"#2a7f62", "#c0792a", "#5b6abf", "#999999"};
  constexpr char const* parts[] = {"compute", "waiting for vectors and gradients", "waiting for dense sums", "lookups, updates, copies"};
  constexpr double left = 130, pixels_of_ms = 22;
  int y = 34;
  std::printf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 560\" font-family=\"sans-serif\" font-size=\"12\">\n");
  std::printf("<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n");
  constexpr int legend[] = {130, 220, 450, 620};
  for (int part = 0; part < 4; ++part) {
    int const x = legend[part];
    std::printf("<rect x=\"%d\" y=\"10\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%d\" y=\"20\">%s</text>\n", x, colours[part],
                x + 16, parts[part]);
  }
  for (std::int64_t hosts = 2; hosts <= 128; hosts *= 2, y += 10)
    for (auto const how : {step_kind::flat, step_kind::sptt, step_kind::dmt}) {
      auto const s = predict(h100, c, {net_kind::dlrm, how, hosts});
      std::printf("<text x=\"%.0f\" y=\"%d\" text-anchor=\"end\">%d GPUs, %s</text>\n", left - 8, y + 14, number(hosts * host_gpus),
                  name(how));
      double x = left;
      int part = 0;
      for (double const seconds : {s.compute, s.embedding, s.dense, s.rest}) {
        std::printf("<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"16\" fill=\"%s\"/>\n", x, y + 2, 1e3 * seconds * pixels_of_ms,
                    colours[part++]);
        x += 1e3 * seconds * pixels_of_ms;
      }
      std::printf("<text x=\"%.1f\" y=\"%d\">%.1f ms</text>\n", x + 6, y + 14, 1e3 * s.all());
      y += 20;
    }
  std::printf("</svg>\n");
}

/// Ranks of bench/results/comm.md: two on each emulated host. The net of bench/shard/dlrm_step_bench.cpp.
void print_flat() {
  // Of that page: the fitted cost of a byte between hosts, with two ranks of a host at once; samples a second of a rank with a core of its own.
  constexpr double seconds_per_byte = 44.9e-9, samples_per_second = 47510;
  constexpr std::int64_t samples = 1024, tables = 26, dim = 64, of_host = 2;
  tessera::click_net_shape net{.features = tables, .dim = dim, .bottom_hidden = {512, 256}, .top_hidden = {512, 256}};
  double const sums = 4 * static_cast<double>(tessera::dlrm_costs(net).parameters);
  std::printf("| ranks | tables | own work | ids | vectors | gradients | sums | step, ms |\n|---|---|---|---|---|---|---|---|\n");
  for (std::int64_t hosts = 4; hosts <= 512; hosts *= 2)
    for (bool const are_cut : {false, true}) {
      auto const ranks = hosts * of_host;
      tessera::exchange_shape shape{.grid = {ranks, hosts}, .samples = samples};
      if (are_cut) shape.features = dealt_columns(tables * dim, dim, ranks);
      for (std::int64_t t = 0; !are_cut && t < tables; ++t) shape.features.push_back({t % ranks, dim});
      // The slowest rank, one way or the other.
      auto const slowest = [&](std::vector<tessera::rank_exchange_costs> const& costs) {
        std::int64_t most = 0;
        for (auto const& of_rank : costs) most = std::max({most, of_rank.sent.between_hosts.bytes, of_rank.received.between_hosts.bytes});
        return 1e3 * seconds_per_byte * static_cast<double>(most);
      };
      double const own = 1e3 * samples / samples_per_second, h = static_cast<double>(hosts);
      double const ids = slowest(tessera::id_exchange_costs(shape)), vectors = slowest(tessera::vector_exchange_costs(shape)),
                   gradients = slowest(tessera::gradient_exchange_costs(shape));
      // Reduced inside hosts, then over a ring of hosts; a host's link is shared by its ranks.
      double const summed = 1e3 * seconds_per_byte / of_host * 2 * sums * (h - 1) / h;
      std::printf("| %d | %s | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f |\n", number(ranks), are_cut ? "cut by columns" : "whole", own, ids,
                  vectors, gradients, summed, own + ids + vectors + gradients + summed);
    }
}

/// A sample's operations in a training step, of the nets of the paper's Tables 4 and 5, and how much shorter towers make what is sent.
void print_flops() {
  auto const print = [](char const* table, char const* row, double paper, tessera::net_costs const& costs, double ratio) {
    auto const found = 1e-6 * static_cast<double>(costs.training_flops());
    std::printf("| %s | %s | %.3g | %.2f | %.2f | %+.2f %% |\n", table, row, ratio, paper, found, 100 * (found / paper - 1));
  };
  constexpr std::int64_t features = 26, dim = 128;
  tessera::click_net_shape above_towers;
  above_towers.top_hidden = {1024, 512, 256};
  struct row {
    char const *table, *name;
    std::int64_t towers;
    tessera::dlrm_tower_shape tower;
    double paper;
  };
  std::printf("| table | row | CR | paper, MFLOPs | found | off |\n|---|---|---|---|---|---|\n");
  print("4", "DLRM", 14.74, tessera::dlrm_costs({}), 1);
  for (auto const& of : {row{"4", "DMT 2T, 4T, 8T, 26T-DLRM", 8, {1, 0, 64}, 8.95}, row{"4", "DMT 16T-DLRM", 16, {0, 1, 128}, 8.75},
                         row{"5", "DMT 8T-DLRM, CR 2", 8, {1, 0, 64}, 8.95}, row{"5", "DMT 8T-DLRM, CR 4", 8, {1, 0, 32}, 7.93},
                         row{"5", "DMT 8T-DLRM, CR 8", 8, {1, 0, 16}, 7.41}, row{"5", "DMT 8T-DLRM, CR 16", 8, {1, 0, 8}, 7.16}}) {
    auto const costs = tessera::dlrm_costs(above_towers, tessera::even_towers(features, of.towers), of.tower);
    print(of.table, of.name, of.paper, costs.total(), tessera::compression_ratio(features, dim, costs.outputs));
  }
  print("4", "DCN", 96.22, tessera::dcn_costs({}), 1);
  struct dcn_row {
    char const* name;
    std::int64_t towers;
    double paper;
  };
  for (auto const& of : {dcn_row{"DMT 2T-DCN", 2, 43.71}, dcn_row{"DMT 4T-DCN", 4, 50.01}, dcn_row{"DMT 8T-DCN", 8, 62.60},
                         dcn_row{"DMT 16T-DCN", 16, 87.19}}) {
    auto const costs = tessera::dcn_costs({}, tessera::even_towers(features, of.towers), tessera::dcn_tower_shape{});
    print("4", of.name, of.paper, costs.total(), tessera::compression_ratio(features, dim, costs.outputs));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "flops") {
    print_flops();
    return 0;
  }
  if (argc > 1 && std::string_view(argv[1]) == "flat") {
    print_flat();
    return 0;
  }
  auto const fitted = fit_fall([](double fall) { return with_share(fall); });
  if (argc > 1 && std::string_view(argv[1]) == "svg") {
    print_picture(fitted);
    return 0;
  }
  auto const sheets = fit_fall([](double fall) { return calibration{fall, 1}; });
  auto const logarithmic = fit_fall([](double fall) { return calibration{fall, 1, true}; });
  std::printf("fall %.3f, share %.3f; rates as on the sheets: fall %.3f; the same, logarithmic: fall %.3f\n\n", fitted.fall, fitted.share,
              sheets.fall, logarithmic.fall);
  print_held(fitted, sheets, logarithmic);
  std::printf("\nFigures 1 and 13\n\n");
  print_parts(fitted);
  std::printf("\nFigures 10 and 11: V100 / A100 / H100\n\n");
  print_ratios(fitted);
  std::printf("\nFigure 12: by compression\n\n");
  print_compressions(fitted);
  std::printf("\nFigure 5, GB/s: all-to-all of all ranks / of peers / all-reduce\n\n");
  print_bandwidths(fitted);
  std::printf("\nBy world size\n\n");
  print_steps(h100, fitted, net_kind::dlrm);
  std::printf("\n");
  print_steps(h100, fitted, net_kind::dcn);
  std::printf("\n");
  print_steps(a100, fitted, net_kind::dlrm);
}
