// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/files/json.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/files/safetensors.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/train/checkpoint_ranks.hpp>

/// The file of dense parameters and of their optimizer's states. Rank 0 writes it, also what lies on other ranks.
namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

inline std::string plane_tensor(std::string_view group) { return "optimizer." + std::string(group); }

// Dense parameters and states that rank 0 lacks, as another rank tells them: a line of JSON, then their floats.
class told_dense {
 public:
  told_dense() = default;
  // @throws tessera::error incompatible for what no rank tells
  explicit told_dense(std::string_view text) {
    auto const line = text.find('\n');
    auto const head = nlohmann::json::parse(text.substr(0, line), nullptr, false);
    if (line == text.npos || !head.is_object()) throw error(errc::incompatible, "checkpoint: dense parameters that cannot be read");
    auto floats = text.substr(line + 1);
    for (auto const& tensor : head["tensors"]) {
      auto& added = tensors.emplace_back(tensor["name"].get<std::string>(), tensor["shape"].get<std::vector<std::int64_t>>());
      std::int64_t count = 1;
      for (auto const extent : added.shape) count *= extent;
      added.values.resize(static_cast<std::size_t>(count));
      if (floats.size() < added.values.size() * sizeof(float))
        throw error(errc::incompatible, "checkpoint: dense parameters that cannot be read", {{"tensor", added.name}});
      std::memcpy(added.values.data(), floats.data(), added.values.size() * sizeof(float));
      floats.remove_prefix(added.values.size() * sizeof(float));
    }
    steps = head["steps"];
  }

  struct tensor {
    tensor(std::string name_, std::vector<std::int64_t> shape_) : name(std::move(name_)), shape(std::move(shape_)) {}

    std::string name;
    std::vector<std::int64_t> shape;
    std::vector<float> values;
  };
  std::vector<tensor> tensors;
  nlohmann::json steps = nlohmann::json::object();  // of each group
};

// What this rank tells: groups that not all ranks hold, of which it has no copy.
template <class Trainer>
std::string tell_dense(Trainer& run) {
  auto head = nlohmann::json{{"tensors", nlohmann::json::array()}, {"steps", nlohmann::json::object()}};
  std::string floats;
  auto const add = [&](std::string const& name, std::vector<std::int64_t> const& shape, vector_view<float const> values) {
    head["tensors"].push_back({{"name", name}, {"shape", shape}});
    floats.append(reinterpret_cast<char const*>(values.data()), static_cast<std::size_t>(values.size()) * sizeof(float));
  };
  bool tells = false;
  auto const states = run.dense_states();
  for (auto const& group : run.model().groups()) {
    if (group.replication == replication::everywhere || group.is_copy || group.values.empty()) continue;
    tells = true;
    for (auto const& named : states) {
      if (named.group != group.name) continue;
      add(plane_tensor(group.name), {named.state->planes().size()}, named.state->planes());
      head["steps"][std::string(group.name)] = named.state->steps().value;
    }
  }
  if (tells)
    for (auto const& block : run.model().blocks())
      if (block.group != replication::everywhere) add(block.name, block.shape, block.values);
  return head.dump() + '\n' + floats;
}

// `others`: what other ranks tell.
template <class Trainer>
manifest_section write_dense(std::string const& folder, Trainer& run, std::vector<told_dense> const& others = {}) {
  std::vector<safetensors_tensor> tensors;
  std::vector<std::pair<std::string, vector_view<float const>>> all;
  auto const add = [&](std::string const& name, std::vector<std::int64_t> const& shape, vector_view<float const> values) {
    if (std::any_of(all.begin(), all.end(), [&](auto const& known) { return known.first == name; })) return;
    tensors.push_back({name, safetensors_dtype::f32, shape});
    all.emplace_back(name, values);
  };
  for (auto const& block : run.model().blocks()) add(block.name, block.shape, block.values);
  for (auto const& named : run.dense_states()) add(plane_tensor(named.group), {named.state->planes().size()}, named.state->planes());
  for (auto const& other : others)
    for (auto const& tensor : other.tensors) add(tensor.name, tensor.shape, vector_view<float const>(tensor.values));
  safetensors_writer out(folder + "/dense.safetensors", std::move(tensors));
  for (auto const& tensor : all) out.append(tensor.first, tensor.second);
  return {"dense.safetensors", out.finish()};
}

// The names of the dense parameters of all ranks' models.
template <class Model>
std::vector<std::string> dense_names(host_exec const& exec, optional_ranks& ranks, Model& model) {
  std::string mine;
  for (auto const& block : model.blocks()) mine += block.name + '\n';
  std::vector<std::string> names;
  for (auto const& text :
       ranks ? texts_of_ranks(exec, *ranks, "checkpoint: names of dense parameters", [&] { return mine; }) : std::vector<std::string>{mine})
    for (std::size_t first = 0; first < text.size();) {
      auto const end = text.find('\n', first);
      names.push_back(text.substr(first, end - first));
      first = end + 1;
    }
  return names;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
