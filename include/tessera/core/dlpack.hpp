// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>

/// The C structs of DLPack 1.x (https://dmlc.github.io/dlpack/latest/c_api.html), member by member and with its member names. A pointer to
/// one of <dlpack/dlpack.h> is cast to the one here and back: `reinterpret_cast<tessera::dlpack::tensor*>(dl_tensor)`.
namespace tessera {
inline namespace TESSERA_ABI {
namespace dlpack {

/// DLPackVersion.
struct version {
  std::uint32_t major;
  std::uint32_t minor;
};

/// Device types. The host reads and writes memory of `cpu` and of the two `_host`, which is pinned.
enum class device_type : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3, rocm_host = 11, cuda_managed = 13 };

/// DLDevice.
struct device {
  std::int32_t device_type;
  std::int32_t device_id;

  friend constexpr bool operator==(device const&, device const&) = default;
};

/// A device in DLPack's terms: `device_of(device_type::cuda, exec.device().ordinal())`.
constexpr device device_of(device_type type, std::int32_t id = 0) noexcept { return {static_cast<std::int32_t>(type), id}; }

enum class type_code : std::uint8_t {
  signed_integer = 0,
  unsigned_integer = 1,
  floating = 2,
  brain_floating = 4,
  boolean = 6,
  float8_e4m3fn = 10,  // this and the next since 1.1
  float8_e5m2 = 12,
};

/// DLDataType.
struct data_type {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;

  friend constexpr bool operator==(data_type const&, data_type const&) = default;
};

/// DLTensor.
struct tensor {
  void* data;
  dlpack::device device;
  std::int32_t ndim;
  data_type dtype;
  std::int64_t* shape;
  std::int64_t* strides;  ///< in elements; null: row-major without gaps
  std::uint64_t byte_offset;
};

/// DLManagedTensor, which cannot say that its memory is read-only.
struct managed_tensor {
  tensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(managed_tensor*);
};

inline constexpr version current_version{1, 0};  // the oldest with these structs
inline constexpr std::uint64_t read_only_flag = 1;

/// DLManagedTensorVersioned.
struct managed_tensor_versioned {
  dlpack::version version;
  void* manager_ctx;
  void (*deleter)(managed_tensor_versioned*);
  std::uint64_t flags;
  tensor dl_tensor;
};

// The layout that other compilers and languages see, where pointers have 64 bits.
static_assert(sizeof(version) == 8 && sizeof(device) == 8 && sizeof(data_type) == 4);
static_assert(sizeof(void*) != 8 ||
              (sizeof(tensor) == 48 && offsetof(tensor, device) == 8 && offsetof(tensor, ndim) == 16 && offsetof(tensor, dtype) == 20 &&
               offsetof(tensor, shape) == 24 && offsetof(tensor, strides) == 32 && offsetof(tensor, byte_offset) == 40));
static_assert(sizeof(void*) != 8 ||
              (sizeof(managed_tensor) == 64 && offsetof(managed_tensor, manager_ctx) == 48 && offsetof(managed_tensor, deleter) == 56));
static_assert(sizeof(void*) != 8 || (sizeof(managed_tensor_versioned) == 80 && offsetof(managed_tensor_versioned, manager_ctx) == 8 &&
                                     offsetof(managed_tensor_versioned, deleter) == 16 && offsetof(managed_tensor_versioned, flags) == 24 &&
                                     offsetof(managed_tensor_versioned, dl_tensor) == 32));
static_assert(std::is_standard_layout_v<managed_tensor_versioned> && std::is_trivially_copyable_v<managed_tensor_versioned>);

/// Calls the deleter, where there is one.
struct release {
  template <class Managed>
  void operator()(Managed* managed) const noexcept {
    if (managed->deleter != nullptr) managed->deleter(managed);
  }
};

/// Owns a managed tensor: one that another framework handed over, or one to hand over by `.release()`.
template <class Managed = managed_tensor_versioned>
using owned = std::unique_ptr<Managed, release>;

/// DLPack's name of an element type: integers, bool, float, double, float16, bfloat16, float8_e4m3 and float8_e5m2.
template <class T>
constexpr data_type type_of() noexcept {
  constexpr auto of = [](type_code code) { return data_type{static_cast<std::uint8_t>(code), 8 * sizeof(T), 1}; };
  if constexpr (std::same_as<T, bool>)
    return of(type_code::boolean);
  else if constexpr (std::signed_integral<T>)
    return of(type_code::signed_integer);
  else if constexpr (std::unsigned_integral<T>)
    return of(type_code::unsigned_integer);
  else if constexpr (std::same_as<T, bfloat16>)
    return of(type_code::brain_floating);
  else if constexpr (std::same_as<T, float8_e4m3>)
    return of(type_code::float8_e4m3fn);
  else if constexpr (std::same_as<T, float8_e5m2>)
    return of(type_code::float8_e5m2);
  else {
    static_assert(std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, float16>, "DLPack has no name for this type");
    return of(type_code::floating);
  }
}

}  // namespace dlpack
}  // namespace TESSERA_ABI
}  // namespace tessera

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

template <class View>
inline constexpr int dlpack_dims = 0;
template <class T>
inline constexpr int dlpack_dims<vector_view<T>> = 1;
template <class T>
inline constexpr int dlpack_dims<matrix_view<T>> = 2;

inline void check_dlpack_on_host(dlpack::tensor const& tensor) {
  auto const host = [&](dlpack::device_type kind) { return tensor.device.device_type == static_cast<std::int32_t>(kind); };
  if (!host(dlpack::device_type::cpu) && !host(dlpack::device_type::cuda_host) && !host(dlpack::device_type::rocm_host))
    throw error(errc::invalid_argument, "from_dlpack: the tensor is not in the host's memory",
                {{"device_type", tensor.device.device_type}, {"device_id", tensor.device.device_id}});
}

inline void check_dlpack_on(dlpack::tensor const& tensor, dlpack::device device) {
  if (!(tensor.device == device))
    throw error(errc::invalid_argument, "from_dlpack: the tensor is on another device",
                {{"device_type", tensor.device.device_type},
                 {"device_id", tensor.device.device_id},
                 {"expected device_type", device.device_type},
                 {"expected device_id", device.device_id}});
}

inline void check_dlpack(dlpack::tensor const& tensor, int dims, dlpack::data_type type, std::size_t alignment) {
  if (!(tensor.dtype == type))
    throw error(errc::invalid_argument, "from_dlpack: another element type",
                {{"code", tensor.dtype.code},
                 {"bits", tensor.dtype.bits},
                 {"lanes", tensor.dtype.lanes},
                 {"expected code", type.code},
                 {"expected bits", type.bits}});
  if (tensor.ndim != dims)
    throw error(errc::shape_mismatch, "from_dlpack: another number of dimensions", {{"ndim", tensor.ndim}, {"expected", dims}});
  if (tensor.shape == nullptr) throw error(errc::invalid_argument, "from_dlpack: shape is null");
  bool empty = false;
  for (int d = 0; d < dims; ++d) {
    if (tensor.shape[d] < 0)
      throw error(errc::invalid_argument, "from_dlpack: negative shape", {{"dimension", d}, {"shape", tensor.shape[d]}});
    if (tensor.shape[d] == 0) empty = true;
  }
  if (tensor.data == nullptr && !empty) throw error(errc::invalid_argument, "from_dlpack: data is null", {{"shape", tensor.shape[0]}});
  auto const address = reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.byte_offset;
  if (!empty && address % alignment != 0)
    throw error(errc::invalid_argument, "from_dlpack: data + byte_offset is not aligned to its element type",
                {{"byte_offset", tensor.byte_offset}, {"alignment", alignment}, {"past it", address % alignment}});
}

// Elements from one row to the next; the elements of a row must follow each other. `rows` is 1 for a vector.
inline std::int64_t dlpack_row_stride(dlpack::tensor const& tensor, std::int64_t rows, std::int64_t columns) {
  if (tensor.strides == nullptr || rows == 0 || columns == 0) return columns;
  auto const last = tensor.ndim - 1;
  if (columns > 1 && tensor.strides[last] != 1)
    throw error(errc::invalid_argument, "from_dlpack: the elements of the last dimension do not follow each other",
                {{"dimension", last}, {"stride", tensor.strides[last]}});
  if (rows == 1) return columns;  // producers write anything here
  if (tensor.strides[0] < columns)
    throw error(errc::invalid_argument, "from_dlpack: rows overlap or run backwards",
                {{"dimension", 0}, {"stride", tensor.strides[0]}, {"columns", columns}});
  return tensor.strides[0];
}

template <class View>
View dlpack_view(dlpack::tensor const& tensor) {
  static_assert(dlpack_dims<View> != 0, "from_dlpack makes a vector_view or a matrix_view");
  using element = std::remove_pointer_t<decltype(View().data())>;
  check_dlpack(tensor, dlpack_dims<View>, dlpack::type_of<std::remove_const_t<element>>(), alignof(element));
  auto* const data =
      tensor.data == nullptr ? nullptr : reinterpret_cast<element*>(static_cast<std::byte*>(tensor.data) + tensor.byte_offset);
  auto const rows = tensor.ndim == 1 ? 1 : tensor.shape[0];
  auto const columns = tensor.shape[tensor.ndim - 1];
  auto const stride = dlpack_row_stride(tensor, rows, columns);
  if constexpr (dlpack_dims<View> == 1)
    return {data, columns};
  else
    return {data, rows, columns, stride};
}

template <class View>
void check_dlpack_managed(dlpack::managed_tensor_versioned const& managed) {
  if (managed.version.major != dlpack::current_version.major)
    throw error(errc::incompatible, "from_dlpack: another major version",
                {{"major", managed.version.major}, {"expected", dlpack::current_version.major}});
  if constexpr (!std::is_const_v<std::remove_pointer_t<decltype(View().data())>>)
    if ((managed.flags & dlpack::read_only_flag) != 0)
      throw error(errc::invalid_argument, "from_dlpack: the tensor is read-only, the view is not", {{"flags", managed.flags}});
}

// A DLTensor and the arrays that it points to. Stays where it is made.
struct dlpack_tensor {
  std::array<std::int64_t, 2> shape{}, strides{};
  dlpack::tensor tensor{};

  template <class T>
  dlpack_tensor(vector_view<T> view, dlpack::device device) noexcept
      : dlpack_tensor(matrix_view<T>(view.data(), 1, view.size()), 1, device) {}
  template <class T>
  dlpack_tensor(matrix_view<T> view, dlpack::device device) noexcept : dlpack_tensor(view, 2, device) {}
  dlpack_tensor(dlpack_tensor const&) = delete;
  dlpack_tensor& operator=(dlpack_tensor const&) = delete;

 private:
  template <class T>
  dlpack_tensor(matrix_view<T> view, int dims, dlpack::device device) noexcept
      : shape{view.rows(), view.columns()}, strides{view.stride(), 1} {
    bool const empty = view.rows() == 0 || view.columns() == 0;  // without elements the specification wants null
    tensor.data = empty ? nullptr : const_cast<std::remove_const_t<T>*>(view.data());
    tensor.device = device;
    tensor.ndim = dims;
    tensor.dtype = dlpack::type_of<std::remove_const_t<T>>();
    tensor.shape = shape.data() + (2 - dims);
    tensor.strides = strides.data() + (2 - dims);
  }
};

// What an exported managed tensor keeps until its deleter is called.
template <class Managed, class Owner>
struct dlpack_export {
  Managed managed{};
  dlpack_tensor parts;
  Owner owner;

  template <class From, class View>
  dlpack_export(From&& from, View view, dlpack::device device) : parts(view, device), owner(std::forward<From>(from)) {
    managed.manager_ctx = this;
    managed.deleter = [](Managed* self) { delete static_cast<dlpack_export*>(self->manager_ctx); };
    managed.dl_tensor = parts.tensor;
  }
};

}  // namespace detail

/// A view of a tensor's memory, without a copy: `from_dlpack<vector_view<T>>(tensor)` or `from_dlpack<matrix_view<T>>(tensor)`; T may be
/// const. The memory is the host's, pinned or not. Elements are of type T and aligned, in 1 or 2 dimensions. Elements of a row are
/// contiguous; the stride of rows is any that is at least their length. An empty tensor may have null data. Rows of different length are
/// two tensors, values and offsets.
///
/// A DLTensor cannot say that it is read-only: ask for T const where it may be.
/// @pre the memory outlives the view
/// @throws tessera::error invalid_argument or shape_mismatch naming the field and its value.
template <class View>
View from_dlpack(dlpack::tensor const& tensor) {
  detail::check_dlpack_on_host(tensor);
  return detail::dlpack_view<View>(tensor);
}

/// As above for memory of this very device, type and number: a view of a device's memory has to be asked for. It does not synchronise. What
/// writes the tensor must be done, or the reading stream must wait for it (`cuda_event`). A Python capsule is handed over with the stream.
template <class View>
View from_dlpack(dlpack::tensor const& tensor, dlpack::device device) {
  detail::check_dlpack_on(tensor, device);
  return detail::dlpack_view<View>(tensor);
}

/// As above for a managed tensor, whose owner keeps it (`dlpack::owned`). The deleter may free the memory at once, so a device must be done
/// with it.
/// @throws tessera::error as above; incompatible for another major version; invalid_argument for a view to write of a read-only tensor.
template <class View>
View from_dlpack(dlpack::managed_tensor_versioned const& managed) {
  detail::check_dlpack_managed<View>(managed);
  return from_dlpack<View>(managed.dl_tensor);
}
/// As above for a managed tensor on this very device.
template <class View>
View from_dlpack(dlpack::managed_tensor_versioned const& managed, dlpack::device device) {
  detail::check_dlpack_managed<View>(managed);
  return from_dlpack<View>(managed.dl_tensor, device);
}

/// A DLTensor of a view's memory, for a call: `f(to_dlpack(view).get())`, or `to_dlpack(view, device)` of a device's memory. It holds shape
/// and strides and must outlive the use. A DLTensor cannot say that it is read-only: the callee must not write where the view is const.
class to_dlpack {
 public:
  /// A tensor of one dimension.
  template <class T>
  explicit to_dlpack(vector_view<T> view, dlpack::device device = dlpack::device_of(dlpack::device_type::cpu)) noexcept
      : parts_(view, device) {}
  /// A tensor of two dimensions.
  template <class T>
  explicit to_dlpack(matrix_view<T> view, dlpack::device device = dlpack::device_of(dlpack::device_type::cpu)) noexcept
      : parts_(view, device) {}

  /// The tensor, valid as long as this lives.
  dlpack::tensor* get() noexcept { return &parts_.tensor; }

 private:
  detail::dlpack_tensor parts_;
};

/// Hands memory over: `export_dlpack(owner, view)` is a managed tensor of the view's memory. It keeps `owner` (a buffer moved in, a shared
/// pointer, …) until its deleter is called, once, on any thread. A view of const elements is flagged read-only. One small piece is
/// allocated from the heap. What the owner's memory came from must outlive the tensor. `export_dlpack<dlpack::managed_tensor>(owner, view)`
/// makes the older kind, for views to write only.
///
/// Memory of a device: `export_dlpack(owner, view, device)`. It does not synchronise, as DLPack knows no streams. Work that writes the
/// memory must be done before the receiver reads it, or the receiver's stream must wait for that work (`cuda_event`). A buffer frees its
/// memory in the order of its own stream. So the receiver's work must be done when the deleter is called, or the owner's stream must wait
/// for that work.
template <class Managed = dlpack::managed_tensor_versioned, class Owner, class View>
  requires(detail::dlpack_dims<View> != 0)
[[nodiscard]] dlpack::owned<Managed> export_dlpack(Owner&& owner, View view,
                                                   dlpack::device device = dlpack::device_of(dlpack::device_type::cpu)) {
  constexpr bool read_only = std::is_const_v<std::remove_pointer_t<decltype(view.data())>>;
  auto kept = std::make_unique<detail::dlpack_export<Managed, std::remove_cvref_t<Owner>>>(std::forward<Owner>(owner), view, device);
  if constexpr (std::same_as<Managed, dlpack::managed_tensor_versioned>) {
    kept->managed.version = dlpack::current_version;
    kept->managed.flags = read_only ? dlpack::read_only_flag : 0;
  } else {
    static_assert(!read_only, "a DLManagedTensor cannot say that it is read-only");
  }
  return dlpack::owned<Managed>(&kept.release()->managed);
}

/// All of a buffer, as a vector.
template <class Managed = dlpack::managed_tensor_versioned, class T>
[[nodiscard]] dlpack::owned<Managed> export_dlpack(buffer<T>&& elements) {
  auto const view = elements.view();
  return export_dlpack<Managed>(std::move(elements), view);
}

/// All of a device's buffer: `export_dlpack(std::move(elements), dlpack::device_of(dlpack::device_type::cuda, exec.device().ordinal()))`.
template <class Managed = dlpack::managed_tensor_versioned, class T, device_execution Exec>
[[nodiscard]] dlpack::owned<Managed> export_dlpack(buffer<T, Exec>&& elements, dlpack::device device) {
  auto const view = elements.view();
  return export_dlpack<Managed>(std::move(elements), view, device);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
