// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// example-unit: tables
#include "../support/training_job.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/rank_levels.hpp>
#include <tessera/comm/topology_file.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/data/dedupe_model.hpp>
#include <tessera/data/dense_steps.hpp>
#include <tessera/data/derived_columns.hpp>
#include <tessera/data/preprocessing_file.hpp>
#include <tessera/data/preprocessing_fit.hpp>
#include <tessera/data/sample_reader.hpp>
#include <tessera/data/session_order.hpp>
#include <tessera/data/sparse_steps.hpp>
#include <tessera/embed/pooling.hpp>
#include <tessera/files/json.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/id_transforms.hpp>
#include <tessera/tensor/key_groups.hpp>
#include <tessera/tower/plan_towers.hpp>
#include <tessera/tower/tower_baselines.hpp>
#include <tessera/tower/tower_kinds.hpp>
#include <tessera/tower/tower_partition_file.hpp>
#include <tessera/tower/tower_partitioner.hpp>

#include "../support/data_columns.hpp"
#include "../support/data_files.hpp"
#include "../support/tower_page.hpp"

namespace examples {

namespace {

/// Ids of hashed tables: as good as no bound, so that no two ids share a row.
constexpr std::int64_t any_id = std::int64_t{1} << 62;

// Calls f, whose errors name the option.
template <class F>
auto for_option(char const* option, F const& f) {
  try {
    return f();
  } catch (tessera::error const& e) {
    throw tessera::error(e.code(), std::string("option ") + option + ": " + std::string(e.sentence()), e.values());
  }
}

// The same for a file that the option names; `otherwise`: what is said of one that is not there.
template <class F>
auto of_file(char const* option, char const* otherwise, F const& f) {
  try {
    return f();
  } catch (tessera::error const& e) {
    if (e.code() == tessera::errc::io_error) detail::refuse_option(option, otherwise, e.values());
    throw;
  }
}

void check_rows(char const* option, sample_log const& log) {
  if (log.rows() == 0) detail::refuse_option(option, "no samples", {});
}

}  // namespace

training_job::training_job(any_job base)
    : any_job(std::move(base)),
      test_files_(named_files("--test", s.test)),
      data_(description()),
      plan_(make_column_plan(s, sparse_columns())) {
  order_columns();
  check_towers();
  find_hosts();
  test_.emplace(open_files(exec, test_files_, data_));  // the shorter first: what is wrong in it shows at once
  check_rows("--test", *test_);
  say("test: %lld samples\n", static_cast<long long>(test_rows()));
  if (start) preprocess_ = tessera::load_preprocessing(exec, start->folder);
  if (!s.eval_only) open_training_data();
  plan_.keep(preprocess_->sparse().kept());
  for (auto const& column : plan_.columns())
    if (auto const& owner = plan_.owner(column); std::find(tables_.begin(), tables_.end(), owner) == tables_.end())
      tables_.push_back(owner);
  choose_groups();
  features_ = tower_features_ = keys();
  if (comm.size() > 1) check_same_job();
  choose_towers();
  if (s.read == "blocks" && s.batch_size < comm.size())
    detail::refuse_option("--read", "of blocks, a batch has a sample a rank", {{"--batch-size", s.batch_size}, {"ranks", comm.size()}});
  auto const chunks = s.chunks() == 0 ? comm.size() : tessera::divide_up(s.batch_size, s.chunks());
  if (chunks < comm.size())
    say("--chunk-samples: a batch of %lld has %lld chunks, so %lld ranks have none\n", static_cast<long long>(s.batch_size),
        static_cast<long long>(chunks), static_cast<long long>(comm.size() - chunks));
}

// Files of one name may differ from host to host, and options from process to process.
void training_job::check_same_job() const {
  std::string mine;
  auto const add = [&](char const* name, auto const& value) { mine += std::string(name) + " " + shown(json(value)) + "\n"; };
  add("test: samples", test_rows());
  add("test: fingerprint", test_->fingerprint());
  if (train_) {
    add("train: samples", train_rows());
    add("train: fingerprint", train_fingerprint());
  }
  for_each_kept(s, [&](char const* name, auto const& value, bool) { add(name, json(value)); });
  add("metrics are written", !s.metrics.empty());
  add("checkpoints are written", !s.checkpoint.empty());
  add("a report is written", !s.report.empty());
  add("checkpoint-every", s.checkpoint_every);
  add("ids-ahead", s.ids_ahead);
  add("hot-budget", s.hot_budget);
  add("hot-schedule", s.hot_schedule);
  add("hot-batches", s.hot_batches);
  add("topology", tessera::topology_json(where()));
  add("exchange", s.exchange);
  add("towers", s.towers);
  add("tower-probe", s.tower_probe);
  auto ranks = comm;
  tessera::check_same_text(exec, ranks, mine, "train_ctr: the same data and options");
}

tessera::data_description training_job::description() const {
  if (start) {
    auto const where = start->folder + "/manifest.json";
    return tessera::parse_columns(tessera::json_field(start->state.options, "data", where), where);
  }
  return describe_columns(s, s.train.empty() ? test_files_[0] : named_files("--train", s.train)[0]);
}

column_list training_job::sparse_columns() const { return tessera::schema_with(data_.schema, data_.derived).sparse; }

// Columns that are put together stand side by side, as they do among the keys of a batch.
void training_job::order_columns() {
  column_list ordered;
  for (auto const& name : plan_.columns())
    if (std::find(data_.schema.sparse.begin(), data_.schema.sparse.end(), name) != data_.schema.sparse.end()) ordered.push_back(name);
  data_.schema.sparse = std::move(ordered);
}

column_list training_job::keys() const {
  auto const all = tessera::group_keys(sparse_columns(), groups_).keys;
  return preprocess_->of_keys(all).keys();
}

tessera::preprocessing training_job::make_preprocessing() const {
  using namespace tessera;
  auto schema = schema_with(data_.schema, data_.derived);
  auto const is_named = [](auto const& rules, std::string const& column) {
    return std::any_of(rules.begin(), rules.end(),
                       [&](auto const& rule) { return std::find(rule.columns.begin(), rule.columns.end(), column) != rule.columns.end(); });
  };
  auto const has_others = [](auto const& rules) {
    return std::any_of(rules.begin(), rules.end(), [](auto const& rule) { return rule.columns.empty(); });
  };
  auto dense = data_.dense;
  dense_rule numbers;
  if (s.dense == "log") numbers.steps = {log_values{}};
  if (s.dense == "standard") numbers.steps = {standardise{}};
  for (auto const& name : schema.dense)
    if (!has_others(dense) && !is_named(dense, name)) numbers.columns.push_back(name);
  if (!numbers.columns.empty()) dense.push_back(std::move(numbers));

  auto sparse = data_.sparse;
  for (auto const& name : schema.sparse) {
    if (has_others(data_.sparse) || is_named(data_.sparse, name)) continue;
    sparse_rule rule{.columns = {name}};
    if (s.max_length > 0 && !schema.is_single(name)) rule.steps.push_back(truncate_ids{.most = s.max_length});
    if (s.of_table(plan_.owner(name)).hash_table > 0)
      rule.steps.push_back(hash_ids{.size = any_id});
    else if (s.hash_size > 0)
      rule.steps.push_back(hash_ids{.size = s.hash_size});
    else
      rule.steps.push_back(vocabulary{.min_count = s.min_count, .limit = s.vocabulary_limit});
    sparse.push_back(std::move(rule));
  }
  // The preprocessing refuses columns that share where steps give other ids.
  for (auto const& [name, owner] : plan_.table_of) {
    column_list const alone{name};
    auto rule = std::find_if(sparse.begin(), sparse.end(), [&](auto const& r) { return r.columns == alone; });
    if (rule == sparse.end()) {  // then it has the rule of all others
      auto of_others = *std::find_if(sparse.begin(), sparse.end(), [](auto const& r) { return r.columns.empty(); });
      of_others.columns = alone;
      rule = sparse.insert(sparse.end(), std::move(of_others));
    }
    rule->share = owner;
  }
  return preprocessing(std::move(schema), dense, sparse);
}

std::int64_t training_job::table_rows(std::string const& column) const {
  auto const rows = preprocess_->sparse().id_count(column);
  if (!rows && s.of_table(column).hash_table == 0)
    detail::refuse_option("--columns", "ids without a hash or a vocabulary need a --hash-table", {{"column", column}});
  return rows.value_or(0);
}

void training_job::open_training_data() {
  auto const files = named_files("--train", s.train);
  if (preprocess_) {
    train_.emplace(open_files(exec, files, data_));
  } else {
    auto unfitted = make_preprocessing();
    tessera::preprocessing_fit fit(unfitted);
    train_.emplace(open_files(exec, files, data_, [&](tessera::sample_columns_view samples) { fit.add(exec, samples); }));
    tessera::sample_columns block;
    for (std::int64_t b = 0; !reads_while_opening(files, data_) && b < train_->block_count(); ++b) {
      train_->read(exec, b, block);
      fit.add(exec, block.view());
    }
    preprocess_ = std::move(fit).finish(exec);
  }
  check_rows("--train", *train_);
  say("train: %lld samples\n", static_cast<long long>(train_rows()));
  if (auto const dropped = join(preprocess_->dropped(), ", "); !dropped.empty()) say("empty everywhere, dropped: %s\n", dropped.c_str());
  if (preprocess_->sparse().kept().empty() && preprocess_->dense().features() == 0)
    detail::refuse_option("--train", "all columns are empty", {});
}

std::vector<tessera::table_spec> training_job::make_specs() const {
  check_own_tables(s, tables_);
  std::vector<tessera::table_spec> specs;
  for (auto const& name : tables_)
    specs.push_back(spec_of_table(s, static_cast<std::int64_t>(specs.size()), name, row_dim(name), table_rows(name)));
  return specs;
}

void training_job::choose_hot() {
  if (!s.has_hot_rows() || s.eval_only) return;
  auto const specs = make_specs();
  std::vector<tessera::table_spec> copied;
  for (auto const& name : tables_)
    copied.push_back(
        dense_spec_of_table(s, static_cast<std::int64_t>(copied.size()), name, row_dim(name), specs[copied.size()].table.rows));
  hot_.emplace(s, exec, *train_, *preprocess_, reader_options(s.batch_size, training_order()), table_features(), specs, std::move(copied));
  auto const of = [](std::int64_t part, std::int64_t whole) { return 100 * static_cast<double>(part) / static_cast<double>(whole); };
  say("hot: %lld rows (%.2f MB a rank), read more often than %.2g %% of their table's ids; so are %.1f %% of the samples\n",
      static_cast<long long>(hot_->rows), static_cast<double>(hot_->bytes) / 1e6, hot_->percent,
      of(hot_->classes.hot(), hot_->classes.size()));
}

// What the command line says, unless a checkpoint's plan stays: where nothing is said, or a plan of another model's.
void training_job::choose_plan() {
  auto const specs = all_specs();
  if (comm.size() > 1)
    for (std::size_t t = 0; t < specs.size(); ++t) {
      tessera::column_piece const piece = split_ ? split_->of_tables[t] : tessera::column_piece{static_cast<std::int64_t>(t), 0, 0};
      auto const from = piece.first_column > 0 ? " from column " + std::to_string(piece.first_column) : std::string();
      say("table %zu: %s, %lld rows of %lld columns%s\n", t, tables_[static_cast<std::size_t>(piece.of)].c_str(),
          static_cast<long long>(specs[t].table.rows), static_cast<long long>(specs[t].table.dim), from.c_str());
    }
  auto kept = kept_plan(specs);
  bool const stays = kept && !s.plan_is_given;
  if (!stays) planned_ = said_plan(specs);
  plan_name_ = s.plan;
  auto const is_of_another = [&] { return kept->found && planned_.found && kept->found->model != planned_.found->model; };
  if (stays || (kept && is_of_another())) {
    plan_name_ = tessera::json_string(start->state.options["on"], "plan", start->folder + "/manifest.json");
    if (stays)
      say("plan: the checkpoint's stays, of %s\n", plan_name_.c_str());
    else
      say("plan: the checkpoint's stays, of %s, found with model %s; %s was found with model %s\n", plan_name_.c_str(),
          kept->found->model.c_str(), s.plan.c_str(), planned_.found->model.c_str());
    planned_ = std::move(*kept);
  }
  auto ranks = comm;
  if (comm.size() > 1) tessera::check_same_text(exec, ranks, tessera::predicted_plan_json(planned_).dump(), "train_ctr: the same plan");
}

// That of a checkpoint from which as many ranks go on, by the same exchange; towers may lie on other hosts now, so theirs is said again.
std::optional<tessera::predicted_plan> training_job::kept_plan(std::vector<tessera::table_spec> const& specs) const {
  if (!s.resume || split_ || s.exchange == "sptt" || !start->state.options.contains("planned")) return std::nullopt;
  auto const file = start->folder + "/manifest.json";
  auto const& on = tessera::json_object(start->state.options, "on", file);
  if (tessera::json_string(on, "ranks", file) != std::to_string(comm.size()) || tessera::json_string(on, "exchange", file) != s.exchange)
    return std::nullopt;
  return tessera::predicted_plan_of_json(start->state.options["planned"], tessera::options_of(specs), comm.size(), file, tables_);
}

tessera::predicted_plan training_job::said_plan(std::vector<tessera::table_spec> const& specs) const {
  if (s.exchange == "sptt" && (s.plan == "bytes" || s.plan == "cut")) return {tower_plan(specs), {}};
  if (s.plan == "bytes") return {tessera::plan_by_bytes(specs, comm.size()), {}};
  if (s.plan == "round-robin") return {tessera::plan_round_robin(tessera::options_of(specs), comm.size()), {}};
  if (split_)
    detail::refuse_option("--plan", "bytes, cut or round-robin, where there are more towers than features",
                          {{"--plan", s.plan}, {"towers", towers_->towers.size()}, {"features", features_.size()}});
  return of_file("--plan", "neither bytes, cut nor round-robin, nor a file",
                 [&] { return tessera::read_predicted_plan(s.plan, tessera::options_of(specs), comm.size(), tables_); });
}

// Each tower's tables on its ranks. `cut` says of each table that is larger than a rank's share what was done, and what the other ways move.
tessera::sharding_plan training_job::tower_plan(std::vector<tessera::table_spec> const& specs) const {
  tessera::plan_towers_options options{.cuts_tables = s.plan == "cut", .samples = tessera::divide_up(s.batch_size, comm.size())};
  if (options.cuts_tables && !split_) options.ids_a_sample = ids_a_sample();
  // Blocks of columns would have states of rows of their own.
  for (auto const& name : tables_) options.by_columns &= !s.of_table(name).embedding_optimizer.starts_with("rowwise-");
  auto const made = for_option("--towers", [&] {
    return tessera::choose_tower_plan(specs, split_ ? split_->features : table_features(), where(), *towers_, options);
  });
  if (!options.cuts_tables) return made.plan;
  std::vector<tessera::tower_table> large;
  for (auto const& table : made.tables)
    if (table.bytes > table.share) large.push_back(table);
  say("plan: %zu of %zu tables are larger than the share of a rank of their tower\n%s", large.size(), specs.size(),
      tessera::text_of(large, specs).c_str());
  return made.plan;
}

// Of each feature, in the mean of some samples to test with.
std::vector<std::int64_t> training_job::ids_a_sample() const {
  auto const block = some_samples(*test_);
  auto const samples = block.view();
  auto const& names = test_->schema().sparse;
  std::vector<std::int64_t> ids;
  for (auto const& name : features_) {
    auto const column = std::find(names.begin(), names.end(), name) - names.begin();
    ids.push_back(tessera::divide_up(samples.sparse[column].size(), std::max<std::int64_t>(samples.size(), 1)));
  }
  return ids;
}

std::vector<tessera::table_feature> training_job::table_features() const {
  std::vector<tessera::table_feature> all;
  for (auto const& key : features_) {
    auto const table = std::find(tables_.begin(), tables_.end(), plan_.owner(key)) - tables_.begin();
    auto const bag = std::find(plan_.bags.begin(), plan_.bags.end(), key);
    auto const pooling =
        bag == plan_.bags.end() ? tessera::pooling::sum : plan_.poolings[static_cast<std::size_t>(bag - plan_.bags.begin())];
    all.push_back({.name = key, .table = table, .sequence = bag == plan_.bags.end(), .pooling = pooling});
  }
  return all;
}

void training_job::check_towers() const {
  if (s.has_modules() && s.exchange != "sptt" && comm.size() > 1)
    detail::refuse_option("--tower-module", "on several ranks modules run on those of their towers: --exchange sptt",
                          {{"--tower-module", s.tower_module}, {"--exchange", s.exchange}, {"ranks", comm.size()}});
  if (s.has_modules() && plan_.target >= 0)
    detail::refuse_option("--tower-module", "attention looks at the vector of a column, of which modules make others",
                          {{"--tower-module", s.tower_module}, {"column", plan_.bags[static_cast<std::size_t>(plan_.target)]}});
}

void training_job::find_hosts() {
  std::int64_t hosts = 0;
  if (s.topology.empty()) {
    where_ = comm.size() == 1 ? tessera::topology::flat(1) : tessera::detect_topology(exec, comm);
  } else if (s.topology.starts_with("hosts:")) {
    if (!parse_number(s.topology.substr(6), hosts) || hosts < 1 || comm.size() % hosts != 0)
      detail::refuse_option("--topology", "so many hosts that each has as many ranks",
                            {{"--topology", s.topology}, {"ranks", comm.size()}});
    where_ = tessera::topology::of_hosts(hosts, comm.size() / hosts);
  } else {
    where_ = of_file("--topology", "neither hosts:N nor a file", [&] {
      auto read = tessera::read_topology(s.topology);
      tessera::check_topology(read, comm.size());
      return read;
    });
  }
  if (s.exchange == "flat") return;
  auto const level = for_option("--exchange", [&] { return where_->level("host"); });
  say("exchange: %s, %d ranks on %lld hosts\n", s.exchange.c_str(), comm.size(), static_cast<long long>(where_->domains(level)));
}

// A number of towers, a file, or those that a checkpoint keeps; what is to be learned is left.
void training_job::choose_towers() {
  if (!s.has_towers()) return;
  bool const are_kept = start && start->state.options.contains("towers");
  if (are_kept && (s.towers.empty() || s.learns_towers())) {
    auto const file = start->folder + "/manifest.json";
    return set_towers(start->state.options["towers"], file);
  }
  if (s.towers.empty())
    detail::refuse_option("--towers", "sptt and modules have some: T, a file, learn or learn:T",
                          {{"--exchange", s.exchange}, {"--tower-module", s.tower_module}});
  if (s.learns_towers()) {
    if (s.eval_only) detail::refuse_option("--towers", "--eval-only learns none, and the checkpoint has none", {{"--towers", s.towers}});
    tower_count();
    return;
  }
  std::int64_t number = 0;
  if (parse_number(s.towers, number)) {
    split_for(number);
    return set_towers(
        for_option("--towers", [&] { return tessera::strided_towers(static_cast<std::int64_t>(tower_features_.size()), number); }));
  }
  set_towers(of_file("--towers", "neither T, learn nor learn:T, nor a file", [&] { return tessera::read_json(s.towers); }), s.towers);
}

void training_job::split_for(std::int64_t towers) {
  if (towers <= static_cast<std::int64_t>(features_.size())) return;
  split_ = for_option("--towers", [&] { return tessera::split_for_towers(make_specs(), table_features(), towers); });
  tower_features_.clear();
  for (auto const& piece : split_->features) tower_features_.push_back(piece.name);
}

void training_job::set_towers(nlohmann::json const& json, std::string const& file) {
  if (json.is_object() && json.contains("towers") && json["towers"].is_array()) split_for(static_cast<std::int64_t>(json["towers"].size()));
  set_towers(tessera::towers_of_json(json, tower_features_, file));
}

std::int64_t training_job::tower_count() const {
  std::int64_t number = 0;
  if (s.towers == "learn") {
    number = where().domains(where().level("host"));
    if (number == 1)
      detail::refuse_option("--towers", "with one host, learn:T says how many",
                            {{"--towers", s.towers}, {"ranks", comm.size()}, {"hosts", number}});
  } else if (!parse_number(s.towers.substr(6), number) || number < 1 || number > static_cast<std::int64_t>(features_.size())) {
    detail::refuse_option("--towers", "learn:T, with T from 1 to as many as features",
                          {{"--towers", s.towers}, {"features", features_.size()}});
  }
  return number;
}

void training_job::set_towers(tessera::tower_partition towers) {
  for (std::size_t t = 0; t < towers.towers.size(); ++t) {
    column_list names;
    for (auto const f : towers.towers[t]) names.push_back(tower_features_[static_cast<std::size_t>(f)]);
    say("tower %zu: %s\n", t, join(names, ", ").c_str());
  }
  towers_ = std::move(towers);
}

void training_job::say_compression(tessera::vector_view<tessera::embedding_output const> made) const {
  std::int64_t read = 0, left = 0;
  for (auto const& bag : plan_.bags) read += row_dim(bag);
  for (auto const& output : made)
    if (!output.sequence) left += output.width;
  say("towers: modules make %lld numbers of %lld, a compression ratio of %.2f\n", static_cast<long long>(left),
      static_cast<long long>(read), static_cast<double>(read) / static_cast<double>(left));
}

std::string training_job::partition(tessera::affinity_matrix const& affinity) const {
  auto const features = static_cast<std::int64_t>(features_.size());
  auto const towers = tower_count();
  auto const found =
      tessera::partition_features(exec, affinity.view(), towers,
                                  {.embedding = {.dims = std::min<std::int64_t>(8, features), .seed = tessera::random_seed{s.seed}},
                                   .kmeans = {.seed = tessera::random_seed{s.seed}}});
  if (!s.checkpoint.empty()) {
    tessera::write_towers(s.checkpoint + "/towers.json", found.partition, features_);
    html_page page("Towers of " + std::to_string(features) + " features");
    add_towers(page, features_, affinity.view(), found);
    whole_file file("--checkpoint", s.checkpoint + "/towers.html");
    file.text << page.text();
    file.commit();
    say("towers: written to %s/towers.json, and a page beside it\n", s.checkpoint.c_str());
  }
  return tessera::towers_json(found.partition, features_).dump();
}

tessera::sample_order training_job::training_order() const {
  using tessera::sample_order;
  if (s.progressive || s.order == "stored") return sample_order::stored;
  if (s.order == "samples" || (s.order.empty() && !has_sessions())) return sample_order::samples;
  return sample_order::sessions;
}

tessera::sample_reader_options training_job::reader_options(std::int64_t batch_size, tessera::sample_order order) const {
  tessera::sample_reader_options options;
  options.batch_size = batch_size;
  options.order = order;
  options.seed = tessera::random_seed{s.seed};
  options.groups = groups_;
  options.slice = {comm.rank(), comm.size(), std::max<std::int64_t>(1, s.chunks())};
  return options;
}

void training_job::choose_groups() {
  if (s.order == "sessions" && !has_sessions()) detail::refuse_option("--order", "sessions need a --session-column", {});
  if (s.progressive && !s.order.empty() && s.order != "stored")
    detail::refuse_option("--progressive", "samples are tested in the order of the files", {{"--order", s.order}});
  std::vector<column_list> wanted;
  if (s.dedup == "auto" && has_sessions())
    wanted = recommended_groups(train_ ? *train_ : *test_);
  else if (s.dedup != "auto" && s.dedup != "off")
    wanted = named_groups(s, plan_);
  groups_ = batch_groups(plan_, wanted);
  if (s.dedup == "auto" && !has_sessions()) return;
  column_list shown;
  for (auto const& group : groups_) shown.push_back(join(group, "+"));
  say("dedup: %s\n", shown.empty() ? "off" : join(shown, ",").c_str());
}

// Samples from all over the data: of a few blocks the first ones, in their order.
tessera::sample_columns training_job::some_samples(sample_log const& log) const {
  constexpr std::int64_t enough = 8192, most_blocks = 8;
  auto const all = log.block_count(), some = std::min(most_blocks, all);
  tessera::sample_columns block, sample(log.schema());
  for (std::int64_t i = 0; i < some; ++i) {
    log.read(exec, some == 1 ? 0 : i * (all - 1) / (some - 1), block);
    sample.append(exec, block.view(), 0, std::min(tessera::divide_up(enough, some), block.size()));
  }
  return sample;
}

double training_job::samples_per_session(sample_log const& log) const {
  constexpr std::int64_t enough = 8192;
  auto options = reader_options(s.batch_size, training_order());
  options.slice = {};
  tessera::sample_reader batches(exec, log, std::move(options));
  std::int64_t samples = 0, sessions = 0;
  for (tessera::batch_view batch; samples < enough && batches.next(exec, batch);) {
    samples += batch.samples();
    sessions += static_cast<std::int64_t>(std::set<std::int64_t>(batch.session_ids.begin(), batch.session_ids.end()).size());
  }
  return static_cast<double>(samples) / static_cast<double>(sessions);
}

/// What samples of all the data suggest for batches as they will come.
std::vector<column_list> training_job::recommended_groups(sample_log const& log) const {
  tessera::recommend_groups_options options;
  options.samples_per_session = samples_per_session(log);
  options.dim = static_cast<double>(s.embedding_dim);
  auto sample = some_samples(log);
  if (auto const times = sample.view().times; !times.empty()) sample = tessera::sorted_by(exec, sample, times);
  auto found = tessera::recommend_groups(exec, sample.view(), options);

  if (auto const order = tessera::session_order_of(exec, log); order.repeated > 0 && !order.is_clustered())
    say("the samples of a session are not side by side, so little repeats within a batch: train_ctr cluster IN... OUT.parquet "
        "--session-column %s\n",
        log.schema().session.c_str());
  auto const& columns = log.schema().sparse;
  say("%.1f samples a session in a batch; by column, how many times fewer ids without repeats:\n", options.samples_per_session);
  for (std::size_t f = 0; f < columns.size(); ++f) {
    auto const& reason = found.features[f];
    say("  %s %.2f%s\n", columns[f].c_str(), reason.factor,
        reason.group < 0 ? "" : text(" group %d", static_cast<int>(reason.group) + 1).c_str());
  }
  return tessera::group_names(columns, found.groups);
}

void run_job(training_job& j) {
  if (j.s.model == "dcn") return run_dcn(j);
  if (j.s.model == "deepfm") return run_deepfm(j);
  run_dlrm(j);
}

}  // namespace examples
