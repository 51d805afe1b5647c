// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// For PyTorch: forward pools rows of Tessera's tables, backward updates those rows itself; bags that repeat are kept, looked up and updated
// once. Tensors come and go as DLPack, nothing copied.

#include <ATen/DLConvertor.h>
#include <torch/extension.h>

#include <mutex>
#include <optional>
#include <tuple>
#include <variant>

#include <tessera/core/dlpack.hpp>
#include <tessera/embed/deduplicated_lookup_backward.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/tensor/deduplicate.hpp>

namespace {

using torch::Tensor, torch::autograd::AutogradContext;
using enum tessera::errc;
using ids_view = tessera::vector_view<std::int64_t const>;
using batch_view = tessera::inverse_keyed_jagged_view<std::int64_t const>;
using managed_tensor = tessera::dlpack::managed_tensor;
using any_optimizer = std::variant<tessera::sgd, tessera::adagrad, tessera::rowwise_adagrad, tessera::adam>;

any_optimizer optimizer_named(std::string const& name, float rate) {
  if (name == "sgd") return tessera::sgd{.learning_rate = rate};
  if (name == "adagrad") return tessera::adagrad{.learning_rate = rate};
  if (name == "rowwise_adagrad") return tessera::rowwise_adagrad{.learning_rate = rate};
  if (name == "adam") return tessera::adam{.learning_rate = rate};
  throw tessera::error(invalid_argument, "optimizer: sgd, adagrad, rowwise_adagrad or adam", {{"optimizer", name}});
}

// Good as long as the tensor's memory is.
template <class View>
View view_of(char const* name, Tensor const& tensor) try {
  tessera::dlpack::owned<managed_tensor> const managed(reinterpret_cast<managed_tensor*>(at::toDLPack(tensor)));
  return tessera::from_dlpack<View>(managed->dl_tensor);
} catch (tessera::error const& wrong) {
  throw tessera::error(wrong.code(), std::string(name) + ": " + wrong.what());
}

// A tensor of `part`, which keeps `owner` alive.
template <class Owner, class View>
Tensor shared(std::shared_ptr<Owner> owner, View part) {
  return at::fromDLPack(reinterpret_cast<DLManagedTensor*>(tessera::export_dlpack<managed_tensor>(std::move(owner), part).release()));
}

// What a lookup has beside the memory of its tensors, and what a backward needs of its forward.
struct lookup_call : torch::CustomClassHolder {
  std::shared_ptr<class embedding_tables> tables;  // null: the backward has been
  std::vector<std::int64_t> keys_per_group, rows_per_key, first_row{0};
  std::vector<tessera::row_group> groups;
  tessera::deduplicated_saved saved;
};

// Views of tensors. Without inverses, every key has a row a sample.
batch_view batch_of(std::int64_t keys, Tensor const& ids, Tensor const& offsets, std::optional<Tensor> const& inverses, lookup_call& call) {
  auto const id = view_of<ids_view>("ids", ids), offset = view_of<ids_view>("offsets", offsets);
  auto const bags = offset.size() - 1;
  std::int64_t samples = 0;
  if (inverses.has_value()) {
    auto const inverse = view_of<tessera::matrix_view<std::int64_t const>>("inverses", *inverses);
    samples = inverse.columns();
    if (inverse.rows() != static_cast<std::int64_t>(call.keys_per_group.size()))
      throw tessera::error(shape_mismatch, "inverses: one a group", {{"inverses", inverse.rows()}, {"groups", call.keys_per_group.size()}});
    for (std::int64_t g = 0, key = 0; g < inverse.rows(); key += call.keys_per_group[static_cast<std::size_t>(g++)])
      call.groups.push_back({key, call.keys_per_group[static_cast<std::size_t>(g)], inverse.row(g)});
  } else {
    if (keys == 0 || bags < 0 || bags % keys != 0)
      throw tessera::error(shape_mismatch, "offsets: tables times samples, plus one", {{"offsets", bags + 1}, {"tables", keys}});
    samples = bags / keys;
    call.rows_per_key.assign(static_cast<std::size_t>(keys), samples);
  }
  for (auto const rows : call.rows_per_key) {
    if (rows < 0 || rows > bags - call.first_row.back())
      throw tessera::error(shape_mismatch, "rows_per_key: more rows than offsets", {{"rows", rows}, {"offsets", bags + 1}});
    call.first_row.push_back(call.first_row.back() + rows);
  }
  if (call.first_row.back() != bags || static_cast<std::int64_t>(call.rows_per_key.size()) != keys)
    throw tessera::error(shape_mismatch, "rows_per_key: one number a table, of all rows",
                         {{"numbers", call.rows_per_key.size()}, {"tables", keys}, {"rows", call.first_row.back()}, {"offsets", bags + 1}});
  batch_view const batch{{id.data(), nullptr, offset.data(), call.first_row.data(), keys}, call.groups, samples};
  validate(batch, id.size());
  return batch;
}

// What is left where repeated bags are there once, with what its memory came from.
struct distinct_bags {
  tessera::serial_team team;
  tessera::system_memory memory;
  tessera::inverse_keyed_jagged<> batch;
};

// ids, offsets, inverses (groups, samples) and rows of each key.
std::tuple<Tensor, Tensor, Tensor, std::vector<std::int64_t>> deduplicate(Tensor const& ids, Tensor const& offsets, std::int64_t keys,
                                                                          std::vector<std::int64_t> const& keys_per_group) {
  lookup_call call;
  auto const from = batch_of(keys, ids, offsets, std::nullopt, call);
  auto const made = std::make_shared<distinct_bags>();
  made->batch = tessera::deduplicate(tessera::host_exec(made->team, made->memory), from.distinct, keys_per_group);
  auto const to = made->batch.view();
  std::vector<std::int64_t> rows;
  for (std::int64_t key = 0; key < keys; ++key) rows.push_back(to.distinct.rows(key));
  // Tensors cannot be read-only. Each lookup checks what it is given.
  auto* const new_offsets = const_cast<std::int64_t*>(to.distinct.offsets);
  auto* const inverses = to.groups.empty() ? nullptr : const_cast<std::int64_t*>(to.groups[0].inverse);
  return {shared(made, tessera::vector_view<std::int64_t>(to.distinct.values, to.distinct.size())),
          shared(made, tessera::vector_view<std::int64_t>(new_offsets, to.distinct.rows() + 1)),
          shared(made, tessera::matrix_view<std::int64_t>(inverses, to.groups.size(), to.samples)), std::move(rows)};
}

class embedding_tables : public std::enable_shared_from_this<embedding_tables> {
 public:
  embedding_tables(std::vector<std::array<std::int64_t, 2>> const& shapes, std::string const& optimizer, float rate, bool mean, int threads)
      : threads_(threads), optimizer_(optimizer_named(optimizer, rate)) {
    for (std::int64_t k = 0; auto const& [rows, dim] : shapes) {
      tessera::table_options const options{.id = tessera::table_id{k}, .dim = dim, .rows = rows, .init_bound = 0};
      std::visit([&](auto const& o) { tables_.emplace_back(exec_, options, o); }, optimizer_);
      features_.push_back({k++, mean ? tessera::pooling::mean : tessera::pooling::sum});
      first_column_.push_back(first_column_.back() + dim);
    }
  }

  Tensor look_up(Tensor const& ids, Tensor const& offsets, std::optional<Tensor> const& inverses, lookup_call& call, bool training) {
    auto const batch = batch_of(static_cast<std::int64_t>(tables_.size()), ids, offsets, inverses, call);
    auto const pooled = torch::empty({batch.samples, first_column_.back()}, torch::kFloat32);
    auto const out = by_table(view_of<tessera::matrix_view<float>>("pooled", pooled));
    std::lock_guard const lock(mutex_);
    if (training)
      tessera::deduplicated_lookup(step_exec_, tables_, features_, batch, out, call.saved);
    else
      tessera::deduplicated_lookup(step_exec_, std::as_const(tables_), features_, batch, out);
    return pooled;
  }

  void update(tessera::deduplicated_saved const& saved, Tensor const& gradient) {
    auto const rows = gradient.stride(1) == 1 && gradient.stride(0) >= first_column_.back() ? gradient : gradient.contiguous();
    auto const parts = by_table(view_of<tessera::matrix_view<float const>>("gradient", rows));
    std::lock_guard const lock(mutex_);
    std::visit([&](auto const& o) { tessera::deduplicated_lookup_backward(step_exec_, tables_, features_, saved, parts, o); }, optimizer_);
  }

  // The table's own memory, weights and optimizer states: writing to these tensors changes the table, and each keeps it alive.
  std::pair<Tensor, Tensor> memory(std::size_t k) {
    return {shared(shared_from_this(), tables_.at(k).weights()), shared(shared_from_this(), tables_.at(k).states())};
  }
  std::int64_t steps(std::size_t k) const { return tables_.at(k).steps().value; }
  void set_steps(std::size_t k, std::int64_t steps) { tables_.at(k).set_steps(tessera::step_count{steps}); }
  void set_learning_rate(float rate) {
    std::visit([rate](auto& o) { o.learning_rate = rate; }, optimizer_);
  }

 private:
  template <class View>
  std::vector<View> by_table(View whole) const {
    std::vector<View> parts;
    for (std::size_t k = 0; k < tables_.size(); ++k) parts.push_back(whole.columns_from(first_column_[k], tables_[k].dim()));
    return parts;
  }

  tessera::thread_pool threads_;
  tessera::system_memory memory_;
  tessera::arena<tessera::system_memory> workspace_{memory_};
  tessera::host_exec exec_{threads_, memory_}, step_exec_{threads_, workspace_};
  any_optimizer optimizer_;
  std::vector<tessera::dense_table<>> tables_;
  std::vector<tessera::pooled_feature> features_;
  std::vector<std::int64_t> first_column_{0};
  std::mutex mutex_;
};

// `anchor` requires a gradient, which it never gets: autograd calls the backward of nothing else.
struct lookup : torch::autograd::Function<lookup> {
  static Tensor forward(AutogradContext* context, Tensor const& /*anchor*/, Tensor const& ids, Tensor const& offsets,
                        std::optional<Tensor> const& inverses, c10::intrusive_ptr<lookup_call> const& call) {
    context->save_for_backward({ids, offsets, inverses.value_or(offsets)});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return call->tables->look_up(ids, offsets, inverses, *call, true);
  }
  static std::vector<Tensor> backward(AutogradContext* context, std::vector<Tensor> const& gradients) {
    context->get_saved_variables();  // refuses ids that were written to meanwhile
    auto const call = c10::static_intrusive_pointer_cast<lookup_call>(context->saved_data["call"].toCapsule());
    auto const tables = std::exchange(call->tables, nullptr);
    if (tables == nullptr) throw tessera::error(invalid_argument, "backward: this lookup has updated its rows already");
    tables->update(call->saved, gradients[0]);
    return std::vector<Tensor>(5);
  }
};

Tensor forward(std::shared_ptr<embedding_tables> const& tables, Tensor const& ids, Tensor const& offsets,
               std::optional<Tensor> const& inverses, std::vector<std::int64_t> keys_per_group, std::vector<std::int64_t> rows_per_key) {
  auto const call = c10::make_intrusive<lookup_call>();
  call->tables = tables;
  call->keys_per_group = std::move(keys_per_group);
  call->rows_per_key = std::move(rows_per_key);
  if (!torch::GradMode::is_enabled()) return tables->look_up(ids, offsets, inverses, *call, false);
  return lookup::apply(torch::empty({0}, torch::requires_grad()), ids, offsets, inverses, call);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("deduplicate", &deduplicate, pybind11::call_guard<pybind11::gil_scoped_release>());
  pybind11::class_<embedding_tables, std::shared_ptr<embedding_tables>>(module, "EmbeddingTables")
      .def(pybind11::init<std::vector<std::array<std::int64_t, 2>> const&, std::string const&, float, bool, int>())
      .def("forward", &forward, pybind11::call_guard<pybind11::gil_scoped_release>())
      .def("memory", &embedding_tables::memory)
      .def("steps", &embedding_tables::steps)
      .def("set_steps", &embedding_tables::set_steps)
      .def("set_learning_rate", &embedding_tables::set_learning_rate);
}
