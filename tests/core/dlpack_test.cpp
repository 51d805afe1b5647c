// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/core/dlpack.hpp>

#include <doctest/doctest.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "emulated_device.hpp"
#include "hosts.hpp"
#include "temporary_folder.hpp"

namespace {

namespace dlpack = tessera::dlpack;
using tessera::errc;
using tessera::export_dlpack;
using tessera::from_dlpack;
using tessera::matrix_view;
using tessera::to_dlpack;
using tessera::vector_view;
using tessera_tests::error_of;
using tessera_tests::serial_host;

using floats = vector_view<float>;
using const_floats = vector_view<float const>;
using float_matrix = matrix_view<float>;
using const_float_matrix = matrix_view<float const>;

/// Six floats as some other framework describes them.
struct foreign {
  alignas(8) float data[6] = {0, 1, 2, 3, 4, 5};
  std::int64_t shape[2], strides[2];
  dlpack::tensor tensor{data, {1, 0}, 2, {2, 32, 1}, shape, strides, 0};

  foreign(std::int64_t rows, std::int64_t columns, std::int64_t row_stride, std::int64_t column_stride = 1)
      : shape{rows, columns}, strides{row_stride, column_stride} {}
  foreign(std::int64_t size, std::int64_t stride) : shape{size, -1}, strides{stride, -1} { tensor.ndim = 1; }
  foreign(foreign const&) = delete;
};

template <class View>
tessera::error refusal(dlpack::tensor const& tensor) {
  return error_of([&] { from_dlpack<View>(tensor); });
}

/// A resource that counts who holds it.
struct counted {
  int* released;
  explicit counted(int& released) : released(&released) {}
  counted(counted&& other) noexcept : released(std::exchange(other.released, nullptr)) {}
  ~counted() {
    if (released != nullptr) ++*released;
  }
};

}  // namespace

TEST_CASE("the numbers of DLPack's header") {
  auto const is = [](dlpack::data_type type, int code, int bits) { return type.code == code && type.bits == bits && type.lanes == 1; };
  CHECK(is(dlpack::type_of<std::int8_t>(), 0, 8));
  CHECK(is(dlpack::type_of<std::int32_t>(), 0, 32));
  CHECK(is(dlpack::type_of<std::int64_t>(), 0, 64));
  CHECK(is(dlpack::type_of<std::uint8_t>(), 1, 8));
  CHECK(is(dlpack::type_of<std::uint64_t>(), 1, 64));
  CHECK(is(dlpack::type_of<tessera::float16>(), 2, 16));
  CHECK(is(dlpack::type_of<float>(), 2, 32));
  CHECK(is(dlpack::type_of<double>(), 2, 64));
  CHECK(is(dlpack::type_of<tessera::bfloat16>(), 4, 16));
  CHECK(is(dlpack::type_of<bool>(), 6, 8));
  CHECK(is(dlpack::type_of<tessera::float8_e4m3>(), 10, 8));
  CHECK(is(dlpack::type_of<tessera::float8_e5m2>(), 12, 8));
  CHECK(dlpack::read_only_flag == 1);
  CHECK(dlpack::device_of(dlpack::device_type::cuda, 5) == dlpack::device{2, 5});
  CHECK(dlpack::device_of(dlpack::device_type::cuda_managed) == dlpack::device{13, 0});
  CHECK(dlpack::current_version.major == 1);
}

TEST_CASE("from_dlpack: vectors") {
  SUBCASE("the same memory, to write and to read") {
    foreign f(6, 1);
    auto const view = from_dlpack<floats>(f.tensor);
    CHECK(view.data() == f.data);
    CHECK(view.size() == 6);
    view[2] = 7;
    CHECK(f.data[2] == 7);
    CHECK(from_dlpack<const_floats>(f.tensor).data() == f.data);
  }
  SUBCASE("a byte offset") {
    foreign f(4, 1);
    f.tensor.byte_offset = 8;
    CHECK(from_dlpack<floats>(f.tensor).data() == f.data + 2);
    CHECK(from_dlpack<floats>(f.tensor)[3] == 5);
  }
  SUBCASE("without strides it is dense; the stride of one element or none says nothing") {
    foreign f(6, 1);
    f.tensor.strides = nullptr;
    CHECK(from_dlpack<floats>(f.tensor).size() == 6);
    CHECK(from_dlpack<floats>(foreign(1, -3).tensor).size() == 1);
    CHECK(from_dlpack<floats>(foreign(0, 17).tensor).empty());
  }
  SUBCASE("no elements, no memory") {
    foreign f(0, 1);
    f.tensor.data = nullptr;
    f.tensor.byte_offset = 2;
    auto const view = from_dlpack<floats>(f.tensor);
    CHECK(view.data() == nullptr);
    CHECK(view.empty());
  }
  SUBCASE("pinned memory is the host's") {
    for (std::int32_t const type : {3, 11}) {
      foreign f(6, 1);
      f.tensor.device = {type, 1};
      CHECK(from_dlpack<floats>(f.tensor).size() == 6);
    }
  }
}

TEST_CASE("from_dlpack: matrices") {
  SUBCASE("dense") {
    foreign f(2, 3, 3);
    auto const view = from_dlpack<float_matrix>(f.tensor);
    CHECK(view.data() == f.data);
    CHECK(view.rows() == 2);
    CHECK(view.columns() == 3);
    CHECK(view.stride() == 3);
    f.tensor.strides = nullptr;
    CHECK(from_dlpack<const_float_matrix>(f.tensor)(1, 2) == 5);
  }
  SUBCASE("columns of a wider matrix") {
    foreign f(2, 2, 3);
    f.tensor.byte_offset = 4;
    auto const view = from_dlpack<float_matrix>(f.tensor);
    CHECK(view.stride() == 3);
    CHECK(view(0, 0) == 1);
    CHECK(view(1, 1) == 5);
  }
  SUBCASE("a column of its own") {
    foreign f(3, 1, 2, 99);
    auto const view = from_dlpack<float_matrix>(f.tensor);
    CHECK(view.stride() == 2);
    CHECK(view(2, 0) == 4);
  }
  SUBCASE("one row, whatever is said of the next") {
    for (std::int64_t const stride : {0, 1, -5, 100}) {
      auto const view = from_dlpack<float_matrix>(foreign(1, 6, stride).tensor);
      CHECK(view.columns() == 6);
      CHECK(view.stride() == 6);
    }
  }
  SUBCASE("without rows or without columns") {
    for (auto const& [rows, columns] : {std::pair{0, 3}, std::pair{3, 0}, std::pair{0, 0}}) {
      foreign f(rows, columns, 0, 0);
      f.tensor.data = nullptr;
      auto const view = from_dlpack<float_matrix>(f.tensor);
      CHECK(view.data() == nullptr);
      CHECK(view.rows() == rows);
      CHECK(view.columns() == columns);
    }
  }
}

TEST_CASE("from_dlpack names what it refuses") {
  foreign vector(6, 1), matrix(2, 3, 3);
  SUBCASE("another device") {
    for (std::int32_t const type : {0, 2, 10, 13}) {
      vector.tensor.device = {type, 4};
      auto const e = refusal<floats>(vector.tensor);
      CHECK(e.code() == errc::invalid_argument);
      CHECK(e.value("device_type") == std::to_string(type));
      CHECK(e.value("device_id") == "4");
    }
  }
  SUBCASE("another element type") {
    for (dlpack::data_type const type : {dlpack::data_type{2, 64, 1}, {2, 32, 4}, {0, 32, 1}, {4, 32, 1}}) {
      vector.tensor.dtype = type;
      auto const e = refusal<floats>(vector.tensor);
      CHECK(e.code() == errc::invalid_argument);
      CHECK(e.value("code") == std::to_string(type.code));
      CHECK(e.value("bits") == std::to_string(type.bits));
      CHECK(e.value("lanes") == std::to_string(type.lanes));
      CHECK(e.value("expected bits") == "32");
    }
    vector.tensor.dtype = {2, 16, 1};
    CHECK(refusal<vector_view<tessera::bfloat16>>(vector.tensor).value("expected code") == "4");
    CHECK(from_dlpack<vector_view<tessera::float16>>(vector.tensor).size() == 6);
    vector.tensor.dtype = {12, 8, 1};
    CHECK(refusal<vector_view<tessera::float8_e4m3>>(vector.tensor).value("expected code") == "10");
    CHECK(refusal<vector_view<std::uint8_t>>(vector.tensor).value("code") == "12");
    CHECK(from_dlpack<vector_view<tessera::float8_e5m2>>(vector.tensor).size() == 6);
  }
  SUBCASE("another number of dimensions") {
    auto const e = refusal<float_matrix>(vector.tensor);
    CHECK(e.code() == errc::shape_mismatch);
    CHECK(e.value("ndim") == "1");
    CHECK(e.value("expected") == "2");
    CHECK(refusal<floats>(matrix.tensor).value("ndim") == "2");
    vector.tensor.ndim = 0;
    CHECK(refusal<floats>(vector.tensor).value("ndim") == "0");
  }
  SUBCASE("a bad shape") {
    matrix.shape[1] = -2;
    CHECK(refusal<float_matrix>(matrix.tensor).value("dimension") == "1");
    CHECK(refusal<float_matrix>(matrix.tensor).value("shape") == "-2");
    matrix.tensor.shape = nullptr;
    CHECK(refusal<float_matrix>(matrix.tensor).sentence() == "from_dlpack: shape is null");
  }
  SUBCASE("no memory") {
    vector.tensor.data = nullptr;
    auto const e = refusal<floats>(vector.tensor);
    CHECK(e.sentence() == "from_dlpack: data is null");
    CHECK(e.value("shape") == "6");
  }
  SUBCASE("memory between elements") {
    vector.shape[0] = 4;
    vector.tensor.byte_offset = 6;
    auto const e = refusal<floats>(vector.tensor);
    CHECK(e.code() == errc::invalid_argument);
    CHECK(e.value("byte_offset") == "6");
    CHECK(e.value("past it") == "2");
  }
  SUBCASE("strides that a view cannot have") {
    vector.shape[0] = 3;
    vector.strides[0] = 2;
    CHECK(refusal<floats>(vector.tensor).value("stride") == "2");
    for (std::int64_t const stride : {2, 0, -3}) {
      matrix.strides[0] = stride;
      auto const e = refusal<float_matrix>(matrix.tensor);
      CHECK(e.code() == errc::invalid_argument);
      CHECK(e.value("dimension") == "0");
      CHECK(e.value("stride") == std::to_string(stride));
      CHECK(e.value("columns") == "3");
    }
    foreign transposed(3, 2, 1, 3);
    CHECK(refusal<float_matrix>(transposed.tensor).value("dimension") == "1");
    CHECK(refusal<float_matrix>(transposed.tensor).value("stride") == "3");
  }
  SUBCASE("a newer layout, and writing what is read-only") {
    dlpack::managed_tensor_versioned managed{{1, 99}, nullptr, nullptr, 0, vector.tensor};
    CHECK(from_dlpack<floats>(managed).data() == vector.data);
    managed.flags = dlpack::read_only_flag | 2;
    CHECK(from_dlpack<const_floats>(managed).data() == vector.data);
    auto const read_only = error_of([&] { from_dlpack<floats>(managed); });
    CHECK(read_only.code() == errc::invalid_argument);
    CHECK(read_only.value("flags") == "3");
    managed.version.major = 2;
    auto const newer = error_of([&] { from_dlpack<const_floats>(managed); });
    CHECK(newer.code() == errc::incompatible);
    CHECK(newer.value("major") == "2");
  }
}

TEST_CASE_TEMPLATE("to_dlpack and back is the same view", T, float, double, tessera::float16, tessera::bfloat16, tessera::float8_e4m3,
                   tessera::float8_e5m2, std::int32_t, std::int64_t, std::uint8_t, std::int8_t, bool) {
  auto const values = std::make_unique<T[]>(24);
  SUBCASE("vector") {
    auto out = to_dlpack(vector_view<T>(values.get(), 24));
    CHECK(out.get()->ndim == 1);
    CHECK(out.get()->shape[0] == 24);
    CHECK(out.get()->strides[0] == 1);
    CHECK(out.get()->device.device_type == 1);
    CHECK(out.get()->device.device_id == 0);
    CHECK(out.get()->byte_offset == 0);
    auto const back = from_dlpack<vector_view<T>>(*out.get());
    CHECK(back.data() == values.get());
    CHECK(back.size() == 24);
  }
  SUBCASE("matrix with gaps") {
    auto out = to_dlpack(matrix_view<T const>(values.get() + 1, 3, 4, 7));
    CHECK(out.get()->ndim == 2);
    CHECK(out.get()->shape[1] == 4);
    CHECK(out.get()->strides[0] == 7);
    CHECK(out.get()->strides[1] == 1);
    auto const back = from_dlpack<matrix_view<T const>>(*out.get());
    CHECK(back.data() == values.get() + 1);
    CHECK(back.rows() == 3);
    CHECK(back.columns() == 4);
    CHECK(back.stride() == 7);
  }
  SUBCASE("nothing") {
    CHECK(to_dlpack(vector_view<T>(values.get(), 0)).get()->data == nullptr);
    auto out = to_dlpack(matrix_view<T>(values.get(), 5, 0, 3));
    CHECK(out.get()->data == nullptr);
    CHECK(from_dlpack<matrix_view<T>>(*out.get()).rows() == 5);
    CHECK(from_dlpack<vector_view<T>>(*to_dlpack(vector_view<T>()).get()).empty());
  }
}
static_assert(!std::copy_constructible<to_dlpack>, "its tensor points into it");

TEST_CASE("from_dlpack: memory of a device is had only by who asks for that device") {
  foreign vector(6, 1), matrix(2, 2, 3);
  constexpr auto second_gpu = dlpack::device_of(dlpack::device_type::cuda, 1);
  vector.tensor.device = matrix.tensor.device = {2, 1};
  CHECK(from_dlpack<floats>(vector.tensor, second_gpu).data() == vector.data);
  CHECK(from_dlpack<const_float_matrix>(matrix.tensor, second_gpu).stride() == 3);
  CHECK(refusal<floats>(vector.tensor).sentence() == "from_dlpack: the tensor is not in the host's memory");
  for (dlpack::device const other : {dlpack::device{2, 0}, {13, 1}, {1, 0}, {3, 1}, {10, 1}}) {
    auto const e = error_of([&] { from_dlpack<floats>(vector.tensor, other); });
    CHECK(e.code() == errc::invalid_argument);
    CHECK(e.value("device_type") == "2");
    CHECK(e.value("device_id") == "1");
    CHECK(e.value("expected device_type") == std::to_string(other.device_type));
    CHECK(e.value("expected device_id") == std::to_string(other.device_id));
  }
  // What the host can read goes through the same door, when asked for as what it is.
  vector.tensor.device = {13, 2};
  CHECK(from_dlpack<floats>(vector.tensor, dlpack::device_of(dlpack::device_type::cuda_managed, 2)).size() == 6);
  vector.tensor.device = {1, 0};
  CHECK(from_dlpack<floats>(vector.tensor, dlpack::device_of(dlpack::device_type::cpu)).size() == 6);
  CHECK_THROWS_AS(from_dlpack<floats>(vector.tensor, second_gpu), tessera::error);
  // The rest is checked as ever.
  matrix.tensor.dtype = {2, 64, 1};
  CHECK(error_of([&] { from_dlpack<float_matrix>(matrix.tensor, second_gpu); }).value("bits") == "64");
  dlpack::managed_tensor_versioned managed{{1, 0}, nullptr, nullptr, dlpack::read_only_flag, vector.tensor};
  managed.dl_tensor.device = second_gpu;
  CHECK(from_dlpack<const_floats>(managed, second_gpu).data() == vector.data);
  CHECK_THROWS_AS(from_dlpack<floats>(managed, second_gpu), tessera::error);
  CHECK_THROWS_AS(from_dlpack<const_floats>(managed), tessera::error);
  managed.version.major = 2;
  CHECK(error_of([&] { from_dlpack<const_floats>(managed, second_gpu); }).code() == errc::incompatible);
}

TEST_CASE("to_dlpack and export_dlpack name the device of the memory, which nobody reads") {
  tessera_tests::emulated_device device;
  using tessera_tests::emulated_exec;
  constexpr auto gpu = dlpack::device_of(dlpack::device_type::cuda, 3);
  tessera::buffer<float, emulated_exec> values(device.exec(), 6);
  auto const* const data = values.data();
  auto out = to_dlpack(values.view(), gpu);
  CHECK(out.get()->device == gpu);
  CHECK(from_dlpack<floats>(*out.get(), gpu).data() == data);
  auto wide = to_dlpack(float_matrix(values.data(), 2, 2, 3), gpu);
  CHECK(wide.get()->device == gpu);
  CHECK(wide.get()->strides[0] == 3);
  SUBCASE("as a vector") {
    auto exported = export_dlpack(std::move(values), gpu);
    CHECK(exported->dl_tensor.device == gpu);
    CHECK(from_dlpack<floats>(*exported, gpu).data() == data);
    CHECK(from_dlpack<floats>(*exported, gpu).size() == 6);
    CHECK_THROWS_AS(from_dlpack<floats>(*exported), tessera::error);
    CHECK(device.live_pieces() == 1);
    exported.reset();
    CHECK(device.live_pieces() == 0);
  }
  SUBCASE("as a matrix to read, and as the older kind") {
    auto const view = const_float_matrix(values.data(), 2, 3);
    auto owner = std::make_shared<tessera::buffer<float, emulated_exec>>(std::move(values));
    CHECK(export_dlpack(owner, view, gpu)->flags == dlpack::read_only_flag);
    CHECK(export_dlpack<dlpack::managed_tensor>(owner, owner->view(), gpu)->dl_tensor.device == gpu);
    CHECK(device.live_pieces() == 1);
  }
}
// A device's buffer cannot leave without the name of the device.
template <class Buffer>
concept leaves_unnamed = requires(Buffer&& elements) {
  export_dlpack(std::move(elements));
};
static_assert(leaves_unnamed<tessera::buffer<float>> && !leaves_unnamed<tessera::buffer<float, tessera_tests::emulated_exec>>);

TEST_CASE("export_dlpack: a buffer leaves, and its memory comes back with the deleter") {
  serial_host host;
  tessera::buffer<float> values(host.exec(), 6);
  for (std::int64_t i = 0; i < 6; ++i) values[i] = static_cast<float>(i);
  auto const* const data = values.data();

  SUBCASE("as a vector, handed over raw as a capsule holds it") {
    dlpack::managed_tensor_versioned* const raw = export_dlpack(std::move(values)).release();
    CHECK(raw->version.major == 1);
    CHECK(raw->flags == 0);
    CHECK(host.memory().live_pieces() == 1);
    {
      dlpack::owned<> const received(raw);
      auto const view = from_dlpack<floats>(*received);
      CHECK(view.data() == data);
      CHECK(view.size() == 6);
      CHECK(view[5] == 5);
      view[5] = 8;
    }
    CHECK(host.memory().live_pieces() == 0);
  }
  SUBCASE("as a matrix to read") {
    auto const out = export_dlpack(std::move(values), const_float_matrix(values.data(), 2, 2, 3));
    CHECK(out->flags == dlpack::read_only_flag);
    auto const view = from_dlpack<const_float_matrix>(*out);
    CHECK(view.data() == data);
    CHECK(view(1, 1) == 4);
    CHECK_THROWS_AS(from_dlpack<float_matrix>(*out), tessera::error);
  }
  SUBCASE("as the older kind") {
    auto const out = export_dlpack<dlpack::managed_tensor>(std::move(values));
    static_assert(std::same_as<decltype(out), dlpack::owned<dlpack::managed_tensor> const>);
    CHECK(from_dlpack<floats>(out->dl_tensor)[3] == 3);
    CHECK(host.memory().live_pieces() == 1);
  }
  SUBCASE("empty") {
    auto const out = export_dlpack(tessera::buffer<std::int64_t>());
    CHECK(out->dl_tensor.data == nullptr);
    CHECK(from_dlpack<vector_view<std::int64_t>>(*out).empty());
  }
}

TEST_CASE("export_dlpack: any owner, released once") {
  int released = 0;
  float values[] = {1, 2, 3};
  SUBCASE("moved in") {
    auto* const raw = export_dlpack(counted(released), floats(values, 3)).release();
    CHECK(released == 0);
    raw->deleter(raw);
    CHECK(released == 1);
  }
  SUBCASE("shared with who exports it twice") {
    auto owner = std::make_shared<std::vector<float>>(3, 1.5F);
    auto first = export_dlpack(owner, floats(*owner));
    auto second = export_dlpack(owner, const_floats(*owner));
    CHECK(owner.use_count() == 3);
    auto const view = from_dlpack<floats>(*first);
    owner.reset();
    second.reset();
    CHECK(view[2] == 1.5F);
  }
  SUBCASE("what others hand over without a deleter") {
    dlpack::managed_tensor_versioned theirs{{1, 0}, nullptr, nullptr, 0, {}};
    dlpack::owned<>{&theirs}.reset();
  }
  SUBCASE("what others hand over with one") {
    dlpack::managed_tensor_versioned theirs{
        {1, 0}, &released, [](dlpack::managed_tensor_versioned* self) { ++*static_cast<int*>(self->manager_ctx); }, 0, {}};
    { dlpack::owned<> const received(&theirs); }
    CHECK(released == 1);
  }
}
