// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Trains a DLRM or a DCN, flat or with towers, in one process and for one seed, and prints its test AUC as a line of JSON. towers.py runs it.
//
//   tower_quality --set pairs --affinity probe.json --seed 1                       a flat DLRM; the affinity of its features is written
//   tower_quality --set pairs --towers 8 --partition coherent --affinity probe.json --tower-dim 32
//   tower_quality --set pairs --towers 8 --partition coherent --affinity probe.json --only-partition [--page towers.html]
//
// Sets: *pairs* and *classes* of synth/planted_sets.hpp, generated as they are read, and *adult* of examples/data.

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/data/delimited_layout.hpp>
#include <tessera/data/delimited_log.hpp>
#include <tessera/synth/expected_auc.hpp>
#include <tessera/synth/planted_reader.hpp>
#include <tessera/synth/planted_sets.hpp>
#include <tessera/tessera_files.hpp>

#include "../../examples/support/tower_page.hpp"

namespace {

struct settings {
  std::string set = "pairs", data = "examples/data/adult", model = "dlrm";
  std::int64_t ids = 0, latent_dim = 0, classes = 0;  // of a planted set; 0: its own
  std::uint64_t seed = 1;
  std::int64_t train_rows = 1 << 19, test_rows = 1 << 17, batch = 512, dim = 64;
  std::vector<std::int64_t> bottom{64}, top{128, 64};
  std::int64_t layers = 3, rank = 32;
  double row_rate = 0.05, rate = 0.001, init = 0.1;
  // Towers; none: a flat model.
  std::int64_t towers = 0;
  std::string partition = "strided", kind = "mean_of_abs";
  std::int64_t dims = 8, tower_dim = 32, p = 0, c = 1, vectors = 1, tower_layers = 1;
  bool pass = false;
  // The affinity of features: a flat model writes it, a partition that is learned reads it.
  std::string affinity, page;
  std::int64_t probe_batches = 40;
  bool only_partition = false;
};

void declare(CLI::App& app, settings& s) {
  auto const count = CLI::Range(std::int64_t{1}, std::int64_t{1} << 40);
  app.add_option("--set", s.set, "What is learned")->check(CLI::IsMember({"pairs", "classes", "adult"}))->capture_default_str();
  app.add_option("--data", s.data, "Where the adult data lies")->capture_default_str();
  app.add_option("--model", s.model, "Of dot products, or of cross layers")->check(CLI::IsMember({"dlrm", "dcn"}))->capture_default_str();
  app.add_option("--ids", s.ids, "Of each feature of a planted set; 0: as the set has")->capture_default_str();
  app.add_option("--latent-dim", s.latent_dim, "Of the vectors behind its interactions; 0: likewise")->capture_default_str();
  app.add_option("--classes", s.classes, "Of a block; 0: likewise")->capture_default_str();
  app.add_option("--seed", s.seed, "How parameters and rows start; on adult also the order of samples")->capture_default_str();
  app.add_option("--train-rows", s.train_rows, "Of a planted set")->check(count)->capture_default_str();
  app.add_option("--test-rows", s.test_rows, "Of a planted set")->check(count)->capture_default_str();
  app.add_option("--batch", s.batch, "Samples of a step")->check(count)->capture_default_str();
  app.add_option("--dim", s.dim, "Elements of a feature's vector (the paper's N)")->check(count)->capture_default_str();
  app.add_option("--bottom", s.bottom, "Hidden layers below")->delimiter(',')->capture_default_str();
  app.add_option("--top", s.top, "Hidden layers above")->delimiter(',')->capture_default_str();
  app.add_option("--layers", s.layers, "Cross layers of a DCN")->capture_default_str();
  app.add_option("--rank", s.rank, "Of each cross layer, in towers too; 0: full")->capture_default_str();
  app.add_option("--row-rate", s.row_rate, "Rate of Adagrad for rows")->capture_default_str();
  app.add_option("--rate", s.rate, "Rate of Adam for dense parameters")->capture_default_str();
  app.add_option("--init", s.init, "Rows start uniform in ± this")->capture_default_str();
  app.add_option("--towers", s.towers, "How many; 0: a flat model")->capture_default_str();
  app.add_option("--partition", s.partition, "Which features make which tower")
      ->check(CLI::IsMember({"strided", "random", "greedy", "coherent", "diverse"}))
      ->capture_default_str();
  app.add_option("--kind", s.kind, "Which affinity")->check(CLI::IsMember({"abs_of_mean", "mean_of_abs"}))->capture_default_str();
  app.add_option("--dims", s.dims, "Dims in which features are embedded")->capture_default_str();
  app.add_option("--tower-dim", s.tower_dim, "Elements of each vector that a tower makes (D)")->capture_default_str();
  app.add_option("--p", s.p, "Vectors that a DLRM's tower makes of all its features")->capture_default_str();
  app.add_option("--c", s.c, "Vectors that it makes of each feature")->capture_default_str();
  app.add_option("--vectors", s.vectors, "Vectors that a DCN's tower makes")->capture_default_str();
  app.add_option("--tower-layers", s.tower_layers, "Cross layers of a DCN's tower")->capture_default_str();
  app.add_flag("--pass", s.pass, "Towers pass vectors on as they are");
  app.add_option("--affinity", s.affinity, "JSON file of affinities: a flat model writes it, learned partitions read it");
  app.add_option("--probe-batches", s.probe_batches, "Batches over which affinities are means")->check(count)->capture_default_str();
  app.add_flag("--only-partition", s.only_partition, "Makes towers and trains nothing");
  app.add_option("--page", s.page, "HTML page of a learned partition (the paper's Figure 9)");
}

tessera::planted_clicks_options planted_options(settings const& s) {
  auto options = s.set == "pairs" ? tessera::planted_pairs(tessera::random_seed{1}) : tessera::planted_classes(tessera::random_seed{1});
  for (auto& feature : options.features)
    if (s.ids > 0) feature.ids = s.ids;
  if (s.latent_dim > 0) options.latent_dim = s.latent_dim;
  if (s.classes > 0) options.classes = s.classes;
  return options;
}

// What a model must know of a set.
struct set_shape {
  std::int64_t dense_features = 0;
  std::vector<std::string> names;       // of sparse features
  std::vector<std::int64_t> ids;        // of each
  std::optional<double> best_expected;  // AUC of the true logits
};

struct outcome {
  double auc = 0, log_loss = 0, seconds = 0;
};

tessera::affinity_kind kind_of(std::string const& name) {
  return name == "abs_of_mean" ? tessera::affinity_kind::abs_of_mean : tessera::affinity_kind::mean_of_abs;
}

void write_affinity(tessera::feature_affinity const& sums, std::string const& path) {
  nlohmann::json all;
  all["features"] = sums.features();
  for (auto const* kind : {"abs_of_mean", "mean_of_abs"}) all[kind] = sums.result(kind_of(kind)).values;
  tessera::write_json(path, all);
}

tessera::affinity_matrix read_affinity(settings const& s) {
  auto const all = tessera::read_json(s.affinity);
  return {tessera::json_count(all, "features", s.affinity), tessera::json_array(all, s.kind, s.affinity).get<std::vector<double>>()};
}

tessera::tower_partition make_partition(tessera::host_exec const& exec, settings const& s, std::vector<std::string> const& names) {
  auto const features = static_cast<std::int64_t>(names.size());
  if (s.partition == "strided") return tessera::strided_towers(features, s.towers);
  if (s.partition == "random") return tessera::random_towers(features, s.towers, tessera::random_seed{s.seed});
  auto const affinity = read_affinity(s);
  if (s.partition == "greedy") return tessera::greedy_towers(affinity.view(), s.towers);
  auto const found = tessera::partition_features(
      exec, affinity.view(), s.towers,
      {.strategy = s.partition == "coherent" ? tessera::tower_strategy::coherent : tessera::tower_strategy::diverse,
       .embedding = {.dims = s.dims}});
  if (!s.page.empty()) {
    examples::html_page page("Towers of " + s.set + ", " + s.kind + ", " + std::to_string(s.dims) + " dims");
    examples::add_towers(page, names, affinity.view(), found);
    tessera::write_text(s.page, page.text());
  }
  return found.partition;
}

tessera::click_model_options net_of(settings const& s, set_shape const& shape) {
  return {.dense_features = shape.dense_features, .bottom_hidden = s.bottom, .top_hidden = s.top, .seed = tessera::random_seed{s.seed}};
}

tessera::local_tables make_tables(tessera::host_exec const& exec, settings const& s, set_shape const& shape) {
  tessera::table_list list;
  std::vector<tessera::table_feature> features;
  for (std::size_t f = 0; f < shape.names.size(); ++f) {
    auto const number = static_cast<std::int64_t>(f);
    auto const spec = tessera::spec_of<tessera::dense_table<>>({.id = tessera::table_id{number},
                                                                .dim = s.dim,
                                                                .rows = shape.ids[f],
                                                                .init_bound = static_cast<float>(s.init),
                                                                .seed = tessera::random_seed{s.seed}},
                                                               tessera::adagrad{.learning_rate = static_cast<float>(s.row_rate)});
    spec.add(exec, spec.table, list);
    features.push_back({.name = shape.names[f], .table = number});
  }
  return tessera::local_tables(std::move(list), features);
}

// Gives the next batch of an epoch; false where it ends. Of any reader, so that a model is compiled once for all sets.
struct batches {
  std::function<bool(tessera::host_exec const&, tessera::batch_view&)> next;
};
struct both_parts {
  batches train, test;
};
template <class Reader>
batches batches_of(Reader& reader) {
  return {[&reader](tessera::host_exec const& exec, tessera::batch_view& out) { return reader.next(exec, out); }};
}

template <class Interaction, class Source>
outcome train(tessera::host_exec const& exec, settings const& s, set_shape const& shape, Source source,
              typename Interaction::options const& interaction, both_parts& readers) {
  auto const started = std::chrono::steady_clock::now();
  tessera::system_memory memory;
  tessera::arena workspace(memory);
  auto const step_exec = exec.with_memory(workspace);
  tessera::click_model<Source, tessera::eigen_gemm, Interaction> model(exec, net_of(s, shape), std::move(source), interaction);
  tessera::trainer run(exec, model, tessera::adam{.learning_rate = static_cast<float>(s.rate)});
  for (tessera::batch_view batch; readers.train.next(exec, batch);) run.step(step_exec, batch);
  auto const found = tessera::evaluate(exec, model, readers.test);
  outcome result{found.auc.value(exec), found.clicks.log_loss(), 0};
  if (s.towers == 0 && !s.affinity.empty()) {
    tessera::feature_affinity sums(exec, static_cast<std::int64_t>(shape.names.size()));
    tessera::batch_view batch;
    for (std::int64_t b = 0; b < s.probe_batches && readers.train.next(exec, batch); ++b) sums.add_lookups(exec, model.source(), batch);
    write_affinity(sums, s.affinity);
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return result;
}

template <class Interaction, class Recipe>
outcome train_flat_or_towers(tessera::host_exec const& exec, settings const& s, set_shape const& shape,
                             std::optional<tessera::tower_partition> const& towers, Recipe const& recipe,
                             typename Interaction::options const& interaction, both_parts& readers) {
  auto tables = make_tables(exec, s, shape);
  if (!towers) return train<Interaction>(exec, s, shape, std::move(tables), interaction, readers);
  if (s.pass)
    return train<Interaction>(exec, s, shape, tessera::tower_source(exec, std::move(tables), *towers, tessera::pass_through{}), interaction,
                              readers);
  tessera::tower_source source(exec, std::move(tables), *towers, recipe,
                               {.seed = tessera::random_seed{s.seed}, .policy = tessera::eigen_gemm{}});
  return train<Interaction>(exec, s, shape, std::move(source), interaction, readers);
}

double compression(settings const& s, tessera::tower_partition const& towers) {
  std::int64_t made = 0, features = 0;
  for (auto const& tower : towers.towers) {
    std::vector<std::int64_t> const widths(tower.size(), s.dim);
    auto const outputs = s.pass              ? std::vector<tessera::tower_output>(tower.size(), {s.dim, 0})
                         : s.model == "dlrm" ? tessera::dlrm_tower{s.tower_dim, s.p, s.c}.outputs(widths)
                                             : tessera::dcn_tower{s.tower_dim, s.vectors, s.tower_layers, s.rank}.outputs(widths);
    for (auto const& output : outputs) made += output.width;
    features += static_cast<std::int64_t>(tower.size());
  }
  return static_cast<double>(features * s.dim) / static_cast<double>(made);
}

void run(tessera::host_exec const& exec, settings const& s, set_shape const& shape, both_parts& readers) {
  nlohmann::json line{{"set", s.set}, {"model", s.model}, {"seed", s.seed}, {"towers", s.towers}};
  std::optional<tessera::tower_partition> towers;
  if (s.towers > 0) {
    towers = make_partition(exec, s, shape.names);
    line["partition"] = s.partition;
    line["features"] = towers->towers;
    line["compression"] = compression(s, *towers);
  }
  if (!s.only_partition) {
    auto const result = s.model == "dlrm"
                            ? train_flat_or_towers<tessera::dot_products>(
                                  exec, s, shape, towers, tessera::dlrm_tower{.dim = s.tower_dim, .p = s.p, .c = s.c}, {}, readers)
                            : train_flat_or_towers<tessera::cross_layers>(
                                  exec, s, shape, towers,
                                  tessera::dcn_tower{.dim = s.tower_dim, .vectors = s.vectors, .layers = s.tower_layers, .rank = s.rank},
                                  {.layers = s.layers, .rank = s.rank}, readers);
    line["auc"] = result.auc;
    line["log_loss"] = result.log_loss;
    line["seconds"] = result.seconds;
    if (shape.best_expected) line["best_auc"] = *shape.best_expected;
  }
  std::printf("%s\n", line.dump().c_str());
}

void run_planted(tessera::host_exec const& exec, settings const& s) {
  tessera::planted_clicks const clicks(exec, planted_options(s));
  set_shape shape{.dense_features = clicks.dense_features(), .names = {}, .ids = {}, .best_expected = {}};
  for (std::int64_t f = 0; f < clicks.feature_count(); ++f) {
    shape.names.push_back("f" + std::to_string(f));
    shape.ids.push_back(clicks.options().features[static_cast<std::size_t>(f)].ids);
  }
  constexpr auto test_begin = std::int64_t{1} << 48;
  tessera::planted_samples test;
  clicks.generate(exec, test_begin, 1 << 16, test);
  shape.best_expected = tessera::expected_auc(exec, test.logits());
  tessera::planted_reader train_reader(clicks, {.first = 0, .samples = s.train_rows, .batch_size = s.batch});
  tessera::planted_reader test_reader(clicks, {.first = test_begin, .samples = s.test_rows, .batch_size = 2048});
  both_parts readers{batches_of(train_reader), batches_of(test_reader)};
  run(exec, s, shape, readers);
}

// Integers are numbers and, as their values repeat, categories too.
void run_adult(tessera::host_exec const& exec, settings const& s) {
  auto schema = tessera::criteo_schema();
  for (auto const& name : schema.dense) {
    schema.sparse.push_back(name);
    schema.single.push_back(name);
  }
  tessera::preprocessing const unfitted(schema, {{.steps = {tessera::log_values{}}}}, {{.steps = {tessera::vocabulary{}}}});
  tessera::preprocessing_fit fit(unfitted);
  auto layout = tessera::criteo_layout();
  layout.binary_labels = true;
  tessera::delimited_log const train(exec, {s.data + "/train.tsv"}, schema, layout,
                                     [&](tessera::sample_columns_view samples) { fit.add(exec, samples); });
  tessera::delimited_log const test(exec, {s.data + "/test.tsv"}, schema, layout);
  auto const preprocess = std::move(fit).finish(exec);
  set_shape shape{.dense_features = preprocess.dense().features(), .names = preprocess.sparse().kept(), .ids = {}, .best_expected = {}};
  for (auto const& name : shape.names) shape.ids.push_back(preprocess.sparse().id_count(name).value());
  tessera::sample_reader train_reader(
      exec, train, preprocess, {.batch_size = s.batch, .order = tessera::sample_order::samples, .seed = tessera::random_seed{s.seed}});
  tessera::sample_reader test_reader(exec, test, preprocess, {.batch_size = 2048});
  both_parts readers{batches_of(train_reader), batches_of(test_reader)};
  run(exec, s, shape, readers);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a model with or without towers and prints its test AUC.");
  settings s;
  declare(app, s);
  try {
    app.parse(argc, argv);
    tessera::serial_team team;
    tessera::system_memory memory;
    tessera::host_exec const exec(team, memory);
    s.set == "adult" ? run_adult(exec, s) : run_planted(exec, s);
    return 0;
  } catch (CLI::Error const& e) {
    return app.exit(e);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "tower_quality: %s\n", e.what());
    return 1;
  }
}
