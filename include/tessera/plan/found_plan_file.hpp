// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/files/checksum.hpp>
#include <tessera/files/json.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/plan/plan_prediction.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/shard/sharding_plan_file.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A plan of a file, and what was predicted of it, where the file says so.
struct predicted_plan {
  sharding_plan plan;
  std::optional<plan_prediction> found;

  friend bool operator==(predicted_plan const&, predicted_plan const&) = default;
};

/// What names a plan, 8 hexadecimal digits: the checksum of `plan_json`. It differs between plans that differ anywhere, almost surely.
inline std::string plan_digest(sharding_plan const& plan) {
  auto const text = plan_json(plan).dump();
  return detail::hexadecimal(crc32_of(std::string_view(text)));
}

/// A plan as `plan_json` has it, with what was predicted of it. "plan" is the plan's digest, "cost_ms" the largest total of a device:
///
///     {"shards": […],
///      "found": {"plan": "0c54a9f1", "model": "5f0e22c18a7d9b04", "machine": "…", "batch_samples": 65536, "relative_error": 0.12,
///                "optimizer": "rowwise_adagrad", "row_format": "float", "cost_ms": 7.5,
///                "devices": [{"compute_ms": 5, "backward_ms": 1.25, "forward_ms": 1.25, "bytes": 1073741824}, …]}}
///
/// @throws tessera::error shape_mismatch for other than one number of bytes a device.
inline nlohmann::json predicted_plan_json(predicted_plan const& of);

/// The plan of JSON, as `plan_of_json`. A "found" needs all fields but "machine", "relative_error",
/// "optimizer" and "row_format".
/// @post predicted_plan_of_json(predicted_plan_json(p), tables, ranks, file) == p
/// @throws tessera::error as `plan_of_json`. parse_error naming the field of "found" that is missing, unknown or of the wrong type;
/// invalid_argument naming field and value, for one that is negative or not finite and for a batch without samples. It does so for a model
/// that is no digest of digits and letters, and for another number of devices than ranks. corrupt_file where "found" is of other shards, or
/// "cost_ms" of other devices.
inline predicted_plan predicted_plan_of_json(nlohmann::json const& json, vector_view<table_options const> tables, int ranks,
                                             std::string const& file, vector_view<std::string const> names = {});

/// Writes them to a JSON file, which `read_plan` reads too. @throws tessera::error as `predicted_plan_json` and `write_json`.
inline void write_predicted_plan(std::string const& path, predicted_plan const& of) { write_json(path, predicted_plan_json(of)); }
/// Reads them from a JSON file, also from one that `write_plan` wrote. @throws tessera::error as `read_json` and `predicted_plan_of_json`.
inline predicted_plan read_predicted_plan(std::string const& path, vector_view<table_options const> tables, int ranks,
                                          vector_view<std::string const> names = {}) {
  return predicted_plan_of_json(read_json(path), tables, ranks, path, names);
}

namespace detail {

// Whether a text can name a model, in JSON and in lines of commas.
inline bool is_digest(std::string_view text) noexcept {
  constexpr std::string_view known = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  return !text.empty() && text.size() <= 64 && text.find_first_not_of(known) == text.npos;
}

inline double json_cost(nlohmann::json const& object, std::string_view field, std::string const& file) {
  auto const value = json_number(object, field, file);
  if (!(value >= 0) || !std::isfinite(value))
    throw error(errc::invalid_argument, "predicted plan: a number is finite and not negative",
                {{"file", file}, {"field", field}, {"value", value}});
  return value;
}

inline plan_prediction prediction_of_json(nlohmann::json const& json, sharding_plan const& plan, int ranks, std::string const& file) {
  auto const refuse = [&](errc code, char const* what, char const* field, auto const& value, error_value more) {
    throw error(code, std::string("predicted plan: ") + what, {{"file", file}, {"field", field}, {"value", value}, std::move(more)});
  };
  allow_fields(json, {"plan", "model", "machine", "batch_samples", "relative_error", "optimizer", "row_format", "cost_ms", "devices"}, file,
               "found");
  plan_prediction result;
  if (auto const& digest = json_string(json, "plan", file); digest != plan_digest(plan))
    refuse(errc::corrupt_file, "what was found is of other shards", "plan", digest, {"digest of the shards", plan_digest(plan)});
  result.model = json_string(json, "model", file);
  if (!is_digest(result.model)) refuse(errc::invalid_argument, "not a digest", "model", result.model, {"most characters", 64});
  if (json.contains("machine")) result.machine = json_string(json, "machine", file);
  result.batch_samples = json_count(json, "batch_samples", file);
  if (result.batch_samples < 1)
    refuse(errc::invalid_argument, "a batch without samples", "batch_samples", result.batch_samples, {"least", 1});
  if (json.contains("relative_error")) result.relative_error = json_cost(json, "relative_error", file);
  if (json.contains("optimizer")) result.optimizer = json_string(json, "optimizer", file);
  if (json.contains("row_format")) result.row_format = json_string(json, "row_format", file);
  for (auto const& one : json_array(json, "devices", file)) {
    allow_fields(one, {"compute_ms", "backward_ms", "forward_ms", "bytes"}, file, "devices");
    result.devices.push_back({json_cost(one, "compute_ms", file), json_cost(one, "backward_ms", file), json_cost(one, "forward_ms", file)});
    result.bytes.push_back(json_integer(one, "bytes", file));
    if (result.bytes.back() < 0)
      refuse(errc::invalid_argument, "a number of bytes below 0", "bytes", result.bytes.back(), {"device", result.devices.size() - 1});
  }
  if (result.devices.size() != static_cast<std::size_t>(ranks))
    refuse(errc::invalid_argument, "one device a rank", "devices", result.devices.size(), {"ranks", ranks});
  auto const cost = json_cost(json, "cost_ms", file), expected = result.cost_ms();
  if (!(std::fabs(cost - expected) <= 1e-9 * expected))
    refuse(errc::corrupt_file, "the cost is not the largest total of a device", "cost_ms", cost, {"largest total", expected});
  return result;
}

}  // namespace detail

inline nlohmann::json predicted_plan_json(predicted_plan const& of) {
  auto json = plan_json(of.plan);
  if (!of.found) return json;
  if (of.found->bytes.size() != of.found->devices.size())
    throw error(errc::shape_mismatch, "predicted plan: bytes of each device",
                {{"bytes", of.found->bytes.size()}, {"devices", of.found->devices.size()}});
  auto devices = nlohmann::json::array();
  for (std::size_t d = 0; d < of.found->devices.size(); ++d) {
    auto const& costs = of.found->devices[d];
    devices.push_back({{"compute_ms", costs.compute_ms},
                       {"backward_ms", costs.backward_ms},
                       {"forward_ms", costs.forward_ms},
                       {"bytes", of.found->bytes[d]}});
  }
  json["found"] = {{"plan", plan_digest(of.plan)},
                   {"model", of.found->model},
                   {"batch_samples", of.found->batch_samples},
                   {"relative_error", of.found->relative_error},
                   {"cost_ms", of.found->cost_ms()},
                   {"devices", std::move(devices)}};
  auto const say = [&](char const* field, std::string const& text) {
    if (!text.empty()) json["found"][field] = text;
  };
  say("machine", of.found->machine);
  say("optimizer", of.found->optimizer);
  say("row_format", of.found->row_format);
  return json;
}

inline predicted_plan predicted_plan_of_json(nlohmann::json const& json, vector_view<table_options const> tables, int ranks,
                                             std::string const& file, vector_view<std::string const> names) {
  predicted_plan result{plan_of_json(json, tables, ranks, file, names), std::nullopt};
  if (json.contains("found")) result.found = detail::prediction_of_json(json["found"], result.plan, ranks, file);
  return result;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
