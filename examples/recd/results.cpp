// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "results.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>

#include <tessera/core/error.hpp>

namespace recd {

namespace {

using namespace tessera;

void expect_alike(training_result const& a, training_result const& b) {
  if (a.losses.size() != b.losses.size())
    throw error(errc::incompatible, "ways with other numbers of steps",
                {{"way", a.name}, {"steps", a.losses.size()}, {"other way", b.name}, {"its steps", b.losses.size()}});
  for (std::size_t step = 0; step < std::min(a.losses.size(), compared_steps); ++step)
    if (auto const one = a.losses[step], other = b.losses[step]; !(std::abs(one - other) <= loss_tolerance * std::abs(one)))
      throw error(errc::incompatible, "losses differ on the same samples",
                  {{"way", a.name}, {"other way", b.name}, {"step", step}, {"loss", one}, {"other loss", other}});
}

// What the stages of a way that shares nothing would take for other amounts. A lookup's time goes with the vectors that it moves: one an id, and
// of bags one a sample; an update's, too, and with the rows that it reads and writes; a transformer's with its multiplications.
double seconds_of_stages(training_result const& way, amounts const& now) {
  auto const t = way.stages();
  auto const& then = way.work;
  auto const scaled = [](double seconds, double amount, double before) { return before > 0 ? seconds * amount / before : 0; };
  auto const of_sequences = [](amounts const& n) { return n.sequence_ids + 2 * n.sequence_rows; };
  auto const of_bags = [](amounts const& n) { return n.bag_ids + n.bag_vectors; };
  auto const read = [&](amounts const& n) { return n.sequence_ids + of_bags(n); };
  auto const updated = [&](amounts const& n) { return of_sequences(n) + of_bags(n) + 2 * n.bag_rows; };
  return scaled(t.lookup, read(now), read(then)) + scaled(t.pooling, now.products, then.products) +
         scaled(t.update, updated(now), updated(then));
}

}  // namespace

training_result const& trainer_result::add(training_result way) {
  for (auto& kept : ways) {
    if (kept.name != way.name) continue;
    kept.samples += way.samples;
    kept.step_seconds.insert(kept.step_seconds.end(), way.step_seconds.begin(), way.step_seconds.end());
    kept.work += way.work;
    kept.expanded += way.expanded;
    kept.times.lookup += way.times.lookup;
    kept.times.pooling += way.times.pooling;
    kept.times.dense += way.times.dense;
    kept.times.update += way.times.update;
    return kept;
  }
  return ways.emplace_back(std::move(way));
}

training_result const* trainer_result::find(std::string const& name) const {
  auto const found = std::find_if(ways.begin(), ways.end(), [&](auto const& way) { return way.name == name; });
  return found == ways.end() ? nullptr : &*found;
}

training_result const& trainer_result::of(std::string const& name) const {
  if (auto const* const way = find(name)) return *way;
  throw error(errc::invalid_argument, "no such way to train", {{"set", set}, {"way", name}});
}

void trainer_result::check_losses(std::vector<std::string> const& names) const {
  for (auto const& name : names) expect_alike(of(names.front()), of(name));
  std::printf("  losses of %zu ways agree within %g at the first %zu steps on the same batches\n", names.size(), loss_tolerance,
              std::min(of(names.front()).losses.size(), compared_steps));
}

double training_result::seconds() const {
  auto sorted = step_seconds;
  std::sort(sorted.begin(), sorted.end());
  auto const count = sorted.size();
  return static_cast<double>(count) * (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

double training_result::slowest() const { return static_cast<double>(batch) / *std::max_element(step_seconds.begin(), step_seconds.end()); }
double training_result::fastest() const { return static_cast<double>(batch) / *std::min_element(step_seconds.begin(), step_seconds.end()); }

model_times training_result::stages() const {
  auto const scale = seconds() / std::accumulate(step_seconds.begin(), step_seconds.end(), 0.0);
  return {times.lookup * scale, times.pooling * scale, times.dense * scale, times.update * scale};
}

double training_result::rest() const {
  auto const t = stages();
  return seconds() - t.lookup - t.pooling - t.dense - t.update;
}

sharing trainer_result::expected(std::string const& name) const {
  auto const whole = seconds_of_stages(baseline(), baseline().work);
  return {whole / baseline().seconds(), whole / seconds_of_stages(baseline(), of(name).work)};
}

double trainer_result::ratio(std::string const& name) const {
  auto const& way = of(name);
  if (way.samples == baseline().samples) return way.rate() / baseline().rate();
  auto const others = baseline().seconds() - seconds_of_stages(baseline(), baseline().work);
  auto const samples = static_cast<double>(way.samples) / static_cast<double>(baseline().samples);
  return (seconds_of_stages(baseline(), way.expanded) + others * samples) / way.seconds();
}

amounts& amounts::operator+=(amounts const& other) {
  sequence_ids += other.sequence_ids;
  products += other.products;
  bag_ids += other.bag_ids;
  bag_vectors += other.bag_vectors;
  sequence_rows += other.sequence_rows;
  bag_rows += other.bag_rows;
  return *this;
}

}  // namespace recd
