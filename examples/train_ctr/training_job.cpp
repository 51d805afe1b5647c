// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/training_job.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <tessera/data/preprocessing_file.hpp>
#include <tessera/data/session_order.hpp>

#include "../support/data_columns.hpp"
#include "../support/data_files.hpp"

namespace examples {

namespace {

/// Ids of hashed tables: as good as no bound, so that no two ids share a row.
constexpr std::int64_t any_id = std::int64_t{1} << 62;

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
  if (comm.size() > 1) check_same_job();
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
  add("checkpoint-every", s.checkpoint_every);
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

tessera::sharding_plan training_job::make_plan(std::vector<tessera::table_spec> const& specs) const {
  if (comm.size() > 1)
    for (std::size_t t = 0; t < specs.size(); ++t)
      say("table %zu: %s, %lld rows of %lld columns\n", t, tables_[t].c_str(), static_cast<long long>(specs[t].table.rows),
          static_cast<long long>(specs[t].table.dim));
  if (s.plan == "bytes") return tessera::plan_by_bytes(specs, comm.size());
  if (s.plan == "round-robin") return tessera::plan_round_robin(tessera::options_of(specs), comm.size());
  try {
    return tessera::read_plan(s.plan, tessera::options_of(specs), comm.size());
  } catch (tessera::error const& e) {
    if (e.code() == tessera::errc::io_error) detail::refuse_option("--plan", "neither bytes nor round-robin, nor a file", e.values());
    throw;
  }
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
  options.slice = {comm.rank(), comm.size()};
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

}  // namespace examples
