// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/communicator.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE void check_messages(exchange_messages const& messages, int size) {
  auto const refuse_rank = [&](int rank) {
    throw error(errc::invalid_argument, "communicator: no such rank", {{"operation", messages.operation}, {"rank", rank}, {"ranks", size}});
  };
  for (auto const& m : messages.send) {
    if (m.to < 0 || m.to >= size) refuse_rank(m.to);
    if (m.bytes.size() < 0)
      throw error(errc::invalid_argument, "communicator: a negative number of bytes",
                  {{"operation", messages.operation}, {"to rank", m.to}, {"bytes", m.bytes.size()}});
  }
  for (auto const& m : messages.receive) {
    if (m.from < 0 || m.from >= size) refuse_rank(m.from);
    if (m.bytes < awaited_message::unknown)
      throw error(errc::invalid_argument, "communicator: a negative number of bytes",
                  {{"operation", messages.operation}, {"from rank", m.from}, {"bytes", m.bytes}});
  }
}

TESSERA_INLINE std::string reason_of(std::exception_ptr const& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (std::exception const& e) {
    return e.what();
  } catch (...) {
    return "an exception of an unknown type";
  }
}

TESSERA_INLINE error timed_out(char const* operation, std::vector<int> const& ranks, std::int64_t timeout_ms) {
  std::string text;
  for (auto const rank : ranks) text += (text.empty() ? "" : " ") + std::to_string(rank);
  return {
      errc::timed_out, "ranks did not come within the time limit", {{"ranks", text}, {"operation", operation}, {"timeout_ms", timeout_ms}}};
}

TESSERA_INLINE error out_of_step(char const* operation, int rank, std::string_view theirs) {
  return {errc::incompatible,
          "ranks are out of step: a message of another operation",
          {{"operation", operation}, {"from rank", rank}, {"its operation", theirs}}};
}

TESSERA_INLINE error wrong_size(char const* operation, int rank, std::int64_t awaited, std::int64_t found) {
  return {errc::incompatible,
          "a message of another size than awaited",
          {{"operation", operation}, {"from rank", rank}, {"bytes", found}, {"awaited", awaited}}};
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
