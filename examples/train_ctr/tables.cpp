// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/tables.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <string>

namespace {

// Calls f with a number of the type that rows are made of.
template <class F>
auto with_row_format(std::string const& format, F const& f) {
  if (format == "fp16") return f(tessera::float16());
  if (format == "bf16") return f(tessera::bfloat16());
  if (format == "int8") return f(tessera::scaled_int8());
  return f(float());
}

constexpr std::int64_t values_per_piece = 1 << 14;

template <class Element>
float number_at(char const* from) {
  Element element;
  std::memcpy(&element, from, sizeof(Element));
  return tessera::to_float(element);
}

// As what one is stored as says; bytes are whole numbers.
float number_at(tessera::plane_type type, char const* from) {
  switch (type) {
    case tessera::plane_type::f16: return number_at<tessera::float16>(from);
    case tessera::plane_type::bf16: return number_at<tessera::bfloat16>(from);
    case tessera::plane_type::f8_e4m3: return number_at<tessera::float8_e4m3>(from);
    case tessera::plane_type::f8_e5m2: return number_at<tessera::float8_e5m2>(from);
    case tessera::plane_type::f32: return number_at<float>(from);
    default: return 0;
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
  if (shape.width == 0) return true;
  tessera::buffer<std::int64_t> slots(exec, table.rows()), ids(exec, table.rows());
  table.list_rows(slots.view(), ids.view());
  auto const bytes = shape.width * tessera::size_of(shape.type);
  auto const rows_per_piece = std::max<std::int64_t>(1, values_per_piece / shape.width);
  tessera::buffer<char> piece(exec, std::min(rows_per_piece, table.rows()) * bytes);
  for (std::int64_t first = 0; first < table.rows(); first += rows_per_piece) {
    auto const rows = std::min(rows_per_piece, table.rows() - first);
    table.copy_out(plane, std::as_const(slots).view().slice(first, rows), piece.data());
    for (std::int64_t i = 0; i < rows * shape.width; ++i)
      if (!tessera::is_finite(number_at(shape.type, piece.data() + i * tessera::size_of(shape.type)))) return false;
  }
  return true;
}

std::int64_t examples::add_table(any_job const& j, tessera::table_list& tables, std::int64_t dim, std::int64_t rows,
                                 row_optimizer_choice const& choice) {
  auto bound = 1 / std::sqrt(static_cast<float>(rows));
  if (j.s.embedding_init != "rows") parse_number(j.s.embedding_init, bound);
  tessera::table_options const options{
      .id = tessera::table_id{tables.size()}, .dim = dim, .rows = rows, .init_bound = bound, .seed = tessera::random_seed{j.s.seed}};
  return tessera::with_optimizer(choice, [&](auto const& optimizer) {
    tessera::check_optimizer(optimizer);  // so that nothing but the size is refused below
    return with_row_format(j.s.row_format, [&]<class Element>(Element) {
      try {
        return tables.add(tessera::dense_table<Element>(j.exec, options, optimizer), optimizer);
      } catch (tessera::error const& e) {
        throw tessera::error(e.code(), "option --hash-size, --vocabulary-limit or --embedding-dim: no memory for a table",
                             {{"table", options.id.value}, {"rows", rows}, {"dim", dim}, {"reason", e.sentence()}});
      }
    });
  });
}

void examples::set_row_learning_rate(tessera::local_tables& tables, row_optimizer_choice const& choice, float rate) {
  tessera::with_optimizer(choice, [&]<class Optimizer>(Optimizer const&) {
    for (std::int64_t t = 0; t < tables.table_count(); ++t) tessera::set_learning_rate(tables.optimizer<Optimizer>(t), rate);
  });
}
