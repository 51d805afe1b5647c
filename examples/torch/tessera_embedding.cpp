// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// For PyTorch: forward pools rows of Tessera's tables, backward updates those rows itself. Tensors come and go as DLPack, nothing copied.

#include <ATen/DLConvertor.h>
#include <torch/extension.h>

#include <mutex>
#include <variant>

#include <tessera/core/dlpack.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/pooled_lookup_backward.hpp>

namespace {

using torch::Tensor, torch::autograd::AutogradContext;
using enum tessera::errc;
using ids_view = tessera::vector_view<std::int64_t const>;
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

// What a backward needs of its forward, beside the memory of ids and offsets.
struct lookup_call : torch::CustomClassHolder {
  std::shared_ptr<class embedding_tables> tables;  // null: the backward has been
  std::vector<std::int64_t> first_row;
  tessera::lookup_saved saved;
};

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

  Tensor look_up(Tensor const& ids, Tensor const& offsets, lookup_call& call, bool training) {
    auto const id = view_of<ids_view>("ids", ids), offset = view_of<ids_view>("offsets", offsets);
    auto const keys = static_cast<std::int64_t>(tables_.size()), bags = offset.size() - 1;
    if (keys == 0 || bags < 0 || bags % keys != 0)
      throw tessera::error(shape_mismatch, "offsets: tables times samples, plus one", {{"offsets", bags + 1}, {"tables", keys}});
    for (std::int64_t k = 0; k <= keys; ++k) call.first_row.push_back(k * (bags / keys));
    tessera::keyed_jagged_view<std::int64_t const> const batch{id.data(), nullptr, offset.data(), call.first_row.data(), keys};
    validate(batch, id.size());
    auto const pooled = torch::empty({bags / keys, first_column_.back()}, torch::kFloat32);
    auto const out = by_table(view_of<tessera::matrix_view<float>>("pooled", pooled));
    std::lock_guard const lock(mutex_);
    if (training)
      tessera::pooled_lookup(step_exec_, tables_, features_, batch, out, call.saved);
    else
      tessera::pooled_lookup(step_exec_, std::as_const(tables_), features_, batch, out);
    return pooled;
  }

  void update(tessera::lookup_saved const& saved, Tensor const& gradient) {
    auto const rows = gradient.stride(1) == 1 && gradient.stride(0) >= first_column_.back() ? gradient : gradient.contiguous();
    auto const parts = by_table(view_of<tessera::matrix_view<float const>>("gradient", rows));
    std::lock_guard const lock(mutex_);
    std::visit([&](auto const& o) { tessera::pooled_lookup_backward(step_exec_, tables_, features_, saved, parts, o); }, optimizer_);
  }

  // The table's own memory, weights and optimizer states: writing to these tensors changes the table, and each keeps it alive.
  std::pair<Tensor, Tensor> memory(std::size_t k) { return {shared(tables_.at(k).weights()), shared(tables_.at(k).states())}; }
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
  Tensor shared(tessera::matrix_view<float> part) {
    return at::fromDLPack(reinterpret_cast<DLManagedTensor*>(tessera::export_dlpack<managed_tensor>(shared_from_this(), part).release()));
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
                        c10::intrusive_ptr<lookup_call> const& call) {
    context->save_for_backward({ids, offsets});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return call->tables->look_up(ids, offsets, *call, true);
  }
  static std::vector<Tensor> backward(AutogradContext* context, std::vector<Tensor> const& gradients) {
    context->get_saved_variables();  // refuses ids that were written to meanwhile
    auto const call = c10::static_intrusive_pointer_cast<lookup_call>(context->saved_data["call"].toCapsule());
    auto const tables = std::exchange(call->tables, nullptr);
    if (tables == nullptr) throw tessera::error(invalid_argument, "backward: this lookup has updated its rows already");
    tables->update(call->saved, gradients[0]);
    return std::vector<Tensor>(4);
  }
};

Tensor forward(std::shared_ptr<embedding_tables> const& tables, Tensor const& ids, Tensor const& offsets) {
  auto const call = c10::make_intrusive<lookup_call>();
  call->tables = tables;
  if (!torch::GradMode::is_enabled()) return tables->look_up(ids, offsets, *call, false);
  return lookup::apply(torch::empty({0}, torch::requires_grad()), ids, offsets, call);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  pybind11::class_<embedding_tables, std::shared_ptr<embedding_tables>>(module, "EmbeddingTables")
      .def(pybind11::init<std::vector<std::array<std::int64_t, 2>> const&, std::string const&, float, bool, int>())
      .def("forward", &forward, pybind11::call_guard<pybind11::gil_scoped_release>())
      .def("memory", &embedding_tables::memory)
      .def("steps", &embedding_tables::steps)
      .def("set_steps", &embedding_tables::set_steps)
      .def("set_learning_rate", &embedding_tables::set_learning_rate);
}
