// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/files/atomic_folder.hpp>
#include <tessera/files/file_digest.hpp>
#include <tessera/files/json.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/files/safetensors.hpp>
#include <tessera/plan/cost_interval.hpp>
#include <tessera/plan/cost_networks.hpp>
#include <tessera/plan/exchange_features.hpp>
#include <tessera/plan/learned_cost.hpp>
#include <tessera/plan/machine_description.hpp>
#include <tessera/plan/network_samples.hpp>
#include <tessera/plan/shard_features.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The version of a model's folder that is written, and the newest that is read.
inline constexpr std::int64_t learned_cost_version = 1;

/// Which models `load_learned_cost` takes.
struct load_cost_options {
  bool of_this_machine = true;  ///< refuse a model of another machine, or of another number of threads than the execution has
};

/// Writes a model to a folder, which appears whole or not at all: `networks.safetensors` with the features' statistics and every layer of
/// every network, and `manifest.json` with the machine, the optimizer, the order of the features and the shapes.
/// @throws tessera::error invalid_argument for networks of one part that differ in shape, and a path that ends in no folder name; io_error.
inline void save_learned_cost(std::string const& folder, learned_cost const& cost);

/// Reads what `save_learned_cost` wrote. All parameters are in `exec`'s memory.
/// @post the costs are those of the saved model, bit for bit.
/// @throws tessera::error incompatible, naming field, expected and found. It does so for another version, features in another order, and
/// another machine where the options say so. corrupt_file for a folder that was altered; parse_error naming the field; io_error.
inline learned_cost load_learned_cost(host_exec const& exec, std::string const& folder, load_cost_options const& options = {});

/// What a plan names its model by, 16 hexadecimal digits: the checksums of the manifest and of the networks. It differs between models that
/// differ anywhere, almost surely. The networks are not read. @throws tessera::error as `load_learned_cost` for a folder that is no model's.
inline std::string learned_cost_digest(std::string const& folder);

namespace detail {

inline constexpr char const *cost_format = "tessera.learned_cost", *cost_networks_file = "networks.safetensors";

inline manifest read_cost_manifest(std::string const& folder) {
  auto content = read_manifest(folder, cost_format, learned_cost_version);
  if (content.sections.size() != 1 || content.sections[0].file != cost_networks_file)
    throw error(
        errc::parse_error, "learned costs: one section",
        {{"file", manifest_path(folder)}, {"field", "sections"}, {"expected", cost_networks_file}, {"found", content.sections.size()}});
  return content;
}

struct float_tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  vector_view<float const> values;
};

inline void list_layers(mlp const& network, std::string const& prefix, std::vector<float_tensor>& to) {
  for (std::int64_t l = 0; l < network.layers(); ++l) {
    auto const layer = network.layer(network.parameters(), l);
    auto const out = layer.weight.rows(), in = layer.weight.columns();
    auto const name = prefix + "." + std::to_string(l);
    to.push_back({name + ".weight", {out, in}, {layer.weight.data(), out * in}});
    to.push_back({name + ".bias", {out}, layer.bias});
  }
}

// One part of a model as JSON, and its tensors. `rows`: the name of the layers of rows, as `blocks()` has it.
template <class Part>
nlohmann::json cost_part_json(std::string const& name, char const* rows, Part const& part, std::vector<std::string> const& feature_order,
                              std::vector<float_tensor>& tensors) {
  auto const& first = part.networks().front();
  tensors.push_back({name + ".means", {part.statistics().width()}, part.statistics().means});
  tensors.push_back({name + ".deviations", {part.statistics().width()}, part.statistics().deviations});
  for (std::size_t n = 0; n < part.networks().size(); ++n) {
    auto const& network = part.networks()[n];
    if (network.row_layers().widths() != first.row_layers().widths() || network.head_layers().widths() != first.head_layers().widths())
      throw error(errc::invalid_argument, "save_learned_cost: networks of one part differ in shape", {{"part", name}, {"network", n}});
    auto const prefix = name + "." + std::to_string(n) + ".";
    list_layers(network.row_layers(), prefix + rows, tensors);
    list_layers(network.head_layers(), prefix + "head", tensors);
  }
  return {{"feature_order", feature_order},
          {"unit_ms", part.unit_ms()},
          {"interval", {{"relative_noise", part.interval().relative_noise}, {"factor", part.interval().factor}}},
          {"networks", part.networks().size()},
          {"row_widths", first.row_layers().widths()},
          {"head_widths", first.head_layers().widths()}};
}

inline std::vector<std::string> exchange_feature_order() { return {std::begin(exchange_feature_names), std::end(exchange_feature_names)}; }

// Reads the parts of a model's manifest and its networks.
class cost_reader {
 public:
  cost_reader(host_exec const& exec, std::string const& folder)
      : exec_(exec), path_(manifest_path(folder)), networks_(folder + "/" + cost_networks_file) {}

  void expect_features(nlohmann::json const& part, std::vector<std::string> const& expected) const {
    std::vector<std::string> found;
    for (auto const& one : json_array(part, "feature_order", path_)) {
      if (!one.is_string()) throw_json_type(one, "feature_order", path_, "string");
      found.push_back(one.get<std::string>());
    }
    for (std::size_t f = 0; f < std::max(expected.size(), found.size()); ++f) {
      auto const of = [&](std::vector<std::string> const& names) { return f < names.size() ? names[f] : std::string("nothing"); };
      if (of(expected) != of(found))
        throw error(errc::incompatible, "learned costs: features in another order",
                    {{"file", path_}, {"field", "feature_order"}, {"position", f}, {"expected", of(expected)}, {"found", of(found)}});
    }
  }

  feature_statistics statistics(std::string const& part, std::size_t width) const {
    feature_statistics result{std::vector<float>(width), std::vector<float>(width)};
    read(part + ".means", {static_cast<std::int64_t>(width)}, result.means);
    read(part + ".deviations", {static_cast<std::int64_t>(width)}, result.deviations);
    return result;
  }

  template <class Network, class Options>
  std::vector<Network> networks(std::string const& name, nlohmann::json const& part, Options options) const {
    options.row_widths = widths(part, "row_widths");
    options.head_widths = widths(part, "head_widths");
    auto const count = json_count(part, "networks", path_);
    if (count < 1 || count > most_networks)
      throw error(errc::parse_error, "learned costs: a number of networks", {{"file", path_}, {"field", "networks"}, {"found", count}});
    std::vector<Network> result;
    for (std::int64_t n = 0; n < count; ++n) {
      auto& network = result.emplace_back(exec_, options);
      for (auto& block : network.blocks()) read(name + "." + std::to_string(n) + "." + block.name, block.shape, block.values);
    }
    return result;
  }

  cost_interval interval(nlohmann::json const& part) const {
    auto const& of = json_object(part, "interval", path_);
    return {json_number(of, "relative_noise", path_), json_number(of, "factor", path_)};
  }
  std::string const& path() const noexcept { return path_; }

 private:
  static constexpr std::int64_t most_networks = 1000, widest = 1 << 16;

  std::vector<std::int64_t> widths(nlohmann::json const& part, char const* field) const {
    std::vector<std::int64_t> result;
    for (auto const& one : json_array(part, field, path_)) {
      if (!one.is_number_integer()) throw_json_type(one, field, path_, "integer");
      result.push_back(one.get<std::int64_t>());
      if (result.back() < 1 || result.back() > widest)
        throw error(errc::parse_error, "learned costs: a width", {{"file", path_}, {"field", field}, {"found", result.back()}});
    }
    return result;
  }
  void read(std::string const& tensor, std::vector<std::int64_t> const& shape, vector_view<float> to) const {
    networks_.expect(tensor, safetensors_dtype::f32, shape);
    networks_.read(tensor, 0, to);
  }

  host_exec exec_;
  std::string path_;
  safetensors_reader networks_;
};

}  // namespace detail

inline void save_learned_cost(std::string const& folder, learned_cost const& cost) {
  std::vector<detail::float_tensor> tensors;
  auto compute = detail::cost_part_json("compute", "table", cost.compute, shard_feature_names(cost.compute.features()), tensors);
  compute["features"] = name(cost.compute.features());
  compute["empty_is_free"] = cost.compute.networks().front().empty_is_free();
  auto const order = detail::exchange_feature_order();
  auto forward = detail::cost_part_json("forward", "device", cost.forward, order, tensors);
  auto backward = detail::cost_part_json("backward", "device", cost.backward, order, tensors);
  std::filesystem::path const path(folder);
  staged_folder staged(path.parent_path().string(), path.filename().string());
  std::vector<safetensors_tensor> declared;
  declared.reserve(tensors.size());
  for (auto const& tensor : tensors) declared.push_back({tensor.name, safetensors_dtype::f32, tensor.shape});
  safetensors_writer out(staged.path() + "/" + detail::cost_networks_file, std::move(declared));
  for (auto const& tensor : tensors) out.append(tensor.name, tensor.values);
  manifest content{detail::cost_format, learned_cost_version, {{detail::cost_networks_file, out.finish()}}};
  content.state = {
      {"machine",
       {{"processor", cost.machine.processor}, {"threads", cost.machine.threads}, {"last_cache_bytes", cost.machine.last_cache_bytes}}},
      {"optimizer", cost.optimizer},
      {"batch_samples", cost.batch_samples},
      {"compute", std::move(compute)},
      {"forward", std::move(forward)},
      {"backward", std::move(backward)}};
  write_manifest(staged.path(), content);
  staged.commit();
}

inline std::string learned_cost_digest(std::string const& folder) {
  auto const content = detail::read_cost_manifest(folder);
  return detail::hexadecimal(digest_of(detail::manifest_path(folder)).crc32) + detail::hexadecimal(content.sections[0].digest.crc32);
}

inline learned_cost load_learned_cost(host_exec const& exec, std::string const& folder, load_cost_options const& options) {
  auto const content = detail::read_cost_manifest(folder);
  auto const file = detail::manifest_path(folder);
  return detail::told_of_file(file, [&] {
    auto const& of_machine = json_object(content.state, "machine", file);
    machine_description machine{json_string(of_machine, "processor", file), json_integer(of_machine, "threads", file),
                                json_integer(of_machine, "last_cache_bytes", file)};
    if (options.of_this_machine) check_machine(machine, describe_machine(exec));
    verify_sections(folder, content);
    detail::cost_reader const in(exec, folder);
    auto const& compute = json_object(content.state, "compute", file);
    auto const& features = json_string(compute, "features", file);
    auto const kind = features == name(shard_features::published) ? shard_features::published : shard_features::logarithmic;
    if (features != name(kind))
      throw error(errc::incompatible, "learned costs: features of an unknown kind", {{"field", "features"}, {"found", features}});
    auto const names = shard_feature_names(kind);
    in.expect_features(compute, names);
    auto const exchange_part = [&](std::string const& way) {
      auto const& part = json_object(content.state, way, file);
      in.expect_features(part, detail::exchange_feature_order());
      return learned_exchange(in.statistics(way, static_cast<std::size_t>(exchange_feature_count)),
                              in.networks<set_network>(way, part, set_network::options{}), json_number(part, "unit_ms", file),
                              in.interval(part));
    };
    sum_network::options of_sum;
    of_sum.empty_is_free = json_boolean(compute, "empty_is_free", file);
    return learned_cost{std::move(machine),
                        json_string(content.state, "optimizer", file),
                        json_integer(content.state, "batch_samples", file),
                        learned_compute(kind, in.statistics("compute", names.size()), in.networks<sum_network>("compute", compute, of_sum),
                                        json_number(compute, "unit_ms", file), in.interval(compute)),
                        exchange_part("forward"),
                        exchange_part("backward")};
  });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
