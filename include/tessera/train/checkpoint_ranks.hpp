// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

/// What ranks do together about a checkpoint.
namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

using optional_ranks = std::optional<any_communicator>;

// The ranks on which a source's tables lie, if it says so.
template <class Source>
optional_ranks ranks_of_source(Source const& source) {
  if constexpr (requires { source.comm(); })
    return any_communicator(source.comm());
  else
    return {};
}

template <class Trainer>
optional_ranks ranks_of(Trainer const& run) {
  return run.comm() ? run.comm() : ranks_of_source(run.model().source());
}

// Calls f, and waits until all ranks have. Where it throws on one rank, all throw.
template <class F>
void on_all_ranks(host_exec const& exec, optional_ranks& ranks, char const* operation, F const& f) {
  if (!ranks) return f();
  std::exception_ptr failure;
  try {
    f();
  } catch (...) {
    failure = std::current_exception();
  }
  barrier(exec, *ranks, operation, failure);
}

// The texts that f returns on all ranks. Where it throws on one rank, all throw.
template <class F>
std::vector<std::string> texts_of_ranks(host_exec const& exec, any_communicator& comm, char const* operation, F const& f) {
  std::string own;
  std::exception_ptr failure;
  try {
    own = f();
  } catch (...) {
    failure = std::current_exception();
  }
  any_pending pending;
  std::vector<std::string> texts;
  for (auto const& text :
       all_gather<char>(exec, comm, {own.data(), static_cast<std::int64_t>(own.size())}, pending, operation, std::move(failure)))
    texts.emplace_back(text.data(), static_cast<std::size_t>(text.size()));
  return texts;
}

// The numbers of all ranks, ascending, each of them once.
inline std::vector<std::int64_t> numbers_of_ranks(host_exec const& exec, optional_ranks& ranks, std::vector<std::int64_t> numbers) {
  if (ranks) {
    any_pending pending;
    std::vector<std::int64_t> all;
    for (auto const& theirs :
         all_gather<std::int64_t>(exec, *ranks, vector_view<std::int64_t const>(numbers), pending, "checkpoint: what was averaged"))
      all.insert(all.end(), theirs.begin(), theirs.end());
    numbers = std::move(all);
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
