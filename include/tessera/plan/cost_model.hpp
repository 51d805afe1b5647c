// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/table_profile.hpp>
#include <tessera/plan/table_replicas.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Predicts the costs of embeddings on devices, in milliseconds, from what each device holds.
///
/// A shard has a representation of `width()` floats. The computation of a device, forward and backward, is a function of the sum of its
/// shards' representations. So a search adds or takes away a shard in `width()` additions. The exchanges depend on the columns of each
/// device alone, the elements that it sends of each bag, and on the moments at which devices start. Every device gets its share of the bags:
/// what a device sends to each other one, on its host or elsewhere, is its columns times that share.
///
/// - `represent(shards, representations)`: writes (shards, width).
/// - `compute_ms(sums, ms)`: of sums (devices, width), (devices,). What it writes of a device depends on its own row alone, bit for bit.
/// - `backward_ms(columns, ms)`: the exchange of gradients, (devices,), of columns (devices,).
/// - `forward_ms(columns, starts_ms, ms)`: the exchange of vectors, (devices,), where device d begins at `starts_ms[d]`, the first at 0.
/// - `devices()`: how many devices the exchanges are of; 0: of any number.
///
/// Calls are const and may come from several threads at once. They take no memory, unless the model says that they do.
template <class M>
concept cost_model = requires(M const& model, vector_view<table_profile const> shards, matrix_view<float> representations,
                              matrix_view<float const> sums, vector_view<float const> numbers, vector_view<float> ms) {
  { model.width() } -> std::convertible_to<std::int64_t>;
  { model.devices() } -> std::convertible_to<std::int64_t>;
  model.represent(shards, representations);
  model.compute_ms(sums, ms);
  model.backward_ms(numbers, ms);
  model.forward_ms(numbers, numbers, ms);
};

/// The predicted costs of each device under a plan, in milliseconds, (devices,) each.
struct device_costs {
  std::vector<float> compute;   ///< lookups, backwards and updates
  std::vector<float> backward;  ///< the exchange of gradients
  std::vector<float> starts;    ///< when the device begins to send vectors, after the first one
  std::vector<float> forward;   ///< the exchange of vectors

  /// Room for so many devices.
  explicit device_costs(std::int64_t devices = 0)
      : compute(static_cast<std::size_t>(devices)),
        backward(static_cast<std::size_t>(devices)),
        starts(static_cast<std::size_t>(devices)),
        forward(static_cast<std::size_t>(devices)) {}

  /// All of a device's costs.
  float total(std::int64_t device) const {
    auto const d = static_cast<std::size_t>(device);
    return compute[d] + backward[d] + forward[d];
  }

  friend bool operator==(device_costs const&, device_costs const&) = default;
};

/// The cost of a plan whose devices' `costs.compute` are known: the largest sum of a device's three costs. It writes the other costs.
///
/// A device starts to send vectors when it is done with the gradients of the batch before: at its compute and backward cost, counted from
/// the first device that is done. `columns` are (devices,). The exchange of gradients depends on `gradient_columns`, (devices,) too, which
/// differ from `columns` where tables are on all devices (`columns_of_replica`). Source: NeuroShard, Section 3.3, as its authors' code has it.
template <cost_model M>
float plan_cost(M const& model, vector_view<float const> columns, vector_view<float const> gradient_columns, device_costs& costs) {
  model.backward_ms(gradient_columns, costs.backward);
  auto first = std::numeric_limits<float>::infinity();
  for (std::size_t d = 0; d < costs.starts.size(); ++d) {
    costs.starts[d] = costs.compute[d] + costs.backward[d];
    first = std::min(first, costs.starts[d]);
  }
  for (auto& start : costs.starts) start -= first;
  model.forward_ms(columns, costs.starts, costs.forward);
  auto cost = -std::numeric_limits<float>::infinity();
  for (std::size_t d = 0; d < costs.starts.size(); ++d) cost = std::max(cost, costs.compute[d] + costs.backward[d] + costs.forward[d]);
  return cost;
}

/// As above of tables that are not on all devices.
template <cost_model M>
float plan_cost(M const& model, vector_view<float const> columns, device_costs& costs) {
  return plan_cost(model, columns, columns, costs);
}

/// As above from the sums of representations, (devices, width): it writes `costs.compute` too.
template <cost_model M>
float plan_cost(M const& model, matrix_view<float const> sums, vector_view<float const> columns, device_costs& costs) {
  model.compute_ms(sums, costs.compute);
  return plan_cost(model, columns, costs);
}

/// The cost of shards on devices, from the beginning. Shard s is on device `device_of_shard[s]`. Where that is `on_all_devices`, all devices
/// have it, and it is added up before others. @return all devices' costs @pre what is on all devices is a whole table
/// @throws tessera::error invalid_argument for less than one device, and for a number of devices that the model is not of; shape_mismatch
/// for another number of shards; out_of_range for a device that there is not. invalid_argument, naming the table, for one that may not be on
/// all devices. invalid_argument for any table on all devices, where the model does not know how many bags a table has.
template <cost_model M>
device_costs costs_of_devices(M const& model, vector_view<table_profile const> shards, vector_view<std::int64_t const> device_of_shard,
                              std::int64_t devices);

namespace detail {

template <cost_model M>
void check_devices(char const* call, M const& model, std::int64_t devices) {
  if (devices < 1) throw error(errc::invalid_argument, std::string(call) + ": there is at least one device", {{"devices", devices}});
  if (auto const of = static_cast<std::int64_t>(model.devices()); of != 0 && of != devices)
    throw error(errc::invalid_argument, std::string(call) + ": the model is of another number of devices",
                {{"devices", devices}, {"devices of the model", of}});
}

// A replica has another number of bags than its table, which a model that counts none would not see.
template <cost_model M>
void check_knows_bags(M const& model, vector_view<table_profile const> replicas) {
  auto const width = static_cast<std::int64_t>(model.width());
  for (auto const& replica : replicas) {
    auto both = std::vector<table_profile>(2, replica);
    both[1].bags /= 2;
    both[1].distinct_bags /= 2;
    std::vector<float> representations(static_cast<std::size_t>(2 * width));
    model.represent(both, matrix_view<float>(representations.data(), 2, width));
    if (!std::equal(representations.begin(), representations.begin() + width, representations.begin() + width)) return;
  }
  throw error(errc::invalid_argument, "tables on all devices need a model that knows how many bags a table has",
              {{"tables", replicas.size()}});
}

inline table_profile checked_replica(table_profile const& table, std::int64_t devices) {
  if (devices > 1 && !may_be_on_all_devices(table, devices))
    throw error(errc::invalid_argument,
                "a table whose costs on all devices are not known: it is hashed, or a device's ids are fewer than the rows",
                {{"table", table.name},
                 {"devices", devices},
                 {"hashed", table.hashed},
                 {"distinct rows of the batch", updated_rows(table)},
                 {"distinct ids of the batch", distinct_ids_of_batch(table)}});
  return profile_of_replica(table, devices);
}

}  // namespace detail

template <cost_model M>
device_costs costs_of_devices(M const& model, vector_view<table_profile const> shards, vector_view<std::int64_t const> device_of_shard,
                              std::int64_t devices) {
  detail::check_devices("costs_of_devices", model, devices);
  if (shards.size() != device_of_shard.size())
    throw error(errc::shape_mismatch, "costs_of_devices: one device a shard",
                {{"shards", shards.size()}, {"devices of shards", device_of_shard.size()}});
  auto const width = static_cast<std::int64_t>(model.width());
  std::vector<float> of_shards(static_cast<std::size_t>(shards.size() * width)), sums(static_cast<std::size_t>(devices * width)),
      columns(static_cast<std::size_t>(devices));
  auto gradient_columns = columns;
  matrix_view<float> const representations(of_shards.data(), shards.size(), width), all(sums.data(), devices, width);
  std::vector<table_profile> profiles(shards.begin(), shards.end());
  auto const is_on_all = [&](std::int64_t s) { return device_of_shard[s] == on_all_devices && devices > 1; };
  std::vector<table_profile> replicas;
  for (std::int64_t s = 0; s < shards.size(); ++s) {
    if (!is_on_all(s)) continue;
    replicas.push_back(detail::checked_replica(shards[s], devices));
    profiles[static_cast<std::size_t>(s)] = replicas.back();
  }
  if (!replicas.empty()) detail::check_knows_bags(model, replicas);
  model.represent(profiles, representations);
  auto const add = [&](std::int64_t s, std::int64_t device) {
    for (std::int64_t i = 0; i < width; ++i) all(device, i) += representations(s, i);
  };
  for (std::int64_t s = 0; s < shards.size(); ++s) {
    if (!is_on_all(s)) continue;
    auto const of_replica = static_cast<float>(columns_of_replica(shards[s], devices));
    for (std::int64_t d = 0; d < devices; ++d) add(s, d);
    for (auto& of : gradient_columns) of += of_replica;
  }
  for (std::int64_t s = 0; s < shards.size(); ++s) {
    if (is_on_all(s)) continue;
    auto const device = device_of_shard[s] == on_all_devices ? 0 : device_of_shard[s];
    if (device < 0 || device >= devices)
      throw error(errc::out_of_range, "costs_of_devices: no such device", {{"shard", s}, {"device", device}, {"devices", devices}});
    add(s, device);
    columns[static_cast<std::size_t>(device)] += static_cast<float>(shards[s].dim);
    gradient_columns[static_cast<std::size_t>(device)] += static_cast<float>(shards[s].dim);
  }
  device_costs costs(devices);
  model.compute_ms(matrix_view<float const>(all), costs.compute);
  plan_cost(model, columns, gradient_columns, costs);
  return costs;
}

/// The cost of a plan: the largest total of a device.
inline float cost_of(device_costs const& costs) {
  auto cost = -std::numeric_limits<float>::infinity();
  for (std::size_t d = 0; d < costs.compute.size(); ++d) cost = std::max(cost, costs.total(static_cast<std::int64_t>(d)));
  return cost;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
