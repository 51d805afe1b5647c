// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/files/checksum.hpp>
#include <tessera/files/json.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/plan/dense_network.hpp>
#include <tessera/plan/published_cost.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// NeuroShard's networks as JSON. A layer is its "weight", a list of outputs of lists of inputs, and its "bias":
///
///     {"feature_order": ["bin_0", "bin_1", "bin_10", …, "row"], "means": [20 numbers], "stds": [20 numbers],
///      "table_layers": [{"weight": [[…], …], "bias": […]}, …], "pred_layers": […]}
inline nlohmann::json computation_network_json(computation_network const& network);
/// That of an exchange in one direction: "means" and "stds" are of its inputs.
///
///     {"ndevices": 4, "means": […], "stds": […], "layers": […]}
inline nlohmann::json exchange_network_json(exchange_network const& network);

/// The network of JSON; errors name `file`, here and below. Features must be in the order of `published_features::names()`.
/// @throws tessera::error parse_error naming the field that is missing, unknown or of the wrong type; incompatible for features in another
/// order, naming the first that differs; and as `dense_network`.
inline computation_network computation_network_of_json(nlohmann::json const& json, std::string const& file);
/// @throws tessera::error as above, and invalid_argument where "ndevices" is not what the last layer writes.
inline exchange_network exchange_network_of_json(nlohmann::json const& json, std::string const& file);

/// Reads NeuroShard's models from three JSON files. @throws tessera::error as `read_json`, as above and as `published_cost`.
inline published_cost read_published_cost(std::string const& computation, std::string const& backward, std::string const& forward) {
  auto of_files = [&] {
    return published_cost(computation_network_of_json(read_json(computation), computation),
                          exchange_network_of_json(read_json(backward), backward), exchange_network_of_json(read_json(forward), forward));
  };
  return detail::told_of_file(computation + ", " + backward + ", " + forward, of_files);
}
/// Writes them. @throws tessera::error as `write_json`.
inline void write_published_cost(published_cost const& model, std::string const& computation, std::string const& backward,
                                 std::string const& forward) {
  write_json(computation, computation_network_json(model.computation()));
  write_json(backward, exchange_network_json(model.backward()));
  write_json(forward, exchange_network_json(model.forward()));
}

/// What a plan names these models by, 24 hexadecimal digits: the checksums of the three networks' JSON. It differs between models that differ
/// anywhere, almost surely.
inline std::string published_cost_digest(published_cost const& model);

namespace detail {

inline std::vector<double> json_numbers(nlohmann::json const& list, std::string_view field, std::string const& file) {
  if (!list.is_array()) throw_json_type(list, field, file, "array");
  std::vector<double> numbers;
  numbers.reserve(list.size());
  for (auto const& one : list) {
    if (!one.is_number()) throw_json_type(one, field, file, "number");
    numbers.push_back(one.get<double>());
  }
  return numbers;
}

inline nlohmann::json layers_json(dense_network const& network) {
  auto list = nlohmann::json::array();
  for (auto const& layer : network.layers()) {
    auto rows = nlohmann::json::array();
    for (auto first = layer.weight.begin(); first != layer.weight.end(); first += layer.inputs)
      rows.push_back(std::vector<float>(first, first + layer.inputs));
    list.push_back({{"weight", std::move(rows)}, {"bias", layer.bias}});
  }
  return list;
}

inline dense_network network_of_json(nlohmann::json const& json, std::string_view field, bool relu_after_last, std::string const& file) {
  std::vector<dense_layer> layers;
  for (auto const& one : json_array(json, field, file)) {
    allow_fields(one, {"weight", "bias"}, file, field);
    auto& layer = layers.emplace_back();
    for (double const number : json_numbers(json_field(one, "bias", file), "bias", file)) layer.bias.push_back(static_cast<float>(number));
    for (auto const& row : json_array(one, "weight", file)) {
      auto const numbers = json_numbers(row, "weight", file);
      auto const width = static_cast<std::int64_t>(numbers.size());
      if (layer.outputs > 0 && width != layer.inputs)
        throw error(errc::parse_error, "dense_network: rows of one weight differ in length",
                    {{"file", file}, {"field", field}, {"layer", layers.size() - 1}, {"found", width}, {"expected", layer.inputs}});
      layer.inputs = width;
      ++layer.outputs;
      for (double const number : numbers) layer.weight.push_back(static_cast<float>(number));
    }
  }
  return told_of_file(file, [&] {
    try {
      return dense_network(std::move(layers), relu_after_last);
    } catch (error const& e) {
      auto values = e.values();
      values.insert(values.begin(), {"field", field});
      throw error(e.code(), e.sentence(), std::move(values));
    }
  });
}

inline feature_scaling scaling_of_json(nlohmann::json const& json, std::string const& file) {
  return {json_numbers(json_field(json, "means", file), "means", file), json_numbers(json_field(json, "stds", file), "stds", file)};
}

}  // namespace detail

inline nlohmann::json computation_network_json(computation_network const& network) {
  return {{"feature_order", published_features::names()},
          {"means", network.scaling.means},
          {"stds", network.scaling.stds},
          {"table_layers", detail::layers_json(network.table_network)},
          {"pred_layers", detail::layers_json(network.sum_network)}};
}

inline nlohmann::json exchange_network_json(exchange_network const& network) {
  return {{"ndevices", network.network.outputs()},
          {"means", network.scaling.means},
          {"stds", network.scaling.stds},
          {"layers", detail::layers_json(network.network)}};
}

inline std::string published_cost_digest(published_cost const& model) {
  std::string digest;
  for (auto const& json :
       {computation_network_json(model.computation()), exchange_network_json(model.backward()), exchange_network_json(model.forward())}) {
    auto const text = json.dump();
    digest += detail::hexadecimal(crc32_of(std::string_view(text)));
  }
  return digest;
}

inline computation_network computation_network_of_json(nlohmann::json const& json, std::string const& file) {
  detail::allow_fields(json, {"feature_order", "means", "stds", "table_layers", "pred_layers"}, file, "network");
  auto const expected = published_features::names();
  auto const& order = json_array(json, "feature_order", file);
  for (std::size_t i = 0; i < std::max(order.size(), expected.size()); ++i) {
    auto const found = i < order.size() && order[i].is_string() ? order[i].get<std::string>() : std::string("none");
    auto const wanted = i < expected.size() ? expected[i] : std::string("none");
    if (found != wanted)
      throw error(errc::incompatible, "published_cost: the network reads its features in another order",
                  {{"file", file}, {"field", "feature_order"}, {"index", i}, {"found", found}, {"expected", wanted}});
  }
  return {detail::scaling_of_json(json, file), detail::network_of_json(json, "table_layers", true, file),
          detail::network_of_json(json, "pred_layers", false, file)};
}

inline exchange_network exchange_network_of_json(nlohmann::json const& json, std::string const& file) {
  detail::allow_fields(json, {"ndevices", "means", "stds", "layers"}, file, "network");
  exchange_network result{detail::scaling_of_json(json, file), detail::network_of_json(json, "layers", false, file)};
  auto const devices = json_integer(json, "ndevices", file);
  if (devices != result.network.outputs())
    throw error(errc::invalid_argument, "published_cost: the network writes another number of costs than it has devices",
                {{"file", file}, {"field", "ndevices"}, {"value", devices}, {"outputs", result.network.outputs()}});
  return result;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
