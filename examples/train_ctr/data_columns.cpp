// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/data_columns.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/data/delimited_layout.hpp>
#include <tessera/data/delimited_log.hpp>
#include <tessera/data/derived_columns.hpp>
#include <tessera/files/posix_file.hpp>

#include "../support/column_plan.hpp"
#include "../support/data_files.hpp"

using namespace examples;

namespace {

std::string first_line(std::string const& path) {
  tessera::posix_file::open(path);  // its errors name the file
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

/// Whether a line may be the header of a text file, and is none of Criteo's layout, not even a bad one.
bool is_like_header(std::string const& line, char separator) {
  auto const first = line.substr(0, line.find(separator));
  auto const fields = 1 + std::count(line.begin(), line.end(), separator);
  bool const is_text = std::all_of(line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x20 || c == '\t'; });
  return is_text && !first.empty() && first != "0" && first != "1" && fields > 1 && fields != 40;
}

/// How a text file is laid out if nobody says otherwise.
tessera::delimited_layout usual_layout(std::string const& file) {
  return {.delimiter = kind_of(file) == file_kind::comma_text ? ',' : '\t', .header = true, .quotes = true};
}

/// What has the name "lists" among the columns of a Parquet file, say.
column_list names_among(std::vector<tessera::error_value> const& columns, char const* kind) {
  for (auto const& [name, value] : columns)
    if (name == kind) return split(value, ',');
  return {};
}

}  // namespace

tessera::data_description examples::describe_columns(settings const& s, std::string const& file) {
  bool const parquet = kind_of(file) == file_kind::parquet;
  if (!s.columns.empty()) return tessera::parse_columns(nlohmann::json::parse(s.columns), "--columns", usual_layout(file));
  tessera::data_description data;
  bool const named = !s.sparse_columns.empty() || !s.dense_columns.empty();
  if (!named) {
    if (parquet) detail::refuse_option("--sparse-columns", "names columns of the file", parquet_columns(file));
    auto const separator = kind_of(file) == file_kind::comma_text ? ',' : '\t';
    auto const line = first_line(file);
    if (separator == ',' || is_like_header(line, separator))
      detail::refuse_option("--sparse-columns", "names columns of the file, as --label-column and --dense-columns do",
                            {{"file", file}, {"its first line", join(split(line.substr(0, 1000), separator), ",")}});
    data.schema = tessera::criteo_schema();
    data.layout = tessera::criteo_layout();
  } else {
    auto& schema = data.schema;
    schema.label = s.label_column;
    schema.dense = split(s.dense_columns, ',');
    schema.session = s.session_column;
    schema.time = s.time_column;
    auto const lists = parquet ? names_among(parquet_columns(file), "lists") : column_list{};
    for (auto name : split(s.sparse_columns, ',')) {
      bool is_list = std::find(lists.begin(), lists.end(), name) != lists.end();
      if (name.ends_with("[]")) {
        name.resize(name.size() - 2);
        is_list = true;
      }
      schema.sparse.push_back(name);
      if (!is_list) schema.single.push_back(name);
    }
  }
  bool const is_criteo = !named;
  if (s.dense_as_category == "on" || (s.dense_as_category == "auto" && is_criteo))
    for (auto const& name : data.schema.dense)
      if (std::find(data.schema.sparse.begin(), data.schema.sparse.end(), name) == data.schema.sparse.end()) {
        data.schema.sparse.push_back(name);
        data.schema.single.push_back(name);
      }
  return data;
}

namespace {

tessera::any_sample_source open(tessera::host_exec const& exec, std::vector<std::string> const& files,
                                tessera::data_description const& data, bool binary_labels,
                                std::function<void(tessera::sample_columns_view)> const& visit) {
  using namespace examples;
  auto layout = data.layout ? *data.layout : usual_layout(files[0]);
  if (binary_labels) layout.binary_labels = true;
  auto source = [&] {
    if (kind_of(files[0]) == file_kind::parquet) return open_parquet(files, data.schema);
    if (visit && reads_while_opening(files, data))
      return tessera::any_sample_source(tessera::delimited_log(exec, files, data.schema, layout, visit));
    return tessera::any_sample_source(tessera::delimited_log(exec, files, data.schema, layout));
  }();
  if (data.derived.empty()) return source;
  return tessera::any_sample_source(tessera::derived_columns<tessera::any_sample_source>(std::move(source), data.derived));
}

}  // namespace

tessera::any_sample_source examples::open_files(tessera::host_exec const& exec, std::vector<std::string> const& files,
                                                tessera::data_description const& data,
                                                std::function<void(tessera::sample_columns_view)> const& visit) {
  return open(exec, files, data, true, visit);
}

tessera::any_sample_source examples::open_any_files(tessera::host_exec const& exec, std::vector<std::string> const& files,
                                                    tessera::data_description const& data,
                                                    std::function<void(tessera::sample_columns_view)> const& visit) {
  return open(exec, files, data, false, visit);
}

bool examples::reads_while_opening(std::vector<std::string> const& files, tessera::data_description const& data) {
  return kind_of(files[0]) != file_kind::parquet && data.derived.empty();
}
