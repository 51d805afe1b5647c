// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

/// How kernels report invalid input: a device cannot throw, and the host does not wait. A kernel writes a record, a fault. `synchronize`
/// throws it as the `tessera::error` that the host's back end would have thrown at once.
namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// A kind of fault: the error's code and sentence, and the names of its values. It is of static storage, in the host's memory.
struct fault_kind {
  static constexpr int most_values = 6;
  errc code;
  char const* sentence;
  char const* names[most_values];
};

/// The fault of the earliest call, and of those the one of the lowest place; in the device's memory.
struct fault_record {
  std::uint64_t call = ~std::uint64_t{0};  // none
  std::int64_t place = 0;
  fault_kind const* kind = nullptr;  // an address of the host's, as those of the next two
  char const* caller = nullptr;
  char const* argument = nullptr;
  std::int64_t values[fault_kind::most_values] = {};
  std::uint32_t locked = 0;
};

/// Reports faults of the kernels of one call.
class fault_reporter {
 public:
  fault_reporter() = default;
  fault_reporter(fault_record* record, fault_kind const* kind, std::uint64_t call) noexcept : record_(record), kind_(kind), call_(call) {}

  /// A reporter for a kind that calls share: the sentence begins with the caller, and the first value is the argument. Both are of static
  /// storage.
  fault_reporter of(char const* caller, char const* argument) const noexcept {
    auto result = *this;
    result.caller_ = caller;
    result.argument_ = argument;
    return result;
  }

  /// A reporter of another kind for the same call; of all kinds the fault of the lowest place is reported.
  fault_reporter as(fault_kind const& kind) const noexcept {
    auto result = *this;
    result.kind_ = &kind;
    return result;
  }

  /// Reports a fault. `place` orders the faults of a call; the kind names the `values`.
  template <class Block, class... Values>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t place, Values... values) const {
    static_assert(sizeof...(values) <= fault_kind::most_values);
    for (bool done = false; !done;) {
      // Who sees an earlier fault stand there has nothing to tell: values that are wrong come by the million.
      auto const call = block.load(&record_->call);
      if (call < call_ || (call == call_ && block.load(&record_->place) <= place)) return;
      if (block.exchange(&record_->locked, 1U) != 0) continue;
      if (call_ < record_->call || (call_ == record_->call && place < record_->place)) {
        block.store(&record_->place, last_place);  // of no call, until both fit
        block.store(&record_->call, call_);
        block.store(&record_->place, place);
        record_->kind = kind_;
        record_->caller = caller_;
        record_->argument = argument_;
        int i = 0;
        ((record_->values[i++] = static_cast<std::int64_t>(values)), ...);
      }
      block.exchange(&record_->locked, 0U);
      done = true;
    }
  }

 private:
  static constexpr std::int64_t last_place = std::numeric_limits<std::int64_t>::max();

  fault_record* record_ = nullptr;
  fault_kind const* kind_ = nullptr;
  char const* caller_ = nullptr;
  char const* argument_ = nullptr;
  std::uint64_t call_ = 0;
};

/// Takes a copy of a record and empties it, while kernels of other streams may write to it. It runs in one block.
struct take_fault {
  static constexpr int threads = 32;
  fault_record* from;
  fault_record* to;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    if (block.thread() > 0) return;
    while (block.exchange(&from->locked, 1U) != 0) {
    }
    *to = *from;
    from->kind = nullptr;
    block.store(&from->call, ~std::uint64_t{0});
    block.exchange(&from->locked, 0U);
  }
};

/// Numbers the calls that may find faults, on any thread.
class fault_calls {
 public:
  fault_reporter reporter(fault_record* record, fault_kind const& kind) noexcept {
    return {record, &kind, next_.fetch_add(1, std::memory_order_relaxed)};
  }

 private:
  std::atomic<std::uint64_t> next_{0};
};

/// The error of a record, if it has a fault.
inline std::optional<error> error_of(fault_record const& record) {
  if (record.kind == nullptr) return std::nullopt;
  std::vector<error_value> values;
  if (record.argument != nullptr) values.emplace_back("argument", record.argument);
  for (int i = 0; i < fault_kind::most_values && record.kind->names[i] != nullptr; ++i)
    values.emplace_back(record.kind->names[i], record.values[i]);
  auto const caller = record.caller == nullptr ? std::string() : std::string(record.caller) + ": ";
  return error(record.kind->code, caller + record.kind->sentence, std::move(values));
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
