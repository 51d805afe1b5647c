# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0

# Public headers that only compile beside a dependency a consumer may not have, each with the target that brings it. They stand in no umbrella.
set(tessera_optional_headers
    tessera/nn/gemm_blas.hpp tessera::blas
    tessera/nn/gemm_dnnl.hpp tessera::dnnl
    tessera/data/parquet_columns.hpp tessera::parquet
    tessera/data/parquet_file.hpp tessera::parquet
    tessera/data/parquet_log.hpp tessera::parquet
    tessera/data/parquet_meter.hpp tessera::parquet
    tessera/data/parquet_writer.hpp tessera::parquet
    tessera/data/session_clustering.hpp tessera::parquet
    tessera/data/session_log_store.hpp tessera::parquet
    tessera/data/session_runs.hpp tessera::parquet
    tessera/data/session_shards.hpp tessera::parquet
    tessera/tessera_parquet.hpp tessera::parquet)
