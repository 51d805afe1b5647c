// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include <tessera/tessera.hpp>

double other(tessera::host_exec const& exec);
#ifdef CONSUMER_FILES
int files();
#endif
#ifdef CONSUMER_BLAS
int blas(tessera::host_exec const& exec);
#endif
#ifdef CONSUMER_DNNL
int dnnl_product(tessera::host_exec const& exec);
#endif
#ifdef CONSUMER_MPI
int mpi_ranks(tessera::host_exec const& exec);
#endif
#ifdef CONSUMER_PARQUET
int parquet_files(tessera::host_exec const& exec);
#endif

// A forward of the smallest model, so that each layer of the library is compiled, linked and run.
int main() {
  tessera::serial_team team;
  tessera::system_memory memory;
  tessera::host_exec const exec(team, memory);
  tessera::table_list tables;
  tables.add(tessera::dense_table<>(exec, {.dim = 4, .rows = 3, .init_bound = 0.5F}, tessera::sgd{}), tessera::sgd{});
  tessera::dlrm<tessera::local_tables, tessera::eigen_gemm> model(exec, {.dense_features = 2, .bottom_hidden = {3}, .top_hidden = {3}},
                                                                  {std::move(tables), {{.name = "item"}}});
  auto const ids = tessera::keyed_jagged<>::from_rows(exec, {{"item", {{0, 2}, {}}}});
  std::vector<float> const dense{1, 2, 3, 4}, labels{0, 1};
  std::vector<std::int64_t> const samples{0, 1};
  tessera::dlrm<tessera::local_tables, tessera::eigen_gemm>::saved_type saved;
  auto const logits = model.predict(exec, {{dense.data(), 2, 2}, labels, ids.view(), samples}, saved);
  int status = std::isfinite(logits[0]) && other(exec) == 3 ? 0 : 1;
#ifdef CONSUMER_FILES
  status += files();
#endif
#ifdef CONSUMER_BLAS
  status += blas(exec);
#endif
#ifdef CONSUMER_DNNL
  status += dnnl_product(exec);
#endif
#ifdef CONSUMER_MPI
  status += mpi_ranks(exec);
#endif
#ifdef CONSUMER_PARQUET
  status += parquet_files(exec);
#endif
  return status;
}
