// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/shard/move_rows.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE bool row_mover::place::has(std::int64_t id) const noexcept {
  if (rows == part_place::all_rows) return true;
  auto const row = hashed_rows > 0 ? hashed_row(id, hashed_rows) : id;
  return row >= first_row && row - first_row < rows;
}

TESSERA_INLINE std::int64_t row_mover::place::message_bytes(std::int64_t n) const noexcept {
  return 8 + detail::whole_words(n) + detail::whole_words(n * columns * weight_bytes) + detail::whole_words(n * has_step * 4) +
         detail::whole_words(n * state_width() * 4);
}

TESSERA_INLINE row_mover::place row_mover::place_of(table_part const& part, part_place const& of_source) {
  auto const layout = part.state_layout();
  return {of_source.table,
          of_source.first_column,
          of_source.columns,
          of_source.first_row,
          of_source.rows,
          of_source.hashed_rows,
          of_source.is_copy,
          !part.slots_are_ids(),
          static_cast<std::int64_t>(part.shape(row_plane::weights).type),
          size_of(part.shape(row_plane::weights).type),
          part.shape(row_plane::step).width,
          layout.per_row,
          layout.per_element,
          detail::operation_number(part.kind().optimizer)};
}

TESSERA_INLINE row_mover::row_mover(host_exec const& exec, any_communicator comm, table_parts const& parts, table_places const& places,
                                    bool has_copies)
    : comm_(std::move(comm)) {
  std::vector<place> own;
  std::exception_ptr failure;
  try {
    for (std::size_t p = 0; p < parts.size(); ++p) {
      own.push_back(place_of(*parts[p], places.parts[p]));
      auto const& one = own.back();
      auto const& table = places.tables[static_cast<std::size_t>(one.table)];
      if (!one.is_whole(table.dim) && (one.per_row > 0 || one.has_step > 0))
        throw error(errc::incompatible, "row_mover: rows with a state or scale of their own are cut by columns",
                    {{"table", one.table}, {"id", table.id.value}, {"columns", one.columns}, {"of", table.dim}});
    }
  } catch (...) {
    failure = std::current_exception();
  }
  any_pending pending;
  for (auto const& of_rank : all_gather<place>(exec, comm_, own, pending, "row_mover: where rows lie", failure))
    places_.emplace_back(of_rank.begin(), of_rank.end());
  std::int64_t const mine = has_copies;
  auto const all = all_gather<std::int64_t>(exec, comm_, {&mine, 1}, pending, "row_mover: who has copies");
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all[r][0] != 0) copy_ranks_.push_back(static_cast<int>(r));
}

TESSERA_INLINE row_mover::picks row_mover::picks_of(place const& part, moving_rows const& rows) {
  picks all;
  for (std::int64_t i = 0; i < rows.ids.size(); ++i)
    if (part.has(rows.ids[i])) all.push_back(i);
  return all;
}

// Of slots of a table, which may be -1: its planes as a message has them, but for the columns.
TESSERA_INLINE void row_mover::pack(host_exec const&, table_part const& from, place const& part, vector_view<std::int64_t const> slots,
                                    std::byte* to) const {
  auto const n = slots.size();
  auto const steps = from.steps().value;
  std::memcpy(to, &steps, sizeof steps);
  to += 8;
  std::vector<std::int64_t> held;
  for (std::int64_t i = 0; i < n; ++i) {
    to[i] = std::byte{slots[i] >= 0};
    if (slots[i] >= 0) held.push_back(slots[i]);
  }
  to += detail::whole_words(n);
  bool const all_held = static_cast<std::int64_t>(held.size()) == n;
  auto const plane = [&](row_plane which, std::int64_t row_bytes) {
    if (row_bytes > 0 && all_held) {
      from.copy_out(which, slots, reinterpret_cast<char*>(to));
    } else if (row_bytes > 0) {
      std::vector<char> rows(held.size() * static_cast<std::size_t>(row_bytes));
      from.copy_out(which, held, rows.data());
      std::int64_t next = 0;
      for (std::int64_t i = 0; i < n; ++i)
        if (slots[i] >= 0) std::memcpy(to + i * row_bytes, rows.data() + next++ * row_bytes, static_cast<std::size_t>(row_bytes));
    }
    to += detail::whole_words(n * row_bytes);
  };
  plane(row_plane::weights, part.columns * part.weight_bytes);
  plane(row_plane::step, part.has_step * 4);
  plane(row_plane::state, part.state_width() * 4);
}

TESSERA_INLINE void row_mover::pack_part(host_exec const& exec, table_part const& from, place const& part, moving_rows const& rows,
                                         std::byte* to) const {
  auto const some = picks_of(part, rows);
  std::vector<std::int64_t> ids, slots(some.size());
  for (auto const i : some) ids.push_back(rows.ids[i] - (part.is_hashed != 0 ? 0 : part.first_row));
  from.find_rows(exec, ids, slots);
  pack(exec, from, part, slots, to);
}

TESSERA_INLINE void row_mover::pack_copy(host_exec const& exec, place const& part, moving_rows const& rows, std::byte* to) const {
  auto const some = picks_of(part, rows);
  auto const n = static_cast<std::int64_t>(some.size());
  std::vector<std::int64_t> slots;
  for (auto const i : some) slots.push_back(rows.slots[i]);
  auto const dim = rows.copy->options().dim;
  if (part.is_whole(dim)) return pack(exec, *rows.copy, part, slots, to);
  auto whole = part;
  whole.first_column = 0;
  whole.columns = dim;
  buffer<std::byte> all(exec, whole.message_bytes(n));
  pack(exec, *rows.copy, whole, slots, all.data());
  std::memcpy(to, all.data(), static_cast<std::size_t>(8 + detail::whole_words(n)));
  auto const* from = all.data() + 8 + detail::whole_words(n);
  to += 8 + detail::whole_words(n);
  auto const bytes = part.columns * part.weight_bytes;
  detail::copy_columns(to, bytes, from + part.first_column * part.weight_bytes, dim * part.weight_bytes, n, bytes);
  from += detail::whole_words(n * dim * part.weight_bytes);
  to += detail::whole_words(n * bytes);
  for (std::int64_t plane = 0; plane < part.per_element; ++plane)
    detail::copy_columns(to + plane * part.columns * 4, part.state_width() * 4, from + (plane * dim + part.first_column) * 4,
                         whole.state_width() * 4, n, part.columns * 4);
}

// Rows that are cut by columns come in several messages: what the others brought stays.
TESSERA_INLINE void row_mover::unpack_into_copy(host_exec const& exec, place const& part, moving_rows const& rows,
                                                std::byte const* from) const {
  auto const some = picks_of(part, rows);
  auto const n = static_cast<std::int64_t>(some.size());
  auto& copy = *rows.copy;
  auto const dim = copy.options().dim;
  std::int64_t steps = 0;
  std::memcpy(&steps, from, sizeof steps);
  copy.set_steps(step_count{steps});
  auto const* const is_here = from + 8;
  std::vector<std::int64_t> slots;
  for (std::int64_t k = 0; k < n; ++k)
    if (is_here[k] != std::byte{}) slots.push_back(rows.slots[some[static_cast<std::size_t>(k)]]);
  auto const held = static_cast<std::int64_t>(slots.size());
  from = is_here + detail::whole_words(n);
  // The columns of a plane, in rows of the whole width.
  auto const plane = [&](row_plane which, std::int64_t planes, std::int64_t columns, std::int64_t first, std::int64_t width,
                         std::int64_t bytes) {
    auto const row_bytes = planes * columns * bytes, whole_bytes = planes * width * bytes;
    if (row_bytes > 0 && held > 0) {
      buffer<char> all(exec, held * whole_bytes);
      if (row_bytes != whole_bytes) copy.copy_out(which, slots, all.data());
      std::int64_t next = 0;
      for (std::int64_t k = 0; k < n; ++k) {
        if (is_here[k] == std::byte{}) continue;
        for (std::int64_t p = 0; p < planes; ++p)
          std::memcpy(all.data() + next * whole_bytes + (p * width + first) * bytes, from + k * row_bytes + p * columns * bytes,
                      static_cast<std::size_t>(columns * bytes));
        ++next;
      }
      copy.copy_in(exec, which, slots, all.data());
    }
    from += detail::whole_words(n * row_bytes);
  };
  plane(row_plane::weights, 1, part.columns, part.first_column, dim, part.weight_bytes);
  plane(row_plane::step, 1, part.has_step, 0, part.has_step, 4);
  if (part.is_whole(dim))
    plane(row_plane::state, 1, part.state_width(), 0, part.state_width(), 4);
  else
    plane(row_plane::state, part.per_element, part.columns, part.first_column, dim, 4);
}

TESSERA_INLINE void row_mover::unpack_into_part(host_exec const& exec, table_part& to, place const& part, moving_rows const& rows,
                                                std::byte const* from) const {
  auto const some = picks_of(part, rows);
  auto const n = static_cast<std::int64_t>(some.size());
  std::int64_t steps = 0;
  std::memcpy(&steps, from, sizeof steps);
  to.set_steps(step_count{steps});
  from += 8 + detail::whole_words(n);
  std::vector<std::int64_t> ids, slots(some.size()), held;
  for (auto const i : some) ids.push_back(rows.ids[i] - (part.is_hashed != 0 ? 0 : part.first_row));
  to.place_rows(exec, ids, slots);
  for (std::int64_t k = 0; k < n; ++k) {
    auto const slot = slots[static_cast<std::size_t>(k)];
    if (slot < 0 && part.is_hashed == 0)
      throw error(errc::incompatible, "row_mover: a table lacks a row that comes back",
                  {{"table", rows.table}, {"id", rows.ids[some[static_cast<std::size_t>(k)]]}});
    if (slot >= 0) held.push_back(slot);
  }
  // A hashed table that is full leaves rows out, as it leaves out new ids.
  auto const plane = [&](row_plane which, std::int64_t row_bytes) {
    if (row_bytes > 0 && static_cast<std::int64_t>(held.size()) == n) {
      to.copy_in(exec, which, slots, reinterpret_cast<char const*>(from));
    } else if (row_bytes > 0) {
      buffer<char> packed(exec, static_cast<std::int64_t>(held.size()) * row_bytes);
      std::int64_t next = 0;
      for (std::int64_t k = 0; k < n; ++k)
        if (slots[static_cast<std::size_t>(k)] >= 0)
          std::memcpy(packed.data() + next++ * row_bytes, from + k * row_bytes, static_cast<std::size_t>(row_bytes));
      to.copy_in(exec, which, held, packed.data());
    }
    from += detail::whole_words(n * row_bytes);
  };
  plane(row_plane::weights, part.columns * part.weight_bytes);
  plane(row_plane::step, part.has_step * 4);
  plane(row_plane::state, part.state_width() * 4);
}

TESSERA_INLINE void row_mover::check_copy(std::int64_t table, table_part const& copy) const {
  auto const as_part = place_of(copy, {.table = table});
  auto const refuse = [&](char const* what) {
    throw error(errc::incompatible, "row_mover: copies of another kind than their table's rows",
                {{"table", table}, {"what differs", what}});
  };
  for (auto const& of_rank : places_)
    for (auto const& part : of_rank) {
      if (part.table != table) continue;
      if (part.first_column + part.columns > copy.options().dim) refuse("dim");
      if (part.weight_type != as_part.weight_type) refuse("elements");
      if (part.per_row != as_part.per_row || part.per_element != as_part.per_element || part.optimizer != as_part.optimizer)
        refuse("optimizer");
    }
}

TESSERA_INLINE void row_mover::check(moving_rows const& rows) {
  if (rows.copy != nullptr && rows.slots.size() != rows.ids.size())
    throw error(errc::shape_mismatch, "row_mover: a slot an id",
                {{"table", rows.table}, {"slots", rows.slots.size()}, {"ids", rows.ids.size()}});
}

TESSERA_INLINE void row_mover::to_copies(host_exec const& exec, table_parts const& parts, vector_view<moving_rows const> rows) {
  // What a rank sends: its parts in their order, of each the rows that move.
  auto const each = [&](std::size_t rank, auto const& f) {
    std::int64_t at = 0;
    for (std::size_t p = 0; p < places_[rank].size(); ++p) {
      auto const& part = places_[rank][p];
      if (part.is_copy != 0) continue;
      for (auto const& some : rows)
        if (some.table == part.table) {
          auto const bytes = part.message_bytes(static_cast<std::int64_t>(picks_of(part, some).size()));
          f(p, part, some, at);
          at += bytes;
        }
    }
    return at;
  };
  auto const own = static_cast<std::size_t>(comm_.rank());
  std::exception_ptr failure;
  buffer<std::byte> message;
  std::vector<sent_message> send;
  std::vector<awaited_message> receive;
  std::vector<std::int64_t> bytes_of(places_.size());
  for (std::size_t r = 0; r < places_.size(); ++r) bytes_of[r] = each(r, [](auto const&...) {});
  try {
    for (auto const& some : rows) check(some);
    message.resize(exec, bytes_of[own]);
    each(own, [&](std::size_t p, place const& part, moving_rows const& some, std::int64_t at) {
      pack_part(exec, *parts[p], part, some, message.data() + at);
    });
  } catch (...) {
    failure = std::current_exception();
  }
  bool const has_copies = std::find(copy_ranks_.begin(), copy_ranks_.end(), comm_.rank()) != copy_ranks_.end();
  if (bytes_of[own] > 0)
    for (auto const to : copy_ranks_) send.push_back({to, std::as_const(message).view()});
  if (has_copies)
    for (std::size_t r = 0; r < places_.size(); ++r)
      if (bytes_of[r] > 0) receive.push_back({static_cast<int>(r), bytes_of[r]});
  any_pending pending;
  comm_.begin(exec, {send, receive, "row_mover: rows to copies"}, pending, failure);
  unpack(exec, [&] {
    auto const arrived = comm_.finish(exec, pending);
    for (std::int64_t i = 0; i < arrived.size(); ++i)
      each(static_cast<std::size_t>(receive[static_cast<std::size_t>(i)].from),
           [&](std::size_t, place const& part, moving_rows const& some, std::int64_t at) {
             unpack_into_copy(exec, part, some, arrived[i].data() + at);
           });
  });
}

TESSERA_INLINE void row_mover::from_copies(host_exec const& exec, table_parts const& parts, vector_view<moving_rows const> rows) {
  if (copy_ranks_.empty()) return;
  auto const each = [&](std::size_t rank, auto const& f) {
    std::int64_t at = 0;
    for (std::size_t p = 0; p < places_[rank].size(); ++p)
      for (auto const& some : rows)
        if (some.table == places_[rank][p].table) {
          auto const& part = places_[rank][p];
          auto const bytes = part.message_bytes(static_cast<std::int64_t>(picks_of(part, some).size()));
          f(p, part, some, at);
          at += bytes;
        }
    return at;
  };
  auto const own = static_cast<std::size_t>(comm_.rank());
  std::exception_ptr failure;
  std::vector<buffer<std::byte>> messages(places_.size());
  std::vector<sent_message> send;
  std::vector<awaited_message> receive;
  if (comm_.rank() == copy_ranks_.front())
    for (std::size_t r = 0; r < places_.size(); ++r) {
      auto const bytes = each(r, [](auto const&...) {});
      if (bytes == 0) continue;
      try {
        for (auto const& some : rows) check(some);
        messages[r].resize(exec, bytes);
        each(r, [&](std::size_t, place const& part, moving_rows const& some, std::int64_t at) {
          pack_copy(exec, part, some, messages[r].data() + at);
        });
      } catch (...) {
        failure = std::current_exception();
      }
      send.push_back({static_cast<int>(r), std::as_const(messages[r]).view()});
    }
  if (auto const bytes = each(own, [](auto const&...) {}); bytes > 0) receive.push_back({copy_ranks_.front(), bytes});
  any_pending pending;
  comm_.begin(exec, {send, receive, "row_mover: copies to rows"}, pending, failure);
  unpack(exec, [&] {
    for (auto const& arrived : comm_.finish(exec, pending))
      each(own, [&](std::size_t p, place const& part, moving_rows const& some, std::int64_t at) {
        unpack_into_part(exec, *parts[p], part, some, arrived.data() + at);
      });
  });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
