// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// example-unit: tables
#include "../support/tables.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/check_finite.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/admission.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/eviction.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/policy_choices.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/train/any_source.hpp>
#include <tessera/train/trainer_options.hpp>

#include "../support/sources.hpp"

namespace {

// Calls f with a number of the type that rows are made of.
template <class F>
auto with_row_format(std::string const& format, F const& f) {
  if (format == "fp16") return f(tessera::float16());
  if (format == "bf16") return f(tessera::bfloat16());
  if (format == "int8") return f(tessera::scaled_int8());
  return f(float());
}

constexpr std::int64_t values_per_piece = 1 << 14, values_at_once = 1 << 20;
constexpr std::int64_t most_candidates = 1 << 20;  // for admission, which takes their memory at once

template <class Element>
float number_at(char const* from) {
  Element element;
  std::memcpy(&element, from, sizeof(Element));
  return tessera::to_float(element);
}

bool is_integer(tessera::plane_type type) { return type == tessera::plane_type::i8 || type == tessera::plane_type::i64; }

// As what one is stored as says, which is no integer.
float number_at(tessera::plane_type type, char const* from) {
  switch (type) {
    case tessera::plane_type::f16: return number_at<tessera::float16>(from);
    case tessera::plane_type::bf16: return number_at<tessera::bfloat16>(from);
    case tessera::plane_type::f8_e4m3: return number_at<tessera::float8_e4m3>(from);
    case tessera::plane_type::f8_e5m2: return number_at<tessera::float8_e5m2>(from);
    default: return number_at<float>(from);
  }
}

}  // namespace

bool examples::all_finite(tessera::host_exec const& exec, tessera::vector_view<float const> values) {
  std::atomic<bool> all = true;
  tessera::for_each_index(exec, values.size(), values_per_piece, [&](std::int64_t i) {
    if (!tessera::is_finite(values[i])) all = false;
  });
  return all;
}

bool examples::all_finite(tessera::host_exec const& exec, tessera::table_part const& table, tessera::row_plane plane) {
  auto const shape = table.shape(plane);
  if (shape.width == 0 || is_integer(shape.type)) return true;
  tessera::buffer<std::int64_t> slots(exec, table.rows()), ids(exec, table.rows());
  table.list_rows(slots.view(), ids.view());
  auto const size = tessera::size_of(shape.type);
  auto const rows_at_once = std::clamp<std::int64_t>(values_at_once / shape.width, 1, std::max<std::int64_t>(1, table.rows()));
  tessera::buffer<char> copy(exec, rows_at_once * shape.width * size);
  std::atomic<bool> all = true;
  for (std::int64_t first = 0; first < table.rows() && all; first += rows_at_once) {
    auto const rows = std::min(rows_at_once, table.rows() - first);
    table.copy_out(plane, std::as_const(slots).view().slice(first, rows), copy.data());
    tessera::for_each_index(exec, rows * shape.width, values_per_piece, [&](std::int64_t i) {
      if (!tessera::is_finite(number_at(shape.type, copy.data() + i * size))) all = false;
    });
  }
  return all;
}

void examples::check_own_tables(settings const& s, std::vector<std::string> const& features) {
  for (auto const& [feature, table] : s.own_tables)
    if (std::find(features.begin(), features.end(), feature) == features.end())
      throw tessera::error(tessera::errc::out_of_range, "option --tables: no such feature",
                           {{"feature", feature}, {"features", features.size()}, {"the first", features[0]}});
}

tessera::table_spec examples::spec_of_table(settings const& all, std::int64_t number, std::string const& feature, std::int64_t dim,
                                            std::int64_t rows) {
  auto const& s = all.of_table(feature);
  bool const hashed = s.hash_table > 0;
  if (hashed) rows = s.hash_table;
  auto bound = 1 / std::sqrt(static_cast<float>(rows));
  if (s.embedding_init != "rows") parse_number(s.embedding_init, bound);
  tessera::table_options options{
      .id = tessera::table_id{number}, .dim = dim, .rows = rows, .init_bound = bound, .seed = tessera::random_seed{all.seed}};
  if (hashed) {
    options.rows = std::min<std::int64_t>(rows, 1024);  // it grows
    options.most_rows = rows;
  }
  auto const choice = choose_row_optimizer(s);
  auto spec = tessera::with_optimizer(choice, [&](auto const& optimizer) {
    tessera::check_optimizer(optimizer);  // so that nothing but the size is refused below
    return with_row_format(s.row_format, [&]<class Element>(Element) {
      if (!hashed) return tessera::spec_of<tessera::dense_table<Element>>(options, optimizer);
      tessera::admission_choice admission;
      if (s.admit > 1) admission.policy = tessera::admit_by_frequency{.sightings = s.admit, .candidates = std::min(rows, most_candidates)};
      if (s.evict == "none")
        return tessera::spec_of<tessera::hash_table<Element, tessera::admission_choice>>(options, optimizer, admission);
      tessera::eviction_choice eviction;
      if (s.evict == "lfu") eviction.policy = tessera::evict_lfu();
      return tessera::spec_of<tessera::hash_table<Element, tessera::admission_choice, tessera::eviction_choice>>(options, optimizer,
                                                                                                                 admission, eviction);
    });
  });
  spec.add = [add = std::move(spec.add), feature, rows, hashed](tessera::host_exec const& exec, tessera::table_options const& part,
                                                                tessera::table_list& list) {
    try {
      add(exec, part, list);
    } catch (tessera::error const& e) {
      throw tessera::error(e.code(),
                           std::string("option ") + (hashed ? "--hash-table" : "--hash-size, --vocabulary-limit") +
                               " or --embedding-dim: no memory for a table",
                           {{"feature", feature}, {"rows", rows}, {"dim", part.dim}, {"reason", e.sentence()}});
    }
  };
  return spec;
}

tessera::table_spec examples::dense_spec_of_table(settings const& all, std::int64_t number, std::string const& feature, std::int64_t dim,
                                                  std::int64_t rows) {
  auto dense = all;
  if (auto const hashed = all.of_table(feature).hash_table; hashed > 0) rows = hashed;  // which may say how rows start
  dense.hash_table = 0;
  for (auto& own : dense.own_tables) own.second.hash_table = 0;
  return spec_of_table(dense, number, feature, dim, rows);
}

void examples::set_row_learning_rates(settings const& s, tessera::any_source& tables, std::vector<std::string> const& features,
                                      float share) {
  std::int64_t t = 0;
  auto& here = tables_here(tables);
  for (auto const& shard : tables.places().parts) {
    auto const& of_table = s.of_table(features[static_cast<std::size_t>(shard.table)]);
    auto const choice = choose_row_optimizer(of_table);
    tessera::with_optimizer(choice, [&]<class Optimizer>(Optimizer const&) {
      tessera::set_learning_rate(here.optimizer<Optimizer>(t), share * of_table.embedding_lr);
    });
    ++t;
  }
  auto* const copies = hot_tables_here(tables);
  if (copies == nullptr) return;
  for (std::size_t table = 0; table < features.size(); ++table) {
    auto const& of_table = s.of_table(features[table]);
    auto const choice = choose_row_optimizer(of_table);
    tessera::with_optimizer(choice, [&]<class Optimizer>(Optimizer const&) {
      tessera::set_learning_rate(copies->optimizer<Optimizer>(static_cast<std::int64_t>(table)), share * of_table.embedding_lr);
    });
  }
}
