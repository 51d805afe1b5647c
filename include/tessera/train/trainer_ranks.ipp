// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/train/trainer_ranks.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE double trainer_ranks::sum_of_all(host_exec const& exec, std::vector<double> const& own, char const* what,
                                                std::exception_ptr const& failure) {
  own_ = own;
  all_.clear();
  for (auto const& one : gather(exec, what, failure)) all_.insert(all_.end(), one.begin(), one.end());
  return sum(all_);
}

TESSERA_INLINE void trainer_ranks::begin_gradients(vector_view<float> gradient, std::vector<parameter_group> const& groups,
                                                   std::int64_t in_tree, whole_batch const& whole) {
  gradient_ = gradient;
  in_tree_ = in_tree;
  told_ = 0;
  next_ = 0;
  if (!is_learned_) order_.clear();
  tree_.start(whole.first_chunk);
  if (!comm_) return;
  if (buckets_.empty()) make_buckets(groups);
  sums_.resize(std::max(sums_.size(), buckets_.size() + 1));
}

TESSERA_INLINE void trainer_ranks::finished(host_exec const& exec, vector_view<float> part) {
  if (!is_learned_) order_.push_back({part.data() - gradient_.data(), part.size()});
  ++told_;
  begin_buckets(exec, told_);
}

TESSERA_INLINE void trainer_ranks::begin_sums(host_exec const& exec) {
  if (!comm_) return;
  begin_buckets(exec, never);
  if (in_tree_ > 0) rank_sums<any_communicator>(levels_).begin_tree(exec, tree_, gradient_.slice(0, in_tree_), sums_[buckets_.size()]);
}

TESSERA_INLINE void trainer_ranks::finish_sums(host_exec const& exec, std::vector<parameter_group> const& groups) {
  if (!comm_) {
    if (in_tree_ > 0) tree_.join(exec, gradient_.slice(0, in_tree_));
    return;
  }
  rank_sums<any_communicator> ranks(levels_);
  for (std::size_t b = 0; b < buckets_.size(); ++b) ranks.finish_all(exec, sums_[b]);
  if (in_tree_ > 0) ranks.finish_tree(exec, sums_[buckets_.size()]);
  if (is_learned_ || order_.empty()) return;
  is_learned_ = true;  // all ranks have come so far
  make_buckets(groups);
}

TESSERA_INLINE void trainer_ranks::make_buckets(std::vector<parameter_group> const& groups) {
  buckets_.clear();
  std::vector<std::int64_t> told(groups.size(), 0);  // values of each group
  auto const group_of = [&](std::int64_t place) {
    std::size_t g = 0;
    for (std::int64_t end = groups[0].values.size(); end <= place; end += groups[g].values.size()) ++g;
    return g;
  };
  bool is_open = false;
  for (std::size_t i = 0; i < order_.size(); ++i) {
    auto const [first, size] = order_[i];
    auto const g = group_of(first);
    told[g] += size;
    if (groups[g].replication != replication::everywhere) continue;
    if (!is_open || !buckets_.back().add(first, size)) buckets_.push_back({first, size});
    buckets_.back().told = static_cast<std::int64_t>(i) + 1;
    is_open = buckets_.back().size * std::int64_t{sizeof(float)} < bucket_bytes_;
  }
  for (std::size_t g = 0; g < groups.size(); ++g)
    if (told[g] != 0 && told[g] != groups[g].values.size())
      throw error(errc::invalid_argument, "trainer: a backward tells all parts of a group or none",
                  {{"group", groups[g].name}, {"told", told[g]}, {"parameters", groups[g].values.size()}});
  is_open = false;
  std::int64_t first = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    auto const size = groups[g].values.size();
    if (groups[g].replication == replication::everywhere && size > 0 && first >= in_tree_ && told[g] == 0) {
      if (!is_open || !buckets_.back().add(first, size)) buckets_.push_back({first, size});
      is_open = true;
    }
    first += size;
  }
}

TESSERA_INLINE void trainer_ranks::begin_buckets(host_exec const& exec, std::int64_t told) {
  rank_sums<any_communicator> ranks(levels_);
  for (; next_ < buckets_.size() && buckets_[next_].told <= told; ++next_)
    ranks.begin_all(exec, gradient_.slice(buckets_[next_].first, buckets_[next_].size), sums_[next_]);
}

TESSERA_INLINE void trainer_ranks::check_options(trainer_options const& options) {
  if (!(options.clip_norm >= 0)) throw error(errc::invalid_argument, "trainer: clip_norm", {{"clip_norm", options.clip_norm}});
  if (options.chunk_samples < 0) throw error(errc::invalid_argument, "trainer: chunk_samples", {{"chunk_samples", options.chunk_samples}});
  if (options.bucket_bytes < 0) throw error(errc::invalid_argument, "trainer: bucket_bytes", {{"bucket_bytes", options.bucket_bytes}});
  if (options.levels && !options.comm) throw error(errc::invalid_argument, "trainer: levels without a comm");
}

TESSERA_INLINE std::string trainer_ranks::text_of(trainer_options const& options) {
  auto text = "clip_norm " + std::to_string(options.clip_norm) + "\nchunk_samples " + std::to_string(options.chunk_samples) +
              "\nbucket_bytes " + std::to_string(options.bucket_bytes) + "\n";
  for (std::int64_t l = 0; options.levels && l < options.levels->levels(); ++l) {
    text += "level " + options.levels->name(l) + ": domain of each rank";
    for (std::int64_t r = 0; r < options.levels->ranks(); ++r) text += " " + std::to_string(options.levels->domain_of(l, r));
    text += "\n";
  }
  return text;
}

TESSERA_INLINE void trainer_ranks::check_class(std::vector<vector_view<double const>> const& all) {
  constexpr char const* names[] = {"mixed", "hot", "cold"};
  auto const class_of = [&](std::size_t r) { return names[static_cast<std::size_t>(all[r][1])]; };
  for (std::size_t r = 1; r < all.size(); ++r)
    if (all[r][1] != all[0][1])
      throw error(errc::invalid_argument, "trainer: the ranks' parts of a batch are of different classes",
                  {{"rank", static_cast<std::int64_t>(r)}, {"class", class_of(r)}, {"class on rank 0", class_of(0)}});
}

TESSERA_INLINE std::vector<vector_view<double const>> trainer_ranks::gather(host_exec const& exec, char const* what,
                                                                            std::exception_ptr const& failure) {
  vector_view<double const> const own(own_);
  if (comm_) return all_gather<double>(exec, *comm_, own, pending_, what, failure);
  if (failure) std::rethrow_exception(failure);
  return {own};
}

TESSERA_INLINE double trainer_ranks::sum(std::vector<double> const& values) const {
  if (by_chunks()) return sum_by_tree(values);
  double total = 0;
  for (auto const value : values) total += value;
  return total;
}

TESSERA_INLINE void trainer_ranks::check_same_model(host_exec const& exec, std::vector<parameter_group> const& groups) {
  auto& comm = *comm_;
  std::string text;
  for (auto const& group : groups)
    if (group.replication != replication::tower)
      text += std::string(group.name) + ", " + std::to_string(group.values.size()) + " parameters, " +
              (group.replication == replication::everywhere ? "of all ranks\n" : "of one rank\n");
  check_same_text(exec, comm, text, "trainer: the same groups of parameters");
  std::exception_ptr failure;
  for (auto const& group : groups) {
    if (group.replication != replication::everywhere || group.values.empty()) continue;
    std::vector<float> first(group.values.begin(), group.values.end());
    broadcast<float>(exec, comm, first, 0);
    if (std::memcmp(first.data(), group.values.data(), first.size() * sizeof(float)) != 0)
      failure = std::make_exception_ptr(
          error(errc::incompatible, "trainer: dense parameters are not those of rank 0", {{"rank", comm.rank()}, {"group", group.name}}));
  }
  barrier(exec, comm, "trainer: the same parameters", failure);
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
