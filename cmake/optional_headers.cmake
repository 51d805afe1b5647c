# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0

# Public headers that only compile beside a dependency a consumer may not have, each with the target that brings it. They stand in no umbrella.
set(tessera_optional_headers
    tessera/comm/mpi_communicator.hpp tessera::mpi
    tessera/comm/mpi_pending.hpp tessera::mpi
    tessera/comm/mpi_progress_thread.hpp tessera::mpi
    tessera/comm/mpi_session.hpp tessera::mpi
    tessera/comm/nccl_communicator.cuh tessera::nccl
    tessera/nn/gemm_blas.hpp tessera::blas
    tessera/nn/gemm_dnnl.hpp tessera::dnnl
    tessera/data/external_sort.hpp tessera::parquet
    tessera/data/parquet_clustering.hpp tessera::parquet
    tessera/data/parquet_columns.hpp tessera::parquet
    tessera/data/parquet_decoder.hpp tessera::parquet
    tessera/data/parquet_file.hpp tessera::parquet
    tessera/data/parquet_log.hpp tessera::parquet
    tessera/data/parquet_pages.hpp tessera::parquet
    tessera/data/parquet_sink.hpp tessera::parquet
    tessera/data/parquet_tables.hpp tessera::parquet
    tessera/data/parquet_writer.hpp tessera::parquet
    tessera/data/session_clustering.hpp tessera::parquet
    tessera/data/session_shards.hpp tessera::parquet
    tessera/synth/parquet_meter.hpp tessera::parquet
    tessera/synth/session_log_store.hpp tessera::parquet
    tessera/tessera_parquet.hpp tessera::parquet)
