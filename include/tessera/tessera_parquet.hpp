// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Parquet files, sharding and clustering of logs, and everything in <tessera/tessera.hpp>; needs target tessera::parquet.
#include <tessera/data/parquet_columns.hpp>
#include <tessera/data/parquet_file.hpp>
#include <tessera/data/parquet_log.hpp>
#include <tessera/data/parquet_meter.hpp>
#include <tessera/data/parquet_writer.hpp>
#include <tessera/data/session_clustering.hpp>
#include <tessera/data/session_log_store.hpp>
#include <tessera/data/session_runs.hpp>
#include <tessera/data/session_shards.hpp>
#include <tessera/tessera.hpp>
