// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if !__has_include(<oneapi/dnnl/dnnl.hpp>)
#error \
    "tessera/nn/gemm_dnnl.hpp: no oneapi/dnnl/dnnl.hpp here; link tessera::dnnl (CMake option TESSERA_DNNL), or add oneDNN's include folder"
#endif
#include <dlfcn.h>

#include <oneapi/dnnl/dnnl_debug.h>
#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include <tessera/core/error.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/nn/gemm.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// While it lives, a oneDNN that was built with OpenMP stays on the calling thread. OpenMP keeps the number of threads for each calling
/// thread, so that others are not affected. The destructor restores it.
class dnnl_on_one_thread {
#if DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP
 public:
  dnnl_on_one_thread() : before_(openmp().get()) {
    if (before_ != 1) openmp().set(1);
  }
  ~dnnl_on_one_thread() {
    if (before_ != 1) openmp().set(before_);
  }
  dnnl_on_one_thread(dnnl_on_one_thread const&) = delete;
  dnnl_on_one_thread& operator=(dnnl_on_one_thread const&) = delete;

 private:
  struct functions {
    int (*get)();
    void (*set)(int);
  };
  // By name: only oneDNN knows which OpenMP library it is linked with, and a program's own link line need not have any.
  static functions const& openmp() {
    static functions const found = [] {
      functions const f{reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads")),
                        reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"))};
      if (f.get == nullptr || f.set == nullptr)
        throw error(errc::incompatible, "gemm with oneDNN: its OpenMP library is not found by name; link it as a shared one");
      return f;
    }();
    return found;
  }

  int before_;
#else
 public:
  dnnl_on_one_thread() noexcept {}  // not trivial: whoever holds one uses it
#endif
};

inline error dnnl_refusal(char const* who, dnnl_status_t status, gemm_operand a, gemm_operand b) {
  return error(status == dnnl_unimplemented   ? errc::incompatible
               : status == dnnl_out_of_memory ? errc::out_of_memory
                                              : errc::invalid_argument,
               std::string(who) + ": oneDNN refuses the product",
               {{"status", dnnl_status2str(status)}, {"rows", a.rows()}, {"columns", b.columns()}, {"inner extent", a.columns()}});
}

/// Products of contiguous bf16 matrices into floats, prepared once a shape and a thread.
class dnnl_bf16_products {
 public:
  /// The shape of a product of (m, k) and (k, n), each stored as it is or transposed.
  struct shape {
    std::int64_t m, n, k;
    bool is_a_transposed, is_b_transposed;
    auto operator<=>(shape const&) const = default;
  };

  /// @throws dnnl::error
  static void run(shape const& s, bfloat16* a, bfloat16* b, float* c) {
    thread_local dnnl_bf16_products own;
    auto& product = own.find(s);
    product.a.set_data_handle(a);
    product.b.set_data_handle(b);
    product.c.set_data_handle(c);
    dnnl_exec_arg_t const arguments[] = {
        {DNNL_ARG_SRC, product.a.get()}, {DNNL_ARG_WEIGHTS, product.b.get()}, {DNNL_ARG_DST, product.c.get()}};
    dnnl::error::wrap_c_api(dnnl_primitive_execute(product.matmul.get(), own.stream_.get(), 3, arguments), "could not execute a product");
    own.stream_.wait();
  }

 private:
  struct prepared {
    dnnl::matmul matmul;
    dnnl::memory a, b, c;
  };

  prepared& find(shape const& s) {
    if (auto const found = products_.find(s); found != products_.end()) return found->second;
    constexpr std::size_t most = 512;  // a program whose shapes never end does not fill the memory
    if (products_.size() >= most) products_.clear();
    return products_.emplace(s, prepare(s)).first->second;
  }

  prepared prepare(shape const& s) const {
    using dnnl::memory;
    // oneDNN keeps what was prepared in a cache of the process; ThreadSanitizer saw threads that prepare at once race there (2.6.3).
    static std::mutex one_at_a_time;
    std::lock_guard const alone(one_at_a_time);
    auto const factor = [](std::int64_t rows, std::int64_t columns, bool transposed) {
      return memory::desc({rows, columns}, memory::data_type::bf16, transposed ? memory::dims{1, rows} : memory::dims{columns, 1});
    };
    auto const a = factor(s.m, s.k, s.is_a_transposed), b = factor(s.k, s.n, s.is_b_transposed);
    memory::desc const c({s.m, s.n}, memory::data_type::f32, memory::dims{s.n, 1});
#if DNNL_VERSION_MAJOR >= 3
    dnnl::matmul::primitive_desc const how(engine_, a, b, c);
#else
    dnnl::matmul::primitive_desc const how({a, b, c}, engine_);
#endif
    return {dnnl::matmul(how), memory(a, engine_, nullptr), memory(b, engine_, nullptr), memory(c, engine_, nullptr)};
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<shape, prepared> products_;
};

}  // namespace detail

/// Products by oneDNN's `dnnl_sgemm` (2.x or 3.x), on the calling thread alone. It takes no workspace: the library allocates the buffer
/// that it packs into from the heap, one a product.
///
/// A oneDNN built with OpenMP, or for a thread pool of its caller, or sequential, stays on the calling thread, whatever OMP_NUM_THREADS
/// says. One built with TBB takes the threads of its arena: the program limits them by `tbb::global_control`, or calls from an arena of one
/// thread. With more threads products are right, but compete with the execution's threads, and their bits may depend on the number.
/// @pre the library stays on the calling thread
/// @throws tessera::error naming oneDNN's status where it refuses, such as rows of a factor that overlap each other.
struct dnnl_fp32_gemm {
  static constexpr std::int64_t workspace(std::int64_t, std::int64_t, std::int64_t) noexcept { return 0; }

  static void multiply(gemm_operand a, gemm_operand b, matrix_view<float> c, float*) {
    if (a.columns() == 0) {
      for (std::int64_t r = 0; r < c.rows(); ++r) std::fill_n(c.row(r), c.columns(), 0.0F);
      return;
    }
    detail::dnnl_on_one_thread const alone;
    auto const status = dnnl_sgemm(a.is_transposed ? 'T' : 'N', b.is_transposed ? 'T' : 'N', c.rows(), c.columns(), a.columns(), 1.0F,
                                   a.stored.data(), stride(a.stored), b.stored.data(), stride(b.stored), 0.0F, c.data(), stride(c));
    if (status != dnnl_success) throw detail::dnnl_refusal("dnnl_fp32_gemm", status, a, b);
  }

 private:
  // That of a single row is anything, but oneDNN wants one that fits.
  static std::int64_t stride(matrix_view<float const> m) noexcept { return m.rows() > 1 ? m.stride() : m.columns(); }
};
static_assert(gemm_policy<dnnl_fp32_gemm>);

/// Products by oneDNN of factors rounded to bf16 (to nearest even, NaN stays NaN), summed in float. Threads are as for `dnnl_fp32_gemm`.
/// The workspace holds the rounded factors, and the product where rows of c have gaps; `gemm` rounds the factors of each tile. Each thread
/// keeps what oneDNN prepares for a shape, for 512 shapes at most.
///
/// Inner extents are padded with zeros to multiples of 32, whole tiles of AMX. With others, some releases of oneDNN 2 execute an illegal
/// instruction (uxlfoundation/oneDNN issue 1661: 63 is one). Some of oneDNN 3 let a NaN reach products that it does not enter (issue 5717).
///
/// It is faster than float only where the processor is: with AMX, or AMD's AVX512_BF16. Intel's AVX512_BF16 without AMX has half of float's
/// rate.
/// @throws tessera::error incompatible, with oneDNN's status, on a processor for which it has no such product (x86: below AVX-512).
struct dnnl_bf16_gemm {
  static constexpr std::int64_t workspace(std::int64_t m, std::int64_t n, std::int64_t k) noexcept {
    return floats(m * padded(k)) + floats(padded(k) * n) + m * n;
  }

  static void multiply(gemm_operand a, gemm_operand b, matrix_view<float> c, float* workspace) {
    if (a.columns() == 0) return dnnl_fp32_gemm::multiply(a, b, c, workspace);
    auto const inner = padded(a.columns());
    auto* const rounded_a = workspace;
    auto* const rounded_b = rounded_a + floats(a.rows() * inner);
    // oneDNN 2 has its best kernels only for a result without gaps.
    bool const has_gaps = c.rows() > 1 && c.stride() != c.columns();
    auto* const product = has_gaps ? rounded_b + floats(inner * b.columns()) : c.data();
    try {
      detail::dnnl_on_one_thread const alone;
      detail::dnnl_bf16_products::run(
          {c.rows(), c.columns(), inner, a.is_transposed, b.is_transposed},
          rounded(a.stored, a.is_transposed ? inner : a.rows(), a.is_transposed ? a.rows() : inner, rounded_a),
          rounded(b.stored, b.is_transposed ? b.columns() : inner, b.is_transposed ? inner : b.columns(), rounded_b), product);
    } catch (dnnl::error const& e) {
      throw detail::dnnl_refusal("dnnl_bf16_gemm", e.status, a, b);
    }
    for (std::int64_t r = 0; has_gaps && r < c.rows(); ++r) std::copy_n(product + r * c.columns(), c.columns(), c.row(r));
  }

 private:
  // That hold so many halves, in whole lines of 64 bytes.
  static constexpr std::int64_t floats(std::int64_t halves) noexcept { return divide_up(halves, 32) * 16; }

  static constexpr std::int64_t padded(std::int64_t inner) noexcept { return divide_up(inner, 32) * 32; }

  // With zeros behind its rows and columns up to so many.
  static bfloat16* rounded(matrix_view<float const> from, std::int64_t rows, std::int64_t columns, float* workspace) {
    auto* const first = reinterpret_cast<bfloat16*>(workspace);
    auto* to = first;
    for (std::int64_t r = 0; r < from.rows(); ++r, to += columns) {
      auto const* const row = from.row(r);
      for (std::int64_t i = 0; i < from.columns(); ++i) to[i] = round_to<bfloat16>(row[i]);
      std::fill(to + from.columns(), to + columns, bfloat16{});
    }
    std::fill_n(to, (rows - from.rows()) * columns, bfloat16{});
    return first;
  }
};
static_assert(gemm_policy<dnnl_bf16_gemm>);

}  // namespace TESSERA_ABI
}  // namespace tessera
