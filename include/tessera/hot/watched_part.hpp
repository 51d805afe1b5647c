// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/table_part.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// A part that tells when it is written to: its rows, or its step count.
class watched_part final : public table_part {
 public:
  watched_part(std::unique_ptr<table_part> part, std::shared_ptr<bool> is_written)
      : part_(std::move(part)), is_written_(std::move(is_written)) {}

  table_options const& options() const noexcept override { return part_->options(); }
  table_kind kind() const noexcept override { return part_->kind(); }
  bool slots_are_ids() const noexcept override { return part_->slots_are_ids(); }
  std::int64_t rows() const override { return part_->rows(); }
  plane_shape shape(row_plane plane) const noexcept override { return part_->shape(plane); }
  row_state_layout state_layout() const noexcept override { return part_->state_layout(); }
  step_count steps() const noexcept override { return part_->steps(); }
  void set_steps(step_count steps) noexcept override {
    *is_written_ = true;
    part_->set_steps(steps);
  }
  void list_rows(vector_view<std::int64_t> slots, vector_view<std::int64_t> ids) const override { part_->list_rows(slots, ids); }
  void find_rows(host_exec const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots) const override {
    part_->find_rows(exec, ids, slots);
  }
  void place_rows(host_exec const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots) override {
    *is_written_ = true;
    part_->place_rows(exec, ids, slots);
  }
  void copy_out(row_plane plane, vector_view<std::int64_t const> slots, char* to) const override { part_->copy_out(plane, slots, to); }
  void copy_in(host_exec const& exec, row_plane plane, vector_view<std::int64_t const> slots, char const* from) override {
    *is_written_ = true;
    part_->copy_in(exec, plane, slots, from);
  }
  std::optional<table_clock> clock() const noexcept override { return part_->clock(); }
  void set_clock(table_clock clock) override { part_->set_clock(clock); }
  std::int64_t sighting_words() const noexcept override { return part_->sighting_words(); }
  std::int64_t sightings() const noexcept override { return part_->sightings(); }
  void copy_sightings(matrix_view<std::int64_t> to) const override { part_->copy_sightings(to); }
  void restore_sightings(host_exec const& exec, matrix_view<std::int64_t const> from) override { part_->restore_sightings(exec, from); }

 private:
  std::unique_ptr<table_part> part_;
  std::shared_ptr<bool> is_written_;
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
